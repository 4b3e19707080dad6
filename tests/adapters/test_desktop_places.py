"""Where evidence may lie, and pictures for the person."""

import os

import pytest

from bascule.desktop.machine.workspaces import EvidencePlaces
from bascule.foundation.errors import Forbidden
from bascule.stores.picture_files import PictureFiles


@pytest.fixture
def made(tmp_path):
    for name in ("root/state/desktop", "root/space", "root/config", "root-evil", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    os.symlink(tmp_path / "elsewhere", tmp_path / "root" / "link")
    return EvidencePlaces(
        str(tmp_path / "root"),
        str(tmp_path / "root/state/desktop"),
        (str(tmp_path / "root/state"), str(tmp_path / "root/config")),
    )


def test_evidence_lies_beneath_the_root_or_in_our_own_directory(made, tmp_path):
    assert made.place(None) == str(tmp_path / "root/state/desktop")
    assert made.place(str(tmp_path / "root/space")) == str(tmp_path / "root/space")


@pytest.mark.parametrize(
    "name",
    ["root-evil", "elsewhere", "root/link", "root/space/../../elsewhere", "root/state", "root/state/x", "root/config"],
)
def test_nowhere_else_and_never_among_our_own_things(made, tmp_path, name):
    with pytest.raises(Forbidden) as refused:
        made.place(str(tmp_path / name))
    assert refused.value.details["desktop"]["code"] == "DESKTOP_WORKSPACE_FORBIDDEN"


def test_a_relative_path_is_nobodys(made):
    with pytest.raises(Forbidden):
        made.place("work")


def test_where_our_own_directory_lies_elsewhere_one_beneath_the_root_is_taken(tmp_path):
    (tmp_path / "root").mkdir()
    made = EvidencePlaces(str(tmp_path / "root"), str(tmp_path / "state/desktop"), (str(tmp_path / "state"),))
    assert os.path.dirname(made.place(None)) == str(tmp_path / "root")


def test_a_picture_is_for_its_owner_alone_and_no_name_leads_out_of_its_directory(tmp_path):
    files = PictureFiles(str(tmp_path / "pictures"))
    path = files.save("apr_1", b"png")
    assert os.stat(path).st_mode & 0o777 == 0o600
    outside = tmp_path / "apr_2.png"
    outside.write_bytes(b"mine")
    files.remove(str(outside))
    assert outside.exists()
    files.keep_only({path})
    assert os.path.exists(path)
    files.keep_only(set())
    assert not os.path.exists(path)
