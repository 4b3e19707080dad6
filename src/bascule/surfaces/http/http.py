"""One HTTP connection: from the parser straight to the application, and back.

uvicorn's protocol makes a task, an event and a scope for each request. Nearly all of ours are answered in
the call that reads them, and ten thousand long polls must not be ten thousand tasks: so requests of direct
routes are served here, and only streams and /mcp go the way of ASGI.
"""

import asyncio
import os
import socket
from collections import deque
from functools import partial
from typing import Any, Literal

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bascule.surfaces.fair_share import HTTP_CALLS
from bascule.surfaces.http.app import (
    BODY_SECONDS,
    MAX_BODY_BYTES,
    Admitted,
    App,
    Held,
    Response,
    body_too_slow,
    encode_response,
    too_large,
)
from bascule.surfaces.http.heads import why_refused
from bascule.transports.peercred import peer_of

# (reliability) A head takes microseconds on loopback; who needs longer holds a descriptor for nothing.
HEAD_SECONDS = 10.0
# A bearer, an address and a dozen standard headers are one KiB; browsers and proxies stay below eight.
MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 100
# Requests sent ahead while one is being answered, or while answers wait to be read. Clients that do this at all send
# a few.
MAX_AHEAD = 16
# Idle keep-alive connections; helpers close theirs, libraries come back within seconds.
KEEP_ALIVE_SECONDS = 30
# Ten thousand agents that wait, with some room; a process that may open fewer files takes fewer (daemon.descriptors).
MAX_CONNECTIONS = 12_000

_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NOT_HTTP = "This is not HTTP as it is spoken here."

# What the bytes that come next belong to.
_Stage = Literal["idle", "head", "body", "asgi", "skipped"]


class _Over(Exception):
    """The connection is at its end: the parser need not look at what follows."""


class _Request:
    """A request of a direct route, as far as it has come."""

    __slots__ = ("admitted", "body", "headers", "keep_alive", "query", "refusal", "size", "verb")

    def __init__(self, verb: str, query: bytes, headers: list[tuple[bytes, bytes]], *, keep_alive: bool) -> None:
        self.verb = verb
        self.query = query
        self.headers = headers
        self.keep_alive = keep_alive
        self.admitted: Admitted | None = None
        self.refusal: Response | None = None
        self.body: list[bytes] = []
        self.size = 0


