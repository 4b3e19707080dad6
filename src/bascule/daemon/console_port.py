"""The console's port: 127.0.0.1 and ::1, or no console.

A browser that is sent to localhost tries ::1 first. Were only 127.0.0.1 ours, a program of another user on ::1 would be
shown in our place, be handed the tab's session, and could ask for a touch with our own origin (all three were tried).
"""

import contextlib
import errno
import os
import re
import socket
from typing import NamedTuple

from bascule.foundation import paths
from bascule.foundation.agreement import DEFAULT_CONSOLE_PORT
from bascule.foundation.errors import Conflict
from bascule.kernel.settings import BadConfig
from bascule.local_client.peers import listeners

HOSTS = ("127.0.0.1", "::1")
# The kernel has no such address: then nobody can be in our place there.
_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
# How often a port that is free at one address is looked for at the other.
_TRIES = 32
_OFF = "off"
_MAX_PORT = 65_535
_ORIGIN = re.compile(r"http://localhost:[1-9][0-9]{0,4}")


class ConsolePort(NamedTuple):
    port: int
    # Listening already: nobody else can be there any more.
    sockets: list[socket.socket]

    @property
    def origin(self) -> str:
        return f"http://localhost:{self.port}"


class PortHeld(Conflict):
    """There is no console: its port is somebody else's, at one address or both."""


def wanted_port(setting: int | str | None, state_dir: str) -> int | None:
    """None where there is to be no console. Unless it is set, only the daemon of the user's own state directory has
    one: a second daemon would be in the way of the first."""
    if setting is None:
        return DEFAULT_CONSOLE_PORT if state_dir == paths.default_state_dir() else None
    if setting == _OFF:
        return None
    try:
        port = int(setting)
    except ValueError:
        port = -1
    if not 0 <= port <= _MAX_PORT:
        raise BadConfig(
            f"console_port = {setting!r} is not a port", hint="a number up to 65535, 0 for any that is free, or off"
        )
    return port


def extra_origins(setting: str | None) -> tuple[str, ...]:
    """Only localhost: a passkey is bound to that name."""
    origins = tuple(filter(None, (each.strip() for each in (setting or "").split(","))))
    for origin in origins:
        if _ORIGIN.fullmatch(origin) is None:
            raise BadConfig(
                f"console_origins: {origin!r} is not an origin of the console",
                hint="http://localhost and a port, with nothing behind it: http://localhost:6051",
            )
    return origins


def bind_console(port: int) -> ConsolePort:
    """Raises `PortHeld` unless it is ours at both addresses."""
    for _ in range(_TRIES):
        try:
            return _bind(port)
        except PortHeld:
            if port:
                raise
    raise PortHeld("no port is free at both 127.0.0.1 and ::1", hint="name one with console_port")


def _bind(port: int) -> ConsolePort:
    sockets: list[socket.socket] = []
    for host in HOSTS:
        try:
            sock = _listen(host, port)
        except OSError as error:
            if error.errno in _ABSENT and sockets:
                continue
            # First ours: who looks for the holder must not find us.
            for each in sockets:
                each.close()
            raise _held(host, port, error) from error
        sockets.append(sock)
        port = sock.getsockname()[1]
    return ConsolePort(port, sockets)


def _listen(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        # Now, not when it is served: until then others that share it may still take it.
        sock.listen()
    except BaseException:
        sock.close()
        raise
    sock.set_inheritable(False)
    return sock


def _held(host: str, port: int, error: OSError) -> PortHeld:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    holder = _holder(port) if error.errno == errno.EADDRINUSE else ""
    what = f"it belongs to {holder}" if holder else (error.strerror or str(error)).lower()
    return PortHeld(
        f"no console: {where} cannot be ours, {what}",
        hint=f"stop that program (ss -ltnp 'sport = :{port}'), or choose another port with console_port; off for none",
    )


def _holder(port: int) -> str:
    """Whose program listens there, as far as the kernel says it."""
    for uid, inode in listeners(port):
        if uid != os.getuid():
            return f"a program of uid {uid}"
        return _process_with(inode) or f"a program of yours (uid {uid})"
    return ""


def _process_with(inode: int) -> str | None:
    """The process of ours that has this socket."""
    wanted = f"socket:[{inode}]"
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{name}") == wanted:
                        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                            return f"process {pid} ({file.read().strip()})"
    return None
