"""One HTTP connection: bytes to requests, in their order, and answers back.

No task, event or timer is made for a request: nearly all are answered in the call that reads them, and ten thousand
long polls are ten thousand objects that wait. The door's sweep looks once a second whose time is over.
"""

import asyncio
import socket
from collections import deque
from typing import TYPE_CHECKING, Literal

import httptools

from bascule.kernel.call import Principal
from bascule.surfaces.fair_share import HTTP_CALLS
from bascule.surfaces.http.app import App
from bascule.surfaces.http.exchange import (
    LAST_CHUNK,
    Headers,
    Pending,
    Request,
    Response,
    chunk,
    encode_head,
    encode_response,
)
from bascule.surfaces.http.heads import CODING, bad_head, has_body, too_large, too_slow, why_refused
from bascule.transports.peercred import peer_of

if TYPE_CHECKING:
    from bascule.surfaces.http.server import HttpDoor

# (reliability) A head takes microseconds on loopback; who needs longer holds a descriptor for nothing.
HEAD_SECONDS = 10.0
# Time for a whole body to arrive: loopback needs milliseconds, a peer that trickles is not a client of ours.
BODY_SECONDS = 10.0
# Idle keep-alive connections; helpers close theirs, libraries come back within seconds.
KEEP_ALIVE_SECONDS = 30
# What a peer that no longer reads has left of its last answer.
CLOSE_SECONDS = 10.0
# A bearer, an address and a dozen standard headers are one KiB; browsers and proxies stay below eight. The same holds
# for what comes between the pieces of a body: sizes of chunks, their extensions, trailers.
MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 100
# Requests sent ahead while one is being answered, or while answers wait to be read. Clients that do this at all send
# a few, and small ones: beyond this many bytes of their bodies no further request is taken.
MAX_AHEAD = 16
MAX_AHEAD_BYTES = 1024 * 1024

NEVER = float("inf")

_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NOT_HTTP = "This is not HTTP as it is spoken here."
_EXPECT = b"expect"
# Refusals share their turns on the loop: nobody has to be known to be refused.
_NOBODY = "refused"

# What the bytes that come next belong to.
_Stage = Literal["idle", "head", "body", "skipped"]


class _Over(Exception):
    """The parser need not look at what follows."""


