"""One blocking HTTP/1.1 request to the daemon, and server-sent events.

`http.client` would do, but it costs more to import than all of this costs to run: it brings the email
parser. What we need of HTTP is one request per connection and a daemon that we wrote.
"""

from __future__ import annotations

import socket
import time

from bascule.foundation import paths
from bascule.foundation.agreement import PROTOCOL_VERSION
from bascule.local_client.exits import (
    BadAnswer,
    ConnectionLost,
    DoorError,
    NotRunning,
    Refusal,
    SocketsForbidden,
    Stranger,
    daemon_stopped,
    inside_codex_without_network,
    sockets_forbidden,
)
from bascule.local_client.peers import STOPPED_SECONDS, can_identify_peer, check_peer, is_itself, stopped_peer
from bascule.local_client.values import NOT_YET, chunk_size, decode, decode_answer, encode, number_in_header

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from typing import Any, Self

# A local socket answers connect() at once or is overloaded.
CONNECT_SECONDS = 5.0
# What a request may take beside the time it asked to wait: a commit on a slow disk, not more.
ANSWER_SECONDS = 15.0
# Ours has a dozen short header lines; more is not our daemon.
MAX_HEAD_BYTES = 16 * 1024
# 32 messages of 1 MiB with JSON escapes fit; a listing never comes near.
MAX_ANSWER_BYTES = 64 * 1024 * 1024
# An event is ids and times; a reply event carries a payload of at most 1 MiB with escapes.
MAX_EVENT_BYTES = 8 * 1024 * 1024
_PIECE_BYTES = 64 * 1024
# A chunk's size line: hex digits and, rarely, an extension.
_MAX_CHUNK_LINE_BYTES = 256


class Door:
    """Where a broker listens.

    `state` is the state directory whose daemon this is; its tokens are for this door alone. None: a broker that
    BRIDGE_BROKER_URL names. `tls` is the name that its certificate must have; None: no TLS. `bearer` is shown when no
    agent is chosen.
    """

    __slots__ = ("address", "bearer", "family", "host", "state", "tls")

    def __init__(
        self,
        family: int,
        address: str | tuple[str, int],
        host: str = "localhost",
        *,
        state: str | None = None,
        tls: str | None = None,
        bearer: str | None = None,
    ) -> None:
        self.family = family
        self.address = address
        self.host = host
        self.state = state
        self.tls = tls
        self.bearer = bearer

    @property
    def where(self) -> str:
        if isinstance(self.address, str):
            return self.address
        return f"{'http' if self.tls is None else 'https'}://{self.host}"

    def authorization(self, token: str | None) -> list[str]:
        """The header line that shows `token`; refused where nobody can say who would read it."""
        token = token or self.bearer
        if not token:
            return []
        if self.family != socket.AF_UNIX and self.tls is None and not can_identify_peer():
            raise Stranger(
                f"this system does not say whose program {self.where} is: the token was not sent",
                "use an https:// address, or unset BRIDGE_BROKER_URL to use the daemon's own socket",
            )
        return [f"Authorization: Bearer {token}"]


class Answer:
    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


def call(
    door: Door,
    verb: str,
    path: str,
    body: Any = None,
    *,
    token: str | None = None,
    seconds: float = ANSWER_SECONDS,
    unless_stopped: bool = False,
) -> Any:
    """The JSON of a 2xx answer, None for 204; every other answer is a Refusal, and so is "a person must approve it".

    With `unless_stopped` a daemon whose process is stopped is ConnectionLost after some seconds, whatever `seconds` is.
    """
    try:
        return _call(door, verb, path, body, token=token, seconds=seconds, unless_stopped=unless_stopped)
    except SocketsForbidden:
        from bascule.local_client import spool  # noqa: PLC0415 - only where there are no sockets

        folder = spool.directory()
        if folder is None or token is None:
            raise
        return spool.call(folder, verb, path, body, token=token, seconds=seconds)


def _call(
    door: Door, verb: str, path: str, body: Any, *, token: str | None, seconds: float, unless_stopped: bool
) -> Any:
    with ask(door, verb, path, body, token=token, seconds=seconds) as conversation:
        conversation.unless_stopped = unless_stopped
        answer = conversation.whole_answer()
    if answer.status == 204:
        return None
    if answer.status >= 300 or answer.status == NOT_YET:
        raise refusal_in(answer)
    return decode_answer(answer.body) if answer.body else None


