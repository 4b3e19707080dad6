"""Undo: what was is there again, byte for byte; what came later is never lost."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import trees
from hypothesis import example, given, settings

from bascule.workspace.machine.checkpoints.restore import Restore
from bascule.workspace.machine.checkpoints.spaces import GitCheckpoints
from bascule.workspace.machine.checkpoints.unified import shown_path
from bascule.workspace.machine.files.roots import WorkspaceFiles
from bascule.workspace.machine.files.syscalls import exchange
from bascule.workspace.ports import CheckpointFault, LaterChanges
from faults.lacking import missing_here, only_root
from patience import PATIENCE
from undo_of import undo

EXAMPLES = 1_000 if os.environ.get("BASCULE_LONG") else 60
ALL = 1_000_000


class Space:
    """A workspace and its checkpoints, in a directory of its own."""

    def __init__(self, directory: str | Path) -> None:
        self.inside = Path(directory) / "workspace"
        self.state = Path(directory) / "state"
        self.inside.mkdir()
        self.root = WorkspaceFiles(()).open_root(os.fspath(self.inside))
        self.checkpoints = GitCheckpoints(os.fspath(self.state)).open("spc_1", self.root)

    def be(self, tree: trees.Tree) -> str:
        trees.write(self.inside, tree)
        return self.checkpoints.take()

    def is_now(self) -> trees.Tree:
        return trees.read(self.inside)


@pytest.fixture
def space(tmp_path):
    space = Space(tmp_path)
    yield space
    space.root.close()


def file(content: bytes, mode: int = 0o644) -> tuple:
    return ("file", mode, content)


def left_of(done) -> dict[str, str]:
    return {each.path: each.reason for each in done.left_alone}


# -- properties -----------------------------------------------------------------------------------


@settings(max_examples=EXAMPLES, deadline=None)
@given(before=trees.random_trees, after=trees.random_trees)
@example(before={b"a": ("link", b"a")}, after={b"a": ("dir", 0o755), b"a/a": ("dir", 0o755), b"a/a/b": ("link", b"b")})
def test_undoing_restores_every_byte_mode_and_link(before, after):
    with tempfile.TemporaryDirectory() as directory:
        space = Space(directory)
        first = space.be(before)
        second = space.be(after)
        shown = undo(space.checkpoints, first, second, dry_run=True)
        assert space.is_now() == after, "a dry run changed something"
        done = undo(space.checkpoints, first, second, dry_run=False)
        assert done == shown
        assert space.is_now() == before
        assert space.checkpoints.take() == first
        # And forth again: a run on a copy is brought back the same way.
        space.checkpoints.apply(first, second)
        assert space.is_now() == after
        space.root.close()


@settings(max_examples=EXAMPLES, deadline=None)
@given(before=trees.random_trees, after=trees.random_trees, later=trees.random_trees)
def test_what_came_later_is_never_lost(before, after, later):
    """What is as the call left it comes back, and every other path is as somebody left it later, and named."""
    with tempfile.TemporaryDirectory() as directory:
        space = Space(directory)
        first, second = space.be(before), space.be(after)
        space.be(later)
        done = undo(space.checkpoints, first, second, dry_run=False)
        space.root.close()
        now = space.is_now()
        left = left_of(done)
        for path in before.keys() | after.keys() | later.keys():
            was, called, there = before.get(path), after.get(path), later.get(path)
            if there not in (None, was, called) and there[0] != "dir":
                assert now.get(path) == there, path
            assert now.get(path) in (was, there), path
            if was != called and was is not None and was[0] != "dir" and now.get(path) != was:
                shown = shown_path(path)
                assert any(shown == each or shown.startswith(f"{each}/") for each in left), path


@settings(max_examples=EXAMPLES, deadline=None)
@given(before=trees.random_trees, after=trees.random_trees)
def test_what_the_diff_says_is_what_git_would_do(before, after):
    """`git apply` takes our diff from one workspace to the other, for what git can hold."""
    if shutil.which("git") is None:
        missing_here("git is not installed")
    before, after = (_for_git(tree) for tree in (before, after))
    with tempfile.TemporaryDirectory() as directory:
        space = Space(directory)
        first, second = space.be(before), space.be(after)
        diff, cut = space.checkpoints.diff(first, second, ALL)
        assert not cut
        trees.write(space.inside, before)
        lines = "".join(line for line in diff.splitlines(keepends=True) if not line.startswith("# directory "))
        if lines:
            done = subprocess.run(
                ["git", "apply", "--whitespace=nowarn", "-"],
                cwd=space.inside,
                input=os.fsencode(lines),
                capture_output=True,
                check=False,
                env={**os.environ, "GIT_CEILING_DIRECTORIES": directory, "GIT_CONFIG_NOSYSTEM": "1", "HOME": directory},
            )
            assert done.returncode == 0, (done.stderr, diff)
        space.root.close()
        assert _leaves(trees.read(space.inside)) == _leaves(after)


def _for_git(tree: trees.Tree) -> trees.Tree:
    """Without what a patch cannot carry: binary files, empty directories, most modes, names that are no text."""
    kept: trees.Tree = {}
    for path, value in tree.items():
        if b"\xff" in path:
            continue
        match value:
            case ("file", mode, content):
                text = content.decode("ascii", "ignore").replace("\0", "").encode()
                kept[path] = ("file", 0o755 if mode & 0o100 else 0o644, text)
            case ("link", target):
                # One that leads nowhere: git looks through links for what a patch puts in their place.
                kept[path] = ("link", b"nowhere%d" % (len(target) % 3))
            case _:
                kept[path] = ("dir", 0o755)
    full = {path for path, value in kept.items() if value[0] != "dir"}
    return {path: value for path, value in kept.items() if any((leaf + b"/").startswith(path + b"/") for leaf in full)}


def _leaves(tree: trees.Tree) -> trees.Tree:
    return {path: value for path, value in tree.items() if value[0] != "dir"}


# -- stories --------------------------------------------------------------------------------------


def test_a_later_change_is_named_and_stays_and_the_rest_comes_back(space):
    before = space.be({b"a": file(b"1"), b"b": file(b"1"), b"c": file(b"1")})
    after = space.be({b"a": file(b"2"), b"b": file(b"2")})
    (space.inside / "b").write_bytes(b"3")
    (space.inside / "c").write_bytes(b"back, but another")
    done = undo(space.checkpoints, before, after, dry_run=False)
    assert left_of(done) == {"b": "was changed since", "c": "was changed since"}
    assert [change.path for change in done.changes] == ["a"]
    assert space.is_now() == {b"a": file(b"1"), b"b": file(b"3"), b"c": file(b"back, but another")}


def test_taking_a_copy_over_is_refused_where_something_changed_since_and_nothing_is_touched(space):
    before = space.be({b"a": file(b"1"), b"b": file(b"1"), b"c": file(b"1")})
    after = space.be({b"a": file(b"2"), b"b": file(b"2")})
    space.be({b"a": file(b"1"), b"b": file(b"3"), b"c": file(b"another")})
    now = space.is_now()
    with pytest.raises(LaterChanges) as raised:
        space.checkpoints.apply(before, after)
    assert str(raised.value) == (
        "changed since: `b`, `c`. Nothing was changed, because that would lose the later changes; "
        "undo those first, or change the files by hand"
    )
    assert space.is_now() == now


def test_later_changes_elsewhere_are_no_hindrance(space):
    before = space.be({b"a": file(b"1"), b"d": ("dir", 0o755), b"d/x": file(b"x")})
    after = space.be({b"a": file(b"2"), b"new": ("dir", 0o755), b"new/y": file(b"y")})
    (space.inside / "other").write_bytes(b"later")
    (space.inside / "new/z").write_bytes(b"later, in a directory that the run made")
    undo(space.checkpoints, before, after, dry_run=False)
    assert space.is_now() == {
        b"a": file(b"1"),
        b"d": ("dir", 0o755),
        b"d/x": file(b"x"),
        b"new": ("dir", 0o755),
        b"new/z": file(b"later, in a directory that the run made"),
        b"other": file(b"later"),
    }


def test_what_is_already_as_before_is_left_alone(space):
    before = space.be({b"a": file(b"1"), b"b": file(b"1")})
    after = space.be({b"a": file(b"2"), b"b": file(b"2")})
    (space.inside / "a").write_bytes(b"1")
    changes = undo(space.checkpoints, before, after, dry_run=False).changes
    assert [change.path for change in changes] == ["b"]
    assert undo(space.checkpoints, before, after, dry_run=False).changes == []


def test_a_directory_that_must_become_a_file_again_loses_nothing_unseen(space):
    before = space.be({b"x": file(b"a file")})
    after = space.be({b"x": ("dir", 0o755), b"x/y": file(b"y")})
    (space.inside / "x/.git").mkdir()
    with pytest.raises(CheckpointFault, match=r"`x/\.git` is in the way, and no checkpoint has it"):
        undo(space.checkpoints, before, after, dry_run=False)
    (space.inside / "x/.git").rmdir()
    (space.inside / "x/later").write_bytes(b"later")
    left = left_of(undo(space.checkpoints, before, after, dry_run=False))
    assert left == {"x": "is a directory with `x/later` in it, which is left alone"}
    assert (space.inside / "x/later").read_bytes() == b"later"
    (space.inside / "x/later").unlink()
    undo(space.checkpoints, before, after, dry_run=False)
    assert space.is_now() == {b"x": file(b"a file")}


def test_a_link_put_in_a_directorys_place_is_a_conflict_not_a_way_out(space, tmp_path):
    (tmp_path / "outside").mkdir()
    before = space.be({b"d": ("dir", 0o755), b"d/x": file(b"old"), b"d/y": file(b"y")})
    after = space.be({b"d": ("dir", 0o755), b"d/x": file(b"new")})
    shutil.rmtree(space.inside / "d")
    (space.inside / "d").symlink_to(tmp_path / "outside")
    left = left_of(undo(space.checkpoints, before, after, dry_run=False))
    assert left == {"d/x": "was changed since", "d/y": "was changed since"}
    assert os.listdir(tmp_path / "outside") == []
    assert (space.inside / "d").is_symlink()


def test_a_workspace_that_changes_while_it_is_staged_is_looked_at_again(space, monkeypatch):
    before, after = space.be({b"a": file(b"1")}), space.be({b"a": file(b"2")})
    stage = Restore.stage
    looked = []

    def changed(self):
        stage(self)
        looked.append(self)
        (space.inside / "a").write_bytes(b"%d" % (1 + len(looked) % 2))

    (space.inside / "a").write_bytes(b"1")
    monkeypatch.setattr(Restore, "stage", changed)
    with pytest.raises(CheckpointFault, match="the workspace keeps changing"):
        undo(space.checkpoints, before, after, dry_run=False)
    assert len(looked) == 3
    assert (space.inside / "a").read_bytes() == b"2"
    monkeypatch.undo()
    undo(space.checkpoints, before, after, dry_run=False)
    assert space.is_now() == {b"a": file(b"1")}


def test_a_later_change_that_comes_while_it_is_staged_stays_and_is_named(space, monkeypatch):
    before = space.be({b"a": file(b"1"), b"b": file(b"1")})
    after = space.be({b"a": file(b"2"), b"b": file(b"2")})
    stage = Restore.stage

    def changed(self):
        stage(self)
        (space.inside / "b").write_bytes(b"mine")

    monkeypatch.setattr(Restore, "stage", changed)
    done = undo(space.checkpoints, before, after, dry_run=False)
    assert left_of(done) == {"b": "was changed since"}
    assert space.is_now() == {b"a": file(b"1"), b"b": file(b"mine")}


def test_a_full_disk_is_found_out_before_anything_changes(space, monkeypatch):
    before = space.be({b"a": file(b"1" * 100), b"b": file(b"1" * 100)})
    after = space.be({b"a": file(b"2")})
    now = space.is_now()
    write = os.write
    calls = []

    def full(descriptor, data):
        calls.append(data)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(CheckpointFault, match="nothing was changed: No space left on device"):
            undo(space.checkpoints, before, after, dry_run=False)
    assert space.is_now() == now


def test_an_undo_that_was_stopped_halfway_goes_on_where_it_stopped(space, monkeypatch):
    before = space.be({b"a": file(b"1"), b"b": file(b"1"), b"c": file(b"1")})
    after = space.be({b"a": file(b"2"), b"b": file(b"2"), b"c": file(b"2")})

    def failing(ours, staged, directory, name):
        if name == "b":
            raise OSError(5, "Input/output error")
        exchange(ours, staged, directory, name)

    with monkeypatch.context() as patched:
        patched.setattr("bascule.workspace.machine.checkpoints.swap.exchange", failing)
        with pytest.raises(CheckpointFault, match=r"stopped at `b` after 1 changes: Input/output error.*goes on where"):
            undo(space.checkpoints, before, after, dry_run=False)
    assert (space.inside / "a").read_bytes() == b"1"
    undo(space.checkpoints, before, after, dry_run=False)
    assert space.is_now() == {b"a": file(b"1"), b"b": file(b"1"), b"c": file(b"1")}


@only_root
def test_restored_files_belong_to_whom_they_replace(tmp_path):
    (tmp_path / "workspace").mkdir()
    os.chown(tmp_path / "workspace", 1234, 1235)
    (tmp_path / "workspace/gone").write_bytes(b"x")
    root = WorkspaceFiles(()).open_root(os.fspath(tmp_path / "workspace"))
    checkpoints = GitCheckpoints(os.fspath(tmp_path / "state")).open("spc_1", root)
    before = checkpoints.take()
    (tmp_path / "workspace/gone").unlink()
    undo(checkpoints, before, checkpoints.take(), dry_run=False)
    found = (tmp_path / "workspace/gone").stat()
    assert (found.st_uid, found.st_gid) == (1234, 1235)
    root.close()


@only_root
def test_directories_that_forbid_writing_are_undone_by_their_owner_too(tmp_path):
    """Root may write anywhere, so this is done by somebody else, in a process of their own."""
    import sys

    script = tmp_path / "script.py"
    script.write_text(
        """
