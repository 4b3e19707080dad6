"""What is shown of a session of a real client while it works, waits and rests: never idle while it is not.

The model answers when the test lets it, so the test knows what is true; a thread looks at the session all the time.
"""

import os
import queue
import signal
import threading
import time

import pytest
from client_program import DONE, PATIENCE, until
from scripted_model import call
from test_real_clients import submit, trusted_codex

from bascule.client import SyncClient

pytestmark = pytest.mark.clients
TURNS = 5
# What Claude Code puts before the line one is in.
PROMPT = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
WAITING = "touch began; until [ -e go ]; do sleep 0.05; done; rm go began"


class Model:
    """Thinks until the test says what it says."""

    def __init__(self):
        self.asked, self._replies = queue.Queue(), queue.Queue()

    def __call__(self, prompt):
        self.asked.put(prompt)
        return self._replies.get(timeout=PATIENCE)

    def says(self, reply):
        self._replies.put(reply)

    def thinks(self):
        self.asked.get(timeout=PATIENCE)


class Looking:
    """Reads the session over and over, and keeps what contradicts the truth."""

    def __init__(self, daemon):
        # While it is not None the session may be shown as idle by nobody.
        self.truth = None
        self.false_idle, self.samples, self.transitions = [], 0, 0
        self._daemon = daemon
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self):
        self.wire = SyncClient.connect(self._daemon.state_dir)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join(PATIENCE)
        self.wire.close()

    def _look(self):
        with SyncClient.connect(self._daemon.state_dir) as wire:
            while not self._over.wait(0.02):
                truth = self.truth
                for each in wire.call("sessions.list", {}):
                    self.samples += 1
                    if truth is not None and each["state"] == "idle" and truth == self.truth:
                        self.false_idle.append((truth, each))

    def is_now(self, state):
        """What is true from here on, and is shown, too."""
        self.truth = None if state in ("idle", "dead") else state
        self.transitions += 1
        shown = until(
            lambda: next((each for each in self.wire.call("sessions.list", {}) if each["state"] == state), None),
            lambda: f"{state}: {self.wire.call('sessions.list', {})}",
        )
        assert shown["evidence"]
        return shown


def turn(looking, model, project, send, tool, *, allow=None):
    """A prompt, a command that runs until it may end, and a last word."""
    send("please run")
    model.thinks()
    looking.is_now("works")
    model.says(tool)
    if allow is not None:
        looking.is_now("waits_for_permission")
    # Nothing says that it was allowed: until the call is over it waits, as far as anybody can tell.
    until(lambda: (project / "began").exists() or (allow and allow()), "the command runs")
    looking.transitions += 1
    (project / "go").touch()
    model.thinks()
    looking.is_now("works")
    looking.truth = None
    model.says(DONE)
    looking.is_now("idle")


def test_claude_code_is_never_called_idle_while_it_works_waits_or_asks(make_client, model, terminal):
    client = make_client("claude", fresh=True)
    client.bascule("on", "claude")
    model.script = thinking = Model()
    screen = terminal(client, client.program, "--permission-mode", "default", "--allowedTools", "Read")
    with Looking(client.daemon) as looking:
        screen.sees(PROMPT)
        looking.is_now("idle")
        for number in range(TURNS):

            def send(words, number=number):
                screen.type(f"{words} {number}")
                screen.sees(f"{words} {number}")
                screen.type("Enter")

            def allow():
                # A key that comes too soon after the last one is not taken.
                if "Do you want to proceed" in screen.shown():
                    time.sleep(1)
                    screen.type("Enter")

            command = call("Bash", command=f"{WAITING}; true {number}", description="x")
            turn(looking, thinking, client.project, send, command, allow=allow)
        pid = looking.is_now("idle")["pid"]
        os.kill(pid, signal.SIGKILL)
        looking.is_now("dead")
    assert looking.false_idle == []
    assert looking.transitions >= 5 * TURNS
    assert looking.samples > 100


def test_codex_is_never_called_idle_while_it_works_and_says_that_it_was_interrupted(make_client, model, terminal):
    client = make_client("codex", fresh=True)
    client.bascule("on", "codex")
    model.script = thinking = Model()
    options = ["--dangerously-bypass-approvals-and-sandbox"]
    with Looking(client.daemon) as looking:
        screen = trusted_codex(terminal, client, client.program, *options)
        for number in range(TURNS):
            send = lambda words, number=number: submit(screen, f"{words} {number}")  # noqa: E731 - for one turn
            command = call("exec_command", cmd=f"{WAITING}; true {number}", yield_time_ms=30_000)
            turn(looking, thinking, client.project, send, command)
        submit(screen, "please think")
        thinking.thinks()
        looking.is_now("works")
        looking.truth = None
        screen.type("Escape")
        assert looking.is_now("idle")["evidence"] == "Interrupt"
        thinking.says(DONE)
    assert looking.false_idle == []
    assert looking.transitions >= 4 * TURNS
