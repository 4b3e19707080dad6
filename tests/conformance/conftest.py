"""One daemon per module, with the settings the module names in `SETTINGS`."""

import pytest
from real_house import Agent, House


@pytest.fixture(scope="module")
def house(request):
    with House(getattr(request.module, "SETTINGS", None)) as running:
        yield running


@pytest.fixture
def agent(house) -> Agent:
    """A registered agent that no other test knows."""
    return house.register()


@pytest.fixture
def new_house():
    """Makes daemons for tests that stop, kill or configure theirs."""
    running: list[House] = []

    def make(settings=None, **more) -> House:
        running.append(House(settings, **more))
        return running[-1]

    yield make
    for house in running:
        house.__exit__()