def connect(door: Door, seconds: float = CONNECT_SECONDS) -> socket.socket:
    """A connected stream socket whose other end is known to be ours, or the error that says what is wrong.

    With no seconds to wait it never blocks: a unix socket is connected at once, or its queue is full.
    """
    sock = _dialled(door, seconds)
    try:
        if door.tls is None:
            check_peer(sock, door.where, seconds)
            return sock
        from bascule.local_client import tls  # noqa: PLC0415 - 20 ms that only https pays

        # Its certificate says whose it is; the kernel need not.
        return tls.secured(sock, door.tls, door.where)
    except BaseException:
        sock.close()
        raise


def _dialled(door: Door, seconds: float) -> socket.socket:
    try:
        sock = socket.socket(door.family, socket.SOCK_STREAM)
    except PermissionError as fault:
        raise sockets_forbidden(fault.strerror or "refused") from None
    try:
        sock.settimeout(seconds)
        sock.connect(door.address)
        if door.family != socket.AF_UNIX and is_itself(sock):
            raise ConnectionRefusedError
    except OSError as fault:
        sock.close()
        raise _unreachable(door, fault) from None
    return sock


def _unreachable(door: Door, fault: OSError) -> DoorError:
    match fault:
        case PermissionError():
            return sockets_forbidden(fault.strerror or "refused")
        case FileNotFoundError() | ConnectionRefusedError():
            # A sandbox may hide the state directory or give us a network of our own.
            if inside_codex_without_network():
                return sockets_forbidden("CODEX_SANDBOX_NETWORK_DISABLED is set")
            return NotRunning(door.where, foreign=door.state is None)
    return ConnectionLost(f"cannot connect to Bascule at {door.where}: {fault}", "try again in a moment")


def unix_address(path: str) -> str:
    """The path, if a socket can have it."""
    if len(path.encode()) > paths.MAX_SOCKET_PATH_BYTES:
        raise BadAnswer(
            f"{path} is too long for a unix socket ({paths.MAX_SOCKET_PATH_BYTES} bytes)",
            "choose a shorter --state-dir",
        )
    return path


class EventStream:
    """Server-sent events of one GET, read one at a time."""

    def __init__(self, door: Door, path: str, *, token: str | None = None) -> None:
        self._conversation = ask(door, "GET", path, None, token=token, accept="text/event-stream")
        self._text = b""
        try:
            self._expect_stream()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._conversation.close()

    def _expect_stream(self) -> None:
        status, headers = self._conversation.read_head()
        if status != 200:
            answer = self._conversation.rest_of_answer(status, headers)
            raise refusal_in(answer)

    def next_event(self, seconds: float) -> dict[str, str] | None:
        """`{"event", "data", "id"}` as far as sent; None after `seconds` of quiet.

        The end of the stream is ConnectionLost: the caller knows whether it has what it came for.
        """
        deadline = time.monotonic() + seconds
        while True:
            block, found, rest = self._text.partition(b"\n\n")
            if found:
                self._text = rest
                event = _parse_event(block)
                if event:
                    return event
                continue
            if len(self._text) > MAX_EVENT_BYTES:
                raise BadAnswer(f"an event is larger than {MAX_EVENT_BYTES} bytes")
            self._conversation.deadline = deadline
            try:
                piece = self._conversation.piece()
            except TimeoutError:
                return None
            if not piece:
                raise ConnectionLost("the daemon closed the event stream")
            self._text += piece.replace(b"\r", b"")


def _parse_event(block: bytes) -> dict[str, str]:
    event: dict[str, str] = {}
    for line in block.decode("utf-8", "replace").split("\n"):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data" and "data" in event:
            event["data"] += "\n" + value
        elif name in {"data", "event", "id"}:
            event[name] = value
    return event


def ask(
    door: Door,
    verb: str,
    path: str,
    body: Any,
    *,
    token: str | None,
    seconds: float = ANSWER_SECONDS,
    accept: str = "application/json",
    headers: tuple[str, ...] = (),
) -> Conversation:
    """Send a request; its answer is to be read."""
    payload = b"" if body is None else encode(body)
    lines = [
        f"{verb} {path} HTTP/1.1",
        f"Host: {door.host}",
        "Connection: close",
        f"Accept: {accept}",
        f"Bascule-Protocol: {PROTOCOL_VERSION}",
        *headers,
    ]
    lines += door.authorization(token)
    if body is not None:
        lines.append("Content-Type: application/json")
    if body is not None or verb == "POST":
        lines.append(f"Content-Length: {len(payload)}")
    head = "\r\n".join(lines) + "\r\n\r\n"
    conversation = Conversation(connect(door), time.monotonic() + seconds)
    try:
        conversation.send(head.encode("ascii") + payload)
    except BaseException:
        conversation.close()
        raise
    return conversation


