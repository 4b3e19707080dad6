"""What `bascule setup` wrote, used as the clients use it: a real daemon, their commands, their JSON."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "daemon"))

from living import Living, short_dir

from bascule.cli.main import main
from bascule.foundation.paths import turn_file
from bascule.programs.wrap.turn_state import TurnState
from patience import PATIENCE

BIN = Path(sys.executable).parent
KEPT = ("HOME", "LOGNAME", "PATH", "USER", "SHELL")
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}

# A client: runs the hook through a shell and waits for it.
CLIENT = "import subprocess, sys; sys.exit(subprocess.run(['/bin/sh', '-c', sys.argv[1]]).returncode)"


@pytest.fixture(scope="module")
def daemon():
    with short_dir() as folder, Living(f"{folder}/s") as living:
        yield living


@pytest.fixture
def home(daemon, tmp_path, monkeypatch, capsys):
    """Every client set up for this daemon."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for client in ("claude", "codex", "gemini"):
        assert main(["setup", client, "--yes", "--agent", f"{client}-agent", "--state-dir", daemon.state]) == 0
    capsys.readouterr()
    return tmp_path


def environment(**variables):
    return {name: os.environ[name] for name in KEPT if name in os.environ} | variables


def run(daemon, *words):
    done = subprocess.run(
        [BIN / words[0], *words[1:], "--state-dir", daemon.state],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("client", "path"),
    [("claude", ".claude.json"), ("codex", ".codex/config.toml"), ("gemini", ".gemini/settings.json")],
)
def test_the_configured_server_answers(daemon, home, client, path):
    text = (home / path).read_text()
    written = tomllib.loads(text)["mcp_servers"] if client == "codex" else json.loads(text)["mcpServers"]
    entry = written["agent-bridge"]
    call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        input=json.dumps(call) + "\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        # As stripped as Codex makes it.
        env=environment(),
        check=False,
    )
    assert json.loads(done.stdout.splitlines()[0])["result"]["serverInfo"]


def hooks(home, client):
    path = {"claude": ".claude/settings.json", "codex": ".codex/hooks.json"}[client]
    written = json.loads((home / path).read_text())["hooks"]
    return [(event, handler) for event, groups in written.items() for group in groups for handler in group["hooks"]]


def called(daemon, agent, handler, event, **variables):
    """A hook that is a tool of the session's own server, with its arguments filled in as Claude Code does it."""
    given = {name: event[value.strip("${}")] for name, value in handler["input"].items()}
    requests = [
        {"id": 1, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": handler["tool"], "arguments": given}},
    ]
    done = subprocess.run(
        [BIN / "bascule", "mcp", "--agent", agent, "--state-dir", daemon.state],
        input="".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in requests),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(**variables),
        check=True,
    )
    answers = {each.get("id"): each for each in map(json.loads, done.stdout.splitlines())}
    return answers[2]["result"]["structuredContent"]


def notice_of(home, wanted):
    return next(each for event, each in hooks(home, "claude") if event == wanted and each["type"] == "mcp_tool")


def test_a_subagent_and_an_empty_inbox_are_told_nothing_and_one_message_is_announced_once(daemon, home):
    agent = f"claude-{os.urandom(3).hex()}"
    run(daemon, "bridge-register", "--agent", agent)
    after = {"hook_event_name": "PostToolUse", "agent_id": ""}
    handler = notice_of(home, "PostToolUse")
    assert called(daemon, agent, handler, after) == {}
    run(daemon, "bridge-send", agent, "the text", "--no-wait")
    assert called(daemon, agent, handler, {**after, "agent_id": "sub-1"}) == {}
    assert "1 unread" in called(daemon, agent, handler, after)["hookSpecificOutput"]["additionalContext"]
    assert called(daemon, agent, handler, after) == {}


def test_a_wrapped_client_s_turn_is_noted_by_its_server(daemon, home):
    """The wrapper types only between turns, and no program of ours is started when one begins."""
    agent = f"claude-{os.urandom(3).hex()}"
    run(daemon, "bridge-register", "--agent", agent)
    turns = TurnState(daemon.state, agent)
    turns.open()
    try:
        event = {"hook_event_name": "UserPromptSubmit", "agent_id": ""}
        called(daemon, agent, notice_of(home, "UserPromptSubmit"), event)
        file = Path(turn_file(daemon.state, agent))
        assert file.read_bytes() != b"busy"
        called(daemon, agent, notice_of(home, "UserPromptSubmit"), event, BRIDGE_WRAPPED=agent)
        assert file.read_bytes() == b"busy"
        # Nor does a dialog end the turn.
        called(
            daemon,
            agent,
            notice_of(home, "UserPromptSubmit"),
            {**event, "hook_event_name": "Notification"},
            BRIDGE_WRAPPED=agent,
        )
        assert file.read_bytes() == b"busy"
    finally:
        turns.close()


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_every_configured_hook_runs_as_its_client_runs_it(daemon, home, client):
    agent = f"{client}-{os.urandom(3).hex()}"
    run(daemon, "bridge-register", "--agent", agent)
    for count, (event, handler) in enumerate(hooks(home, client), start=1):
        run(daemon, "bridge-send", agent, "the text", "--no-wait")
        if handler["type"] == "mcp_tool":
            answer = called(daemon, agent, handler, {"hook_event_name": event, "agent_id": ""})
            assert answer["hookSpecificOutput"]["hookEventName"] == event
            assert f"{count} unread" in answer["hookSpecificOutput"]["additionalContext"]
            assert "the text" not in json.dumps(answer)
            continue
        written = {"session_id": "s-1", "cwd": str(home), "hook_event_name": event, "stop_hook_active": False}
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, handler["command"]],
            input=json.dumps(written),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=environment(BRIDGE_AGENT_ID=agent),
            check=False,
        )
        if handler.get("asyncRewake"):
            assert (done.returncode, done.stdout) == (2, "")
            assert f"{count} unread" in done.stderr
        else:
            assert (done.returncode, done.stderr) == (0, "")
            assert f"{count} unread" in done.stdout
            assert json.loads(done.stdout)
        assert "the text" not in done.stdout + done.stderr
