"""Disks that are full or read-only, and files of others: real ones, and the sentences they get."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from by_name import ByName

from bascule.workspace.machine.checkpoints.spaces import GitCheckpoints
from bascule.workspace.machine.files.roots import WorkspaceFiles
from bascule.workspace.paths import parse_path
from bascule.workspace.ports import CheckpointFault, FileFault
from faults.lacking import missing_here, only_root
from undo_of import undo

pytestmark = only_root


@pytest.fixture
def disk(tmp_path):
    """A workspace on a disk of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=False).returncode:
        missing_here("tmpfs cannot be mounted here")
    root = WorkspaceFiles(()).open_root(os.fspath(place))
    yield place, root
    root.close()
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_leaves_the_old_content_and_no_rubbish(disk):
    place, root = disk
    ByName(root).create(parse_path("x"), b"old", overwrite=False)
    for act in (
        lambda: ByName(root).create(parse_path("x"), bytes(2_000_000), overwrite=True),
        lambda: ByName(root).replace(parse_path("x"), bytes(2_000_000), expected=b"old"),
        lambda: ByName(root).create(parse_path("new/deep/y"), bytes(2_000_000), overwrite=False),
    ):
        with pytest.raises(
            FileFault, match=r"^No space left on the disk: `.*` was not changed; delete something first$"
        ):
            act()
    assert (place / "x").read_bytes() == b"old"
    assert os.listdir(place) == ["x"]


def test_an_undo_on_a_full_disk_changes_nothing(disk, tmp_path):
    place, root = disk
    checkpoints = GitCheckpoints(os.fspath(tmp_path / "state")).open("spc_1", root)
    (place / "large").write_bytes(os.urandom(700_000))
    (place / "small").write_bytes(b"small")
    before = checkpoints.take()
    (place / "large").unlink()
    (place / "small").unlink()
    after = checkpoints.take()
    (place / "later").write_bytes(bytes(500_000))
    with pytest.raises(CheckpointFault, match="nothing was changed: No space left on device"):
        undo(checkpoints, before, after, dry_run=False)
    assert os.listdir(place) == ["later"]
    (place / "later").unlink()
    undo(checkpoints, before, after, dry_run=False)
    assert sorted(os.listdir(place)) == ["large", "small"]


def test_a_read_only_disk_says_so(disk):
    place, root = disk
    ByName(root).create(parse_path("x"), b"old", overwrite=False)
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    for act in (
        lambda: ByName(root).create(parse_path("x"), b"new", overwrite=True),
        lambda: ByName(root).create(parse_path("new/y"), b"new", overwrite=False),
        lambda: ByName(root).replace(parse_path("x"), b"new", expected=b"old"),
        lambda: ByName(root).delete(parse_path("x")),
    ):
        with pytest.raises(FileFault, match=r"^Read-only file system: `.*` cannot be changed$"):
            act()
    assert ByName(root).read(parse_path("x"), 10) == b"old"


_AS_SOMEBODY = """
import os, sys
from bascule.workspace.machine.checkpoints.spaces import GitCheckpoints
from bascule.workspace.machine.files.roots import WorkspaceFiles
from bascule.workspace.ports import CheckpointFault, FileFault
from bascule.workspace.paths import parse_path
# Once before, for what is imported late: the interpreter may lie in a home directory.
try:
    root = WorkspaceFiles(()).open_root(sys.argv[1])
    root.read(root.resolve(parse_path("nowhere"), follow=True), 1)
except FileFault:
    pass
os.setgroups([]); os.setgid(65534); os.setuid(65534)
root = WorkspaceFiles(()).open_root(sys.argv[1])
for act in (
    lambda: root.read(root.resolve(parse_path("hidden"), follow=True), 10),
    lambda: root.create(root.resolve(parse_path("closed/new"), follow=False), b"x", overwrite=False),
    lambda: root.delete(root.resolve(parse_path("closed/x"), follow=False)),
    # What cannot be read is a gap in the checkpoint.
    lambda: GitCheckpoints(sys.argv[2]).open("spc_1", root).take(),
):
    try:
        act()
        print("it worked")
    except (FileFault, CheckpointFault) as fault:
        print(fault)
"""


def test_files_of_others_say_so():
    # pytest's own directories are closed to others.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        Path(directory).chmod(0o711)
        place, state = Path(directory) / "workspace", Path(directory) / "state"
        (place / "closed").mkdir(parents=True)
        (place / "closed/x").write_text("x")
        (place / "hidden").write_text("x")
        (place / "hidden").chmod(0o600)
        state.mkdir()
        for theirs in (place, state):
            os.chown(theirs, 65534, 65534)
        done = subprocess.run(
            [sys.executable, "-c", _AS_SOMEBODY, place, state], capture_output=True, text=True, check=True
        )
    assert done.stdout.splitlines() == [
        "Permission denied: `hidden`; its mode or owner does not let us",
        "Permission denied: `closed/new`; its mode or owner does not let us",
        "Permission denied: `closed/x`; its mode or owner does not let us",
        "it worked",
    ]
