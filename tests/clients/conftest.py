"""Real Claude Code and Codex from npm, with a scripted model. Only `make test-clients` runs these."""

import pytest
from client_program import DONE, PROGRAMS, Client
from client_terminal import Terminal
from scripted_model import ScriptedModel

from bascule.client import SyncClient


@pytest.fixture
def model():
    made = ScriptedModel(lambda prompt: DONE)
    yield made
    made.close()


@pytest.fixture
def make_client(start_daemon, model):
    if not PROGRAMS.is_dir():
        pytest.fail("run these with `make test-clients`, which installs the clients")
    made, models = [], []

    def make(name, *options, daemon=None, fresh=False, beside=None):
        """`fresh`: nothing of ours is there yet. `beside`: another client in the same project, with its own model."""
        daemon = daemon or (beside.daemon if beside else start_daemon(None))
        if beside is not None:
            models.append(ScriptedModel(lambda prompt: DONE))
        made.append(Client(name, daemon, models[-1] if beside else model))
        if beside is not None:
            made[-1].project = beside.project
        return made[-1].configure() if fresh else made[-1].setup(*options)

    yield make
    for each in models:
        each.close()
    for each in made:
        each.remove()


@pytest.fixture
def spock():
    """Another agent, a program of ours: connects when it is first asked for."""
    opened = []

    def connect(daemon):
        opened.append(SyncClient.connect(daemon.state_dir))
        opened[-1].register("Spock")
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


@pytest.fixture
def terminal():
    opened = []

    def start(client, *command):
        opened.append(Terminal(client, *command))
        return opened[-1]

    yield start
    for each in opened:
        each.end()


@pytest.fixture
def wire():
    """A connection to the daemon, for looking at what clients did."""
    opened = []

    def connect(daemon):
        opened.append(SyncClient.connect(daemon.state_dir))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()
