"""A daemon for all tests of a module, an environment without our settings, and a person at a terminal."""

import json
import os
import sys
from pathlib import Path

import pytest

from bascule.client import SyncClient

for folder in ("daemon", "helpers", "faults"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))

TYPEWRITER = str(Path(__file__).parent / "typewriter.py")
_OURS = ("BRIDGE_", "BASCULE_", "CODEX_", "CLAUDECODE", "TMUX")


@pytest.fixture(autouse=True)
def _no_environment_of_ours(monkeypatch):
    for name in list(os.environ):
        if name.startswith(_OURS):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BASCULE_CONFIG_DIR", "/nonexistent")
    # No test may find the daemon of whoever runs it; each names its own.
    monkeypatch.setenv("BASCULE_STATE_DIR", "/nonexistent")


@pytest.fixture(scope="module")
def daemon():
    from living import Living, short_dir

    with short_dir() as folder, Living(f"{folder}/s", port=0) as living:
        yield living


@pytest.fixture
def agents(daemon):
    """Two names that nobody in this module has used."""
    stamp = os.urandom(4).hex()
    return f"Jerry-{stamp}", f"Spock-{stamp}"


@pytest.fixture
def wrap(daemon):
    """`wrap("Jerry", "bash", "--norc")`: bridge-wrap on a terminal of its own, ended with the test."""
    from person import Person

    people = []

    def start(agent, *command, options=(), **more):
        words = [sys.executable, "-P", "-m", "bascule.programs.wrap.command", "--state-dir", daemon.state, "--no-start"]
        people.append(Person([*words, "--agent", agent, *options, "--", *command], **more))
        return people[-1]

    yield start
    for person in people:
        person.leave()


@pytest.fixture
def sender(daemon):
    with SyncClient.connect(daemon.state) as client:
        yield client


@pytest.fixture
def typewriter(wrap, tmp_path):
    """A program that notes its keys, and a way to read the notes."""

    def start(agent, *flags, options=()):
        log = tmp_path / f"keys-{agent}"
        person = wrap(agent, sys.executable, TYPEWRITER, str(log), *flags, options=options)
        person.sees("ready>")
        person.typed = lambda: [json.loads(line)["keys"] for line in log.read_text().splitlines()]
        return person

    return start


@pytest.fixture
def server():
    from panes import Server

    made = Server()
    yield made
    made.close()
