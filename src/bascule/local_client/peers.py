"""Who is at the other end of a socket, as the kernel says it. The one place where that is asked.

A token is not sent to another user's program. On a unix socket the kernel names the peer. On TCP it names the owner of
the socket that accepted this very connection (the ESTABLISHED row with our two addresses swapped), and nothing else
will do: a listener can be gone by the time somebody looks for it, or have been made by another user than the one who
accepts from it. Linux only; elsewhere `can_identify_peer` is false and no token crosses plain TCP.
"""

from __future__ import annotations

import os
import socket
import sys
import time

from bascule.local_client.exits import ConnectionLost, Stranger
from bascule.local_client.sock_diag import find_end

# Linux: pid, uid and gid, four bytes each. macOS, LOCAL_PEERCRED at level 0: a version, then the uid.
_UCRED_BYTES = 12
_MACOS_LOCAL_PEERCRED = 0x001
_MACOS_XUCRED_BYTES = 76
_PID, _UID = slice(0, 4), slice(4, 8)
_TABLE4, _TABLE6 = "/proc/net/tcp", "/proc/net/tcp6"
# How a server on `::` sees an IPv4 address: ::ffff:a.b.c.d.
_MAPPED = bytes(10) + b"\xff\xff"
_ESTABLISHED = "01"
_LISTENING = b"0A"
# Columns of a row: sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...
_LOCAL_COLUMN, _STATE_COLUMN, _UID_COLUMN, _INODE_COLUMN = 1, 3, 7, 9
# A caller that must not be kept looks so often whether the other end is a stopped process, and goes by the second look:
# `strace` stops a process for a moment. One that is only busy is waited for.
STOPPED_SECONDS = 1.0
# How often the table is looked at until the other end has accepted.
LOOK_SECONDS = 0.01


def check_peer(sock: socket.socket, where: str, seconds: float) -> None:
    """Refuse to talk unless the other end is known to be ours; TCP has `seconds` to accept the connection."""
    if sock.family == socket.AF_UNIX:
        uid = unix_peer(sock)[0]
        trusted = {os.getuid()}
    elif not can_identify_peer():
        return
    else:
        uid = _accepted_by(sock, where, seconds)
        # Root forwards ports for containers and remote sessions, and could read the token anyway.
        trusted = {os.getuid(), 0}
    if uid not in trusted:
        raise Stranger(
            f"{where} is served by uid {uid}, not by you (uid {os.getuid()}): nothing was sent",
            "check BASCULE_STATE_DIR; without BRIDGE_BROKER_URL the daemon's own socket is used",
        )


def unix_peer(sock: socket.socket) -> tuple[int, int]:
    """Uid and pid at the other end of a unix socket; pid 0 where the system does not say."""
    if sys.platform == "darwin":
        raw = sock.getsockopt(0, _MACOS_LOCAL_PEERCRED, _MACOS_XUCRED_BYTES)
        return int.from_bytes(raw[_UID], sys.byteorder), 0
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED_BYTES)
    return int.from_bytes(raw[_UID], sys.byteorder), int.from_bytes(raw[_PID], sys.byteorder)


def stopped_peer(sock: socket.socket) -> int:
    """The process that listens at the other end of a unix socket, if it is stopped (SIGSTOP, a debugger); else 0.

    A stopped process takes connections and never answers. proc(5): the state is field 3 of `stat`, behind the name.
    """
    pid = unix_peer(sock)[1] if sock.family == socket.AF_UNIX else 0
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return 0
    return pid if state in (b"T", b"t") else 0


def can_identify_peer() -> bool:
    """Whether this system shows who owns a TCP connection."""
    return os.path.exists(_TABLE4)


def far_end(sock: socket.socket) -> tuple[int, int] | None:
    """Uid and inode of the socket that accepted this TCP connection; None while it is not accepted or not seen."""
    return end_of(sock.getsockname(), sock.getpeername())


