"""Whose process listens on a loopback port, as the kernel says it.

What a mod is sent first is the token of its launch. Another user who took the port before the game did would get it,
so the listener's uid is looked up before, and again once connected. Linux only; elsewhere nothing can be said.
"""

import contextlib
import os
import sys
from collections.abc import Iterable
from typing import Final, NamedTuple

_LISTEN: Final = "0A"
_ESTABLISHED: Final = "01"
_FILES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
# Both spellings of what a connection to 127.0.0.1 can reach.
_LOOPBACK4: Final = "0100007F" if sys.byteorder == "little" else "7F000001"
_ANY4: Final = "00000000"
_ANY6: Final = "0" * 32


class Entry(NamedTuple):
    local: str
    port: int
    peer_port: int
    state: str
    uid: int
    inode: int = 0


def listeners(port: int, lines: Iterable[str] | None = None) -> list[int]:
    """The uids of everybody who listens where a connection to 127.0.0.1:port may end."""
    return [
        each.uid for each in _entries(lines) if each.state == _LISTEN and each.port == port and _reaches(each.local)
    ]


def accepted_by(port: int, peer_port: int, lines: Iterable[str] | None = None) -> int | None:
    """The uid at the other end of an established connection; None when it is not (or no longer) to be seen."""
    for each in _entries(lines):
        if each.state == _ESTABLISHED and each.port == port and each.peer_port == peer_port and _reaches(each.local):
            return each.uid
    return None


def pid_of(port: int, peer_port: int) -> int | None:
    """Whose process of ours is at the other end of a connection. Looks through all of them: for rare occasions."""
    for each in _entries(None):
        if each.state == _ESTABLISHED and each.port == port and each.peer_port == peer_port and _reaches(each.local):
            return _holder(f"socket:[{each.inode}]")
    return None


def _holder(name: str) -> int | None:
    for process in os.listdir("/proc"):
        if process.isdigit() and int(process) != os.getpid():
            # Others' processes cannot be looked into, and those of ours come and go.
            with contextlib.suppress(OSError):
                for descriptor in os.listdir(f"/proc/{process}/fd"):
                    with contextlib.suppress(OSError):
                        if os.readlink(f"/proc/{process}/fd/{descriptor}") == name:
                            return int(process)
    return None


def can_tell() -> bool:
    return os.path.exists(_FILES[0])


def _reaches(local: str) -> bool:
    return local in (_LOOPBACK4, _ANY4, _ANY6) or (len(local) == 32 and local.endswith(_LOOPBACK4))


def _entries(lines: Iterable[str] | None) -> Iterable[Entry]:
    for line in _all_lines() if lines is None else lines:
        parts = line.split()
        # sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...
        if len(parts) < 8 or ":" not in parts[1]:
            continue
        try:
            local, port = parts[1].split(":")
            inode = int(parts[9]) if len(parts) > 9 else 0
            yield Entry(local, int(port, 16), int(parts[2].split(":")[1], 16), parts[3], int(parts[7]), inode)
        except (ValueError, IndexError):
            # The heading, or a line of a kernel we do not know.
            continue


def _all_lines() -> Iterable[str]:
    for path in _FILES:
        try:
            with open(path, encoding="ascii") as file:
                yield from file
        except FileNotFoundError:
            # No IPv6 in this kernel.
            continue
