"""Checkpoints: what they hold, what they show, and what git says of them."""

import mmap
import os
import shutil
import stat
import subprocess
import threading
import time

import pytest
import trees

from bascule.workspace.machine.checkpoints.scan import Scan
from bascule.workspace.machine.checkpoints.spaces import GitCheckpoints
from bascule.workspace.machine.checkpoints.stats import RACY_NS
from bascule.workspace.machine.files import temporary
from bascule.workspace.machine.files.roots import WorkspaceFiles
from bascule.workspace.ports import CheckpointFault
from faults.lacking import missing_here, only_root
from undo_of import undo

ALL = 1_000_000


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def root(workspace):
    root = WorkspaceFiles(()).open_root(os.fspath(workspace))
    yield root
    root.close()


@pytest.fixture
def store(tmp_path):
    return GitCheckpoints(os.fspath(tmp_path / "state"))


@pytest.fixture
def checkpoints(store, root):
    return store.open("spc_1", root)


def git(tmp_path, *args: str) -> str:
    if shutil.which("git") is None:
        missing_here("git is not installed")
    done = subprocess.run(["git", "--git-dir", tmp_path / "state/spc_1", *args], check=True, capture_output=True)
    return os.fsdecode(done.stdout)


def named(checkpoints, before: str, after: str) -> dict[str, str]:
    return {unknown.path: unknown.reason for unknown in checkpoints.unknown(before, after)}


def everything(workspace) -> None:
    """One of each thing that a checkpoint holds."""
    trees.write(
        workspace,
        {
            b"text": ("file", 0o644, b"one\ntwo\n"),
            b"tool": ("file", 0o755, b"#!/bin/sh\n"),
            b"private": ("file", 0o600, b"secret"),
            b"empty": ("file", 0o644, b""),
            b"binary": ("file", 0o644, b"\0\1\2" * 1_000),
            b"link": ("link", b"text"),
            b"out": ("link", b"/etc/passwd"),
            b"\xff": ("file", 0o644, b"no UTF-8"),
            b"a.b": ("file", 0o644, b"sorts before a/"),
            b"a": ("dir", 0o755),
            b"a/b": ("file", 0o644, b"x"),
            b"hollow": ("dir", 0o700),
            b"repo": ("dir", 0o755),
            b"repo/inner": ("file", 0o644, b"of a nested repository"),
        },
    )


# -- what is held ---------------------------------------------------------------------------------


def test_git_reads_what_was_made_without_it(tmp_path, workspace, checkpoints):
    everything(workspace)
    tree = checkpoints.take()
    git(tmp_path, "fsck", "--full", "--strict")
    listed = git(tmp_path, "ls-tree", "-r", "-t", "-z", tree).split("\0")[:-1]
    shown = {line.split("\t")[1]: line.split(" ")[0] for line in listed}
    assert shown["text"] == "100644"
    assert shown["tool"] == "100755"
    assert shown["link"] == "120000"
    assert shown["hollow"] == "040000"
    assert "repo/inner" in shown
    assert git(tmp_path, "cat-file", "blob", f"{tree}:text") == "one\ntwo\n"
    before = tree
    (workspace / "text").write_text("one\nthree\n")
    (workspace / "tool").unlink()
    (workspace / "new").write_text("x\n")
    after = checkpoints.take()
    by_git = git(tmp_path, "diff", "--numstat", before, after).splitlines()
    ours = [f"{change.added}\t{change.removed}\t{change.path}" for change in checkpoints.changes(before, after)]
    assert sorted(ours) == sorted(by_git)


def test_many_new_files_become_a_pack_that_git_reads(tmp_path, workspace, checkpoints):
    for number in range(500):
        (workspace / f"f{number}").write_text(f"{number}\n" * number)
    tree = checkpoints.take()
    assert len(list((tmp_path / "state/spc_1/objects/pack").glob("*.idx"))) == 1
    git(tmp_path, "fsck", "--full", "--strict")
    (index,) = (tmp_path / "state/spc_1/objects/pack").glob("*.idx")
    assert "non delta: 501 objects" in git(tmp_path, "verify-pack", "-v", os.fspath(index))
    assert len(git(tmp_path, "ls-tree", tree).splitlines()) == 500


def test_the_same_content_is_the_same_tree(workspace, checkpoints):
    everything(workspace)
    first = checkpoints.take()
    assert checkpoints.take() == first
    content = trees.read(workspace)
    trees.write(workspace, {})
    assert checkpoints.take() == "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    trees.write(workspace, content)
    assert checkpoints.take() == first