class HttpConnection(asyncio.Protocol):
    """One peer: refused when it is another user's, cut off when what it began does not arrive in time."""

    transport: asyncio.Transport

    def __init__(self, door: "HttpDoor") -> None:
        self.door = door
        self.loop = door.loop
        self._app: App = door.app
        self._parser = httptools.HttpRequestParser(self)
        # Else a request that says "close" would turn what was sent behind it into an error before it is answered.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._in_room = False
        # By when the next thing must have happened, by the door's clock.
        self.due = NEVER
        self._stage: _Stage = "head"
        # Bytes of the message that are not its body, since its head was complete.
        self._framing_bytes = 0
        self._head_size = 0
        self._target = b""
        self._headers: Headers = []
        self._codings: list[bytes] = []
        self._expects_continue = False
        # A message began or its head ended while these bytes were read.
        self._moved = False
        # What is being read, what is being answered, and what was read ahead of its turn.
        self._request: Request | None = None
        self._current: Request | None = None
        self._pending: Pending | None = None
        self._ahead: deque[Request] = deque()
        self._reading = True
        # Who sent the request before, and what came since then and is not looked at before it is the sender's turn.
        self._sender: Principal | None = None
        self._unread = b""
        self.write_paused = False
        # Bytes that come on this connection are dropped.
        self._ignores_input = False
        # Refused before its body was read: the rest of it is skipped, and then the connection may have to end.
        self._skipped: Request | None = None
        self._closes_after_skipped = False
        # The answer that comes in pieces says how long each is; else the end of the connection is its end.
        self._in_chunks = False

    # -- the connection --

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # ours are never others
        self.transport = transport
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None and sock.family == socket.AF_UNIX and peer_of(sock).uid != self.door.peer_uid:
            self._ignores_input = True
            transport.abort()
            return
        self._in_room = self.door.entered(self)
        if not self._in_room:
            if transport.get_extra_info("ssl_object") is not None:
                # A peer that does not end its TLS would keep a descriptor that nobody counts.
                self.abort()
                return
            transport.write(_FULL)
            self.close()
            return
        self.remind(HEAD_SECONDS)

    @property
    def current(self) -> Request | None:
        """The request that is being answered."""
        return self._current

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            return
        if self._unread:
            # No second request is sent ahead of the first one's turn: what is more than that stays in the socket.
            self._unread += data
            self._stop_reading()
            return
        if self._stage == "idle" and self._sender is not None and self._app.turns.is_spent(self._sender):
            self._unread = data
            if self._current is None:
                self.due = NEVER
            self._app.turns.wait(self._sender, 0, self._look)
            return
        self._parse(data)

    def _look(self) -> None:
        """At what had to wait."""
        data, self._unread = self._unread, b""
        if not self.write_paused:
            self._read_on()
        if not self._ignores_input:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        before = self._stage
        self._moved = False
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Answered as if nothing else had been asked for; what follows is not HTTP.
            self._ignores_input = True
        except httptools.HttpParserError:
            if not self._ignores_input:
                self._refuse(bad_head(_NOT_HTTP))
            return
        if self._ignores_input:
            return
        if self._framing_bytes > MAX_HEAD_BYTES and self._stage != "idle":
            self._refuse(_HEAD_TOO_LARGE)
        elif self._moved or self._stage != before or self._stage == "idle":
            self._expect_next()

    def eof_received(self) -> None:
        """The peer sends nothing more: what it still waits for is dropped, answers already written go out."""
        self.close()

    def connection_lost(self, _: Exception | None) -> None:
        self._ignores_input = True
        if self._in_room:
            self._in_room = False
            self.door.left(self)
        # The parser and this object refer to each other; else only the garbage collector would free them.
        del self._parser
        self._ahead.clear()
        self._current = self._request = self._skipped = None
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.left()

    def pause_writing(self) -> None:
        """The peer does not read what it asked for: nothing more is read from it until it does."""
        self.write_paused = True
        # What is written in pieces waits by itself, and must learn when its reader is gone.
        if self._pending is None or not self._pending.in_pieces:
            self._stop_reading()

    def resume_writing(self) -> None:
        self.write_paused = False
        self._read_on()
        if not self._ignores_input:
            self._expect_next()
        if self._pending is not None:
            self._pending.resumed()
        self._next_soon()

    def shutdown(self) -> None:
        """The server stops: after what is being answered."""
        if self._current is None:
            self.close()
        else:
            self._current.keep_alive = False
            self._ahead.clear()
            self._ignores_input = True

    # -- what the parser finds --

    def on_message_begin(self) -> None:
        if self._ignores_input:
            # Thousands may have been sent ahead in one piece; reading on would only cost time.
            raise _Over
        self._stage = "head"
        self._moved = True
        self._target = b""
        self._headers = []
        self._head_size = 0
        if self._codings:
            self._codings = []
        self._expects_continue = False

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers would join the headers behind the gate's back, and without end.
        if self._stage != "head":
            return
        name = name.lower()
        self._head_size += len(name) + len(value)
        self._headers.append((name, value))
        if name == CODING:
            self._codings.append(value)
        elif name == _EXPECT and value.lower() == b"100-continue":
            self._expects_continue = True

    def on_headers_complete(self) -> None:
        self._framing_bytes = 0
        parser, headers, target = self._parser, self._headers, self._target
        if len(headers) > MAX_HEADERS or len(target) + self._head_size > MAX_HEAD_BYTES:
            self._refuse(_HEAD_TOO_LARGE)
            return
        version = parser.get_http_version()
        if reason := why_refused(target, version, self._codings):
            self._refuse(bad_head(reason))
            return
        upgrade = parser.should_upgrade()
        if upgrade and has_body(headers):
            # The parser takes the body for the other protocol: the request would be served without it.
            self._refuse(bad_head("A request with a body must not ask for an upgrade: set the client to HTTP/1.1."))
            return
        keep_alive = parser.should_keep_alive() and version != "1.0" and not upgrade
        request = Request(parser.get_method().decode("ascii"), target, version, headers, keep_alive=keep_alive)
        refusal = self._app.admit(request)
        if refusal is not None:
            request.keep_alive = keep_alive and not self._app.closes_refused
            self._refuse_request(request, refusal)
            return
        self._stage = "body"
        self._moved = True
        self._sender = request.principal
        self._request = request
        # RFC 9110, 10.1.1: who speaks HTTP/1.0 does not wait for it.
        if self._expects_continue and self._current is None and version != "1.0":
            self.transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = max(0, self._framing_bytes - len(body))
        request = self._request
        if request is None or self._ignores_input:
            return
        request.size += len(body)
        limit = request.endpoint.max_body
        if request.size > limit:
            self._refuse_request(request, self._app.refusal(too_large(limit)))
        else:
            request.add(body)

    def on_message_complete(self) -> None:
        self._stage = "idle"
        self._framing_bytes = 0
        self._skipped = None
        if self._closes_after_skipped:
            self.close()
            return
        request, self._request = self._request, None
        if request is None or self._ignores_input:
            return
        # Before it is served, which may end the connection by itself.
        self._ignores_input = not request.keep_alive
        request.waited = not self._moved
        if self._answers_now:
            self._serve(request)
        else:
            self._queue(request)

    # -- answering --

    @property
    def _answers_now(self) -> bool:
        """Nothing is before it, and the peer reads: one that does not would have us keep every answer."""
        return self._current is None and not self._ahead and not self.write_paused

    def _queue(self, request: Request) -> None:
        ahead = self._ahead
        request.waited = True
        if len(ahead) < MAX_AHEAD and sum(each.size for each in ahead) <= MAX_AHEAD_BYTES:
            ahead.append(request)
            return
        # Too much was sent ahead: what is being answered is answered, then the connection ends.
        self._ignores_input = True
        ahead[-1].keep_alive = False

    def _serve(self, request: Request) -> None:
        if request.waited and request.refusal is None:
            # An agent that was revoked since its head came has no more to say.
            request.refusal = self._app.admit(request)
        turns = self._app.turns
        who, size = (request.principal, request.size) if request.refusal is None else (_NOBODY, 0)
        if not turns.take(who, size, HTTP_CALLS):
            self._current = request
            request.waited = True
            self.due = NEVER
            turns.wait(who, size, self._my_turn)
            return
        if request.refusal is not None:
            self._write(request, request.refusal)
            return
        answer = self._app.answer(request, request.whole_body())
        if isinstance(answer, Response):
            self._write(request, answer)
            return
        self._current = request
        self.due = NEVER
        self._pending = answer
        answer.start(self)

    def _my_turn(self) -> None:
        request, self._current = self._current, None
        if request is None or self.transport.is_closing():
            # The client left.
            return
        self._serve(request)
        if self._current is None:
            self._answered()

    # -- for the answer that is pending --

    def respond(self, response: Response) -> None:
        """The whole answer."""
        request = self._finished()
        self._write(request, response)
        self._answered()

    def begin(self, status: int, headers: Headers, *, in_chunks: bool) -> None:
        """The head of an answer that comes in pieces."""
        request = self._current
        assert request is not None
        # RFC 9112, 6.1: no transfer coding in an answer to HTTP/1.0.
        self._in_chunks = in_chunks and request.version != "1.0"
        more = self._app.header_lines
        self.transport.write(
            encode_head(status, headers, in_chunks=self._in_chunks, close=not request.keep_alive, more=more)
        )

    def piece(self, body: bytes) -> None:
        # A chunk of no bytes would be the last one.
        if body:
            self.transport.write(chunk(body) if self._in_chunks else body)

    def ended(self) -> None:
        """The last piece was written."""
        if self._in_chunks:
            self.transport.write(LAST_CHUNK)
        if not self._finished().keep_alive:
            self.close()
            return
        self._read_on()
        self._answered()

    def close(self) -> None:
        """After what is written already."""
        self._ignores_input = True
        self._ahead.clear()
        self.remind(CLOSE_SECONDS)
        self.transport.close()

    def abort(self) -> None:
        """What was begun cannot be finished."""
        self._ignores_input = True
        self.transport.abort()

    # -- in order --

    def _finished(self) -> Request:
        request, self._current, self._pending = self._current, None, None
        assert request is not None
        return request

    def _write(self, request: Request, response: Response) -> None:
        close = response.close or not request.keep_alive
        more = self._app.header_lines
        self.transport.write(encode_response(response, close=close, only_head=request.verb == "HEAD", more=more))
        if close and request is self._skipped and not response.close:
            # Its sender may be in the middle of the body, and would lose the answer with the connection.
            self._closes_after_skipped = True
        elif close:
            self.close()

    def _answered(self) -> None:
        self._expect_next()
        self._next_soon()

    def _next_soon(self) -> None:
        if self._ahead:
            # In a turn of its own: this may be the middle of whatever settled the answer.
            self.loop.call_soon(self._next)

    def _next(self) -> None:
        while self._ahead and self._current is None and not self.write_paused and not self.transport.is_closing():
            self._serve(self._ahead.popleft())

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self.transport.pause_reading()

    def _read_on(self) -> None:
        if not self._reading and not self._unread and not self.transport.is_closing():
            self._reading = True
            self.transport.resume_reading()

    # -- refusing --

    def _refuse_request(self, request: Request, refusal: Response) -> None:
        """Before its body is read: what comes of it is skipped."""
        self._request = None
        self._skipped = request
        self._stage = "skipped"
        self._moved = True
        request.refusal = refusal
        if self._answers_now:
            self._serve(request)
        else:
            self._queue(request)

    def _refuse(self, answer: bytes) -> None:
        """Before any token is seen: nobody may make us hold more, or read what another reader reads differently."""
        if self._current is None and not self._ahead and self._skipped is None:
            # Else it would be taken for the answer to what was asked before.
            self.transport.write(answer)
        self.close()

    # -- time --

    def _expect_next(self) -> None:
        """Set by when the next thing must have come."""
        if self._current is not None or self.transport.is_closing():
            return
        if self._stage == "idle":
            self.remind(KEEP_ALIVE_SECONDS)
        elif self._stage == "head":
            self.remind(HEAD_SECONDS)
        else:
            self.remind(BODY_SECONDS)

    def remind(self, seconds: float) -> None:
        """Have `overdue` called after this time, unless it is set anew."""
        self.due = self.door.now + seconds

    def overdue(self) -> None:
        """The door's sweep found that the time is over."""
        if self.transport.is_closing():
            # Its last answer is not read.
            self.transport.abort()
        elif self._pending is not None:
            self._pending.overdue()
        elif self._stage == "idle" and not self.transport.get_write_buffer_size():
            self.close()
        elif self._stage == "body" and self._request is not None:
            self._refuse_request(self._request, self._app.refusal(too_slow(BODY_SECONDS)))
        else:
            self.transport.abort()
