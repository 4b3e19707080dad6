"""Somebody saves files while an undo puts them back: nothing that was saved is lost."""

import contextlib
import os
import threading
from pathlib import Path

import pytest
from test_checkpoints_undo import Space, file

from bascule.workspace.machine.checkpoints import swap
from bascule.workspace.machine.checkpoints.swap import Swap, is_still
from bascule.workspace.machine.files.syscalls import exchange
from patience import PATIENCE
from undo_of import undo

ROUNDS = 1_000 if os.environ.get("BASCULE_LONG") else 60
FILES = 20


@pytest.fixture
def space(tmp_path):
    space = Space(tmp_path)
    yield space
    space.root.close()


def by_rename(path: Path, text: bytes) -> None:
    """As editors save."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(text)
    temporary.rename(path)


def in_place(path: Path, text: bytes) -> None:
    """As the rest does, in several steps: the file is empty for a moment."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for piece in (text[:4], text[4:]):
        os.write(descriptor, piece)
    os.close(descriptor)


def naive(_swap, directory, name, staged, expected):
    """Look, then rename: the control."""
    if expected is not None and not is_still(directory, name, expected):
        return False
    os.rename(staged, name, src_dir_fd=_swap._ours, dst_dir_fd=directory)
    return True


def lost(space: Space, save, rounds: int) -> int:
    """Each round undoes a change of all files while somebody saves each of them once; saves that are nowhere."""
    missing = 0
    one = {b"f%02d" % number: file(b"before") for number in range(FILES)}
    two = {name: file(b"after!") for name in one}
    for _ in range(rounds):
        before, after = space.be(one), space.be(two)
        started = threading.Event()
        apply = swap.Swap.put

        def put(*arguments, started=started, apply=apply):
            started.set()
            return apply(*arguments)

        def saving(started=started):
            assert started.wait(PATIENCE)
            for name in one:
                save(space.inside / os.fsdecode(name), b"saved by hand")

        writer = threading.Thread(target=saving)
        swap.Swap.put = put
        try:
            writer.start()
            undo(space.checkpoints, before, after, dry_run=False)
        finally:
            swap.Swap.put = apply
            started.set()
            writer.join(PATIENCE)
        missing += sum((space.inside / os.fsdecode(name)).read_bytes() != b"saved by hand" for name in one)
        assert not list(space.inside.glob(".bascule-*"))
    return missing


@pytest.mark.parametrize("save", [by_rename, in_place])
def test_what_is_saved_while_an_undo_runs_is_never_lost(space, save):
    assert lost(space, save, ROUNDS) == 0


def test_looking_first_and_renaming_then_loses_what_is_saved_in_between(space, monkeypatch):
    """The control, with the moment in between held open until somebody has saved."""
    before, after = space.be({b"a": file(b"1")}), space.be({b"a": file(b"2")})
    look = swap.is_still

    def looked(directory, name, expected):
        found = look(directory, name, expected)
        by_rename(space.inside / "a", b"saved by hand")
        return found

    monkeypatch.setattr(Swap, "put", naive)
    monkeypatch.setitem(globals(), "is_still", looked)
    undo(space.checkpoints, before, after, dry_run=False)
    assert (space.inside / "a").read_bytes() == b"1"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_save_just_before_or_just_after_the_exchange_stays_and_is_named(space, monkeypatch, moment):
    before = space.be({b"a": file(b"1"), b"b": file(b"1"), b"gone": file(b"1")})
    after = space.be({b"a": file(b"2"), b"b": file(b"2"), b"new": file(b"2")})
    saved = []

    def exchanged(ours, staged, directory, name):
        if name == "a" and not saved and moment == "before":
            saved.append(name)
            by_rename(space.inside / "a", b"saved by hand")
        exchange(ours, staged, directory, name)
        if name == "a" and not saved:
            saved.append(name)
            by_rename(space.inside / "a", b"saved by hand")

    monkeypatch.setattr(swap, "exchange", exchanged)
    done = undo(space.checkpoints, before, after, dry_run=False)
    assert space.is_now() == {b"a": file(b"saved by hand"), b"b": file(b"1"), b"gone": file(b"1")}
    left = {each.path: each.reason for each in done.left_alone}
    assert left == ({"a": "was saved while it was being put back"} if moment == "before" else {})


def test_a_file_that_somebody_has_open_for_writing_is_left_alone(space):
    before, after = space.be({b"a": file(b"1")}), space.be({b"a": file(b"2")})
    with (space.inside / "a").open("ab") as writer:
        done = undo(space.checkpoints, before, after, dry_run=False)
        writer.write(b" and more")
    assert [each.path for each in done.left_alone] == ["a"]
    assert space.is_now() == {b"a": file(b"2 and more")}
    with (space.inside / "a").open("rb"):
        # Whoever only reads is no hindrance.
        (space.inside / "a").write_bytes(b"2")
        assert undo(space.checkpoints, before, after, dry_run=False).left_alone == []
    assert space.is_now() == {b"a": file(b"1")}


def test_a_save_over_a_file_that_should_go_and_one_where_a_file_should_come_stay(space, monkeypatch):
    before, after = space.be({b"come": file(b"1")}), space.be({b"go": file(b"2")})
    move = swap.rename_new
    saved = []

    def moved(directory, name, new, into=None):
        for each in ("go", "come"):
            if each in (name, new) and each not in saved:
                saved.append(each)
                by_rename(space.inside / each, b"saved by hand")
        move(directory, name, new, into)

    monkeypatch.setattr(swap, "rename_new", moved)
    done = undo(space.checkpoints, before, after, dry_run=False)
    assert space.is_now() == {b"come": file(b"saved by hand"), b"go": file(b"saved by hand")}
    assert [each.path for each in done.left_alone] == ["come", "go"]


def test_a_file_saved_twice_keeps_the_newer_content(space, monkeypatch):
    before, after = space.be({b"a": file(b"1")}), space.be({b"a": file(b"2")})
    times = []

    def exchanged(*names):
        if len(times) < 3:
            times.append(names)
            by_rename(space.inside / "a", b"save %d" % len(times))
        exchange(*names)

    monkeypatch.setattr(swap, "exchange", exchanged)
    assert [each.path for each in undo(space.checkpoints, before, after, dry_run=False).left_alone] == ["a"]
    assert space.is_now() == {b"a": file(b"save 3")}


def test_where_names_cannot_be_exchanged_it_is_looked_at_just_before_the_rename(space, monkeypatch):
    before = space.be({b"a": file(b"1"), b"b": file(b"1")})
    after = space.be({b"a": file(b"2"), b"b": file(b"2")})

    def cannot(_ours, _staged, _directory, name):
        with contextlib.suppress(FileNotFoundError):
            if name == "b":
                by_rename(space.inside / "b", b"saved by hand")
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(swap, "exchange", cannot)
    assert [each.path for each in undo(space.checkpoints, before, after, dry_run=False).left_alone] == ["b"]
    assert space.is_now() == {b"a": file(b"1"), b"b": file(b"saved by hand")}
