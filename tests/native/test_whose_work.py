"""Who takes back whose work without a question: by real processes, below a client's program and in a terminal."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from hook_ways import HiddenTool

from bascule.client import SyncClient
from bascule.foundation.errors import ApprovalRequired
from bascule.workspace.machine.callers import is_client_by
from inside import BASCULE
from native_scene import Scene, make_project
from patience import PATIENCE
from typed_commands import as_orphan, bascule, clean, result_of

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


@pytest.fixture
def person(place):
    """A connection of the person's, with the passphrase given just now."""
    daemon, _ = place
    with SyncClient.connect(daemon.state_dir) as wire:
        for method in ("person.set", "person.unlock"):
            wire.call(method, {"passphrase": "correct horse battery staple"})
        yield wire


class Asked(NamedTuple):
    question: dict
    # Of the call that waited for the answer.
    result: Any


def asked(person, decision, act):
    """What this asks the person, who decides so while it waits."""
    with ThreadPoolExecutor(1) as beside:
        acting = beside.submit(act)
        end = time.monotonic() + PATIENCE
        while not (questions := person.call("approvals.list", {})):
            assert not acting.done(), f"nobody was asked: {acting.result()}"
            assert time.monotonic() < end, "nobody is asked"
            time.sleep(0.02)
        about = {"approvalId": questions[0]["approvalId"]}
        question = person.call("approvals.show", about)
        person.call("approvals.decide", {**about, "decision": decision})
        return Asked(question, acting.result())


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


def registered(daemon, *names):
    """Their tokens."""
    with SyncClient.connect(daemon.state_dir) as wire:
        return [wire.call("agents.register", {"agentId": name, "type": "claude"})["agentToken"] for name in names]


def note_of(scene, client):
    """As an agent's MCP server reports that a turn begins."""
    return {"client": "claude", "event": scene.event("UserPromptSubmit", prompt="x"), "pid": client.pid}


def post(daemon, path, token=None):
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(PATIENCE)
        door.connect(os.path.join(daemon.state_dir, "http.sock"))
        connection = http.client.HTTPConnection("bascule")
        connection.sock = door
        more = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("POST", path, "{}", {"Content-Type": "application/json", **more})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


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
    ada, spock = registered(daemon, "Ada", "Spock")
    client = start_client()
    with SyncClient.connect(daemon.state_dir, token=ada) as own, session(place, client, "one") as one:
        own.call("sessions.note", note_of(one, client))
        run_id = one.run("rm -rf src")["runId"]
        with SyncClient.connect(daemon.state_dir, token=spock) as other, pytest.raises(ApprovalRequired):
            other.call("runs.undo", {"runId": run_id})
        assert not (project / "src").exists()
        own.call("runs.undo", {"runId": run_id})
    assert (project / "src" / "m1.py").exists()


def test_a_session_that_is_named_by_its_client_is_taken_back_by_itself_alone(place, start_client):
    daemon, project = place
    mine, other = start_client(), start_client("codex")
    command = f"cd {project} && {' '.join(BASCULE)} undo --session claude --state-dir {daemon.state_dir}"
    with session(place, mine, "one") as one:
        one.run("rm -rf src")
    assert other.shell(command)[0] == APPROVAL
    assert other.shell(command.replace("--session claude", ""))[0] == APPROVAL, "the last run is not its own"
    assert not (project / "src").exists()
    code, _, errors = mine.shell(command)
    assert code == 0, errors
    assert (project / "src" / "m1.py").exists()


def test_one_of_many_that_is_the_work_of_another_asks_for_all(place, start_client):
    daemon, project = place
    mine, other = start_client(), start_client("codex")
    with session(place, mine, "one") as one, session(place, other, "two") as two:
        first = two.run("echo 1 > first")["runId"]
        one.run("rm -rf src")
        two.run("echo 2 > second")
    command = f"cd {project} && {' '.join(BASCULE)} undo --to {first} --state-dir {daemon.state_dir}"
    code, _, errors = other.shell(command)
    assert code == APPROVAL, errors
    assert not (project / "src").exists()
    assert (project / "second").exists(), "not even its own part"


@pytest.mark.parametrize("decision", ["approved", "denied"])
def test_a_person_decides_whether_one_session_takes_back_the_work_of_another(place, start_client, person, decision):
    daemon, project = place
    mine, other = start_client(), start_client("codex")
    with session(place, mine, "one") as one:
        run_id = one.run("rm -rf src")["runId"]
    question, (code, _, errors) = asked(person, decision, lambda: other.shell(undo(daemon, run_id)))
    assert question["rule"] == "undo.others"
    assert "is the work of a session of claude" in question["reason"]
    assert "+value = 0" in question["preview"], "what comes back"
    assert (code == 0) is (decision == "approved"), errors
    assert (project / "src" / "m1.py").exists() is (decision == "approved")


def test_a_yes_to_one_undo_is_none_to_the_next(place, start_client, person):
    daemon, project = place
    mine, other = start_client(), start_client("codex")
    with session(place, mine, "one") as one:
        first, second = (one.run(f"rm -rf {name}")["runId"] for name in ("src", "tests"))
    assert asked(person, "approved", lambda: other.shell(undo(daemon, first))).result[0] == 0
    assert asked(person, "denied", lambda: other.shell(undo(daemon, second))).result[0] != 0
    assert (project / "src").exists()
    assert not (project / "tests").exists()


