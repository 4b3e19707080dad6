"""Rooms for copies of workspaces: private, and gone with everything in them."""

import os
import stat
import time

import pytest

from bascule.workspace.machine.scratch import ScratchDirectory
from patience import PATIENCE


@pytest.fixture
def scratch(tmp_path):
    return ScratchDirectory(str(tmp_path / "copies"))


def test_a_room_is_new_empty_and_nobody_elses(scratch):
    made = scratch.make("run_1")
    assert os.listdir(made) == []
    assert stat.S_IMODE(os.stat(made).st_mode) == 0o700
    with pytest.raises(FileExistsError):
        scratch.make("run_1")


def test_a_room_goes_with_what_was_made_read_only_in_it_and_a_link_leads_nowhere(scratch, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    made = scratch.make("run_1")
    os.makedirs(os.path.join(made, "locked/inner"))
    with open(os.path.join(made, "locked/inner/file"), "w", encoding="utf-8"):
        os.chmod(os.path.join(made, "locked/inner"), 0o500)
    os.chmod(os.path.join(made, "locked"), 0o000)
    os.symlink(outside, os.path.join(made, "link"))
    scratch.remove(made)
    assert not os.path.exists(made)
    assert (outside / "kept").exists()


def test_what_an_earlier_life_left_is_removed(scratch, tmp_path):
    left = scratch.make("run_1")
    ScratchDirectory(str(tmp_path / "copies"))
    deadline = time.monotonic() + PATIENCE
    while os.path.exists(left):
        assert time.monotonic() < deadline
        time.sleep(0.005)
