"""Ports for daemons under test, each reserved for the process that asked for it."""

import itertools
import os
import socket
from collections import deque

# Below what the system hands out by itself (32768 and up), so that no client's own port can be in the way.
FIRST = 20_000
COUNT = 12_000
# A daemon listens long before so many more were asked for, and then holds its port by itself.
HELD = 100

# Two runs on one machine begin at different places; where they meet, the reservation tells them apart.
_offsets = itertools.count(os.getpid() * 1_009)
_held: deque[int] = deque()


def free_port() -> int:
    """One on which nobody listens, and which no other process of any test run gets as long as ours has it.

    The socket that reserves it stays open: bound without SO_REUSEADDR, so that it is ours alone, and given it
    afterwards, so that a daemon, whose own socket has it too, can bind and listen beside it.
    """
    for offset in itertools.islice(_offsets, COUNT):
        port = FIRST + offset % COUNT
        with socket.socket() as reserved:
            try:
                reserved.bind(("127.0.0.1", port))
            except OSError:
                continue
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _held.append(reserved.detach())
        if len(_held) > HELD:
            os.close(_held.popleft())
        return port
    raise AssertionError("no port is free")