class Conversation:
    """One request and its answer on one connection.

    Everything read stays in the object, so that a read which timed out can be taken up again.
    """

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self.deadline = deadline
        self.unless_stopped = False
        self._buffer = b""
        self._ended = False
        # How the body is delimited: bytes left of it or of the current chunk; None is "until close".
        self._left: int | None = None
        self._chunked = False
        self._after_chunk = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._sock.close()

    def abort(self) -> None:
        """End it from another thread: a read that waits comes back."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            # It is over already.
            return

    def send(self, data: bytes) -> None:
        self._sock.settimeout(max(0.001, self.deadline - time.monotonic()))
        try:
            self._sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            # A daemon that refuses a large body answers before it has read it all; the answer is there.
            return
        except OSError as fault:
            raise ConnectionLost(f"the daemon does not read the request: {fault}") from None

    def whole_answer(self) -> Answer:
        try:
            status, headers = self.read_head()
            return self.rest_of_answer(status, headers)
        except TimeoutError:
            raise ConnectionLost(
                "the daemon did not answer in time; whether it acted is unknown",
                "look with `bridgectl show TICKET`",
            ) from None

    def rest_of_answer(self, status: int, headers: dict[str, str]) -> Answer:
        pieces = []
        size = 0
        while piece := self.piece():
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise BadAnswer(f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
            pieces.append(piece)
        return Answer(status, headers, b"".join(pieces))

    def read_head(self) -> tuple[int, dict[str, str]]:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > MAX_HEAD_BYTES or not self._fill():
                if not self._buffer:
                    raise ConnectionLost("the daemon closed the connection before it answered")
                raise BadAnswer("what listens there does not answer in HTTP: is it Bascule?")
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        self._buffer = self._buffer[end + 4 :]
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        version, _, rest = lines[0].partition(" ")
        status = number_in_header(rest[:3])
        if not version.startswith("HTTP/1.") or status is None:
            raise BadAnswer("what listens there does not answer in HTTP: is it Bascule?")
        length = headers.get("content-length", "")
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        if self._chunked or status == 204:
            self._left = 0
        elif length:
            self._left = number_in_header(length)
            if self._left is None:
                raise BadAnswer(f"the answer's Content-Length is {length[:40]!r}")
        return status, headers

    def piece(self) -> bytes:
        """Some of the body; empty at its end. After a TimeoutError it may be called again."""
        if self._chunked and self._left == 0:
            self._next_chunk()
        if self._left == 0:
            return b""
        if not self._buffer and not self._fill():
            if self._left is None:
                return b""
            raise ConnectionLost("the daemon closed the connection in the middle of its answer")
        take = len(self._buffer) if self._left is None else min(self._left, len(self._buffer))
        piece, self._buffer = self._buffer[:take], self._buffer[take:]
        if self._left is not None:
            self._left -= take
            self._after_chunk = self._chunked and self._left == 0
        return piece

    def _next_chunk(self) -> None:
        if self._after_chunk:
            self._line()
            self._after_chunk = False
        self._left = chunk_size(self._line())
        # The last chunk; trailers do not interest us.
        self._chunked = self._left != 0

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > _MAX_CHUNK_LINE_BYTES:
                raise BadAnswer("the answer's chunks are broken")
            if not self._fill():
                raise ConnectionLost("the daemon closed the connection in the middle of its answer")
        line, self._buffer = self._buffer[:end], self._buffer[end + 2 :]
        return line

    def _fill(self) -> bool:
        if self._ended:
            return False
        try:
            data = self._received()
        except TimeoutError:
            raise
        except OSError as fault:
            raise ConnectionLost(f"the connection to the daemon broke: {fault.strerror or fault}") from None
        self._ended = not data
        self._buffer += data
        return bool(data)

    def _received(self) -> bytes:
        stopped = 0
        while True:
            left = max(0.001, self.deadline - time.monotonic())
            self._sock.settimeout(min(left, STOPPED_SECONDS) if self.unless_stopped else left)
            try:
                return self._sock.recv(_PIECE_BYTES)
            except TimeoutError:
                if not self.unless_stopped or left <= STOPPED_SECONDS:
                    raise
            pid = stopped_peer(self._sock)
            if pid and pid == stopped:
                raise daemon_stopped(pid)
            stopped = pid


def refusal_in(answer: Answer) -> Refusal:
    """Other brokers refuse in their own words: `{"error": "text"}`, a page, nothing at all."""
    try:
        value = decode(answer.body)
    except ValueError:
        value = None
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, str):
        error = {"message": error}
    retry_after = number_in_header(answer.headers.get("retry-after", ""))
    return Refusal(answer.status, error if isinstance(error, dict) else {}, retry_after)
