"""What its owner has shut (`chmod 000`) is put back; `test_undo_without_root` runs this again as another user."""

import os
import stat
import subprocess

import pytest
import trees
from test_checkpoints_undo import Space, file

from bascule.workspace.machine.checkpoints.outside import OutsideFiles
from patience import PATIENCE
from undo_of import undo

TREE = {
    b"src": ("dir", 0o755),
    b"src/a.py": file(b"a"),
    b"src/deep": ("dir", 0o750),
    b"src/deep/b.py": file(b"b", 0o600),
    b"src/deep/link": ("link", b"b.py"),
    b"docs": ("dir", 0o755),
    b"docs/c": file(b"c", 0o444),
}

SHUTTING = [
    "chmod -R 000 src docs",
    "find src docs -depth ! -type l -exec chmod 000 {} +",
    "chmod 000 src/a.py docs/c",
    "chmod 000 src",
    "chmod 555 src; chmod 111 docs",
    "rm src/a.py; chmod 555 src",
    "rm src/deep/b.py; echo x > src/a.py; chmod -R 000 src",
    "chmod 400 src/deep; chmod 300 docs",
    "mkdir src/new; echo x > src/new/x; chmod -R 000 src/new",
    "echo other > docs/d; chmod 555 docs",
    "rm -r docs; echo x > docs; chmod 000 docs",
    "rm src/a.py; mkdir src/a.py; touch src/a.py/x; chmod -R 000 src",
]


@pytest.fixture
def space(tmp_path):
    space = Space(tmp_path)
    yield space
    opened(space.inside)
    space.root.close()


def opened(top):
    """So that pytest can remove it, and the test look into it."""
    subprocess.run(["chmod", "-R", "u+rwX", top], check=True, timeout=PATIENCE)


def modes(top):
    found = {}
    for path in top.rglob("*"):
        if not path.is_symlink():
            found[str(path.relative_to(top))] = stat.S_IMODE(path.stat().st_mode)
    return found


def sh(command, place):
    # As a user who is not root `chmod -R 000` shuts itself out, which is no matter here.
    subprocess.run(["sh", "-c", command], cwd=place, check=False, capture_output=True, timeout=PATIENCE)


@pytest.mark.parametrize("command", SHUTTING)
def test_what_a_call_has_shut_in_the_project_comes_back_exactly(space, command):
    before = space.be(TREE)
    sh(command, space.inside)
    after = space.checkpoints.take()
    shown = undo(space.checkpoints, before, after, dry_run=True)
    done = undo(space.checkpoints, before, after, dry_run=False)
    assert space.is_now() == TREE
    assert (done.left_alone, done.failed) == ([], [])
    assert done.changes == shown.changes != []
    # And forth again, into what is shut.
    assert undo(space.checkpoints, after, before, dry_run=False).failed == []
    assert space.checkpoints.take() == after
    assert undo(space.checkpoints, before, after, dry_run=False).failed == []
    assert space.is_now() == TREE


@pytest.mark.parametrize("command", ["chmod 555 . && true", "rm -r src; chmod 555 .", "rm -r docs; chmod 000 ."])
def test_a_project_that_is_shut_itself_is_undone(space, command):
    before = space.be(TREE)
    sh(command, space.inside)
    mode = stat.S_IMODE(space.inside.stat().st_mode)
    after = space.checkpoints.take()
    undo(space.checkpoints, before, after, dry_run=False)
    assert stat.S_IMODE(space.inside.stat().st_mode) == mode, "its own mode is the run's to put back"
    space.inside.chmod(0o755)
    assert space.is_now() == TREE


def test_looking_leaves_every_mode_as_it_is(space):
    space.be(TREE)
    sh("chmod 000 src/a.py src", space.inside)
    first = space.checkpoints.take()
    assert stat.S_IMODE((space.inside / "src").stat().st_mode) == 0
    assert space.checkpoints.take() == first
    (space.inside / "src").chmod(0o700)
    assert modes(space.inside)["src/a.py"] == 0


def test_a_directory_of_mode_555_takes_a_file_that_was_deleted_from_it_back(space):
    before = space.be({b"d": ("dir", 0o555), b"d/x": file(b"1"), b"d/y": file(b"2", 0o400)})
    sh("chmod 755 d; rm d/x d/y; chmod 555 d", space.inside)
    after = space.checkpoints.take()
    undo(space.checkpoints, before, after, dry_run=False)
    assert space.is_now() == {b"d": ("dir", 0o555), b"d/x": file(b"1"), b"d/y": file(b"2", 0o400)}


def test_later_work_in_what_was_shut_is_not_lost(space):
    before = space.be(TREE)
    sh("echo call > src/a.py; chmod -R 000 src", space.inside)
    after = space.checkpoints.take()
    sh("chmod 700 src; chmod 600 src/a.py; echo later > src/a.py; chmod 000 src/a.py src", space.inside)
    left = undo(space.checkpoints, before, after, dry_run=False).left_alone
    assert ("src/a.py", "was changed since") in [(each.path, each.reason) for each in left]
    opened(space.inside)
    assert (space.inside / "src/a.py").read_text() == "later\n"


@pytest.mark.parametrize("command", SHUTTING)
def test_what_a_call_has_shut_outside_of_the_project_comes_back_exactly(tmp_path, command):
    kept = OutsideFiles(str(tmp_path / "state"))
    project, place = tmp_path / "project", tmp_path / "place"
    project.mkdir()
    place.mkdir()
    trees.write(place, TREE)
    before = kept.keep("spc_1", str(project), [str(place)], into=False).state
    try:
        sh(command, place)
        after = kept.look("spc_1", before)
        assert kept.changes("spc_1", before, after)
        assert all(kept.expect("spc_1", before, after))
        assert kept.undo("spc_1", before, after, dry_run=False).failed == []
        assert trees.read(place) == TREE
    finally:
        opened(place)


def test_the_control_is_a_user_who_may_not_look():
    """What the guard is for; only where the tests are not run by root."""
    if os.getuid() == 0:
        return
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "x").write_text("x")
        (Path(directory) / "x").chmod(0)
        with pytest.raises(PermissionError):
            (Path(directory) / "x").read_text()
