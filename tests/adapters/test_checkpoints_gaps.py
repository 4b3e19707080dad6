"""What a checkpoint cannot hold: it is named and left alone, and the rest is held, shown and undone as ever."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import trees
from test_checkpoints import git, named, settle

from bascule.workspace.machine.checkpoints import scan
from bascule.workspace.machine.checkpoints.merge import MOVE_AWAY
from bascule.workspace.machine.checkpoints.scan import ScanLimits
from bascule.workspace.machine.checkpoints.spaces import GitCheckpoints, SpaceCheckpoints
from bascule.workspace.machine.files.roots import WorkspaceFiles
from bascule.workspace.ports import Way, Ways
from bascule.workspace.timeline import Selection, Work, edits, pieces_of, ways_back
from faults.lacking import only_root
from patience import PATIENCE
from undo_of import undo

SMALL = ScanLimits(files=40, bytes=10_000, file_bytes=2_000, depth=3)


class Space:
    def __init__(self, directory: str | Path, limits: ScanLimits = SMALL) -> None:
        self.inside = Path(directory) / "workspace"
        self.inside.mkdir()
        self.root = WorkspaceFiles(()).open_root(os.fspath(self.inside))
        self.checkpoints = GitCheckpoints(os.path.join(directory, "state"), limits=limits).open("spc_1", self.root)
        (self.inside / "kept").write_text("before\n")
        self.take = self.checkpoints.take

    def change(self) -> None:
        """What an undo can put back, beside whatever the test adds."""
        (self.inside / "kept").write_text("after\n")

    def undo(self, before: str, after: str, **more) -> dict[str, str]:
        """What was left alone; the rest is back."""
        shown = undo(self.checkpoints, before, after, dry_run=True, **more)
        done = undo(self.checkpoints, before, after, dry_run=False, **more)
        assert done == shown
        assert (self.inside / "kept").read_text() == "before\n"
        return {each.path: each.reason for each in done.left_alone}


@pytest.fixture
def space(tmp_path):
    space = Space(tmp_path)
    yield space
    space.root.close()


def too_large(path: Path) -> None:
    path.write_bytes(b"x" * 3_000)


def too_deep(path: Path) -> None:
    (path / "2/3/4/5").mkdir(parents=True)
    (path / "2/3/4/5/x").write_text("x")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.fspath(path))


TOO_LARGE = "has more than 2,000 bytes, which is what a checkpoint holds of one file"
EXTRAS = [
    (too_large, "extra", TOO_LARGE),
    (too_deep, "extra/2/3/4", "lies deeper than 3 directories"),
    (a_pipe, "extra", "is a pipe, socket or device"),
]


@pytest.mark.parametrize(("make", "path", "reason"), EXTRAS)
def test_what_a_run_makes_and_no_checkpoint_holds_does_not_keep_the_rest_from_undo(space, make, path, reason):
    before = space.take()
    space.change()
    make(space.inside / "extra")
    after = space.take()
    assert [change.path for change in space.checkpoints.changes(before, after)][-1] == "kept"
    assert named(space.checkpoints, before, after) == {path: reason}
    left = space.undo(before, after)
    if make is a_pipe:
        # Nothing is lost with it, and the undo has seen that it is the same one.
        assert left == {}
        assert not (space.inside / "extra").exists()
    else:
        assert left == {path: reason}
        assert (space.inside / path).exists()


@pytest.mark.parametrize("make", [too_large, too_deep, a_pipe, a_socket])
def test_what_was_there_before_is_named_as_not_touched_or_unknown_and_the_rest_is_undone(space, make):
    make(space.inside / "extra")
    settle(space.inside)
    before = space.take()
    space.change()
    after = space.take()
    content = trees.read(space.inside / "extra") if make is too_deep else (space.inside / "extra").lstat()
    assert [change.path for change in space.checkpoints.changes(before, after)] == ["kept"]
    left = space.undo(before, after)
    if make is too_deep:
        # Nobody looked into it: whether it changed is not known.
        assert left == named(space.checkpoints, before, after) == {"extra/2/3/4": "lies deeper than 3 directories"}
        assert trees.read(space.inside / "extra") == content
    else:
        assert named(space.checkpoints, before, after) == {}
        assert [reason.partition(";")[2] for reason in left.values()] == [" it was not touched"]
        assert (space.inside / "extra").lstat().st_ino == content.st_ino


@pytest.mark.parametrize("become", [too_large, a_pipe, None])
def test_a_large_file_that_a_run_changed_is_unknown_and_never_removed_by_undo(space, become):
    """It was not held before: a small file in its place is not a file that the run added."""
    too_large(space.inside / "extra")
    settle(space.inside)
    before = space.take()
    space.change()
    (space.inside / "extra").unlink()
    if become is None:
        (space.inside / "extra").write_text("small")
    else:
        become(space.inside / "extra")
    after = space.take()
    assert named(space.checkpoints, before, after) == {"extra": TOO_LARGE}
    assert list(space.undo(before, after)) == ["extra"]
    assert (space.inside / "extra").exists()


def test_a_file_that_became_too_large_is_left_alone_and_one_that_became_a_pipe_comes_back(space):
    for name in ("large", "pipe"):
        (space.inside / name).write_text("small")
    before = space.take()
    space.change()
    too_large(space.inside / "large")
    (space.inside / "pipe").unlink()
    a_pipe(space.inside / "pipe")
    after = space.take()
    assert named(space.checkpoints, before, after).keys() == {"large", "pipe"}
    assert [change.path for change in space.checkpoints.changes(before, after)] == ["kept"]
    assert space.undo(before, after) == {"large": f"{TOO_LARGE}; {MOVE_AWAY}"}
    assert (space.inside / "large").stat().st_size == 3_000
    assert (space.inside / "pipe").read_text() == "small"


def a_directory(path: Path) -> dict[str, str]:
    (path / "below").mkdir(parents=True)
    (path / "a").write_text("mine\n")
    (path / "below/b").write_text("mine too\n")
    return {f"{path.name}/a": "mine\n", f"{path.name}/below/b": "mine too\n"}


def read_all(space: Space, names: dict[str, str]) -> dict[str, str]:
    return {name: (space.inside / name).read_text() for name in names}


@pytest.mark.parametrize("become", [a_pipe, a_socket])
def test_a_directory_in_whose_place_a_pipe_is_comes_back_with_all_that_was_in_it(space, become):
    mine = a_directory(space.inside / "dir")
    before = space.take()
    space.change()
    shutil.rmtree(space.inside / "dir")
    become(space.inside / "dir")
    after = space.take()
    assert [change.path for change in space.checkpoints.changes(before, after)] == [*mine, "kept"]
    assert space.undo(before, after) == {}
    assert read_all(space, mine) == mine


def test_what_is_left_alone_in_the_way_of_something_can_be_moved_away_and_the_undo_repeated(space):
    mine = a_directory(space.inside / "dir") | {"file": "mine\n"}
    (space.inside / "file").write_text("mine\n")
    before = space.take()
    space.change()
    shutil.rmtree(space.inside / "dir")
    for name in ("dir", "file", "new"):
        too_large(space.inside / name)
    after = space.take()
    for _ in range(2):
        done = undo(space.checkpoints, before, after, dry_run=False)
        assert {each.path: each.reason for each in done.left_alone} == {
            "dir": f"{TOO_LARGE}; {MOVE_AWAY}",
            "file": f"{TOO_LARGE}; {MOVE_AWAY}",
            "new": TOO_LARGE,
        }
    for name in ("dir", "file", "new"):
        (space.inside / name).unlink()
    assert space.undo(before, after) == {}
    assert read_all(space, mine) == mine
    (space.inside / "dir/a").write_text("saved since\n")
    assert space.undo(before, after) == {"dir/a": f"{TOO_LARGE}; {MOVE_AWAY}"}
    assert (space.inside / "dir/a").read_text() == "saved since\n"


@pytest.mark.parametrize("made", [False, True])
def test_what_a_copy_never_had_stays_when_the_copy_is_taken_over(space, tmp_path, made):
    """Pipes and sockets are not copied: that they are not in the copy says nothing about them."""
    a_pipe(space.inside / "pipe")
    a_socket(space.inside / "socket")
    before = space.take()
    copy = tmp_path / "copy"
    space.checkpoints.copy_out(before, os.fspath(copy))
    root = WorkspaceFiles(()).open_copy(os.fspath(copy))
    (copy / "kept").write_text("after\n")
    if made:
        (copy / "pipe").write_text("a file of that name\n")
    after = SpaceCheckpoints(space.checkpoints._space, root, SMALL).take()
    root.close()
    done = space.checkpoints.apply(before, after)
    assert [change.path for change in done.changes] == ["kept"]
    assert [each.path for each in done.left_alone] == ["pipe", "socket"]
    assert (space.inside / "pipe").is_fifo()
    assert (space.inside / "socket").is_socket()


def test_a_file_in_whose_place_a_directory_with_a_gap_is_stays_a_directory_as_a_whole(space):
    (space.inside / "x").write_text("a file")
    before = space.take()
    space.change()
    (space.inside / "x").unlink()
    (space.inside / "x").mkdir()
    (space.inside / "x/beside").write_text("of the run")
    too_large(space.inside / "x/large")
    after = space.take()
    assert space.undo(before, after) == {
        "x": "is a directory with `x/large` in it, which is left alone",
        "x/large": TOO_LARGE,
    }
    assert sorted(os.listdir(space.inside / "x")) == ["beside", "large"]


def test_what_a_run_made_beside_a_gap_goes_and_the_directory_stays(space):
    before = space.take()
    space.change()
    (space.inside / "d").mkdir()
    (space.inside / "d/small").write_text("x")
    too_large(space.inside / "d/large")
    after = space.take()
    shown = undo(space.checkpoints, before, after, dry_run=True)
    assert [change.path for change in shown.changes] == ["d/small", "kept"]
    assert space.undo(before, after) == {"d/large": TOO_LARGE}
    assert os.listdir(space.inside / "d") == ["large"]


def test_too_many_new_files_take_nothing_from_what_was_held(space):
    for number in range(20):
        (space.inside / f"old-{number}").write_text("old")
    before = space.take()
    space.change()
    for number in range(200):
        (space.inside / f"a-{number:03}").write_text("new")
        (space.inside / f"old-{number % 20}").write_text("changed")
    (space.inside / "many").mkdir()
    after = space.take()
    changed = {change.path for change in space.checkpoints.changes(before, after)}
    assert {f"old-{number}" for number in range(20)} <= changed
    (path,) = named(space.checkpoints, before, after)
    assert "more than 40 files" in named(space.checkpoints, before, after)[path]
    assert path in space.undo(before, after)
    assert (space.inside / "old-7").read_text() == "old"
    # Those that were held are gone, the rest is as the run left it.
    assert len(os.listdir(space.inside)) == 222 - len({path for path in changed if path.startswith("a-")})


def test_files_that_no_checkpoint_counted_are_never_taken_for_new_ones(space):
    """More than are held before the run: which of them are held may differ the next time."""
    for number in range(60):
        (space.inside / f"f-{number}").write_text("x")
    before = space.take()
    space.change()
    for number in range(0, 60, 2):
        (space.inside / f"f-{number}").unlink()
    # As in a new life: nothing is known of the last scan.
    again = GitCheckpoints(os.fspath(space.inside.parent / "state"), limits=SMALL).open("spc_1", space.root)
    again._last = None
    after = again.take()
    left = {f"f-{number}" for number in range(1, 60, 2)}
    undo(again, before, after, dry_run=False)
    assert left <= set(os.listdir(space.inside))


def test_too_many_bytes_are_said_of_the_file_that_brought_them(space):
    (space.inside / "held").write_bytes(b"x" * 1_900)
    before = space.take()
    space.change()
    for number in range(6):
        (space.inside / f"new-{number}").write_bytes(b"x" * 1_900)
    after = space.take()
    unknown = named(space.checkpoints, before, after)
    assert len(unknown) == 2
    assert all("more than 10,000 bytes" in reason for reason in unknown.values())
    assert set(space.undo(before, after)) == set(unknown)
    assert sorted(os.listdir(space.inside)) == sorted(["held", "kept", *unknown])


def test_gaps_beyond_a_number_stand_for_each_other(space, monkeypatch):
    monkeypatch.setattr(scan, "MAX_GAPS", 2)
    before = space.take()
    space.change()
    for number in range(9):
        too_large(space.inside / f"large-{number}")
    after = space.take()
    unknown = named(space.checkpoints, before, after)
    assert len(unknown) == 3
    assert any("others beside it may be missing too" in reason for reason in unknown.values())
    space.undo(before, after)
    assert len(os.listdir(space.inside)) == 10


def test_names_that_are_no_text_are_named_escaped(space):
    before = space.take()
    space.change()
    too_large(Path(os.fsdecode(os.fsencode(space.inside) + b"/\xff\xfe")))
    after = space.take()
    assert list(named(space.checkpoints, before, after)) == ["\\xff\\xfe"]
    assert space.undo(before, after) == {"\\xff\\xfe": TOO_LARGE}
    assert space.take()


def test_git_reads_a_tree_with_gaps(tmp_path, space):
    too_large(space.inside / "large")
    a_pipe(space.inside / "pipe")
    tree = space.take()
    git(tmp_path, "fsck", "--full", "--strict")
    assert sorted(git(tmp_path, "ls-tree", "--name-only", tree).split()) == ["kept", "large", "pipe"]


def test_a_checkpoint_with_gaps_survives_collecting_and_a_restart(tmp_path, space):
    before = space.take()
    space.change()
    too_large(space.inside / "large")
    after = space.take()
    store = GitCheckpoints(os.fspath(tmp_path / "state"), limits=SMALL)
    store.collect({"spc_1": frozenset((before, after))})
    space.checkpoints = store.open("spc_1", space.root)
    assert space.undo(before, after) == {"large": TOO_LARGE}


def test_a_copy_is_made_without_what_is_not_held_and_taking_it_over_leaves_that_alone(tmp_path, space):
    too_large(space.inside / "large")
    before = space.take()
    space.checkpoints.copy_out(before, os.fspath(tmp_path / "copy"))
    assert os.listdir(tmp_path / "copy") == ["kept"]
    copy = WorkspaceFiles((os.fspath(tmp_path),)).open_copy(os.fspath(tmp_path / "copy"))
    tried = GitCheckpoints(os.fspath(tmp_path / "state"), limits=SMALL).open("spc_1", copy)
    (tmp_path / "copy/kept").write_text("tried\n")
    after = tried.take()
    done = space.checkpoints.apply(before, after)
    assert [each.path for each in done.left_alone] == ["large"]
    assert (space.inside / "kept").read_text() == "tried\n"
    assert (space.inside / "large").stat().st_size == 3_000
    copy.close()


def test_a_tree_as_of_a_moment_knows_nothing_of_later_changes(space):
    (space.inside / "mine").write_text("before\n")
    before = space.take()
    space.change()
    settle(space.inside)
    until = (space.inside / "kept").stat().st_ctime_ns
    (space.inside / "mine").write_text("saved later\n")
    (space.inside / "new").write_text("made later\n")
    after = space.take(until)
    assert [change.path for change in space.checkpoints.changes(before, after)] == ["kept"]
    assert space.undo(before, after) == {"mine": f"was changed later; {MOVE_AWAY}", "new": "was changed later"}
    assert (space.inside / "mine").read_text() == "saved later\n"
    assert (space.inside / "new").exists()


def test_where_others_worked_at_the_same_time_what_they_changed_stays_and_so_do_later_changes(space):
    """Of two that were at work the one that began last counts, by the checkpoint between them."""
    for name in ("theirs", "later"):
        (space.inside / name).write_text("1")
    before = space.take()
    space.change()
    (space.inside / "later").write_text("2")
    inner = space.take()
    (space.inside / "theirs").write_text("2")
    after = space.take()
    (space.inside / "later").write_text("3")
    works = [Work("run_1", 1, 4, before, after), Work("run_2", 2, 3, inner, after)]
    chosen = Selection(pieces_of(works), frozenset(("run_1",)))
    histories = edits(chosen, lambda piece: space.checkpoints.edits(piece.before, piece.after))
    now = space.checkpoints.values(space.take(), histories)
    found = ways_back(chosen, histories, now, lambda _path, one, other: space.checkpoints.same(one, other))
    ways = dict(found)
    assert ways.keys() == {b"kept", b"later", b"theirs"}
    assert [edit.operation for edit in ways[b"later"].stays] == [None, "run_1"]
    assert [edit.operation for edit in ways[b"theirs"].stays] == ["run_2"]
    (way,) = (Way(way.expected, way.wanted) for way in ways.values() if way.back)
    space.checkpoints.bring(Ways(before, {b"kept": way}), dry_run=False)
    assert {name: (space.inside / name).read_text() for name in ("kept", "theirs", "later")} == {
        "kept": "before\n",
        "theirs": "2",
        "later": "3",
    }


@only_root
def test_what_another_user_has_shut_is_left_alone_before_and_after(tmp_path):
    """Root may read anything, so this is done by somebody else, in a process of their own."""
    script = tmp_path / "script.py"
    script.write_text(
        """