def test_git_directories_and_artifacts_are_outside(workspace, checkpoints):
    everything(workspace)
    before = checkpoints.take()
    for path in (".git/HEAD", "repo/.git/HEAD", "artifacts/shot.png"):
        (workspace / path).parent.mkdir(exist_ok=True)
        (workspace / path).write_text("x")
    (workspace / "a/.git").write_text("gitdir: elsewhere")
    assert checkpoints.take() == before
    (workspace / "a/artifacts").write_text("not at the top")
    assert [change.path for change in checkpoints.changes(before, checkpoints.take())] == ["a/artifacts"]


def test_pipes_sockets_and_devices_are_gaps_and_the_same_one_is_no_difference(workspace, checkpoints):
    (workspace / "d").mkdir()
    before = checkpoints.take()
    os.mkfifo(workspace / "d/pipe")
    after = checkpoints.take()
    assert named(checkpoints, before, after) == {"d/pipe": "is a pipe, socket or device"}
    assert checkpoints.changes(before, after) == []
    assert checkpoints.take() == after


@only_root
def test_what_is_mounted_inside_is_a_gap(tmp_path, workspace, checkpoints):
    (workspace / "mounted").mkdir()
    before = checkpoints.take()
    if subprocess.run(["mount", "--bind", tmp_path, workspace / "mounted"], check=False).returncode:
        missing_here("bind mounts do not work here")
    try:
        assert named(checkpoints, before, checkpoints.take()) == {"mounted": "is another file system, mounted there"}
    finally:
        subprocess.run(["umount", workspace / "mounted"], check=True)


def test_a_full_disk_is_said_and_the_next_checkpoint_is_whole(workspace, checkpoints, monkeypatch):
    everything(workspace)

    def full(*_args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints._store, "_write_loose", full)
        with pytest.raises(CheckpointFault, match=r"no checkpoint could be stored: .* is full \(No space left"):
            checkpoints.take()
    assert checkpoints.changes(checkpoints.take(), checkpoints.take()) == []


def test_of_a_file_that_is_too_large_nothing_is_read(workspace, checkpoints, monkeypatch):
    """A sparse file of a terabyte costs its maker nothing; read as it asks to be, it would cost us two gigabytes."""
    with (workspace / "huge").open("wb") as file:
        file.truncate(1024**4)
    asked = []
    read = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, size: asked.append(size) or read(descriptor, min(size, 1)))
    before, _ = checkpoints.take(), (workspace / "other").write_text("x")
    os.utime(workspace / "huge")
    assert "huge" in named(checkpoints, before, checkpoints.take())
    assert max(asked, default=0) <= 64 * 1024 * 1024 + 1


# -- cheap the second time ------------------------------------------------------------------------


def settle(workspace) -> None:
    """Until no file is too young to be believed."""
    youngest = max(path.lstat().st_ctime_ns for path in workspace.rglob("*"))
    while time.time_ns() - youngest <= RACY_NS:
        time.sleep(0.01)


def test_only_what_changed_is_read_again(workspace, checkpoints, monkeypatch):
    everything(workspace)
    settle(workspace)
    checkpoints.take()
    scans = []
    run = Scan.run
    monkeypatch.setattr(Scan, "run", lambda self, last: scans.append(self) or run(self, last))
    checkpoints.take()
    assert scans[-1].read == 0
    (workspace / "text").write_text("other\n")
    checkpoints.take()
    assert scans[-1].read == 1


def test_a_change_within_the_clocks_tick_is_not_missed(workspace, checkpoints):
    """Same size, same inode, moments later: only the content differs."""
    file = workspace / "x"
    seen = set()
    for number in range(300):
        file.write_bytes(b"%04d" % number)
        seen.add(checkpoints.take())
    assert len(seen) == 300


def test_a_memory_without_that_care_would_miss_it(workspace, checkpoints, monkeypatch):
    """The control: with old times set by hand and no rule for young files, a change is overlooked."""
    monkeypatch.setattr("bascule.workspace.machine.checkpoints.stats.RACY_NS", 0)
    monkeypatch.setattr(
        "bascule.workspace.machine.checkpoints.scan._untouched", lambda before, found: before.size == found.st_size
    )
    file = workspace / "x"
    file.write_bytes(b"0001")
    first = checkpoints.take()
    file.write_bytes(b"0002")
    assert checkpoints.take() == first


def test_what_was_scanned_is_remembered_over_a_restart(tmp_path, workspace, root, checkpoints, monkeypatch):
    everything(workspace)
    (workspace / os.fsdecode(b"\xff")).unlink()
    settle(workspace)
    tree = checkpoints.take()
    read = []
    run = Scan._regular
    monkeypatch.setattr(Scan, "_regular", lambda *args: read.append(args) or run(*args))
    assert GitCheckpoints(os.fspath(tmp_path / "state")).open("spc_1", root).take() == tree
    assert read == []
    # Another life of the machine: a power cut may have taken objects, so nothing remembered counts.
    monkeypatch.setattr("bascule.workspace.machine.checkpoints.stats._boot", lambda: "another")
    assert GitCheckpoints(os.fspath(tmp_path / "state")).open("spc_1", root).take() == tree
    assert len(read) == 8


