"""Names that are swapped while an operation runs: no operation gets out, while a naive one does."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kept_outside import SECRET
from naive import NaiveFiles

from bascule.workspace.machine.checkpoints.spaces import GitCheckpoints
from bascule.workspace.machine.files.roots import WorkspaceFiles
from bascule.workspace.paths import WorkspacePath, parse_path
from bascule.workspace.ports import CheckpointFault, FileFault
from faults.swapping import swapping
from patience import PATIENCE
from undo_of import undo

# Divided among the operations of one test.
SECONDS = 30.0 if os.environ.get("BASCULE_LONG") else 4.0
INSIDE, EDITED = b"inside", b"edited"
# Between two looks at what is outside.
ROUNDS = 10
MAX = 1 << 20


class Outside:
    """Counts what got out, and puts it right again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.escapes = 0
        self.restore()

    def restore(self) -> None:
        for path in self._directory.iterdir():
            if path.is_file():
                path.unlink()
        (self._directory / "secret").write_bytes(SECRET)

    def check(self) -> None:
        names = sorted(path.name for path in self._directory.iterdir() if path.is_file())
        if names != ["secret"] or (self._directory / "secret").read_bytes() != SECRET:
            self.escapes += 1
            self.restore()


def operations(files, path: WorkspacePath, new: WorkspacePath) -> dict[str, Callable[[], object]]:
    return {
        "read": lambda: files.read(path, MAX),
        "create": lambda: files.create(new, EDITED, overwrite=False),
        "overwrite": lambda: files.create(path, EDITED, overwrite=True),
        "edit": lambda: files.replace(path, EDITED, expected=INSIDE),
        "delete": lambda: files.delete(path),
    }


def attack(files, scene: "Scene", outside: Outside, seconds: float) -> dict[str, tuple[int, int, int]]:
    """operation -> (times, times that it worked, escapes)"""
    counted = {}
    for name, act in operations(files, parse_path(scene.path), parse_path(scene.new)).items():
        times = worked = outside.escapes = 0
        until = time.monotonic() + seconds / 5
        while time.monotonic() < until:
            # What got out stays there until it is found.
            for _ in range(ROUNDS):
                if name != "read":
                    scene.plant()
                times += 1
                try:
                    found = act()
                    worked += 1
                    if found == SECRET:
                        outside.escapes += 1
                except (FileFault, OSError):
                    pass
            outside.check()
        counted[name] = (times, worked, outside.escapes)
    return counted


class Scene:
    """Two names in the workspace that are swapped: one is what it should be, the other a link that leads out."""

    def __init__(self, place, *, directory: bool, target: Path | None = None) -> None:
        self.names = place.inside / "first", place.inside / "second"
        self.path = "first/secret" if directory else "first"
        self.new = "first/new" if directory else "new"
        self._spare = place.inside / "spare"
        self._target = os.fspath(target or place.outside) if directory else "../outside/secret"
        self._directory = -1
        if directory:
            self.names[0].mkdir()
            self.names[1].symlink_to(self._target)
            # The directory itself, whatever its name is at the moment.
            self._directory = os.open(self.names[0], os.O_RDONLY)
        self.plant()

    def close(self) -> None:
        if self._directory >= 0:
            os.close(self._directory)

    def plant(self) -> None:
        """Put back what an operation has removed, wherever it was at the moment."""
        if self._directory >= 0:
            descriptor = os.open("secret", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=self._directory)
            os.write(descriptor, INSIDE)
            os.close(descriptor)
            with contextlib.suppress(FileNotFoundError):
                os.unlink("new", dir_fd=self._directory)
            return
        (self.names[0].parent / "new").unlink(missing_ok=True)
        # They move while we look: a link that is not seen in so many looks is gone.
        seen = {name.is_symlink() for _ in range(20) for name in self.names}
        if False not in seen or not self.names[0].is_file():
            self._put(self.names[0], INSIDE)
        if True not in seen:
            self._put(self.names[1], None)

    def _put(self, name: Path, content: bytes | None) -> None:
        self._spare.unlink(missing_ok=True)
        if content is None:
            self._spare.symlink_to(self._target)
        else:
            self._spare.write_bytes(content)
        os.rename(self._spare, name)


