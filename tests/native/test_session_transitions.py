"""Scripted days of sessions through the hooks that `bascule on` has installed, against a daemon: is what is shown true?

Each event goes the way its client sends it: to the hidden tool of the session's own `bascule mcp`, with the arguments
filled in, or to a program with the event as its input. Bells are programs, too, and are rung by real messages.
"""

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bascule.client import SyncClient
from patience import PATIENCE
from session_days import Count, day

LONG = os.environ.get("BASCULE_LONG") == "1"
TRANSITIONS = 1_000 if LONG else 60
BIN = Path(sys.executable).parent
FILES = {"claude": ".claude/settings.json", "codex": ".codex/hooks.json", "gemini": ".gemini/settings.json"}
CLIENT = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "claude-code", "version": "1"}}


class Hooks:
    """What is installed, and how to call it."""

    def __init__(self, home, daemon):
        self.home = home
        self.state = daemon.state_dir
        self.environment = {"PATH": f"{home}/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}
        codex = home / "bin" / "codex"
        codex.parent.mkdir(parents=True)
        # Of a version whose hooks may be tools.
        codex.write_text("#!/bin/sh\n[ $1 = --version ] && echo codex-cli 0.166.0\nexit 0\n")
        codex.chmod(0o755)
        words = ["on", *FILES, "--yes", "--no-service", "--home", home, "--state-dir", self.state]
        subprocess.run(
            [BIN / "bascule", *words], env=self.environment, check=True, capture_output=True, timeout=PATIENCE
        )
        self._hooks = {name: json.loads((home / file).read_text())["hooks"] for name, file in FILES.items()}

    def at(self, client, event, *, bell):
        handlers = [each for group in self._hooks[client].get(event, ()) for each in group["hooks"]]
        is_bell = ("bridge-wait" in json.dumps(each) or each.get("tool") == "bell_hook" for each in handlers)
        return [each for each, rings in zip(handlers, is_bell, strict=True) if rings is bell]


class Session:
    """A client as far as its hooks can tell."""

    def __init__(self, hooks, client, name):
        self.hooks, self.client, self.name = hooks, client, name
        self.process = subprocess.Popen(["sleep", "1000"])
        self._numbers = itertools.count(1)
        command = [BIN / "bascule", "mcp", "--agent", name, "--state-dir", hooks.state]
        self._mcp = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=hooks.environment
        )
        self._ask("initialize", HELLO)

    def _ask(self, method, params):
        number = next(self._numbers)
        self._mcp.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
        self._mcp.stdin.flush()
        for line in self._mcp.stdout:
            answer = json.loads(line)
            if answer.get("id") == number:
                return answer["result"]
        raise AssertionError("bascule mcp has ended")

    def send(self, event):
        given = {"session_id": self.name, "cwd": str(self.hooks.home), **event}
        if event["hook_event_name"] == "Woken":
            self._ring(given)
            return
        for handler in self.hooks.at(self.client, event["hook_event_name"], bell=False):
            if handler["type"] == "mcp_tool":
                arguments = {name: self._filled(value, given) for name, value in handler["input"].items()}
                answer = self._ask("tools/call", {"name": handler["tool"], "arguments": arguments})
                assert not answer.get("isError"), answer
            else:
                self._program(handler, given)

    def _filled(self, value, given):
        found = re.fullmatch(r"\$\{(\w+)\}", value)
        if found is None:
            return value
        if self.client == "codex":
            # As it is, and what is not there is a failed hook.
            return given[found[1]]
        value = given.get(found[1], "")
        return value if isinstance(value, str) else json.dumps(value)

    def _program(self, handler, given, **variables):
        words = [handler["command"], *handler["args"]] if "args" in handler else shlex.split(handler["command"])
        if "bridge-wait" in words[0]:
            # It looks at the words of its client, whether that answers once and ends: ours are pytest's.
            words = [sys.executable, "-c", CLIENT, *words, "--explain"]
        return subprocess.run(
            words, input=json.dumps(given), capture_output=True, text=True, check=False, timeout=PATIENCE,
            env=self.hooks.environment | {"CLAUDE_PID": str(self.process.pid), **variables},
        )  # fmt: skip

    def _ring(self, given):
        """The bell's own answer to the Stop: a message is there."""
        with SyncClient.connect(self.hooks.state) as wire:
            wire.call("messages.send", {"agentId": self.name, "payload": "x"})
        bell = self.hooks.at(self.client, "Stop", bell=True)[0]
        done = self._program(bell, given | {"hook_event_name": "Stop"}, BRIDGE_AGENT_ID=self.name)
        assert done.returncode == 2 or "block" in done.stdout, done

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.kill()
        self._mcp.stdin.close()
        self._mcp.wait(PATIENCE)
        self._mcp.stdout.close()


@pytest.fixture
def hooks(start_daemon, tmp_path):
    return Hooks(tmp_path / "home", start_daemon(None, env={"HOME": str(tmp_path / "home")}))


def test_what_is_shown_of_sessions_is_true_after_every_transition(hooks):
    count = Count()
    clients = itertools.cycle(FILES)
    with SyncClient.connect(hooks.state) as wire:
        for number in itertools.count():
            client = next(clients)
            session = Session(hooks, client, f"{client}-{number}")
            try:
                for step in day(client, 1_900 + number, live=True):
                    if step.event is not None:
                        session.send(step.event)
                    elif step.kills:
                        session.kill()
                    try:
                        shown = wire.call("sessions.show", {"client": client, "session": session.name})
                    except Exception as error:
                        raise AssertionError(f"{client} is not known after {step}") from error
                    count.compare(client, step, shown)
            finally:
                session.close()
            if count.transitions >= TRANSITIONS:
                break
    assert count.false_idle == []
    assert count.wrong == []
    assert {"works", "idle", "waits_for_permission"} <= set(count.shown)


def test_a_session_of_which_nothing_was_heard_yet_is_unknown_and_not_idle(hooks):
    session = Session(hooks, "claude", "s")
    try:
        with SyncClient.connect(hooks.state) as wire:
            session.send({"hook_event_name": "ConfigChange", "source": "user_settings"})
            shown = wire.call("sessions.show", {"client": "claude", "session": "s"})
            assert (shown["state"], shown["evidence"]) == ("unknown", "ConfigChange")
            session.send({"hook_event_name": "UserPromptSubmit", "prompt": "x"})
            assert wire.call("sessions.show", {"client": "claude", "session": "s"})["state"] == "works"
    finally:
        session.close()