def test_a_file_that_changes_while_it_is_read_is_read_again(workspace, checkpoints, monkeypatch):
    file = workspace / "x"
    file.write_bytes(b"first")
    content = Scan._content
    times = []

    def interrupted(self, descriptor, name, size):
        data = content(self, descriptor, name, size)
        times.append(data)
        if len(times) == 1:
            file.write_bytes(b"other")
        return data

    monkeypatch.setattr(Scan, "_content", interrupted)
    tree = checkpoints.take()
    assert times == [b"first", b"other"]
    monkeypatch.undo()
    assert checkpoints.take() == tree


def test_what_a_crash_left_is_swept_when_it_is_old(workspace, checkpoints, monkeypatch):
    left = workspace / f".bascule-{'0' * 32}.tmp"
    left.write_bytes(b"half")
    staged = workspace / "d" / f".bascule-{'1' * 32}.tmp"
    staged.mkdir(parents=True)
    (staged / "0").write_bytes(b"half")
    before = checkpoints.take()
    assert left.exists()
    monkeypatch.setattr("bascule.workspace.machine.files.temporary.is_stale", lambda changed: True)
    gone = [change.path for change in checkpoints.changes(before, checkpoints.take())]
    assert gone == [left.name]
    assert sorted(os.listdir(workspace)) == ["d"]
    assert os.listdir(workspace / "d") == []


def test_a_name_like_ours_hides_nothing(workspace, checkpoints):
    before = checkpoints.take()
    hidden = workspace / f".bascule-{'0' * 32}.tmp"
    hidden.write_bytes(b"of a command")
    directory = workspace / f".bascule-{'1' * 32}.tmp"
    directory.mkdir()
    after = checkpoints.take()
    assert [change.path for change in checkpoints.changes(before, after)] == [hidden.name]
    assert list(named(checkpoints, before, after)) == [directory.name]
    (directory / "x").write_bytes(b"of the next one")
    assert list(named(checkpoints, after, checkpoints.take())) == [directory.name]
    left = undo(checkpoints, before, after, dry_run=False).left_alone
    assert [each.path for each in left] == os.listdir(workspace) == [directory.name]


def test_what_is_being_written_is_not_yet_content(workspace, checkpoints):
    before = checkpoints.take()
    name = temporary.new_name()
    (workspace / name).write_bytes(b"half")
    assert checkpoints.take() == before
    temporary.give_back(name)
    assert checkpoints.take() != before


def test_a_file_that_was_read_while_a_program_had_it_mapped_is_read_again_when_that_ends(workspace, checkpoints):
    file = workspace / "mapped"
    file.write_bytes(b"first")
    settle(workspace)
    began = time.time_ns()
    before = checkpoints.take()
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 5) as mapped:
        mapped[:] = b"shown"
        settle(workspace)
        meanwhile, changed = checkpoints.take(), file.stat().st_ctime_ns
        # The page is the program's already: nothing tells the kernel of this, and no time changes.
        mapped[:] = b"later"
    if file.stat().st_ctime_ns == changed:
        # Else the disk has taken the page meanwhile, which makes it known.
        assert checkpoints.take() == meanwhile, "the control: by its times it is the same"
    after = checkpoints.take(since=began)
    assert file.read_bytes() == b"later"
    assert "+later" in checkpoints.diff(before, after, 1_000)[0]


# -- what is shown --------------------------------------------------------------------------------


def test_every_kind_of_change_is_named(workspace, checkpoints):
    everything(workspace)
    before = checkpoints.take()
    (workspace / "text").write_text("one\nTWO\nthree\n")
    (workspace / "tool").chmod(0o700)
    (workspace / "private").unlink()
    (workspace / "empty").unlink()
    (workspace / "empty").symlink_to("text")
    (workspace / "binary").write_bytes(b"\0")
    (workspace / "hollow").chmod(0o755)
    (workspace / "new").mkdir()
    (workspace / "full").mkdir()
    (workspace / "full/x").write_text("x")
    found = checkpoints.changes(before, checkpoints.take())
    assert [(change.path, change.change, change.added, change.removed, change.binary) for change in found] == [
        ("binary", "modified", 0, 0, True),
        ("empty", "type", 1, 0, False),
        ("full/x", "added", 1, 0, False),
        ("hollow/", "mode", 0, 0, False),
        ("new/", "added", 0, 0, False),
        ("private", "deleted", 0, 1, False),
        ("text", "modified", 2, 1, False),
        ("tool", "mode", 0, 0, False),
    ]


