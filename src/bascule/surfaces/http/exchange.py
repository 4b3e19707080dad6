"""A request and its answer, as they pass between the modules of this surface, and how an answer is written."""

from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from bascule import __version__
from bascule.kernel.call import ConsoleSession, Principal

if TYPE_CHECKING:
    from bascule.surfaces.http.connection import HttpConnection
    from bascule.surfaces.http.endpoints import Endpoint

Headers = list[tuple[bytes, bytes]]

COMMON: Headers = [
    (b"bascule-version", __version__.encode()),
    # What we answer is for the caller alone, and never to be guessed into a page.
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]
JSON = (b"content-type", b"application/json")


class Request:
    """A request, as far as it has come."""

    # Set when it is admitted, before its body is read.
    principal: Principal
    endpoint: "Endpoint"
    # The parameters that stand in the path.
    names: dict[str, str]
    # Of the console; set there alone.
    session: ConsoleSession | None = None

    def __init__(self, verb: str, target: bytes, version: str, headers: Headers, *, keep_alive: bool) -> None:
        self.verb = verb
        self.path, _, self.query = target.partition(b"?")
        self.version = version
        self.headers = headers
        self.keep_alive = keep_alive
        self.refusal: Response | None = None
        # It was not served in the call that read its head.
        self.waited = False
        self.size = 0
        self._body: bytes | bytearray = b""

    def add(self, body: bytes) -> None:
        """The next piece of its body."""
        if not self._body:
            self._body = body
            return
        if isinstance(self._body, bytes):
            # A list of pieces would take up to fifty times what was sent.
            self._body = bytearray(self._body)
        self._body += body

    def whole_body(self) -> bytes:
        body = self._body
        return body if isinstance(body, bytes) else bytes(body)


class Response(NamedTuple):
    status: int
    headers: Headers
    body: bytes
    # Nothing more can be read from this connection.
    close: bool = False


class Pending:
    """An answer that is not there yet, or comes in pieces."""

    __slots__ = ()

    # Else it is written whole.
    in_pieces = False

    def start(self, connection: "HttpConnection") -> None:
        raise NotImplementedError

    def left(self) -> None:
        """The client is gone."""
        raise NotImplementedError

    def resumed(self) -> None:
        """The client reads again."""

    def overdue(self) -> None:
        """The time of `HttpConnection.remind` is over."""


def _head(status: int) -> bytes:
    return b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode())


def encode_lines(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


_COMMON_LINES = encode_lines(COMMON)
_HEADS = {status.value: _head(status.value) + _COMMON_LINES for status in HTTPStatus}
# Nearly every answer: ready but for its length.
_JSON_ONLY = [JSON]
_JSON_HEADS = {status: head + encode_lines(_JSON_ONLY) for status, head in _HEADS.items()}


def encode_response(response: Response, *, close: bool, only_head: bool = False, more: bytes = b"") -> bytes:
    """A response as it is written. `only_head` answers HEAD: the length of the body, without the body. `more` is header
    lines of the door."""
    status, headers, body, _ = response
    head = _JSON_HEADS[status] if headers == _JSON_ONLY else _HEADS[status] + encode_lines(headers)
    length = b"" if status == 204 else b"content-length: %d\r\n" % len(body)
    ending = b"connection: close\r\n\r\n" if close else b"\r\n"
    return b"%b%b%b%b%b" % (head, more, length, ending, b"" if only_head else body)


def encode_head(status: int, headers: Headers, *, in_chunks: bool, close: bool, more: bytes = b"") -> bytes:
    """The head of an answer whose body follows in pieces."""
    ending = b"connection: close\r\n" if close else b""
    coding = b"transfer-encoding: chunked\r\n" if in_chunks else b""
    return b"%b%b%b%b%b\r\n" % (_HEADS[status], encode_lines(headers), more, ending, coding)


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


LAST_CHUNK = b"0\r\n\r\n"