import os, sys
from test_checkpoints_undo import Space, file
from undo_of import undo
# Afterwards: the interpreter may lie in a home directory.
os.setgid(65534)
os.setuid(65534)
space = Space(sys.argv[1])
one = {b"d": ("dir", 0o755), b"d/x": file(b"1"), b"e": ("dir", 0o555), b"e/y": file(b"1", 0o400)}
two = {b"d": ("dir", 0o555), b"d/x": file(b"2"), b"n": ("dir", 0o555), b"n/m": ("dir", 0o500), b"n/m/z": file(b"2")}
before = space.be(one)
os.chmod(space.inside / "e", 0o755)
after = space.be(two)
undo(space.checkpoints, before, after, dry_run=False)
assert space.is_now() == one, space.is_now()
space.checkpoints.apply(before, after)
assert space.is_now() == two, space.is_now()
"""
    )
    place = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        os.chown(place, 65534, 65534)
        subprocess.run(
            [sys.executable, script, place],
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
            timeout=PATIENCE,
        )
    finally:
        shutil.rmtree(place)


def test_a_directory_that_is_swapped_at_the_last_moment_stops_an_undo_with_a_reason(space, monkeypatch):
    before = space.be({b"x": file(b"one")})
    after = space.be({b"x": ("dir", 0o755), b"x/y": file(b"two")})
    check = Restore.check_leftovers

    def swapped(restore, now):
        shutil.rmtree(space.inside / "x")
        (space.inside / "x").symlink_to("elsewhere")
        check(restore, now)

    monkeypatch.setattr(Restore, "check_leftovers", swapped)
    with pytest.raises(CheckpointFault, match="nothing was changed: `x`: "):
        undo(space.checkpoints, before, after, dry_run=False)
    assert os.readlink(space.inside / "x") == "elsewhere"
