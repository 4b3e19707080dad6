"""Daemons for the conformance tests: shared by the modules that want the same settings, as `SETTINGS` names them."""

import sys
from pathlib import Path

import pytest
from real_house import Agent, House
from spaces_peer import Space, need_bubblewrap

# A person at a terminal, tmux and daemons are shared with the tests of the wrapper.
for _folder in ("wrap", "daemon", "faults"):
    sys.path.append(str(Path(__file__).parent.parent / _folder))


@pytest.fixture(scope="session")
def house_with():
    """A running daemon with these settings, shared by all who ask for the same: do not stop it."""
    houses: dict[str, House] = {}

    def find(settings=None) -> House:
        key = repr(sorted((settings or {}).items()))
        if key not in houses:
            houses[key] = House(settings)
        return houses[key]

    yield find
    for house in houses.values():
        house.__exit__()


@pytest.fixture(scope="module")
def house(request, house_with) -> House:
    return house_with(getattr(request.module, "SETTINGS", None))


@pytest.fixture
def agent(house) -> Agent:
    """A registered agent that no other test knows."""
    return house.register()


@pytest.fixture
def new_house():
    """Makes daemons for tests that stop, kill or configure theirs."""
    houses: list[House] = []

    def make(settings=None, **more) -> House:
        houses.append(House(settings, **more))
        return houses[-1]

    yield make
    for house in houses:
        house.__exit__()


@pytest.fixture
def space(house):
    """A space of this test's own, in a directory of its own."""
    need_bubblewrap()
    made = Space(house)
    yield made
    made.close()