def test_the_diff_is_cut_at_a_line(workspace, checkpoints):
    before = checkpoints.take()
    (workspace / "x").write_text("".join(f"line {number}\n" for number in range(1_000)))
    after = checkpoints.take()
    whole, cut = checkpoints.diff(before, after, ALL)
    assert not cut
    part, cut = checkpoints.diff(before, after, 200)
    assert cut
    assert len(part) <= 200
    assert part.endswith("\n")
    assert whole.startswith(part)


def test_comparing_hostile_texts_is_bounded(workspace, checkpoints):
    (workspace / "x").write_text("".join(f"{number % 7}\n" for number in range(200_000)))
    before = checkpoints.take()
    (workspace / "x").write_text("".join(f"{number % 11}\n" for number in range(200_000)))
    (change,) = checkpoints.changes(before, checkpoints.take())
    assert change.added - change.removed == 0
    assert 0 < change.added <= 200_000


# -- one store, several directories and threads ---------------------------------------------------


def test_a_copy_is_a_workspace_whose_changes_can_be_brought_back(tmp_path, workspace, store, checkpoints):
    everything(workspace)
    before = checkpoints.take()
    content = trees.read(workspace)
    checkpoints.copy_out(before, os.fspath(tmp_path / "copy"))
    assert trees.read(tmp_path / "copy") == content
    copy = WorkspaceFiles((os.fspath(tmp_path),)).open_copy(os.fspath(tmp_path / "copy"))
    tried = store.open("spc_1", copy)
    assert tried.take() == before
    (tmp_path / "copy/text").write_text("tried\n")
    (tmp_path / "copy/a/b").unlink()
    after = tried.take()
    assert trees.read(workspace) == content
    assert [change.path for change in checkpoints.apply(before, after).changes] == ["a/b", "text"]
    assert trees.read(workspace) == trees.read(tmp_path / "copy")
    copy.close()


def test_a_copy_is_known_from_the_moment_it_is_made(tmp_path, workspace, store, checkpoints, monkeypatch):
    everything(workspace)
    tree = checkpoints.take()
    # Whatever is younger than the clock's tick is read all the same.
    monkeypatch.setattr("bascule.workspace.machine.checkpoints.stats.RACY_NS", -1)
    checkpoints.copy_out(tree, os.fspath(tmp_path / "copy"))
    monkeypatch.undo()
    copy = WorkspaceFiles(()).open_copy(os.fspath(tmp_path / "copy"))
    tried = store.open("spc_1", copy)
    read = []
    run = Scan._regular
    monkeypatch.setattr(Scan, "_regular", lambda *args: read.append(args[2]) or run(*args))
    assert tried.take() == tree
    assert read == []
    (tmp_path / "copy/text").write_text("another\n")
    tried.take()
    assert read == ["text"]
    copy.close()


def test_a_copy_shares_no_file_with_the_workspace(tmp_path, workspace, checkpoints):
    (workspace / "x").write_text("x")
    checkpoints.copy_out(checkpoints.take(), os.fspath(tmp_path / "copy"))
    assert (workspace / "x").stat().st_nlink == (tmp_path / "copy/x").stat().st_nlink == 1
    with pytest.raises(CheckpointFault, match="the copy cannot be made: File exists"):
        checkpoints.copy_out(checkpoints.take(), os.fspath(tmp_path / "copy"))


def test_threads_take_turns(workspace, checkpoints):
    everything(workspace)
    expected = checkpoints.take()
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(checkpoints.take())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8


def test_ids_that_are_none_are_refused(checkpoints, store, root):
    for text in ("", "zz", "ab"):
        with pytest.raises(CheckpointFault, match="is not a checkpoint"):
            checkpoints.changes(text, text)
    with pytest.raises(CheckpointFault, match=f"the checkpoint is gone: its object {'0' * 40} is no longer stored"):
        checkpoints.changes("0" * 40, "1" * 40)
    with pytest.raises(ValueError, match="is not the id of a space"):
        store.open("../elsewhere", root)


def test_modes_are_kept_whole(workspace, checkpoints):
    (workspace / "x").write_text("x")
    (workspace / "d").mkdir()
    for name, modes in (("x", (0o4644, 0o2755)), ("d", (0o1777, 0o2775))):
        for mode in modes:
            before = checkpoints.take()
            (workspace / name).chmod(mode)
            assert checkpoints.take() != before
            assert stat.S_IMODE((workspace / name).stat().st_mode) == mode
