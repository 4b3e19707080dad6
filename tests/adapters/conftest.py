"""A workspace beside a directory that nothing may touch, and both ways to open files beneath a root."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from by_name import ByName
from kept_outside import SECRET

from bascule.workspace.machine.files.beneath import KernelOpener, Opener, WalkingOpener
from bascule.workspace.machine.files.root import WorkspaceRoot
from bascule.workspace.machine.files.roots import WorkspaceFiles
from bascule.workspace.machine.files.syscalls import has_openat2
from descriptors import Descriptors
from faults.lacking import missing_here


@dataclass
class Place:
    """`inside` is the workspace; `outside` holds a secret, and is compared with what it was."""

    inside: Path
    outside: Path
    root: WorkspaceRoot
    # The same, for tests that resolve a path and act on it in one go.
    files: ByName

    def untouched(self) -> bool:
        names = sorted(path.name for path in self.outside.iterdir())
        return names == ["directory", "secret"] and (self.outside / "secret").read_bytes() == SECRET


@pytest.fixture(params=["openat2", "walk"])
def opener(request) -> Opener:
    if request.param == "walk":
        return WalkingOpener()
    if not has_openat2():
        missing_here("this kernel has no openat2")
    return KernelOpener()


@pytest.fixture
def place(tmp_path, opener):
    inside, outside = tmp_path / "workspace", tmp_path / "outside"
    inside.mkdir()
    (outside / "directory").mkdir(parents=True)
    (outside / "secret").write_bytes(SECRET)
    root = WorkspaceFiles((), opener=opener).open_root(os.fspath(inside))
    before = Descriptors()
    yield Place(inside, outside, root, ByName(root))
    assert before.left() == []
    root.close()
