"""A daemon that is killed at any step of an undo: the same undo goes on, or `redo` takes back what was done."""

import os
import shutil
import stat

import pytest

from bascule.foundation.errors import BasculeError
from bascule.workspace.machine.files.shut import LIST
from native_scene import Scene, make_project, snapshot
from patience import PATIENCE

# Ends the process at the n-th time that it is about to open or change a name, counted from when the file is there.
DYING = """
import os, sys
ARMED = os.environ["DIES_AT"]
CHANGES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.symlink", "os.chmod", "os.link"}
left = None
def watch(event, arguments):
    global left
    if event not in CHANGES:
        return
    if left is None:
        if not os.path.exists(ARMED):
            return
        left = -1
        with open(ARMED) as file:
            steps = int(file.read())
        os.unlink(ARMED)
        left = steps
        return
    left -= 1
    if left == 0:
        os.kill(os.getpid(), 9)
if len(sys.orig_argv) > 3 and "up" in sys.orig_argv:
    sys.addaudithook(watch)
"""
# The project stays, and the project itself goes elsewhere.
CALLS = {
    "files, git and outside": (
        "git reset -q --hard HEAD~1; rm -rf tests; mv src/deep ~/outside; echo new > new; mkdir -p a/b; chmod 0 a; "
        "rm run.sh && mkdir run.sh; rm ~/kept; mkdir ~/kept; touch ~/kept/x; chmod 500 src; "
        "rm -rf ~/papers; mkdir -p ~/shut/in; touch ~/shut/in/x; chmod 0 ~/shut"
    ),
    "the project moved": "rm -rf tests; echo new > new; mv ~/project ~/gone",
    "the project removed": "rm -rf ~/project",
}
# How many steps lie between two kills: an undo of few files has fewer.
STRIDES = dict.fromkeys(CALLS, 1) if os.environ.get("BASCULE_LONG") else dict(zip(CALLS, (37, 7, 29), strict=True))


@pytest.fixture
def dying(start_daemon, tmp_path):
    home = tmp_path / "home"
    root = home / "project"
    root.mkdir(parents=True)
    make_project(root)
    (home / "kept").write_text("kept outside\n")
    (home / "papers" / "in").mkdir(parents=True)
    (home / "papers" / "in" / "x").write_text("papers outside\n")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(DYING)
    env = {"HOME": str(home), "PYTHONPATH": str(tmp_path / "site"), "DIES_AT": str(tmp_path / "armed")}
    made = Scene(start_daemon(None, env=env), root)
    made.note("SessionStart")
    made.armed = tmp_path / "armed"
    yield made
    made.close()


def home_of(scene):
    """All of the home: names, modes, contents. What a killed undo has staged goes with a later look at the project."""
    found, _, _ = snapshot(scene.root.parent)
    git = snapshot(scene.root)[1:] if scene.root.is_dir() else None
    return {name: each for name, each in found.items() if ".bascule-" not in name}, git


def undo(scene, run_id):
    """Whether the daemon survived it."""
    try:
        scene.undo(run_id)
    except (BasculeError, OSError, EOFError):
        scene.daemon.kill()
        scene.wire.close()
        scene.daemon.start()
        scene.wire = type(scene.wire).connect(scene.daemon.state_dir)
        return False
    return True


@pytest.mark.timeout(3 * PATIENCE)
@pytest.mark.parametrize("call", CALLS)
def test_an_undo_that_is_killed_at_any_step_is_finished_or_taken_back(dying, call):
    run_id = dying.run(CALLS[call])["runId"]
    dying.undo(run_id)
    back = home_of(dying)
    dying.redo()
    # A project that was removed is an empty directory now.
    now = there = home_of(dying)
    deaths, halves = 0, 0
    arm(dying, 1)
    while not undo(dying, run_id):
        deaths += 1
        killed = shut_again(dying, there, home_of(dying))
        halves += killed not in (there, back)
        if killed == there:
            # Of an undo that has changed nothing there is nothing to take back.
            dying.undo(run_id)
        elif killed != back and deaths % 2:
            dying.undo(run_id)
            assert differing(home_of(dying), back) == {}, deaths
        dying.redo()
        assert differing(home_of(dying), now) == {}, deaths
        dying.undo(run_id)
        assert differing(home_of(dying), back) == {}, deaths
        # A call of its own for each: an undo looks at all that was done since, and at what killed ones have left, and
        # would take more steps each time.
        for staged in dying.root.glob(".bascule-*"):
            shutil.rmtree(staged)
        run_id = dying.run(CALLS[call])["runId"]
        there = home_of(dying)
        arm(dying, 1 + deaths * STRIDES[call])
    assert differing(home_of(dying), back) == {}
    assert deaths > 2
    # Where a few steps alone change something, a few kills may all come before or after them.
    assert halves or (STRIDES[call] > 1 and call != "files, git and outside")


def differing(found, wanted):
    """Names, or what of git, with both values."""
    both = found[0] | wanted[0]
    files = {name: (found[0].get(name), wanted[0].get(name)) for name in both}
    return {name: pair for name, pair in {**files, ".git": (found[1], wanted[1])}.items() if pair[0] != pair[1]}


def shut_again(scene, now, killed):
    """As it was, where nothing was done but to look into what keeps its owner out; else as it is.

    It died before its first change then: docs/native.md says what that leaves. While it is open we see what lies in it.
    """
    opened = [scene.root.parent / name for name in now[0].keys() & killed[0].keys() if is_opened(now, killed, name)]
    for path in opened:
        path.chmod(0)
    if opened and home_of(scene) == now:
        return now
    for path in opened:
        path.chmod(LIST)
    return killed


def is_opened(now, killed, name):
    (kind, mode, _), (_, found, _) = now[0][name], killed[0][name]
    return stat.S_ISDIR(kind) and mode == 0 and found == LIST


def arm(scene, steps):
    """In one step: the daemon looks at any moment."""
    written = scene.armed.with_name("written")
    written.write_text(str(steps))
    written.replace(scene.armed)