def end_of(here: tuple[str, int], there: tuple[str, int]) -> tuple[int, int] | None:
    """The same by the addresses of both ends, ours first: of one that we accepted, it is the socket that connected."""
    end = find_end(there[:2], here[:2])
    if end is None:
        return _end_in_tables(here, there)
    return (end.uid, end.inode) if end.inode else None


def _end_in_tables(here: tuple[str, int], there: tuple[str, int]) -> tuple[int, int] | None:
    """Where netlink does not say it: the module is not loaded, or a sandbox forbids it."""
    found = []
    # Reading a table costs the kernel milliseconds, so each is read once.
    for table, prefix in ((_TABLE6, b""),) if ":" in here[0] else ((_TABLE4, b""), (_TABLE6, _MAPPED)):
        found += _ends(table, f" {_name(there, prefix)} {_name(here, prefix)} {_ESTABLISHED} ".encode())
    # Several sockets with one pair of addresses would be a doubt; the kernel allows none.
    return found[0] if len(found) == 1 else None


def is_our_end(here: tuple[str, int], there: tuple[str, int]) -> bool | None:
    """Whether the socket that connected to us is ours, or root's; yes where the system does not say.

    None when it was not seen: it is gone, or the table changed while it was read, and another look may find it.
    """
    if not can_identify_peer():
        return True
    end = end_of(here, there)
    return None if end is None else end[0] in (os.getuid(), 0)


def listeners(port: int) -> list[tuple[int, int]]:
    """Uid and inode of every socket that listens on this port, at whatever address."""
    found = []
    for table in (_TABLE4, _TABLE6):
        for row in _read(table).splitlines()[1:]:
            fields = row.split()
            if fields[_STATE_COLUMN] == _LISTENING and fields[_LOCAL_COLUMN].endswith(b":%04X" % port):
                found.append((int(fields[_UID_COLUMN]), int(fields[_INODE_COLUMN])))
    return found


def is_itself(sock: socket.socket) -> bool:
    """Linux connects a port to itself when nobody listens there and it picks the same one for our end."""
    return bool(sock.getsockname() == sock.getpeername())


def is_closed(sock: socket.socket) -> bool:
    """Whether the other end has closed the connection, so that nobody will accept it any more."""
    timeout = sock.gettimeout()
    sock.settimeout(0)
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        sock.settimeout(timeout)


def _accepted_by(sock: socket.socket, where: str, seconds: float) -> int:
    deadline = time.monotonic() + seconds
    while (end := far_end(sock)) is None:
        if is_closed(sock):
            raise ConnectionLost(f"{where} closed the connection before anything was sent", "try again in a moment")
        if time.monotonic() > deadline:
            raise ConnectionLost(
                f"{where} does not accept the connection, so it is not known whose program it is: nothing was sent",
                "is it busy, or behind a forwarded port? Without BRIDGE_BROKER_URL the daemon's own socket is used",
            )
        time.sleep(LOOK_SECONDS)
    return end[0]


def _read(table: str) -> bytes:
    try:
        with open(table, "rb") as file:
            return file.read()
    except OSError:
        # No IPv6 in this kernel, or no such tables at all.
        return b""


def _ends(table: str, wanted: bytes) -> list[tuple[int, int]]:
    data = _read(table)
    if wanted not in data:
        return []
    ends = []
    for row in data.splitlines():
        if wanted in row:
            fields = row.split()
            # Before it is accepted a connection has no inode, and older kernels show uid 0 for it.
            if inode := int(fields[_INODE_COLUMN]):
                ends.append((int(fields[_UID_COLUMN]), inode))
    return ends


def _name(address: tuple[str, int], prefix: bytes) -> str:
    """As the tables write it: the address in words of this machine's byte order, then the port."""
    host, port = address[:2]
    raw = prefix + socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    words = (raw[at : at + 4] for at in range(0, len(raw), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words) + f":{port:04X}"
