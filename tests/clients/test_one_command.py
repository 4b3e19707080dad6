"""`bascule on` from nothing: what a real client then has, sees and says; and `bascule off`."""

import json
import os
import pty
import select
import subprocess
import termios

import pyte
import pytest
from client_program import DONE, PATIENCE, until
from scripted_model import call

pytestmark = pytest.mark.clients
OPTIONS = {
    "claude": ["--allowedTools", "Bash"],
    "codex": ["--dangerously-bypass-approvals-and-sandbox"],
    "gemini": ["--yolo"],
}
# What clients themselves keep beside their settings; nothing of it is ours.
THEIRS = ("sessions", "projects", "backups", "tmp", "log", "history", "cache", "statsig", "shell-snapshots", "todos")


def shell(model, name, command):
    """A model that runs one command with the client's own shell."""

    def script(prompt):
        if "please" not in prompt:
            return DONE
        if name == "claude":
            return call("Bash", command=command, description="x")
        if name == "gemini":
            return call("run_shell_command", command=command, description="x")
        return (
            call("exec_command", cmd=command)
            if "exec_command" in model.tools
            else call("shell_command", command=command)
        )

    return script


def ours(home):
    """Every file that names us."""
    found = {}
    for path in sorted(home.rglob("*")):
        if path.is_file() and not set(path.relative_to(home).parts) & set(THEIRS):
            found[str(path.relative_to(home))] = path.read_bytes()
    return found


@pytest.mark.parametrize("name", OPTIONS)
def test_one_command_from_nothing_governs_a_client(make_client, model, wire, name):
    """Its tools, its session, its own shell on record and undoable, and the skill told to the model."""
    client = make_client(name, fresh=True)
    client.options = OPTIONS[name]
    (client.project / "keep").write_text("kept\n")
    client.bascule("on", name)
    model.script = shell(model, name, "rm keep")
    client.run("please destroy")
    assert not (client.project / "keep").exists()
    assert any("wait_for_message" in each for each in model.everything), "our tools are not offered"
    assert any("take back what a tool call" in each for each in model.everything), "the skill is not offered"
    daemon = wire(client.daemon)
    run = until(
        lambda: [each for each in daemon.call("runs.list", {}) if each.get("native") and each.get("undoable")],
        "the call is a run",
    )[0]
    daemon.call("runs.undo", {"runId": run["runId"]})
    assert (client.project / "keep").read_text() == "kept\n"
    (session,) = daemon.call("sessions.list", {"client": name})
    assert session["directory"] == str(client.project)
    assert name in client.bascule("sessions")


@pytest.mark.parametrize("name", OPTIONS)
def test_off_leaves_nothing_of_ours_with_a_client_that_was_used(make_client, model, name):
    client = make_client(name, fresh=True)
    client.options = OPTIONS[name]
    client.bascule("on", name)
    model.script = shell(model, name, "true")
    client.run("please run")
    client.bascule("off", name)
    left = [path for path, data in ours(client.home).items() if b"bridge-native" in data or b"agent-bridge" in data]
    assert left == []
    assert not list(client.home.rglob("SKILL.md")) or not [
        each for each in client.home.rglob("SKILL.md") if "bascule" in each.parts
    ]


def test_a_message_is_announced_to_claude_code_without_a_program(make_client, model, spock):
    """The bell through a tool of its own server, which the model is not shown."""
    client = make_client("claude", fresh=True)
    client.options = OPTIONS["claude"]
    client.bascule("on", "claude")
    other = spock(client.daemon)
    sent = []

    def script(prompt):
        if "please" in prompt and not sent:
            handle = next(
                each["agentId"] for each in other.call("agents.list", {}) if each["type"].startswith("claude")
            )
            sent.append(handle)
            other.call("messages.send", {"agentId": handle, "payload": "Are you there?"})
            return call("Bash", command="true", description="x")
        return DONE

    model.script = script
    client.run("please run")
    assert sent
    assert any("[bascule] 1 unread message" in each for each in model.everything)
    assert not [each for each in model.tools if "bell_hook" in each]


def test_claude_code_runs_the_badge_and_keeps_its_hooks_when_somebody_takes_them_out(make_client, model, wire):
    client = make_client("claude", fresh=True)
    client.bascule("on", "claude")
    daemon = wire(client.daemon)
    settings = client.home / ".claude" / "settings.json"
    with Terminal(client) as terminal:
        session = until(lambda: daemon.call("sessions.list", {}), "the session reports")[0]["session"]
        until(lambda: terminal.shows("bascule: observe"), lambda: f"the badge is drawn:\n{terminal}")
        changed = json.loads(settings.read_text())
        del changed["hooks"]
        settings.write_text(json.dumps(changed))
        until(lambda: _show(daemon, session).get("notice"), "the daemon is told")
        records = daemon.call("ledger.tail", {"limit": 200})
        assert "switched_off" in [each.get("details", {}).get("record") for each in records]
        # It still reports: the session that is open keeps its hooks.
        terminal.type("please say\r")
        until(lambda: _show(daemon, session)["evidence"] in ("UserPromptSubmit", "Stop"), "it reports")


def _show(daemon, session):
    return daemon.call("sessions.show", {"client": "claude", "session": session})


class Terminal:
    """The client on a screen of its own."""

    def __init__(self, client):
        self._client = client
        self._screen = pyte.Screen(120, 40)
        self._stream = pyte.ByteStream(self._screen)

    def __enter__(self):
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (40, 120))
        self._process = subprocess.Popen(
            [self._client.program],
            stdin=slave, stdout=slave, stderr=slave, cwd=self._client.project,
            env={**self._client.environment, "LINES": "40", "COLUMNS": "120"}, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        return self

    def shows(self, text):
        while select.select([self._master], [], [], 0)[0]:
            try:
                self._stream.feed(os.read(self._master, 65536))
            except OSError:
                break
        return text in "\n".join(self._screen.display)

    def __str__(self):
        return "\n".join(line.rstrip() for line in self._screen.display)

    def type(self, text):
        self.shows("")
        os.write(self._master, text.encode())

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait(PATIENCE)
        os.close(self._master)
