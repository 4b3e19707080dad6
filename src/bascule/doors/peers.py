"""Who listens at the other end, as the kernel says it: a token is not sent to another user's program.

`transports.peercred` says the same for the daemon, with modules that would cost a helper its start.
"""

from __future__ import annotations

import os
import socket
import sys

from bascule.doors.exits import Stranger

# Linux: pid, uid and gid, four bytes each. macOS, LOCAL_PEERCRED at level 0: a version, then the uid.
_UCRED_BYTES = 12
_MACOS_LOCAL_PEERCRED = 0x001
_MACOS_XUCRED_BYTES = 76
_UID = slice(4, 8)
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENING = b"0A"


def check_peer(sock: socket.socket, where: str) -> None:
    """Refuse to talk when the listener is known to be somebody else's."""
    if sock.family == socket.AF_UNIX:
        uid: int | None = _unix_uid(sock)
        trusted = {os.getuid()}
    else:
        uid = _stranger_on(sock.getpeername())
        # Root forwards ports for containers and remote sessions, and could read the token anyway.
        trusted = {os.getuid(), 0}
    if uid is not None and uid not in trusted:
        raise Stranger(
            f"{where} is served by uid {uid}, not by you (uid {os.getuid()}): nothing was sent",
            "check BASCULE_STATE_DIR; without BRIDGE_BROKER_URL the daemon's own socket is used",
        )


def _unix_uid(sock: socket.socket) -> int:
    if sys.platform == "darwin":
        raw = sock.getsockopt(0, _MACOS_LOCAL_PEERCRED, _MACOS_XUCRED_BYTES)
    else:
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED_BYTES)
    return int.from_bytes(raw[_UID], sys.byteorder)


def _stranger_on(address: tuple[str, int]) -> int | None:
    """The uid of a listener that may have got this connection: one that is not ours first, None when unknown."""
    host, port = address[:2]
    names = {f"{name}:{port:04X}".encode() for name in _names(host)}
    found: int | None = None
    for table in _TABLES:
        try:
            with open(table, "rb") as rows:
                next(rows, None)
                for row in rows:
                    fields = row.split()
                    if fields[3] != _LISTENING:
                        # Listeners come first; behind them may be thousands of connections.
                        break
                    if fields[1] in names and found in (None, os.getuid()):
                        found = int(fields[7])
        except (OSError, ValueError, IndexError):
            # No such table here (macOS, a sandbox without /proc): SECURITY.md says what is then not promised.
            continue
    return found


def _names(host: str) -> list[str]:
    """How the kernel's tables write the addresses a connection to `host` may have been accepted on."""
    if ":" in host:
        return [_hex(socket.inet_pton(socket.AF_INET6, name)) for name in (host, "::")]
    four = socket.inet_aton(host)
    six = socket.inet_pton(socket.AF_INET6, "::ffff:0.0.0.0")[:12] + four
    return [_hex(four), _hex(bytes(4)), _hex(six), _hex(bytes(16))]


def _hex(address: bytes) -> str:
    words = (address[at : at + 4] for at in range(0, len(address), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
