"""Set-user-ID, set-group-ID and sticky: of directories they come back, of files they are named."""

import stat

import pytest
from test_checkpoints_undo import Space, file

from bascule.workspace.machine.checkpoints.merge import SET_ID
from undo_of import undo

TREE = {
    b"stick": ("dir", 0o1777),
    b"group": ("dir", 0o2775),
    b"group/x": file(b"x"),
    b"program": file(b"program", 0o755),
}


@pytest.fixture
def space(tmp_path):
    space = Space(tmp_path)
    yield space
    let_in(space)
    space.root.close()


def let_in(space):
    """A user who is not root cannot replace what they have shut."""
    for each in space.inside.iterdir():
        if each.is_dir():
            each.chmod(0o700)


def mode(space, name):
    return stat.S_IMODE((space.inside / name).stat().st_mode)


def removed(inside):
    (inside / "group" / "x").unlink()
    (inside / "group").rmdir()
    (inside / "stick").rmdir()


def changed(inside):
    (inside / "group").chmod(0o755)
    (inside / "stick").chmod(0o2777)


@pytest.mark.parametrize("call", [removed, changed])
def test_sticky_and_set_group_id_of_directories_come_back(space, call):
    before = space.be(TREE)
    call(space.inside)
    after = space.checkpoints.take()
    done = undo(space.checkpoints, before, after, dry_run=False)
    assert (done.left_alone, done.failed) == ([], [])
    assert (mode(space, "stick"), mode(space, "group")) == (0o1777, 0o2775)
    assert space.checkpoints.take() == before


def test_what_a_call_gave_to_a_file_is_taken_away(space):
    before = space.be(TREE)
    (space.inside / "program").chmod(0o4755)
    done = undo(space.checkpoints, before, space.checkpoints.take(), dry_run=False)
    assert [each.path for each in done.changes] == ["program"]
    assert mode(space, "program") == 0o755


@pytest.mark.parametrize("bits", [0o4000, 0o2000])
def test_a_program_that_ran_as_its_owner_comes_back_without_that_and_is_named(space, bits):
    space.be(TREE)
    (space.inside / "program").chmod(0o755 | bits)
    before = space.checkpoints.take()
    (space.inside / "program").unlink()
    after = space.checkpoints.take()
    for dry_run in (True, False):
        done = undo(space.checkpoints, before, after, dry_run=dry_run)
        assert [(each.path, each.reason) for each in done.left_alone] == [("program", SET_ID)]
        assert [each.path for each in done.changes] == ["program"]
    assert (space.inside / "program").read_bytes() == b"program"
    assert mode(space, "program") == 0o755
    # It is there: the same again changes nothing, and names it again.
    done = undo(space.checkpoints, before, after, dry_run=False)
    assert (done.changes, [each.path for each in done.left_alone]) == ([], ["program"])


def test_a_file_whose_bit_only_went_is_named(space):
    space.be(TREE)
    (space.inside / "program").chmod(0o4755)
    before = space.checkpoints.take()
    (space.inside / "program").chmod(0o755)
    done = undo(space.checkpoints, before, space.checkpoints.take(), dry_run=False)
    assert (done.changes, [each.path for each in done.left_alone]) == ([], ["program"])


def test_an_undo_that_was_cut_short_between_a_directory_and_the_file_in_its_place_goes_on(space):
    before = space.be(TREE)
    (space.inside / "program").unlink()
    (space.inside / "program").mkdir()
    after = space.checkpoints.take()
    (space.inside / "program").rmdir()
    undo(space.checkpoints, before, after, dry_run=False)
    assert space.is_now() == TREE
    (space.inside / "program").unlink()
    # And back again.
    undo(space.checkpoints, after, before, dry_run=False)
    assert space.checkpoints.take() == after


# What the call found and left, and what a person makes of it afterwards: directories alone.
LATER = {
    "another one of that name": ({b"d": ("dir", 0o555)}, {}, {b"d": ("dir", 0o755), b"d/own": file(b"own")}),
    "a private one of that name": (
        {b"d": ("dir", 0o755), b"d/x": file(b"x")},
        {},
        {b"d": ("dir", 0o700), b"d/own": file(b"own")},
    ),
    "an empty private one of that name": ({b"d": ("dir", 0o755)}, {}, {b"d": ("dir", 0o700)}),
    "shut, then private": ({b"d": ("dir", 0o755)}, {b"d": ("dir", 0o000)}, {b"d": ("dir", 0o700)}),
    "opened, then usual": ({b"d": ("dir", 0o555)}, {b"d": ("dir", 0o777)}, {b"d": ("dir", 0o755)}),
}


@pytest.mark.parametrize(("found", "left", "later"), LATER.values(), ids=LATER.keys())
def test_a_mode_that_a_person_chose_later_stays(space, found, left, later):
    before = space.be(found)
    let_in(space)
    after = space.be(left)
    let_in(space)
    space.be(later)
    undo(space.checkpoints, before, after, dry_run=False)
    assert mode(space, "d") == later[b"d"][1]
    assert later.items() <= space.is_now().items()


@pytest.mark.parametrize("opened", [0o700, 0o755])
def test_only_an_undo_that_was_cut_short_has_begun_a_directory(space, opened):
    """The control of the test above: one that goes on knows its own."""
    before = space.be({b"d": ("dir", 0o055), b"d/x": file(b"x")})
    let_in(space)
    after = space.be({})
    space.be({b"d": ("dir", opened)})
    undo(space.checkpoints, before, after, dry_run=False, resumes=True)
    assert mode(space, "d") == 0o055