import os, sys
from bascule.workspace.machine.checkpoints.merge import MOVE_AWAY
from test_checkpoints import named, settle
from test_checkpoints_gaps import Space
os.setgroups([])
os.setegid(65534)
os.seteuid(65534)
space = Space(sys.argv[1])
(space.inside / "taken").write_text("x")
def as_root(act):
    os.seteuid(0)
    act()
    os.seteuid(65534)
def shut(*names):
    for name in names:
        if name.endswith("-dir"):
            (space.inside / name).mkdir(0)
        (space.inside / name).write_text("x") if not name.endswith("-dir") else None
        os.chown(space.inside / name, 0, 0)
        (space.inside / name).chmod(0)
as_root(lambda: shut("old-file", "old-dir"))
settle(space.inside)
before = space.take()
space.change()
as_root(lambda: shut("new-file", "new-dir", "taken"))
after = space.take()
denied = "cannot be read: Permission denied"
assert named(space.checkpoints, before, after) == dict.fromkeys(("new-file", "new-dir", "taken"), denied)
left = space.undo(before, after)
assert left == {
    **dict.fromkeys(("new-file", "new-dir"), denied),
    "taken": f"{denied}; {MOVE_AWAY}",
    **dict.fromkeys(("old-file", "old-dir"), denied + "; it was not touched"),
}, left
assert len(os.listdir(space.inside)) == 6
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


def test_a_repository_is_seen_where_a_checkpoint_holds_nothing(space):
    for folder in ("top", "top/2/3/4/5", *(f"many/{number}" for number in range(50))):
        (space.inside / folder / ".git").mkdir(parents=True)
    (space.inside / "top/2/link").symlink_to("3")
    space.take()
    seen = space.checkpoints.repositories
    assert set(seen) == {os.path.relpath(each, space.inside) for each in space.inside.rglob(".git")}
    assert all((space.inside / place).stat().st_ino == inode for place, inode in seen.items())
