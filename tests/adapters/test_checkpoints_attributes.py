"""Attributes of files, and lists of access: kept with the content, put back with it."""

import os
import struct

import pytest
from test_checkpoints_undo import Space, file

from bascule.workspace.machine.files import attributes
from faults.lacking import missing_here
from undo_of import undo

OWN = {"user.note": b"1", "user.bytes": bytes(range(256))}
# Version 2: the owner reads and writes, user 65534 reads, the group and the mask read, others do not.
_NOBODY_READS = struct.pack(
    "<IHHIHHIHHIHHIHHI",
    *(2,),
    *(0x01, 6, 0xFFFFFFFF),
    *(0x02, 4, 65534),
    *(0x04, 4, 0xFFFFFFFF),
    *(0x10, 4, 0xFFFFFFFF),
    *(0x20, 0, 0xFFFFFFFF),
)


@pytest.fixture
def space(tmp_path):
    space = Space(tmp_path)
    try:
        os.setxattr(space.inside, "user.try", b"")
        os.removexattr(space.inside, "user.try")
    except OSError:
        missing_here("this file system has no attributes")
    yield space
    space.root.close()


@pytest.fixture
def noted(space):
    """The tree of one file with attributes."""
    space.be({b"noted": file(b"text\n"), b"plain": file(b"other\n")})
    for name, value in OWN.items():
        os.setxattr(space.inside / "noted", name, value)
    return space.inside / "noted", space.checkpoints.take()


def look(path):
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


def remove(path):
    path.unlink()


def overwrite(path):
    path.write_text("lost\n")


def replace(path):
    path.unlink()
    path.write_text("text\n")


def change(path):
    os.setxattr(path, "user.note", b"2")
    os.removexattr(path, "user.bytes")


@pytest.mark.parametrize("call", [remove, overwrite, replace, change])
def test_attributes_come_back_with_their_file(space, noted, call):
    path, before = noted
    call(path)
    after = space.checkpoints.take()
    assert after != before
    done = undo(space.checkpoints, before, after, dry_run=False, max_chars=10_000)
    assert (done.left_alone, done.failed) == ([], [])
    assert [each.path for each in done.changes] == ["noted"]
    assert (path.read_text(), look(path)) == ("text\n", OWN)
    assert space.checkpoints.take() == before


def test_attributes_that_a_call_added_are_taken_away(space):
    before = space.be({b"plain": file(b"text\n")})
    os.setxattr(space.inside / "plain", "user.new", b"1")
    done = undo(space.checkpoints, before, space.checkpoints.take(), dry_run=False, max_chars=10_000)
    assert look(space.inside / "plain") == {}
    assert done.diff == "# attributes of plain changed\n"


def test_attributes_that_somebody_changed_later_are_not_lost(space, noted):
    path, before = noted
    overwrite(path)
    after = space.checkpoints.take()
    os.setxattr(path, "user.note", b"a person's own")
    done = undo(space.checkpoints, before, after, dry_run=False)
    assert [(each.path, each.reason) for each in done.left_alone] == [(path.name, "was changed since")]
    assert look(path)["user.note"] == b"a person's own"


def test_a_list_of_access_comes_back(space):
    before = space.be({b"listed": file(b"text\n")})
    path = space.inside / "listed"
    try:
        os.setxattr(path, "system.posix_acl_access", _NOBODY_READS)
    except OSError:
        missing_here("this file system has no lists of access")
    before = space.checkpoints.take()
    mode = path.stat().st_mode
    path.unlink()
    done = undo(space.checkpoints, before, space.checkpoints.take(), dry_run=False)
    assert not done.failed
    assert (os.getxattr(path, "system.posix_acl_access"), path.stat().st_mode) == (_NOBODY_READS, mode)


def test_what_a_program_may_do_is_not_put_back(space):
    """The control of the list of names: a capability would be a right that nobody has looked at."""
    space.be({b"program": file(b"text\n", 0o755)})
    path = space.inside / "program"
    try:
        os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0))
    except OSError:
        missing_here("only root can give a program a capability")
    before = space.checkpoints.take()
    path.unlink()
    undo(space.checkpoints, before, space.checkpoints.take(), dry_run=False)
    assert look(path) == {}


def test_more_attributes_than_are_held_make_the_file_one_that_is_not(space, noted, monkeypatch):
    path, _ = noted
    monkeypatch.setattr(attributes, "MAX_BYTES", 100)
    path.write_text("other\n")
    tree = space.checkpoints.take()
    path.unlink()
    unknown = space.checkpoints.unknown(tree, space.checkpoints.take())
    assert [(each.path, "has attributes of more than 100 bytes" in each.reason) for each in unknown] == [
        ("noted", True)
    ]


def test_a_collection_keeps_the_content_of_a_file_with_attributes(space, noted):
    path, before = noted
    for number in range(200):
        (space.inside / f"more{number}").write_text(f"{number}\n")
    path.unlink()
    (space.inside / "plain").unlink()
    after = space.checkpoints.take()
    space.checkpoints._store.collect([bytes.fromhex(before), bytes.fromhex(after)])
    assert not undo(space.checkpoints, before, after, dry_run=False).failed
    assert look(path) == OWN


def test_a_copy_has_the_attributes_of_the_workspace(space, noted, tmp_path):
    _, before = noted
    space.checkpoints.copy_out(before, str(tmp_path / "copy"))
    assert look(tmp_path / "copy" / "noted") == OWN
