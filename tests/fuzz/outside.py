"""What people and other programs hand to our commands: answers, settings, arguments, lines of MCP."""

import contextlib
import io
import os
import socket
import time
from typing import Any

from bascule.shim.over_http import Exchange
from readers import pieces, same_however_cut

from bascule.cli.main import build_parser
from bascule.daemon import config
from bascule.daemon.config import BadConfig
from bascule.doors.choice import own_door
from bascule.doors.exits import DoorError, NotRunning
from bascule.doors.http import _Conversation, _parse_event, _refusal
from bascule.doors.link import Frames, frame
from bascule.doors.values import decode_answer
from bascule.shim.identity import Identity
from bascule.shim.link import Link
from bascule.shim.serve import Shim
from bascule.shim.starter import Starter

_NULL = os.open("/dev/null", os.O_RDWR)


# -- answers of an HTTP server ---------------------------------------------------------------------


class _Sock:
    """A socket that gives what it was given, piece by piece."""

    def __init__(self, parts: list[bytes]) -> None:
        self._parts = [part for part in parts if part]

    def settimeout(self, _seconds: float) -> None:
        """Nothing here takes time."""

    def recv(self, _size: int) -> bytes:
        return self._parts.pop(0) if self._parts else b""


def answers(data: bytes) -> None:
    """The same bytes to both readers of answers: the helpers' and the shim's."""
    _, cut = pieces(data)
    sock: Any = _Sock(cut)
    conversation = _Conversation(sock, time.monotonic() + 60)
    with contextlib.suppress(DoorError):
        answer = conversation.whole_answer()
        _parse_event(answer.body)
        if answer.status >= 300:
            refusal = _refusal(answer)
            assert refusal.retry_after is None or 0 <= refusal.retry_after < float("inf")
        elif answer.body:
            decode_answer(answer.body)
    for method in ("events.stream", "agents.list"):
        same_however_cut(data, lambda parts, method=method: _exchange(method, parts))


def _exchange(method: str, parts: Any) -> tuple[list[Any], object]:
    none: Any = None
    exchange = Exchange(none, 7, method, {})
    out: list[Any] = []
    try:
        for part in parts:
            if part:
                out += exchange.feed(part)
                if exchange.done:
                    return out, None
        out += exchange.feed(b"")
    except DoorError:
        # What came with the broken part is lost with it, as the connection is.
        return [], DoorError
    return out, None


# -- settings and arguments --------------------------------------------------------------------------


def settings(data: bytes) -> None:
    kind, text = (data[0] % 3, data[1:]) if data else (0, b"")
    environment: dict[str, str] = {}
    if kind == 2:
        key = config.Config.__struct_fields__[len(text) % len(config.Config.__struct_fields__)]
        environment[config.environment_names(key)[0]] = text.decode("utf-8", "surrogateescape")
    original, config._read_bytes = config._read_bytes, lambda _path: text
    try:
        config.load("/nonexistent", environment, file=None if kind == 2 else ("x.toml", "x.json")[kind])
    except BadConfig:
        return
    finally:
        config._read_bytes = original


_PARSER = build_parser()


def arguments(data: bytes) -> None:
    words = [os.fsdecode(word) for word in data.split(b"\0")[:8]]
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        code: object = 0
        try:
            _PARSER.parse_args(words)
        except SystemExit as ended:
            code = ended.code
    assert code in (0, 2)


# -- the shim: lines of a client, frames of a daemon --------------------------------------------------


class _FakeSocket:
    """What carries link messages; whatever is sent is readable, and answers are put in by hand."""

    def __init__(self) -> None:
        self.unsent = bytearray()
        self.waiting: list[dict[str, Any]] = []

    def fileno(self) -> int:
        return _NULL

    def close(self) -> None:
        """Nothing is open."""

    def send(self, message: dict[str, Any]) -> None:
        assert Frames().feed(frame(message)) == [message]

    def flush(self) -> None:
        """Nothing waits."""

    def receive(self) -> list[dict[str, Any]]:
        waiting, self.waiting = self.waiting, []
        return waiting


def _shim(connect: Any, stdin: int) -> tuple[Shim, Link]:
    link = Link(connect, "nowhere", Starter("/nonexistent", enabled=False), lambda: 1.0)
    shim = Shim(
        link,
        lambda _client: Identity(own_door("/nonexistent"), "Jerry", "test", {}),
        starts=False,
        stdin=stdin,
        stdout=_NULL,
        clock=lambda: 1.0,
        max_line_bytes=256,
    )
    return shim, link


def _not_running() -> Any:
    raise NotRunning("nowhere")


_to_shim, _from_client = socket.socketpair()


def shim_lines(data: bytes) -> None:
    sock = _FakeSocket()
    # Half of the time there is a daemon, which never answers.
    connect = (lambda: sock) if data[:1] > b"\x7f" else _not_running
    shim, link = _shim(connect, _to_shim.fileno())
    _, cut = pieces(data)
    for piece in cut:
        if piece:
            _from_client.sendall(piece)
            shim._on_input()
            link.on_time()
            shim._answer_openings()


_CALL = b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"co_workers","arguments":{}}}'
_LISTEN = b'{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"agent-bridge://recent"}}'


def shim_link(data: bytes) -> None:
    """A daemon, or what poses as one, says anything at all while calls are open."""
    sock = _FakeSocket()
    shim, link = _shim(lambda: sock, _NULL)
    shim._on_line(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}')
    shim._on_line(_CALL)
    shim._on_line(_LISTEN)
    for text in data[1:].split(b"\n"):
        try:
            sock.waiting += Frames().feed(b"Content-Length: %d\r\n\r\n%b" % (len(text), text))
        except DoorError:
            continue
        link.on_readable()
        link.on_time()