def test_a_directory_swapped_with_a_link_leads_nothing_out(place):
    """And the control: what checks first and opens then does get out, in the same place under the same attack."""
    outside, scene = Outside(place.outside), Scene(place, directory=True)
    with swapping(*scene.names):
        ours = attack(place.files, scene, outside, SECONDS)
        outside.restore()
        # Until it has got out by reading and by writing.
        naive: dict[str, int] = {}
        until = time.monotonic() + max(SECONDS, 30)
        while time.monotonic() < until and not (naive.get("read") and sum(naive.values()) > naive["read"]):
            tried = attack(NaiveFiles(os.fspath(place.inside)), scene, outside, 0.5)
            for name, (_, _, escapes) in tried.items():
                naive[name] = naive.get(name, 0) + escapes
    scene.close()
    assert {name: escapes for name, (_, _, escapes) in ours.items()} == dict.fromkeys(ours, 0)
    # The operations did run, and did meet the swapped name.
    assert all(worked for _, worked, _ in ours.values()), ours
    assert any(worked < times for times, worked, _ in ours.values()), ours
    assert naive["read"] > 0, naive
    assert sum(naive.values()) > naive["read"], naive


def test_a_file_swapped_with_a_link_leads_nothing_out(place):
    outside, scene = Outside(place.outside), Scene(place, directory=False)
    with swapping(*scene.names):
        ours = attack(place.files, scene, outside, SECONDS / 4)
    scene.close()
    assert {name: escapes for name, (_, _, escapes) in ours.items()} == dict.fromkeys(ours, 0)
    assert ours["read"][1], ours


@pytest.mark.parametrize("target", ["outside", ".git"])
def test_a_checkpoint_and_an_undo_of_swapped_names_hold_and_touch_nothing_else(place, tmp_path, target):
    """Objects are compared, because a restore could be right by luck. What no checkpoint has is not restored either."""
    elsewhere = place.outside if target == "outside" else place.inside / target
    elsewhere.mkdir(exist_ok=True)
    leads = None if target == "outside" else Path(target)
    outside, scene = Outside(elsewhere), Scene(place, directory=True, target=leads)
    checkpoints = GitCheckpoints(os.fspath(tmp_path / "state")).open("spc_1", place.root)
    before = checkpoints.take()
    with swapping(*scene.names):
        taken = set()
        until = time.monotonic() + SECONDS / 8
        while time.monotonic() < until:
            # An undo may well remove the directory, or put the link back.
            with contextlib.suppress(FileExistsError):
                scene.names[0].mkdir()
            with contextlib.suppress(FileExistsError):
                scene.names[1].symlink_to(leads or place.outside)
            taken.add(checkpoints.take())
            with contextlib.suppress(CheckpointFault):
                (tree,) = sorted(taken)[:1]
                undo(checkpoints, before, tree, dry_run=False)
            outside.check()
    scene.close()
    assert outside.escapes == 0
    for tree in taken:
        for entry in _blobs(checkpoints, tree):
            assert entry != SECRET


def _blobs(checkpoints, tree: str) -> list[bytes]:
    from bascule.workspace.machine.checkpoints.compare import TreeView

    store = checkpoints._store
    return [store.blob(entry.object) for _, entry in TreeView(store, bytes.fromhex(tree)).walk() if not entry.is_dir]


def test_a_path_swapped_while_it_is_opened_never_makes_our_own_directory_a_workspace(tmp_path):
    """`project/way` is a directory one moment and a link to our state directory the next; both have `inner`."""
    state, project = tmp_path / "state", tmp_path / "project"
    for directory in (state, project / "way"):
        (directory / "inner").mkdir(parents=True)
    (project / "link").symlink_to(state)
    ours = os.stat(state / "inner").st_ino
    path = os.fspath(project / "way/inner")
    files = WorkspaceFiles((os.fspath(state),))
    opened = {"inside": 0, "ours": 0, "naive": 0}
    with swapping(project / "way", project / "link"):
        until = time.monotonic() + SECONDS / 4
        while time.monotonic() < until:
            with contextlib.suppress(FileFault):
                root = files.open_root(path)
                opened["ours" if root.identity[1] == ours else "inside"] += 1
                root.close()
        until = time.monotonic() + PATIENCE
        while not opened["naive"] and time.monotonic() < until:
            with contextlib.suppress(OSError):
                if os.path.realpath(path) == path:
                    descriptor = os.open(path, os.O_RDONLY)
                    opened["naive"] += os.fstat(descriptor).st_ino == ours
                    os.close(descriptor)
    assert opened["ours"] == 0
    assert opened["inside"] > 0
    assert opened["naive"] > 0, "the control never got in: this test could not tell"
