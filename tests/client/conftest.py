"""One daemon for all tests that do not stop, kill or configure theirs; names keep them apart."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from daemon_process import DaemonProcess

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared() -> Iterator[DaemonProcess]:
    daemon = DaemonProcess(None, "--durability", "memory")
    yield daemon
    daemon.remove()


@pytest.fixture
def name() -> Callable[[str], str]:
    """Handles that no other test uses: `name("bob")`."""
    number = next(_numbers)
    return lambda handle: f"{handle}-{number}"
