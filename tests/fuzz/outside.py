"""What people and other programs hand to our commands: answers, settings, arguments, lines of MCP."""

import contextlib
import io
import os
import socket
import time
from typing import Any

from readers import pieces, same_however_cut

from bascule.cli.main import build_parser
from bascule.daemon import config
from bascule.local_client.choice import own_door
from bascule.local_client.exits import DoorError, NotRunning
from bascule.local_client.http import Conversation, _parse_event, refusal_in
from bascule.local_client.link import Frames, frame, framed
from bascule.local_client.values import decode_answer
from bascule.programs.mcp_stdio.identity import Identity
from bascule.programs.mcp_stdio.link import Link
from bascule.programs.mcp_stdio.remote_mcp import _opened
from bascule.programs.mcp_stdio.serve import Program
from bascule.programs.mcp_stdio.starter import Starter
from bascule.programs.mcp_stdio.tools import toolsets

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


# All bytes are there already, so nobody waits.
NEVER_SECONDS = 3_600.0


def answers(data: bytes) -> None:
    """The same bytes to both readers of answers: of one answer, and of a stream of MCP messages."""
    _, cut = pieces(data)
    sock: Any = _Sock(cut)
    conversation = Conversation(sock, time.monotonic() + NEVER_SECONDS)
    with contextlib.suppress(DoorError):
        answer = conversation.whole_answer()
        _parse_event(answer.body)
        if answer.status >= 300:
            refusal = refusal_in(answer)
            assert refusal.retry_after is None or 0 <= refusal.retry_after < float("inf")
        elif answer.body:
            decode_answer(answer.body)
    same_however_cut(data, _messages)


def _messages(parts: Any) -> tuple[list[Any], object]:
    sock: Any = _Sock(list(parts))
    try:
        return list(_opened(Conversation(sock, time.monotonic() + NEVER_SECONDS))[1]), None
    except DoorError:
        # What came with the broken part is lost with it, as the connection is.
        return [], DoorError


# -- settings and arguments --------------------------------------------------------------------------


def settings(data: bytes) -> None:
    kind, text = (data[0] % 3, data[1:]) if data else (0, b"")
    environment: dict[str, str] = {}
    if kind == 2:
        keys = [(kind, key) for kind in config.settings_of() for key in kind.__struct_fields__]
        environment[config.environment_names(*keys[len(text) % len(keys)])[0]] = text.decode("utf-8", "surrogateescape")
    original, config.read_file = config.read_file, lambda _path: text
    try:
        config.load("/nonexistent", environment, file=None if kind == 2 else ("x.toml", "x.json")[kind])
    except config.BadConfig:
        return
    finally:
        config.read_file = original


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


# -- the stdio program: lines of a client, frames of a daemon --------------------------------------------------


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

    def stopped_peer(self) -> int:
        return 0

    def send_body(self, body: bytes) -> None:
        assert len(Frames().feed(framed(body))) == 1

    def flush(self) -> None:
        """Nothing waits."""

    def receive(self) -> list[dict[str, Any]]:
        waiting, self.waiting = self.waiting, []
        return waiting


def _program(connect: Any, stdin: int) -> tuple[Program, Link]:
    link = Link(connect, "nowhere", Starter("/nonexistent", enabled=False), lambda: 1.0, {"toolsets": []})
    program = Program(
        link,
        lambda _client: Identity(own_door("/nonexistent"), "Jerry", "test", {}),
        starts=False,
        toolsets=toolsets(),
        stdin=stdin,
        stdout=_NULL,
        clock=lambda: 1.0,
        max_line_bytes=256,
    )
    return program, link


def _not_running() -> Any:
    raise NotRunning("nowhere")


_to_program, _from_client = socket.socketpair()


def shim_lines(data: bytes) -> None:
    sock = _FakeSocket()
    # Half of the time there is a daemon, which never answers.
    connect = (lambda: sock) if data[:1] > b"\x7f" else _not_running
    program, link = _program(connect, _to_program.fileno())
    _, cut = pieces(data)
    for piece in cut:
        if piece:
            _from_client.sendall(piece)
            program._on_input()
            link.on_time()
            program._answer_openings()


_CALL = b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"co_workers","arguments":{}}}'
_LISTEN = b'{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"bascule://transactions/recent"}}'


def shim_link(data: bytes) -> None:
    """A daemon, or what poses as one, says anything at all while calls are open."""
    sock = _FakeSocket()
    program, link = _program(lambda: sock, _NULL)
    program._on_line(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}')
    program._on_line(_CALL)
    program._on_line(_LISTEN)
    for text in data[1:].split(b"\n"):
        try:
            sock.waiting += Frames().feed(b"Content-Length: %d\r\n\r\n%b" % (len(text), text))
        except DoorError:
            continue
        link.on_readable()
        link.on_time()
