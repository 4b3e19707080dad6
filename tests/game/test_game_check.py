"""`bascule games check`: right mods pass, and each fault is found by the check that is about it."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from bascule.game.cli.check import peer, starting
from patience import PATIENCE

HERE = Path(__file__).resolve().parent
BASCULE = str(Path(sys.executable).parent / "bascule")
GUESS = HERE.parent.parent / "examples" / "guess" / "guess.py"


def check(*words, options=(), expect=0):
    command = [BASCULE, "games", "check", "toy", "--json", *options, "--run", sys.executable, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == expect, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def failed(report):
    return [each["check"] for each in report["checks"] if each["outcome"] == "failed"]


@pytest.mark.parametrize("transport", ["tcp", "pipe", "stdio"])
def test_a_mod_made_with_our_sdk_keeps_every_sentence(transport):
    report = check(GUESS, options=("--transport", transport, "--strict"))
    assert report["ok"] is True
    assert failed(report) == report["strict"] == report["gabs"] == []
    assert "ok" in {each["outcome"] for each in report["checks"] if each["check"] == "wrong-token"}


def test_a_mod_without_our_sdk_keeps_them_too():
    assert failed(check(HERE / "faulty_mod.py")) == []


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("everywhere", "listens"),
        ("any token", "wrong-token"),
        ("no hello", "before-hello"),
        ("two tools", "tools"),
        ("no schema", "tools"),
        ("backward", "events"),
        ("any method", "unknown-method"),
        ("any version", "version"),
        ("no pieces", "cut"),
        ("one at a time", "together"),
        ("fragile", "broken-header"),
        ("no channels", "events"),
        ("unread resource", "resources"),
        ("no blocking", "attention"),
        ("no schema below if", "tools"),
        ("no name", "tools"),
        ("odd welcome", "welcome"),
        ("odd limits", "welcome"),
        ("odd channels", "events"),
        ("odd resources", "resources"),
        ("odd attention", "attention"),
    ],
)
def test_a_fault_is_found_by_the_check_that_is_about_it(fault, found):
    report = check(HERE / "faulty_mod.py", fault, options=("--only", "welcome", "--only", found), expect=1)
    assert failed(report) == [found]


@pytest.mark.parametrize(("fault", "expected"), [("no content type", "Content-Type"), ("no title", "title")])
def test_what_only_a_strict_bridge_refuses_is_listed_and_counts_when_asked_for(fault, expected):
    report = check(HERE / "faulty_mod.py", fault)
    assert failed(report) == []
    assert [each for each in report["strict"] if expected in each]
    check(HERE / "faulty_mod.py", fault, options=("--strict",), expect=1)


def test_a_game_that_never_listens_is_said_to_have_ended():
    done = subprocess.run(
        [BASCULE, "games", "check", "toy", "--run", sys.executable, "-c", "pass"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1
    assert "the game ended with 0 before its mod listened" in done.stdout
    assert "nothing else can be tried" in done.stderr


FORKS = """
import os, signal, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(1, b"here")
time.sleep(600)
"""


def start(text, held=()):
    command = [sys.executable, "-c", text]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, pass_fds=held
    )


def test_what_a_game_started_ends_with_it_even_if_it_would_not():
    ended, held = os.pipe()
    stream = starting.PipeStream(start(FORKS, (held,)))
    os.close(held)
    try:
        assert stream.receive(PATIENCE) == b"here"
    finally:
        stream.close()
    try:
        # Its end of the pipe is closed with the last of them.
        assert select.select([ended], [], [], PATIENCE)[0], "it is still there"
        assert os.read(ended, 1) == b""
    finally:
        os.close(ended)


def test_a_game_that_does_not_read_does_not_keep_the_check(monkeypatch):
    monkeypatch.setattr(starting, "ANSWER_SECONDS", 0.2)
    stream = starting.PipeStream(start("import time; time.sleep(600)"))
    mod = peer.Peer(stream, peer.Seen())
    try:
        with pytest.raises(peer.Failed, match="does not read"):
            mod.send_raw(b"x" * 1_000_000)
    finally:
        mod.close()