class ConnectionLimit:
    """Connections that several doors may have together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    def take(self) -> bool:
        """Whether there was a place; it is to be given back."""
        if self._taken >= self._most:
            return False
        self._taken += 1
        return True

    def give_back(self) -> None:
        self._taken -= 1


class HttpConnection(HttpToolsProtocol):
    """Refused when it is not ours, cut when what it began does not come or does not end."""

    def __init__(
        self,
        *arguments: Any,
        peer_uid: int | None = None,
        max_connections: int | None = None,
        room: ConnectionLimit | None = None,
        **options: Any,
    ) -> None:
        """`peer_uid` is whose connections are taken on a unix socket; ours when it is not given."""
        super().__init__(*arguments, **options)
        self._room = room
        self._in_room = False
        self._peer_uid = os.getuid() if peer_uid is None else peer_uid
        self._max_connections = MAX_CONNECTIONS if max_connections is None else min(MAX_CONNECTIONS, max_connections)
        # In the mirror of a test another application may stand in front of ours.
        self._direct = self.app if isinstance(self.app, App) else None
        self._stage: _Stage = "head"
        self._head_bytes = 0
        self._request: _Request | None = None
        # What is being answered: it waits for its turn on the loop, or for what it asked for.
        self._queued: _Request | None = None
        self._held: tuple[_Request, Held] | None = None
        self._ahead: deque[_Request] = deque()
        # Bytes that come on this connection are dropped.
        self._ignores_input = False
        # What was refused has been answered; only the rest of it is let in.
        self._closes_after_body = False
        # By when something must have happened, and the timer that looks: seldom armed anew, for a request
        # that comes whole only moves the time.
        self._due = float("inf")
        self._timer: asyncio.TimerHandle | None = None

    # -- the connection --

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own type
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        foreign = sock is not None and sock.family == socket.AF_UNIX and peer_of(sock).uid != self._peer_uid
        if foreign:
            self._ignores_input = True
            transport.abort()
            return
        if len(self.connections) <= self._max_connections:
            self._in_room = self._room is None or self._room.take()
        if not self._in_room:
            self._ignores_input = True
            transport.write(_FULL)
            transport.close()
            return
        self._expect_within(HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            return
        if self._stage in {"idle", "head"}:
            self._head_bytes += len(data)
        before = self._stage
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Answered as if nothing else had been asked for; what follows is not HTTP.
            self._ignores_input = True
        except httptools.HttpParserError:
            self._refuse_bytes()
            return
        if self._ignores_input or self.transport.is_closing():
            return
        if self._stage == "head" and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse_head()
        elif self._stage != before or self._stage == "idle":
            self._expect_next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ignores_input = True
        if self._room is not None and self._in_room:
            self._in_room = False
            self._room.give_back()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ahead.clear()
        self._queued = None
        if self._held is not None and self._direct is not None:
            (_, held), self._held = self._held, None
            self._direct.left(held)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer does not read what it asked for: nothing more is read from it until it does."""
        super().pause_writing()
        if not self._in_asgi:
            # ASGI waits by itself, and must learn when a reader of its stream is gone.
            self.flow.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.flow.resume_reading()
        if not self._ignores_input:
            self._expect_next()
        self._next_soon()

    def shutdown(self) -> None:
        """The server stops: after what is being answered."""
        current = self._queued or (self._held[0] if self._held is not None else None)
        if current is not None:
            current.keep_alive = False
            self._ahead.clear()
            self._ignores_input = True
        else:
            super().shutdown()

    # -- what the parser finds --

    def on_message_begin(self) -> None:
        if self.transport.is_closing():
            # Thousands may have been sent ahead in one piece; reading on would only cost time.
            raise _Over
        self._stage = "head"
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers would join the headers behind the gate's back, and without end.
        if self._stage == "head":
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        if self._ignores_input:
            # What was sent behind a refused head is not for us any more.
            self._stage = "skipped"
            return
        headers = self.headers
        version = self.parser.get_http_version()
        size = len(self.url) + sum(len(name) + len(value) for name, value in headers)
        if len(headers) > MAX_HEADERS or size > MAX_HEAD_BYTES:
            self._refuse_head()
            return
        if reason := why_refused(self.url, version, headers):
            self._ignores_input = True
            self.send_400_response(reason)
            return
        if self._direct is None:
            self._to_asgi(None)
            return
        keep_alive = version != "1.0" and self.parser.should_keep_alive() and not self.parser.should_upgrade()
        path, _, query = self.url.partition(b"?")
        request = _Request(self.parser.get_method().decode("ascii"), query, headers, keep_alive=keep_alive)
        admitted = self._direct.admit(request.verb, path, headers)
        if isinstance(admitted, Response):
            request.keep_alive = keep_alive and not self._direct.closes_refused
            self._refuse_request(request, admitted)
            return
        if not self._direct.is_direct(admitted):
            self._to_asgi(admitted)
            return
        request.admitted = admitted
        self._stage = "body"
        self._request = request
        if self.expect_100_continue and not self._busy:
            self.transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        if self._ignores_input:
            return
        if self._stage == "asgi":
            super().on_body(body)
            return
        request = self._request
        if request is None or self._direct is None:
            return
        request.size += len(body)
        route = request.admitted.found.route if request.admitted is not None else None
        limit = (route.max_body if route is not None else 0) or MAX_BODY_BYTES
        if request.size > limit:
            self._refuse_request(request, self._direct.refusal(too_large(limit)))
        else:
            request.body.append(body)

    def on_message_complete(self) -> None:
        stage, self._stage = self._stage, "idle"
        if stage == "asgi":
            # Even when deaf: an upgrade that is not taken still is a whole request.
            super().on_message_complete()
            return
        if self._closes_after_body:
            self._end()
            return
        request, self._request = self._request, None
        if request is None or self._ignores_input:
            return
        if self._answers_now:
            self._serve(request)
        elif len(self._ahead) < MAX_AHEAD:
            self._ahead.append(request)
        else:
            self._stop_reading()

    def on_response_complete(self) -> None:
        """ASGI has answered."""
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self._expect_next()
            self._next_soon()

    # -- answering --

    @property
    def _busy(self) -> bool:
        if self._held is not None or self._queued is not None:
            return True
        return self._in_asgi

    @property
    def _answers_now(self) -> bool:
        """Nothing is before it, and the peer reads: one that does not would have us keep every answer."""
        return not self._busy and not self._ahead and not self.flow.write_paused

    @property
    def _in_asgi(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _serve(self, request: _Request) -> None:
        assert self._direct is not None
        if request.refusal is not None:
            self._write(request, request.refusal)
            return
        assert request.admitted is not None
        turns, who = self._direct.turns, request.admitted.principal
        if turns.take(who, request.size, HTTP_CALLS):
            self._handle(request, self._direct, request.admitted)
        else:
            self._queued = request
            turns.wait(who, request.size, self._my_turn)

    def _my_turn(self) -> None:
        request, self._queued = self._queued, None
        if request is None or self.transport.is_closing():
            # The client left.
            return
        self._serve(request)
        if not self._busy:
            self._expect_next()
            self._next_soon()

    def _handle(self, request: _Request, app: App, admitted: Admitted) -> None:
        body = request.body[0] if len(request.body) == 1 else b"".join(request.body)
        answer = app.answer(admitted, request.query, request.headers, body)
        if isinstance(answer, Response):
            self._write(request, answer)
            return
        self._held = request, answer
        answer.later.add_done_callback(partial(self._settled, request, answer))

    def _settled(self, request: _Request, held: Held, _: object) -> None:
        if self._held is None or self._held[1] is not held:
            # The client left first.
            return
        assert self._direct is not None
        self._held = None
        if held.later.cancelled():
            self.transport.close()
            return
        if self.transport.is_closing():
            self._direct.left(held)
            return
        self._write(request, self._direct.finished(held))
        self._expect_next()
        self._next_soon()

    def _write(self, request: _Request, response: Response) -> None:
        close = response.close or not request.keep_alive
        self.transport.write(encode_response(response, close=close, only_head=request.verb == "HEAD"))
        if close and self._stage == "skipped" and request.refusal is response and not response.close:
            # Its sender may be in the middle of the body, and would lose the answer with the connection.
            self._closes_after_body = True
        elif close:
            self._end()

    def _end(self) -> None:
        self._ignores_input = True
        self.transport.close()

    def _next_soon(self) -> None:
        if self._ahead:
            # In a turn of its own: this may be the middle of whatever settled the answer.
            self.loop.call_soon(self._next)

    def _next(self) -> None:
        while self._ahead and not self._busy and not self.flow.write_paused and not self.transport.is_closing():
            self._serve(self._ahead.popleft())

    def _to_asgi(self, admitted: Admitted | None) -> None:
        if self._busy or self._ahead:
            self._stop_reading()
            return
        self._stage = "asgi"
        url, headers, expected = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = url, headers, expected
        self.scope["headers"] = headers
        if admitted is not None:
            self.scope["bascule.admitted"] = admitted  # type: ignore[typeddict-unknown-key] # for our own App
        super().on_headers_complete()
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False

    # -- refusing --

    def _refuse_request(self, request: _Request, refusal: Response) -> None:
        """Before its body is read: what comes of it is skipped."""
        self._request = None
        self._stage = "skipped"
        request.refusal = refusal
        if self._answers_now:
            self._write(request, refusal)
        elif len(self._ahead) < MAX_AHEAD:
            self._ahead.append(request)
        else:
            self._stop_reading()

    def _refuse_head(self) -> None:
        """Before any token is seen: nobody may make us hold more than this."""
        self._ignores_input = True
        if not self.transport.is_closing():
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()

    def _refuse_bytes(self) -> None:
        self._ignores_input = True
        if self._busy or self._ahead:
            # Its answer must not be mistaken for one to this.
            self.transport.close()
        elif not self.transport.is_closing():
            self.send_400_response(_NOT_HTTP)

    def _stop_reading(self) -> None:
        """Too much was sent ahead: what is being answered is answered, then the connection ends."""
        self._ignores_input = True
        if self._ahead:
            self._ahead[-1].keep_alive = False
        elif self._queued is not None:
            self._queued.keep_alive = False
        elif self._held is not None:
            self._held[0].keep_alive = False
        elif self.cycle is not None:
            self.cycle.keep_alive = False

    # -- time --

    def _expect_next(self) -> None:
        """Set by when the next thing must have come."""
        if self._busy or self._stage == "asgi":
            self._due = float("inf")
        elif self._stage == "head":
            self._expect_within(HEAD_SECONDS)
        elif self._stage == "idle":
            self._expect_within(KEEP_ALIVE_SECONDS)
        else:
            self._expect_within(BODY_SECONDS)

    def _expect_within(self, seconds: float) -> None:
        now = self.loop.time()
        self._due = now + seconds
        if self._timer is None:
            self._timer = self.loop.call_at(self._due, self._look)
        elif self._timer.when() > self._due:
            self._timer.cancel()
            self._timer = self.loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self._timer = None
        if self.transport.is_closing() or self._due == float("inf"):
            return
        if self._due > self.loop.time():
            self._timer = self.loop.call_at(self._due, self._look)
        elif self._stage == "idle" and not self.transport.get_write_buffer_size():
            self.transport.close()
        elif self._stage == "body" and self._request is not None and self._direct is not None:
            self._refuse_request(self._request, self._direct.refusal(body_too_slow()))
        else:
            self.transport.abort()
