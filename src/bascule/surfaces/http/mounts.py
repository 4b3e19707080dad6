"""An application of its own (/mcp) behind our admission: ASGI for this one request, whose body was read already."""

import asyncio
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from bascule.surfaces.http.endpoints import Message, Mount, Scope
from bascule.surfaces.http.exchange import COMMON, Headers, Pending, Request

if TYPE_CHECKING:
    from bascule.surfaces.http.app import App
    from bascule.surfaces.http.connection import HttpConnection

# An answer leaves in pieces of this size, each when the one before has: whoever does not read has its request open, and
# can have few of them.
PIECE_BYTES = 64 * 1024
# Of an answer whose length is known, for one piece to leave. A stream may stand still for as long as it likes.
UNREAD_SECONDS = 30.0
# Header names that are tokens, and values without an end of line.
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
_OURS = frozenset({*(name for name, _ in COMMON), b"transfer-encoding"})


class MountExchange(Pending):
    """One request of the application, served in a task; its answer is written as the application sends it."""

    in_pieces = True

    def __init__(self, app: "App", mount: Mount, request: Request, body: bytes) -> None:
        self._app = app
        self._mount = mount
        self._request = request
        self._body = body
        self._connection: HttpConnection | None = None
        self._begun = False
        # None where the head does not say how long the answer is.
        self._left_to_write: int | None = None
        # The client is gone, or has its answer.
        self._over = asyncio.Event()
        self._writable = asyncio.Event()

    def start(self, connection: "HttpConnection") -> None:
        self._connection = connection
        self._app.tasks.start(self._serve(), self._request.endpoint.method)

    def left(self) -> None:
        self._connection = None
        self._over.set()
        self._writable.set()

    def resumed(self) -> None:
        self._writable.set()

    async def _serve(self) -> None:
        request = self._request
        body = b"" if request.verb == "GET" else self._body
        try:
            await self._mount(request.principal, _scope(request), body, self._receive, self._send)
        except Exception as error:  # noqa: BLE001 - I4: of an unexpected error the peer gets an id
            self._failed(error)
        except BaseException:
            if self._connection is not None:
                self._connection.abort()
            raise
        else:
            if self._connection is not None:
                self._failed(RuntimeError("an application behind HTTP ended without a whole answer"))

    def _failed(self, error: Exception) -> None:
        refusal, connection = self._app.refused(error), self._connection
        if connection is None:
            # Nobody is there to answer.
            return
        if self._begun:
            connection.abort()
        else:
            self.left()
            connection.respond(refusal)

    async def _receive(self) -> Message:
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        connection = await self._when_writable()
        if connection is None:
            return
        if not self._begun:
            self._begin(connection, message["status"], list(message.get("headers", ())))
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._left_to_write is not None:
            self._left_to_write -= len(body)
            if self._left_to_write < 0 or (self._left_to_write and not more):
                raise RuntimeError("an answer is not as long as its head says")
        for at in range(0, len(body) or 1, PIECE_BYTES):
            connection.piece(body[at : at + PIECE_BYTES])
            connection = await self._when_writable()
            if connection is None:
                return
        if not more:
            self.left()
            connection.ended()

    async def _when_writable(self) -> "HttpConnection | None":
        """None when the peer is gone."""
        seconds = UNREAD_SECONDS if self._left_to_write is not None else None
        while self._connection is not None and self._connection.write_paused:
            self._writable.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._writable.wait()
            except TimeoutError:
                # It waits for nothing any more: what it asked for is there.
                self._connection.abort()
                self.left()
        return self._connection

    def _begin(self, connection: "HttpConnection", status: int, headers: Headers) -> None:
        """Counted, and with the headers of every other answer."""
        if not all(_NAME.fullmatch(name) and _VALUE.fullmatch(value) for name, value in headers):
            raise RuntimeError("an application behind HTTP sent a header that is not valid")
        headers = [(name.lower(), value) for name, value in headers if name.lower() not in _OURS]
        if any(name == b"connection" and b"close" in value.lower() for name, value in headers):
            self._request.keep_alive = False
            headers = [header for header in headers if header[0] != b"connection"]
        length = next((int(value) for name, value in headers if name == b"content-length"), None)
        self._app.on_status(status)
        self._begun = True
        self._left_to_write = 0 if status in (204, 304) else length
        connection.begin(status, headers, in_chunks=self._left_to_write is None)


def _scope(request: Request) -> Scope:
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": request.version,
        "method": request.verb,
        "scheme": "http",
        "path": unquote(request.path.decode("ascii", "replace")),
        "raw_path": request.path,
        "query_string": request.query,
        "root_path": "",
        "headers": request.headers,
        "client": None,
        "server": None,
        "state": {},
    }
    return scope