def test_the_person_with_a_fresh_proof_takes_back_anybodys_work(place, start_client, person):
    _, project = place
    with session(place, start_client(), "one") as one:
        run_id = one.run("rm -rf src")["runId"]
    person.call("runs.undo", {"runId": run_id})
    assert (project / "src" / "m1.py").exists()


def test_over_http_an_agent_takes_back_its_own_session_and_asks_for_others(place, start_client):
    daemon, project = place
    ada, spock = registered(daemon, "Ada", "Spock")
    client = start_client()
    with SyncClient.connect(daemon.state_dir, token=ada) as own, session(place, client, "one") as one:
        own.call("sessions.note", note_of(one, client))
        run_id = one.run("rm -rf src")["runId"]
    status, answer = post(daemon, f"/v1/runs/{run_id}/undo", token=spock)
    assert status == 202, answer
    assert "approval" in answer["error"]["code"], answer
    # Nobody says who calls without a token: it may stand below a client.
    assert post(daemon, f"/v1/runs/{run_id}/undo")[0] == 202
    assert not (project / "src").exists()
    status, answer = post(daemon, f"/v1/runs/{run_id}/undo", token=ada)
    assert status == 200, answer
    assert (project / "src" / "m1.py").exists()


def test_over_mcp_an_agent_takes_back_its_own_work_and_asks_for_others(place, start_client):
    daemon, project = place
    with session(place, start_client(), "one") as one:
        of_other = one.run("rm -rf src")["runId"]
    server = HiddenTool(daemon, project)
    try:
        given = json.dumps({"command": "rm run.sh"})
        # Both events of one call.
        for event in ("PreToolUse", "PostToolUse"):
            server.call("Bash", given, event=event, field=("id", '"call-1"'))
            (project / "run.sh").unlink(missing_ok=True)
        refused = server.tool("run_undo", runId=of_other)
        assert "is the work of a session of claude" in json.dumps(refused)
        assert not (project / "src").exists()
        # The last that it did itself, whatever others did since.
        done = server.tool("run_undo")
        assert [each["path"] for each in done["structuredContent"]["changes"]] == ["run.sh"], done
    finally:
        server.close()
    assert (project / "run.sh").exists()
    assert not (project / "src").exists()


def test_an_undo_of_a_steering_file_asks_only_where_an_agent_wrote_what_it_brings(place, start_client, person):
    daemon, project = place
    client = start_client()
    (project / ".envrc").write_text("mine\n")
    with session(place, client, "one") as one:
        first, second = (one.run(f"echo {word} > .envrc")["runId"] for word in ("first", "second"))
    question = asked(person, "denied", lambda: client.shell(undo(daemon, second))).question
    assert question["rule"] == "steering-files-ask"
    assert "+first" in question["preview"]
    assert (project / ".envrc").read_text() == "second\n"
    # Both at once bring what the person had.
    command = f"cd {project} && {' '.join(BASCULE)} undo --session one --state-dir {daemon.state_dir}"
    code, _, errors = client.shell(command)
    assert code == 0, errors
    assert (project / ".envrc").read_text() == "mine\n"
    assert first != second


def test_a_redo_is_judged_as_the_new_effect_that_it_is(place, start_client, person):
    daemon, project = place
    client = start_client()
    redo = f"cd {project} && {' '.join(BASCULE)} redo --state-dir {daemon.state_dir}"
    with session(place, client, "one") as one:
        plain = one.run("rm -rf src")["runId"]
        assert client.shell(undo(daemon, plain))[0] == 0
        code, _, errors = client.shell(redo)
        assert code == 0, errors
        assert not (project / "src").exists()
        steering = one.run("echo evil > .envrc")["runId"]
    assert client.shell(undo(daemon, steering))[0] == 0
    question = asked(person, "denied", lambda: client.shell(redo)).question
    assert "+evil" in question["preview"]
    assert not (project / ".envrc").exists()


def test_what_the_person_took_back_no_session_does_again_without_asking(place, start_client, person):
    """The undo is the person's own work, also where a terminal has no name; the control: their own redo."""
    daemon, project = place
    client = start_client()
    with session(place, client, "one") as one:
        run_id = one.run("rm -rf src")["runId"]
    assert bascule(daemon.state_dir, project, "undo", run_id).code == 0
    redo = f"cd {project} && {' '.join(BASCULE)} redo --state-dir {daemon.state_dir}"
    asked(person, "denied", lambda: client.shell(redo))
    assert (project / "src" / "m1.py").exists()
    assert bascule(daemon.state_dir, project, "redo").code == 0
    assert not (project / "src").exists()


def test_an_undo_of_anothers_work_is_one_record_that_names_both(place, start_client, person):
    daemon, _ = place
    (spock,) = registered(daemon, "Spock")
    with session(place, start_client(), "one") as one:
        run_id = one.run("rm -rf src")["runId"]
    with SyncClient.connect(daemon.state_dir, token=spock) as wire:
        asked(person, "approved", lambda: wire.call("runs.undo", {"runId": run_id}))
    records = person.call("ledger.tail", {"limit": 200})
    (done,) = (each for each in records if each["method"] == "runs.undo" and each["outcome"] == "ok")
    assert done["principal"] == "agent:Spock"
    assert done["details"]["of"] == [run_id]
    # Whose work it was is there to read also when the run is no longer kept.
    assert {"claude", "one"} <= set(re.findall(r"\w+", json.dumps(done["details"])))


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
