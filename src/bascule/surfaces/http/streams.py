"""A stream as server-sent events: what the service pushes is written when the client reads, without a task."""

import asyncio
from typing import TYPE_CHECKING, Any

from bascule.foundation.stream import Stream
from bascule.surfaces.http.exchange import Headers, Pending
from bascule.wire import sse
from gabp import codec

if TYPE_CHECKING:
    from bascule.surfaces.http.app import App
    from bascule.surfaces.http.connection import HttpConnection

# A comment now and then, so that a reader whose network died notices.
SSE_PING_SECONDS = 15.0

_HEADERS: Headers = [(b"content-type", b"text/event-stream")]
# Something at once, so that a client's "connected" fires before the first event.
_OPEN = b": open\n\n"


class EventStream(Pending):
    """The answer to a call whose method streams, until one side ends it."""

    __slots__ = ("_app", "_connection", "_due", "_method", "_stream")

    in_pieces = True

    def __init__(self, app: "App", method: str, stream: Stream) -> None:
        self._app = app
        self._method = method
        self._stream = stream
        self._connection: HttpConnection | None = None
        # `_drain` runs in the next turn of the loop.
        self._due = False

    def start(self, connection: "HttpConnection") -> None:
        self._connection = connection
        self._app.on_status(200)
        connection.begin(200, _HEADERS, in_chunks=True)
        self._write(connection, _OPEN)
        self._stream.on_ready = self.resumed
        self.resumed()

    def left(self) -> None:
        self._connection = None
        self._stream.close()

    def resumed(self) -> None:
        # In a turn of its own: this may be the middle of a service's work, and more may come within it.
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._drain)

    def overdue(self) -> None:
        if self._connection is not None:
            self._write(self._connection, b"" if self._connection.write_paused else sse.COMMENT_PING)

    def _write(self, connection: "HttpConnection", body: bytes) -> None:
        connection.piece(body)
        connection.remind(SSE_PING_SECONDS)

    def _drain(self) -> None:
        self._due = False
        connection = self._connection
        if connection is None or connection.write_paused or connection.transport.is_closing():
            return
        try:
            items, dropped = self._stream.drain()
            body = b"".join([_event(self._method, item) for item in items])
        except Exception as error:  # noqa: BLE001 - I4: it is logged with an id, and nobody gets half of an event
            self._app.refused(error)
            connection.abort()
            return
        if dropped:
            body += sse.encode_event(codec.encode({"dropped": dropped}), event="overflow")
        if body:
            self._write(connection, body)
        if self._stream.ended:
            self.left()
            connection.ended()


def _event(method: str, item: Any) -> bytes:
    """One event; how it is named depends on the stream."""
    match method:
        case "replies.stream":
            name, view = item
            return sse.encode_event(codec.encode(view), event=name)
        case "events.stream":
            return sse.encode_event(codec.encode(item), event=item.event, id=str(item.id))
        case "events.all":
            return sse.encode_event(codec.encode(item), event=item.kind, id=str(item.cursor))
        case "runs.stream":
            return sse.encode_event(codec.encode(item), event=item.kind, id=str(item.seq))
        case "approvals.stream":
            return sse.encode_event(codec.encode(item), event="approval", id=item.approval_id)
        case "ledger.verifyStream":
            name = "progress" if item.result is None else "result"
            return sse.encode_event(codec.encode(item), event=name)
        case "games.stream":
            # Not named after its channel: that is a mod's word.
            return sse.encode_event(codec.encode(item), event="game", id=str(item.cursor))
        case "sessions.stream":
            return sse.encode_event(codec.encode(item), event="session")
        case _:
            return sse.encode_event(codec.encode(item), event="message", id=item.ticket_id)
