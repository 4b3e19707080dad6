"""Another user of the machine: things done under their uid, and their programs where our daemon should be."""

import contextlib
import json
import os
import select
import signal
import socket
import traceback
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
            answer = file.read()
        os.waitpid(child, 0)
    assert answer, "the other user's program died"
    return json.loads(answer)


def _be_nobody(act: Callable[[], Any], out: socket.socket) -> NoReturn:
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            answer = act()
        except OSError as error:
            answer = type(error).__name__
        out.sendall(json.dumps(answer).encode())
    finally:
        os._exit(0)


_END = b"<end>"
_NEXT = b"n"


class Squatter:
    """A listener of another user; everything anybody sends it is kept."""

    def __init__(self, family: int, address: Any, reports: socket.socket) -> None:
        self._family = family
        self._address = address
        self._reports = reports

    def received(self) -> bytes:
        """All that it was sent until now. It hears one after the other, so what we say last comes last."""
        with socket.socket(self._family) as last:
            last.connect(self._address)
            last.sendall(_END)
            last.shutdown(socket.SHUT_WR)
            answer = b""
            while not answer.endswith(_END):
                piece = self._reports.recv(1 << 16)
                assert piece, "the squatter died"
                answer += piece
        return answer.removesuffix(_END)


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
        order = json.loads(mine.recv(1 << 16) or "null")
        assert order, "the squatter could not listen"
        family, address = order
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


class Thief:
    """A program of another user that listens anew for every victim, and is gone from the port once it has one."""

    def __init__(self, reports: socket.socket) -> None:
        self._sock = reports
        self._reports = reports.makefile("rb")

    def next_port(self) -> int:
        self._sock.sendall(_NEXT)
        return int(self._answer())

    def received(self) -> str:
        """What the victim of the last port sent."""
        return str(self._answer())

    def close(self) -> None:
        self._reports.close()

    def _answer(self) -> Any:
        line = self._reports.readline()
        assert line, "the thief died"
        return json.loads(line)


@contextlib.contextmanager
def thieving(host: str, steal: "Steal", uid: int = NOBODY) -> Iterator[Thief]:
    """Each round: a fresh listener on `host`, whose port is reported; then `steal` says what it got from it."""
    mine, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        mine.close()
        # A group of its own: its children end with it.
        os.setpgid(0, 0)
        _thieve(host, steal, theirs, uid)
    theirs.close()
    mine.settimeout(PATIENCE)
    thief = Thief(mine)
    try:
        yield thief
    finally:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        thief.close()
        mine.close()


Report = Callable[[Any], None]
Steal = Callable[[socket.socket, Report], None]


def _thieve(host: str, steal: Steal, out: socket.socket, uid: int) -> NoReturn:
    def report(answer: Any) -> None:
        out.sendall(json.dumps(answer).encode() + b"\n")

    try:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        while out.recv(1) == _NEXT:
            listener = bound(host, 0, share=False)
            listener.listen()
            report(listener.getsockname()[1])
            steal(listener, report)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(0)


def accept_and_vanish(listener: socket.socket, report: Report) -> None:
    """Nothing listens any more when the victim looks."""
    sock, _ = listener.accept()
    listener.close()
    _listen_to(sock, report)


def accept_and_bequeath(listener: socket.socket, report: Report) -> None:
    """Who accepted is dead when the victim looks; its child has the connection."""
    accepting = os.fork()
    if accepting:
        listener.close()
        os.waitpid(accepting, 0)
        return
    sock, _ = listener.accept()
    listener.close()
    if os.fork():
        os._exit(0)
    _listen_to(sock, report)
    os._exit(0)


def relay_to(port: int) -> Steal:
    """All that comes is passed on to the true daemon, and its answers back: it looks like it in every way."""

    def relay(listener: socket.socket, report: Report) -> None:
        sock, _ = listener.accept()
        listener.close()
        received = b""
        # Not `create_connection`: it loads a codec, from files that another user may not read.
        with contextlib.suppress(OSError), sock, socket.socket() as daemon:
            daemon.connect(("127.0.0.1", port))
            ends = {sock: daemon, daemon: sock}
            while ends:
                for ready in select.select(list(ends), [], [])[0]:
                    data = ready.recv(1 << 16)
                    received += data if ready is sock else b""
                    if data:
                        ends[ready].sendall(data)
                        continue
                    with contextlib.suppress(OSError):
                        ends[ready].shutdown(socket.SHUT_WR)
                    del ends[ready]
        report(received.decode())

    return relay


def _listen_to(sock: socket.socket, report: Report) -> None:
    received = b""
    with contextlib.suppress(OSError), sock:
        received = sock.recv(1 << 16)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
    report(received.decode())


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
