"""Ports for daemons under test, each given to one process of the run only."""

import itertools
import os
import socket

# Below what the system hands out by itself (32768 and up), so that no client's own port can be in the way.
FIRST = 20_000
# For one worker of pytest-xdist; a run uses a few hundred.
EACH = 1_500

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
# Begins anywhere in the worker's range: a run that was just ended may still hold some.
_begin = os.getpid() % EACH
_offsets = itertools.cycle(range(EACH))


def free_port() -> int:
    """One that nobody listens on now, and no other worker is told: asking the system gives both the same."""
    for offset in itertools.islice(_offsets, EACH):
        port = FIRST + (_worker % 8) * EACH + (_begin + offset) % EACH
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
