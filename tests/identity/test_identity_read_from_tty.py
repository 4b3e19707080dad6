"""A real pseudo-terminal, a real child whose controlling terminal it is, and somebody who types."""

import os
import select
import subprocess
import sys
import termios
import time

import pytest

from patience import PATIENCE

PROMPT = "Passphrase: "

# The child takes the terminal named in argv as its own (a session leader may), then asks. What it was
# told goes to stdout, which is a pipe.
CHILD = """
import fcntl, os, sys, termios
if len(sys.argv) > 1:
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDWR), termios.TIOCSCTTY, 0)
from bascule.foundation.errors import BasculeError
from bascule.kernel.identity.passphrase import read_from_tty
try:
    print("got", ascii(read_from_tty("Passphrase: ")))
except BasculeError as error:
    print(type(error).__name__, error.message, error.hint, sep="|")
except KeyboardInterrupt:
    print("interrupted")
"""


class Terminal:
    def __init__(self):
        self.master, self.slave = os.openpty()
        self.shown = b""

    def close(self):
        os.close(self.master)
        os.close(self.slave)

    def type(self, data):
        os.write(self.master, data)

    def wait_for(self, text):
        deadline = time.monotonic() + PATIENCE
        while text not in self.shown:
            ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{text!r} never came, only {self.shown!r}"
            self.shown += os.read(self.master, 65_536)

    def echoes(self):
        return bool(termios.tcgetattr(self.slave)[3] & termios.ECHO)


@pytest.fixture
def terminal():
    made = Terminal()
    yield made
    made.close()


def start(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        **options,
    )


def ask(terminal, typed, *, stdin=None, **options):
    """Start the child, type when its prompt is there, and give what it says it got."""
    child = start(os.ttyname(terminal.slave), **options)
    try:
        if stdin is not None:
            child.stdin.write(stdin)
            child.stdin.flush()
        terminal.wait_for(PROMPT.encode())
        assert not terminal.echoes()
        terminal.type(typed)
        answer, _ = child.communicate(timeout=PATIENCE)
        return answer.strip()
    finally:
        child.kill()
        child.wait()


def test_what_is_typed_is_read_and_never_shown(terminal):
    assert ask(terminal, b"correct horse\n") == "got 'correct horse'"
    terminal.wait_for(b"\n")
    assert b"correct" not in terminal.shown
    assert terminal.echoes()


def test_a_pipe_on_stdin_and_the_environment_are_ignored_and_so_is_what_was_typed_before_the_prompt(terminal):
    terminal.type(b"typed too early\n")
    environment = {**os.environ, "BASCULE_PASSPHRASE": "from env", "PASSPHRASE": "from env"}
    assert (
        ask(terminal, "\u00fcber words\n".encode(), stdin="from the pipe\n", env=environment) == "got '\\xfcber words'"
    )


def test_an_interrupt_leaves_the_terminal_echoing_as_before(terminal):
    assert ask(terminal, b"half a pass\x03") == "interrupted"
    assert terminal.echoes()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (b"\n", "InvalidRequest|nothing was typed"),
        (b"\x04", "InvalidRequest|nothing was typed"),
        (b"latin \xe9\n", "InvalidRequest|what the terminal sent is not UTF-8"),
        (b"x" * 5_000 + b"\n", "InvalidRequest|the passphrase is too long"),
    ],
    ids=["only Enter", "end of file", "not UTF-8", "longer than a terminal's line"],
)
def test_what_cannot_be_a_passphrase_is_refused_and_the_echo_comes_back(terminal, typed, expected):
    assert ask(terminal, typed).startswith(expected)
    assert terminal.echoes()


def test_a_passphrase_is_not_read_without_a_terminal():
    child = start()
    answer, _ = child.communicate("from the pipe\n", timeout=PATIENCE)
    kind, message, hint = answer.strip().split("|")
    assert kind == "NoTerminal"
    assert message == "there is no terminal to type the passphrase on"
    assert "never read from a pipe" in hint
