import pytest
from desktop_scene import Desktop

from bascule.testing.house import House


@pytest.fixture
def make_house():
    """Houses with settings of the test's own, all closed at its end."""
    made = []

    def make(**settings):
        made.append(House(**settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def house(make_house):
    """A house where Jerry and Spock are registered."""
    made = make_house()
    made.register("Jerry")
    made.register("Spock")
    return made


@pytest.fixture
def make_desktop():
    """Desktops with settings of the test's own, all closed at its end."""
    made = []

    def make(**settings):
        made.append(Desktop(**settings))
        return made[-1]

    yield make
    for each in made:
        each.house.close()


@pytest.fixture
def desktop(make_desktop):
    return make_desktop()
