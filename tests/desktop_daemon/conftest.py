"""A desktop of the worker's own, and a daemon on it whose child is the real host."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent / folder) for folder in ("daemon", "desktop_host")]

from desktop_rig import Desktop, Program  # noqa: E402 - found by the path above
from living import short_dir  # noqa: E402 - as above
from screened import Screened  # noqa: E402 - as above


@pytest.fixture(scope="session")
def desktop() -> Iterator[Desktop]:
    desktop = Desktop()
    yield desktop
    desktop.close()


@pytest.fixture
def start(desktop: Desktop) -> Iterator[Callable[..., Program]]:
    """`start("gtk3", ...)`: a program with a title of its own, gone when the test is over."""
    started: list[Program] = []

    def start(app: str, *options: str, **more: object) -> Program:
        started.append(desktop.start(app, *options, **more))
        return started[-1]

    yield start
    for each in started:
        each.kill()


@pytest.fixture(scope="module")
def shared_house(desktop: Desktop) -> Iterator[Screened]:
    """A start of daemon and host costs two seconds: tests that change nothing for others share one."""
    with short_dir() as folder, Screened(desktop, folder) as made:
        yield made


@pytest.fixture
def house(shared_house: Screened) -> Screened:
    """With an agent that nobody has allowed anything."""
    shared_house.new_agent()
    return shared_house


@pytest.fixture
def own_house(desktop: Desktop) -> Iterator[Screened]:
    with short_dir() as folder, Screened(desktop, folder) as made:
        made.new_agent()
        yield made
