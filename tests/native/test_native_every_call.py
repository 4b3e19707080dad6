"""Every call of an agent's own tool that may change something is a run: the first of a session, and right after much
changed. With an undo, or with the reason why there is none.
"""

import base64
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_native_calls import bash, hook

from native_scene import Scene, make_project, snapshot
from patience import PATIENCE

BASCULE = str(Path(sys.executable).parent / "bascule")
_REMOVES = base64.b64encode(b"import shutil; shutil.rmtree('src')").decode()
# Commands of which no word says that something is taken away, and some that do.
CHANGES = {
    "chmod -R": "chmod -R a+rwx .",
    "set-user-ID": "chmod 4755 run.sh",
    "a script of a package": "npm run wipe",
    "a target of make": "make clobber",
    "ed": "printf '1d\\nw\\nq\\n' | ed -s src/m1.py",
    "vim": "vim -es -c '1d' -c 'wq' src/m1.py",
    "python in base64": f'''python3 -c "import base64; exec(base64.b64decode('{_REMOVES}'))"''',
    "a here-document": "cat > src/m1.py <<X\nlost = 1\nX",
    "tee": "echo lost | tee src/m1.py src/m2.py > out.txt",
    "a script": "bash script.sh",
}
_PROGRAMS = {
    "npm": "#!/bin/sh\nrm -rf src\n",
    "make": "#!/bin/sh\nrm -rf src build\n",
    "vim": "#!/bin/sh\necho >> src/m1.py\n",
    "ed": "#!/bin/sh\ncat > src/m1.py\n",
}


@pytest.fixture
def make_scene(start_daemon, tmp_path, monkeypatch):
    """A session in a project of a home of its own, of which the daemon has not heard before."""
    made = []

    def make(**environment):
        home = tmp_path / f"home{len(made)}"
        project = home / "project"
        project.mkdir(parents=True)
        make_project(project)
        (project / "script.sh").write_text("rm -rf src\n")
        made.append(Scene(start_daemon(None, env={"HOME": str(home)} | environment), project))
        return made[-1]

    # Programs that not every machine has: what the daemon reads is the command.
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in _PROGRAMS.items():
        if shutil.which(name) is None:
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
    # A package with a script, and a Makefile: the real programs find nothing to do without.
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    yield make
    for each in made:
        each.close()


def _changed(scene, command):
    """What the command does in this project; put in place what the real programs need."""
    if "npm" in command:
        (scene.root / "package.json").write_text('{"scripts": {"wipe": "rm -rf src"}}')
    if "make" in command:
        (scene.root / "Makefile").write_text("clobber:\n\trm -rf src build\n")


def _grown(scene):
    """About 20 MB in thousands of files, a moment ago."""
    for number in range(40):
        folder = scene.root / "generated" / str(number)
        folder.mkdir(parents=True)
        for name in range(50):
            (folder / str(name)).write_bytes(os.urandom(10_000))


def _view(scene, run_id):
    return next(run for run in scene.wire.call("runs.list", {}) if run["runId"] == run_id)


@pytest.mark.parametrize("command", CHANGES.values(), ids=CHANGES.keys())
def test_the_first_call_of_a_session_comes_back_exactly(make_scene, command):
    scene = make_scene()
    _changed(scene, command)
    was = snapshot(scene.root)
    answer = scene.run(command)
    assert snapshot(scene.root) != was, "the command did nothing"
    assert "note" not in answer
    scene.undo(answer["runId"])
    if "4755" in command:
        # No checkpoint holds that bit.
        (scene.root / "run.sh").chmod(0o755)
    assert snapshot(scene.root) == was


def test_calls_right_after_much_changed_come_back_exactly(make_scene):
    scene = make_scene()
    scene.note("SessionStart")
    for command in ("make clobber", "cat > src/m1.py <<X\nlost = 1\nX"):
        _changed(scene, command)
        shutil.rmtree(scene.root / "generated", ignore_errors=True)
        _grown(scene)
        was = snapshot(scene.root)
        answer = scene.run(command)
        assert snapshot(scene.root) != was
        scene.undo(answer["runId"])
        assert snapshot(scene.root) == was


def test_what_a_person_changed_a_moment_before_the_call_stays_when_it_is_undone(scene):
    """The tree is that of the moment: it is not the tree after the call before."""
    scene.run("echo first > a.txt")
    (scene.root / "src" / "m1.py").write_text("a person's\n")
    (scene.root / "person").mkdir()
    (scene.root / "person" / "file").write_text("a person's\n")
    was = snapshot(scene.root)
    scene.undo(scene.run("rm -rf src person")["runId"])
    assert snapshot(scene.root) == was


@pytest.mark.parametrize("command", CHANGES.values(), ids=CHANGES.keys())
def test_without_time_for_a_tree_the_same_calls_are_listed_with_the_reason(make_scene, command):
    """The control: a limit of a millisecond, which no first tree of a project keeps."""
    scene = make_scene(BASCULE_NATIVE_CHECKPOINT_MS="1")
    answer = scene.run(command)
    assert answer["note"].startswith("no undo: the tree before it was not taken: it takes more than 0.001 s")
    assert answer["note"] in answer["output"]["systemMessage"]
    view = _view(scene, answer["runId"])
    assert view["note"] == answer["note"]
    assert "undoable" not in view
    shown = subprocess.run(
        [BASCULE, "runs", "list", "--all", "--state-dir", scene.daemon.state_dir],
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    ).stdout  # fmt: skip
    assert "no undo: the tree before it was not taken" in shown
    assert (scene.wire.call("native.report", {})["withoutUndo"]) == 1


def test_calls_that_only_look_make_no_noise(make_scene):
    scene = make_scene(BASCULE_NATIVE_CHECKPOINT_MS="1")
    for command in ("ls -la", "git status", "cat src/m1.py | head -3", "grep -rn value src", "git log --oneline"):
        _, answer = scene.before(command)
        assert "runId" not in answer
        assert "note" not in answer
        assert "output" not in answer
    assert scene.wire.call("runs.list", {}) == []


def test_a_call_whose_hook_gave_up_has_no_undo_and_never_a_tree_from_its_middle(scene):
    """The daemon stands still; the hook lets the call go on, and it works before the daemon reads of it."""
    scene.run("echo x > a.txt")
    os.kill(scene.daemon.pid, signal.SIGSTOP)
    try:
        assert hook(scene, bash(scene, "rm -rf src", "left")).returncode == 0
        shutil.rmtree(scene.root / "src" / "deep")
    finally:
        os.kill(scene.daemon.pid, signal.SIGCONT)
    end = time.monotonic() + PATIENCE
    while len(runs := scene.wire.call("runs.list", {})) < 2 and time.monotonic() < end:
        pass
    assert runs[0]["native"]["title"] == "rm -rf src"
    assert runs[0]["note"] == "no undo: the tree before it was not taken: its client went on before"
    scene.after("rm -rf src", "left")
    ended = scene.wire.call("runs.wait", {"runId": runs[0]["runId"], "waitMs": 60_000})
    assert ended["status"] == "completed"
