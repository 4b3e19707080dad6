"""What a call leaves running belongs to it, and an undo right after a call waits for its end."""

import json
import os
import re
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

import pytest

from bascule.foundation.errors import Conflict
from faults.lacking import only_root
from native_scene import snapshot
from patience import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
_numbers = count(1)


class Client:
    """A client of these hooks: a process of its own, whose shells are its children."""

    # It runs what it is told, a line each, and says when the shell has ended.
    PROGRAM = """
import json, subprocess, sys
kept = []
for line in sys.stdin:
    asked = json.loads(line)
    shell = subprocess.Popen(["bash", "-c", asked["command"]], cwd=asked["cwd"], start_new_session=asked["own"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    kept.append(shell) if asked["background"] else shell.wait()
    print(shell.pid, flush=True)
"""

    def __init__(self, scene):
        self.scene = scene
        # In its project, and in a terminal session that it shares with no other test.
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=scene.root, start_new_session=True,
        )  # fmt: skip

    def close(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        self.process.stdout.close()

    def send(self, method, name, command, call_id):
        event = self.scene.event(name, "Bash", {"command": command}, tool_use_id=call_id)
        params = {"client": self.scene.client, "event": event, "pid": self.process.pid}
        return self.scene.wire.call(method, params)

    def start(self, command, *, own=True, background=False):
        """The call without its end."""
        call_id = f"left{next(_numbers)}"
        answer = self.send("native.before", "PreToolUse", command, call_id)
        asked = {"command": command, "cwd": str(self.scene.root), "own": own, "background": background}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        self.shell = int(self.process.stdout.readline())
        return call_id, answer

    def has_ended(self):
        """The last shell, for which nobody waits."""
        return Path(f"/proc/{self.shell}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    def run(self, command, **how):
        call_id, answer = self.start(command, **how)
        self.send("native.after", "PostToolUse", command, call_id)
        return answer["runId"]


@pytest.fixture
def client(scene):
    made = Client(scene)
    yield made
    made.close()


@pytest.fixture
def gate(tmp_path):
    """`cat GATE` waits until it is opened."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def opened(gate):
    # Blocks until somebody reads it.
    with open(gate, "w") as file:
        file.write("go\n")


def view(scene, run_id):
    return next(run for run in scene.wire.call("runs.list", {}) if run["runId"] == run_id)


def running(scene, run_id):
    """Its note, once the daemon has seen that a process is left."""
    while "still runs" not in view(scene, run_id).get("note", ""):
        assert view(scene, run_id)["status"] == "running"
    return view(scene, run_id)["note"]


LEAVES = {
    "nohup": ("nohup sh -c 'cat {gate}; rm -rf src' > /dev/null 2>&1 &", {}),
    "in the client's own session": ("nohup sh -c 'cat {gate}; rm -rf src' > /dev/null 2>&1 &", {"own": False}),
    "setsid": ("setsid sh -c 'cat {gate}; rm -rf src' > /dev/null 2>&1 &", {}),
    "a child of the client": ("cat {gate}; rm -rf src", {"background": True}),
    "a process that leaves another": ("(sh -c 'cat {gate}; (sleep 0; rm -rf src) &' &) > /dev/null 2>&1", {}),
}


@pytest.mark.parametrize(("command", "how"), LEAVES.values(), ids=LEAVES.keys())
def test_what_a_process_changes_after_its_call_is_undone_with_the_call(scene, client, gate, command, how):
    was = snapshot(scene.root)
    run_id = client.run(command.format(gate=gate), **how)
    note = running(scene, run_id)
    with pytest.raises(Conflict, match="a process of the call still runs") as refused:
        scene.undo(run_id)
    # Its command is shown as it was at the first look: a shell may not have become it by then.
    assert re.search(r"\((\d+), .+\)", note)
    assert note in str(refused.value)
    opened(gate)
    assert scene.wire.call("runs.wait", {"runId": run_id, "waitMs": 60_000})["status"] == "completed"
    assert not (scene.root / "src").exists()
    scene.undo(run_id)
    assert snapshot(scene.root) == was


def test_a_call_that_leaves_nothing_is_over_with_its_shell(scene, client):
    """The control."""
    run_id = client.run("rm -rf src")
    assert scene.wire.call("runs.wait", {"runId": run_id, "waitMs": 60_000})["status"] == "completed"
    assert "note" not in view(scene, run_id)


def test_a_process_of_an_earlier_call_is_not_taken_for_one_of_a_later_call(scene, client, gate):
    first = client.run(f"touch begun; cat {gate}", background=True)
    running(scene, first)
    second = client.run("rm -rf src")
    assert scene.wire.call("runs.wait", {"runId": second, "waitMs": 60_000})["status"] == "completed"
    assert view(scene, first)["status"] == "running"
    opened(gate)
    assert scene.wire.call("runs.wait", {"runId": first, "waitMs": 60_000})["status"] == "completed"


def test_a_process_that_somebody_else_started_meanwhile_is_not_the_calls(scene, client, gate):
    call_id, answer = client.start("rm -rf src")
    other = subprocess.Popen(["cat", gate], cwd=scene.root)
    client.send("native.after", "PostToolUse", "rm -rf src", call_id)
    done = scene.wire.call("runs.wait", {"runId": answer["runId"], "waitMs": 60_000})
    assert done["status"] == "completed"
    opened(gate)
    other.wait(PATIENCE)


def test_a_run_of_which_a_process_is_left_can_be_ended_and_undone(scene, client, gate):
    was = snapshot(scene.root)
    run_id = client.run(f"rm -rf src; nohup cat {gate} > /dev/null 2>&1 &")
    running(scene, run_id)
    scene.wire.call("runs.cancel", {"runId": run_id})
    scene.undo(run_id)
    assert snapshot(scene.root) == was
    opened(gate)


def test_an_undo_right_after_a_call_waits_for_the_checkpoint_after_it(scene, client):
    was = snapshot(scene.root)
    for number in range(10):
        run_id = client.run(f"rm -rf src; head -c 3000000 /dev/urandom > big{number}")
        scene.undo(run_id)
        assert snapshot(scene.root) == was


def test_an_undo_waits_for_a_hook_that_reports_the_end_a_moment_later(scene, client):
    was = snapshot(scene.root)
    call_id, answer = client.start("rm -rf src")
    undone = []
    undo = threading.Thread(target=lambda: undone.append(scene.undo(answer["runId"])))
    # On a connection of its own, because this one waits.
    scene.wire, wire = type(scene.wire).connect(scene.daemon.state_dir), scene.wire
    with wire:
        undo.start()
        event = scene.event("PostToolUse", "Bash", {"command": "rm -rf src"}, tool_use_id=call_id)
        wire.call("native.after", {"client": "claude", "event": event, "pid": client.process.pid})
        undo.join(PATIENCE)
    assert undone
    assert snapshot(scene.root) == was


def test_an_undo_of_a_call_that_goes_on_says_who_has_to_end_it(scene, client):
    _, answer = client.start("touch begun")
    with pytest.raises(Conflict, match="claude has not reported the end of the call") as refused:
        scene.undo(answer["runId"])
    assert "if the call was interrupted, or its client is gone" in refused.value.hint


def test_an_undo_ends_the_call_of_a_client_that_is_gone(scene, client):
    """Control: the test above."""
    was = snapshot(scene.root)
    _, answer = client.start("rm -rf src")
    client.close()
    scene.undo(answer["runId"])
    assert snapshot(scene.root) == was


def test_an_undo_ends_the_call_after_which_a_client_can_start_no_hook(scene, client, gate):
    """In a directory that the call has moved away nothing starts; control: nor is that so while the call runs."""
    was = snapshot(scene.root)
    _, answer = client.start(f"mv {scene.root} {scene.root}-gone; cat {gate}", background=True)
    while scene.root.exists():
        assert not client.has_ended()
    with pytest.raises(Conflict, match="has not reported"):
        scene.undo(answer["runId"])
    opened(gate)
    while not client.has_ended():
        pass
    scene.undo(answer["runId"])
    assert snapshot(scene.root) == was


def test_an_undo_ends_the_call_that_moved_the_project_from_under_its_client(scene, client):
    was = snapshot(scene.root)
    _, answer = client.start(f"mv {scene.root} {scene.root}-gone")
    scene.undo(answer["runId"])
    assert snapshot(scene.root) == was


# The project is elsewhere and something of the call runs on, seen or not by whoever looks for what a call has left.
RUNS_ON = {
    "it stands in the moved project": "(cat {gate}; echo) > /dev/null 2>&1 &",
    "its command has our name": ": ~/bascule ; read x < {gate}",
    "in a session of its own": "setsid sh -c 'cat {gate}; true' &",
}


@pytest.mark.parametrize("command", RUNS_ON.values(), ids=RUNS_ON.keys())
def test_a_call_that_runs_on_is_not_ended_by_an_undo(scene, client, gate, command):
    """The control is the test above: of such a call that has ended an undo is the end."""
    _, answer = client.start(f"mv {scene.root} {scene.root}-gone; " + command.format(gate=gate), background=True)
    while scene.root.exists():
        pass
    with pytest.raises(Conflict, match="has not reported"):
        scene.undo(answer["runId"])
    opened(gate)


@only_root
def test_a_call_that_runs_on_as_another_user_is_not_ended_by_an_undo(scene, client):
    moved = f"mv {scene.root} {scene.root}-gone"
    _, answer = client.start(f"{moved}; exec setpriv --reuid 65534 --clear-groups tail -f /dev/null", background=True)
    while scene.root.exists():
        pass
    with pytest.raises(Conflict, match="has not reported"):
        scene.undo(answer["runId"])
    os.kill(client.shell, 15)


@pytest.mark.parametrize("other", ["a call that never ended", "a client that resumed and went", "another directory"])
def test_what_else_a_session_reports_does_not_end_a_call_that_runs(scene, client, gate, other):
    place = scene.root if other == "another directory" else f"{scene.root}-gone"
    moved = "" if other == "another directory" else f"mv {scene.root} {place}; "
    (scene.root / "below").mkdir()
    _, answer = client.start(f"{moved}rm -rf {place}/tests; cat {gate}", background=True)
    while (Path(place) / "tests").exists() or not Path(place).exists():
        pass
    if other == "a call that never ended":
        client.send("native.before", "PreToolUse", "sleep 1", "refused")
    elif other == "another directory":
        event = scene.event("PreToolUse", "Bash", {"command": "ls"}, tool_use_id="below") | {"cwd": f"{place}/below"}
        scene.wire.call("native.before", {"client": scene.client, "event": event, "pid": client.process.pid})
        (scene.root / "below").rmdir()
    else:
        gone = subprocess.Popen(["true"])
        event = scene.event("SessionStart", source="resume")
        scene.wire.call("sessions.note", {"client": scene.client, "event": event, "pid": gone.pid})
        gone.wait(PATIENCE)
    with pytest.raises(Conflict, match="has not reported"):
        scene.undo(answer["runId"])
    opened(gate)


def test_bascule_undo_last_never_takes_an_older_call_for_one_that_is_not_over(scene, client, gate):
    client.run("echo older > older.txt")
    run_id = client.run(f"nohup sh -c 'cat {gate}; rm -rf src' > /dev/null 2>&1 &")
    running(scene, run_id)
    bascule = os.path.join(os.path.dirname(sys.executable), "bascule")
    done = subprocess.run(
        [bascule, "undo", "--state-dir", scene.daemon.state_dir],
        cwd=scene.root, capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode != 0
    assert f"{run_id} is not over yet" in done.stderr
    assert (scene.root / "older.txt").exists()
    opened(gate)


def test_calls_in_quick_succession_are_told_apart(scene, client):
    """The second one begins when the first was reported, and its tree is taken when that of the first is."""
    was = snapshot(scene.root)
    first = client.run("echo 1 > src/m1.py; rm -rf tests")
    second = client.run("echo 2 > src/m1.py; rm -rf src/deep")
    scene.undo(second)
    undone = scene.undo(first)
    assert "leftAlone" not in undone
    assert snapshot(scene.root) == was
