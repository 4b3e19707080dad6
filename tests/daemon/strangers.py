"""Another user of the machine: things done under their uid, and their programs where our daemon should be."""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from patience import PATIENCE

NOBODY = 65_534

only_root = pytest.mark.skipif(
    os.getuid() != 0 and os.environ.get("CI") != "true", reason="only root can become another user"
)


def as_nobody(act: Callable[[], Any]) -> Any:
    """What `act` returns under another uid, as JSON carries it; the name of its exception when it raises OSError."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        child = os.fork()
        if not child:
            _be_nobody(act, theirs)
        theirs.close()
        with mine.makefile("rb") as file:
            said = file.read()
        os.waitpid(child, 0)
    assert said, "the other user's program died"
    return json.loads(said)


def _be_nobody(act: Callable[[], Any], out: socket.socket) -> NoReturn:
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            said = act()
        except OSError as error:
            said = type(error).__name__
        out.sendall(json.dumps(said).encode())
    finally:
        os._exit(0)


_END = b"<end>"


class Squatter:
    """A listener of another user; everything anybody sends it is kept."""

    def __init__(self, family: int, address: Any, reports: socket.socket) -> None:
        self._family = family
        self._address = address
        self._reports = reports

    def heard(self) -> bytes:
        """All that it was sent until now. It hears one after the other, so what we say last comes last."""
        with socket.socket(self._family) as last:
            last.connect(self._address)
            last.sendall(_END)
            last.shutdown(socket.SHUT_WR)
            said = b""
            while not said.endswith(_END):
                piece = self._reports.recv(1 << 16)
                assert piece, "the squatter died"
                said += piece
        return said.removesuffix(_END)


@contextlib.contextmanager
def squatting(bind: Callable[[], socket.socket], uid: int = NOBODY) -> Iterator[Squatter]:
    """A process of `uid` that listens on what `bind` makes, and answers whatever comes with `{}`."""
    mine, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        mine.close()
        _squat(bind, theirs, uid)
    theirs.close()
    try:
        mine.settimeout(PATIENCE)
        told = json.loads(mine.recv(1 << 16) or "null")
        assert told, "the squatter could not listen"
        family, address = told
        yield Squatter(family, address if isinstance(address, str) else tuple(address), mine)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        mine.close()


def _squat(bind: Callable[[], socket.socket], out: socket.socket, uid: int) -> NoReturn:
    try:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        listener = bind()
        listener.listen()
        out.sendall(json.dumps((listener.family, listener.getsockname())).encode())
        while True:
            sock, _ = listener.accept()
            with contextlib.suppress(OSError), sock:
                while data := sock.recv(1 << 16):
                    out.sendall(data)
                    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
    finally:
        os._exit(0)


def bound(host: str, port: int, *, share: bool = True) -> socket.socket:
    """As greedy as a socket can be: every option that lets several have one port."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if share:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if sock.family == socket.AF_INET6:
            # Takes what comes by IPv4 too.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((host, port))
    except BaseException:
        sock.close()
        raise
    return sock


def bound_at(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(path)
    # So that nothing but the peer's uid is in anybody's way.
    os.chmod(path, 0o666)
    return sock
