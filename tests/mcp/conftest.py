"""One daemon for all tests that name their agents apart, and agents of their own for each test."""

import itertools
import os
import sys
from pathlib import Path

import pytest

# The living daemon and the wires to it are shared with the tests of the daemon, the raw client with the shim's.
for neighbour in ("daemon", "shim"):
    sys.path.insert(0, str(Path(__file__).parent.parent / neighbour))

_numbers = itertools.count(1)
_OURS = ("BRIDGE_", "BASCULE_STATE", "BASCULE_CONFIG", "CODEX_", "CLAUDECODE", "TMUX")


@pytest.fixture(autouse=True)
def _no_environment_of_ours(monkeypatch):
    for name in list(os.environ):
        if name.startswith(_OURS):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def daemon():
    from living import Living, short_dir

    with short_dir() as folder, Living(f"{folder}/s", mcp="on") as living:
        yield living
        # Whatever the tests did: nothing unexpected happened behind the answers.
        output = living.log() + living.terminal()
        assert [line for line in output.splitlines() if '"level":"error"' in line.replace(" ", "")] == []
        assert "Traceback" not in output


@pytest.fixture
def agent(daemon):
    """`agent("Ann")`: a new agent whose handle begins like that, as `speaking.Agent`."""
    from speaking import Agent

    return lambda name: Agent(daemon, f"{name}-{next(_numbers)}")
