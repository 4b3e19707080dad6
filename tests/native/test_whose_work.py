"""Who takes back whose work without a question: by real processes, below a client's program and in a terminal."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from bascule.client import SyncClient
from bascule.foundation.errors import ApprovalRequired
from bascule.workspace.machine.callers import is_client_by
from inside import BASCULE
from native_scene import Scene, make_project
from patience import PATIENCE

# A client: it takes the name of its file, and runs what it is told for as long as it is told something.
CLIENT = """\
import os, subprocess, sys
print(os.getpid(), flush=True)
for line in sys.stdin:
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    print(repr((done.returncode, done.stdout, done.stderr)), flush=True)
"""
APPROVAL = 11


class Client:
    """`claude`, as the process table shows it."""

    def __init__(self, process, pid):
        self._process = process
        self.pid = pid

    def shell(self, command):
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return eval(self._process.stdout.readline())


def as_orphan(command, place):
    """Of no parent but process 1: these tests may themselves run below an agent's client."""
    end = place / "end"
    end.unlink(missing_ok=True)
    os.mkfifo(end)
    return f"({command} >{place}/out 2>{place}/err </dev/null; echo $? >{end}) >/dev/null 2>&1 &"


def result_of(place):
    code = int((place / "end").read_text())
    return code, (place / "out").read_text(), (place / "err").read_text()


def clean():
    return {name: value for name, value in os.environ.items() if not name.startswith(("CLAUDE", "CODEX", "GEMINI"))}


@pytest.fixture
def start_client(tmp_path):
    started = []

    def start(name="claude"):
        place = tmp_path / f"program-{len(started)}"
        place.mkdir()
        script = place / name
        script.write_text(CLIENT)
        process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean()
        )
        started.append(process)
        return Client(process, int(process.stdout.readline()))

    yield start
    for process in started:
        process.stdin.close()
        process.stdout.close()
        process.wait(PATIENCE)


@pytest.fixture
def place(start_daemon, tmp_path):
    home = tmp_path / "home"
    project = home / "project"
    project.mkdir(parents=True)
    make_project(project)
    return start_daemon(None, env={"HOME": str(home)}), project


class Session(Scene):
    """Of a client's process."""

    def __init__(self, place, client, session):
        super().__init__(*place, session=session)
        self._pid = client.pid
        self.note("SessionStart")

    def send(self, method, event):
        return self.wire.call(method, {"client": self.client, "event": event, "pid": self._pid})


@contextmanager
def session(place, client, name):
    made = Session(place, client, name)
    try:
        yield made
    finally:
        made.close()


def undo(daemon, run_id):
    return f"{' '.join(BASCULE)} undo {run_id} --json --state-dir {daemon.state_dir}"


def test_a_session_takes_back_its_own_work_from_below_its_client(place, start_client):
    daemon, project = place
    client = start_client()
    with session(place, client, "one") as one:
        run_id = one.run("rm -rf src")["runId"]
    code, _, errors = client.shell(undo(daemon, run_id))
    assert code == 0, errors
    assert (project / "src" / "m1.py").exists()


def test_a_session_that_takes_back_the_work_of_another_asks(place, start_client):
    daemon, project = place
    mine, other = start_client(), start_client("codex")
    with session(place, mine, "one") as one:
        run_id = one.run("rm -rf src")["runId"]
    code, _, errors = other.shell(undo(daemon, run_id))
    assert code == APPROVAL, errors
    assert "is the work of a session of claude" in errors
    assert "bascule person set" in errors, "nobody is set who could answer"
    assert not (project / "src").exists()
    # Nor does it see what is in the files.
    assert other.shell(undo(daemon, run_id) + " --dry-run")[0] == APPROVAL


def test_what_has_lost_its_parents_is_known_by_the_mark_that_the_client_set(place, start_client, tmp_path):
    daemon, _ = place
    with session(place, start_client(), "one") as one:
        run_id = one.run("rm -rf src")["runId"]
    start_client().shell(as_orphan(f"CLAUDECODE=1 {undo(daemon, run_id)}", tmp_path))
    assert result_of(tmp_path)[0] == APPROVAL


def test_a_terminal_that_stands_below_no_client_takes_back_anybodys_work(place, start_client, tmp_path):
    """The control of the tests above: the same command, and the same work."""
    daemon, project = place
    with session(place, start_client(), "one") as one:
        run_id = one.run("rm -rf src")["runId"]
    subprocess.run(["sh", "-c", as_orphan(undo(daemon, run_id), tmp_path)], check=True, env=clean())
    code, out, errors = result_of(tmp_path)
    assert code == 0, errors
    assert json.loads(out)["changes"]
    assert (project / "src" / "m1.py").exists()


def test_an_agent_by_its_token_takes_back_its_own_session_and_asks_for_others(place, start_client):
    daemon, project = place
    with SyncClient.connect(daemon.state_dir) as wire:
        ada, spock = (
            wire.call("agents.register", {"agentId": name, "type": "claude"})["agentToken"] for name in ("Ada", "Spock")
        )
    client = start_client()
    with SyncClient.connect(daemon.state_dir, token=ada) as own, session(place, client, "one") as one:
        # Its MCP server reports that a turn begins.
        event = one.event("UserPromptSubmit", prompt="x")
        own.call("sessions.note", {"client": "claude", "event": event, "pid": client.pid})
        run_id = one.run("rm -rf src")["runId"]
        with SyncClient.connect(daemon.state_dir, token=spock) as other, pytest.raises(ApprovalRequired):
            other.call("runs.undo", {"runId": run_id})
        assert not (project / "src").exists()
        own.call("runs.undo", {"runId": run_id})
    assert (project / "src" / "m1.py").exists()


@pytest.mark.parametrize(
    ("words", "is_client"),
    [
        (["claude"], True),
        (["node", "/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js"], True),
        (["node", "--no-warnings", "/x/bin/gemini"], True),
        (["/opt/codex", "exec"], True),
        (["vim", "/home/claude/notes.txt"], False),
        (["less", "codex.d/x"], False),
        (["python3", "-m", "http.server", "claude"], False),
        (["bash", "try-clients.sh", "codex"], False),
        (["vim", "claude.md"], False),
        (["tmux", "new", "claude"], False),
    ],
)
def test_a_client_is_known_by_its_name_its_script_or_its_package(words, is_client):
    assert is_client_by(words) is is_client
