"""A few daemons for all tests, for each start takes as long as a dozen tests; names keep the tests apart."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from daemon_process import DaemonProcess

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared() -> Iterator[DaemonProcess]:
    """Keeps nothing on disk. A test may restart it: no other one relies on what is in it."""
    daemon = DaemonProcess(None, "--durability", "memory")
    yield daemon
    daemon.remove()


@pytest.fixture(scope="session")
def durable() -> Iterator[DaemonProcess]:
    """Loses nothing. A test may kill it and leaves it running."""
    daemon = DaemonProcess()
    yield daemon
    daemon.remove()


@pytest.fixture(scope="session")
def narrow() -> Iterator[DaemonProcess]:
    """Three waits for each principal, and short leases."""
    environment = {"BASCULE_MAX_WAITS": "3", "BASCULE_LEASE_MS": "100"}
    daemon = DaemonProcess(None, "--durability", "memory", env=environment)
    yield daemon
    daemon.remove()


@pytest.fixture
def name() -> Callable[[str], str]:
    """Handles that no other test uses: `name("bob")`."""
    number = next(_numbers)
    return lambda handle: f"{handle}-{number}"
