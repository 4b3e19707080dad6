"""Who is at the other end, pinned: a process, not a number that another process may get after it."""

import contextlib
import hashlib
import os
import socket
import struct
from typing import Final, NamedTuple

from bascule.transports.peercred import peer_of

# Linux 6.5; Python 3.11 has no name for it.
_SO_PEERPIDFD: Final = 77
# What of the digest is shown; the whole identity is compared.
SHOWN_DIGITS: Final = 8
_START_FIELD: Final = 19


class PeerId(NamedTuple):
    """A process for as long as it lives: pids come again, a pid with its start time does not."""

    pid: int
    start: int
    uid: int

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.pid}|{self.start}|{self.uid}".encode()).hexdigest()[:SHOWN_DIGITS]


class Client(NamedTuple):
    """Whom a request is for: a process, or (`meta.client`) one of those it speaks for.

    A daemon speaks for several agents on one connection. What one of them was shown, was allowed or has under way is
    nothing to another; and all of it ends with the process.
    """

    peer: PeerId
    name: str | None = None


class NoSuchPeer(Exception):
    """The process that connected is gone already, or hides from us."""


def identify(sock: socket.socket) -> tuple[PeerId, int | None]:
    """Whose socket it is, and a descriptor that becomes readable when that process ends (the caller closes it)."""
    peer = peer_of(sock)
    descriptor = _pidfd(sock, peer.pid)
    try:
        return PeerId(peer.pid, start_of(peer.pid), peer.uid), descriptor
    except OSError as error:
        if descriptor is not None:
            os.close(descriptor)
        raise NoSuchPeer(f"process {peer.pid} is gone") from error


def start_of(pid: int) -> int:
    """When it started, in clock ticks since boot (proc(5), field 22; the name before may hold spaces)."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[_START_FIELD])


def program_of(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None


def _pidfd(sock: socket.socket, pid: int) -> int | None:
    with contextlib.suppress(OSError):
        # The kernel's own notion of the peer: no moment in which the pid could have changed hands.
        return int(struct.unpack("i", sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4))[0])
    with contextlib.suppress(OSError, AttributeError):
        return os.pidfd_open(pid)
    return None
