"""Requests to calls, answers to responses: admission, route, decode, call.

`surfaces.http.http` drives this straight from the parser: no task is made for a request, and a long poll is one
object that waits. What sends for as long as it lives (streams) or is an application of its own (/mcp) is
served as ASGI.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, NamedTuple

from bascule import __version__
from bascule.foundation.agreement import is_agent_id, is_ticket_id
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import (
    BasculeError,
    Internal,
    InvalidRequest,
    TooLarge,
    Unavailable,
    UnsupportedMediaType,
)
from bascule.foundation.stream import Stream
from bascule.kernel.call import LOCAL, Call, Principal
from bascule.kernel.gate import Gate
from bascule.kernel.passage import Answer
from bascule.kernel.route import Route
from bascule.kernel.rows import Shape
from bascule.surfaces.fair_share import HTTP_CALLS, FairShare
from bascule.surfaces.http.admission import Admission, Headers, SpaceAdmission
from bascule.surfaces.http.routes import Found, RouteTable, query_params
from bascule.wire import sse
from gabp import codec

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# A payload of 1 MiB whose every character is escaped, and its envelope.
MAX_BODY_BYTES = 8 * 1024 * 1024
# Time for a whole body to arrive: loopback needs milliseconds, a peer that trickles is no client.
BODY_SECONDS = 10.0
# A comment now and then, so that a reader whose network died notices.
SSE_PING_SECONDS = 15.0

_COMMON = [
    (b"bascule-version", __version__.encode()),
    # What we answer is for the caller alone, and never to be guessed into a page.
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]
_JSON = (b"content-type", b"application/json")
_body = codec.decoder(dict[str, Any])

# Pages of the house that are no methods: health, metrics, the API description.
Page = Callable[[], tuple[int, bytes, bytes]]
# An application of its own behind our admission, given who came and the body that was read: /mcp.
Mount = Callable[[Principal, Scope, bytes, Receive, Send], Awaitable[None]]


class Admitted(NamedTuple):
    """A request head that was admitted and found its route."""

    principal: Principal
    found: Found


class Response(NamedTuple):
    status: int
    headers: Headers
    body: bytes
    # Nothing more can be read from this connection.
    close: bool = False


class Held(NamedTuple):
    """A call whose answer is not there yet."""

    call: Call
    route: Route
    later: Deferred[Any]


class Form(NamedTuple):
    """How a protocol with its own error format is answered over HTTP."""

    # The status of an answer.
    status: Callable[[Any], int]
    # The answer to what is no request of the method.
    refusal: Callable[[InvalidRequest], Any]


class _Gone(Exception):
    """The client left; there is nobody to answer."""


class App:
    """One per door: the same table behind that door's admission."""

    def __init__(
        self,
        admission: Admission | SpaceAdmission,
        table: RouteTable,
        calls: Gate,
        turns: FairShare,
        *,
        door: str,
        pages: dict[str, Page],
        mounts: dict[str, Mount],
        on_status: Callable[[int], None],
        on_fault: Callable[[BaseException], BasculeError],
        as_owner: frozenset[str] = frozenset(),
        forms: Mapping[str, Form] | None = None,
        closes_refused: bool = False,
    ) -> None:
        # Methods that `local` may use for any agent here: only with `--auth off`, only on TCP.
        self._as_owner = as_owner
        self._forms = dict(forms or {})
        self._admission = admission
        # A refused head costs its sender nothing and us some microseconds, before any turn is taken: sent ahead by
        # the thousand they would keep the loop. Where hostile code is expected, one of them ends the connection.
        self.closes_refused = closes_refused
        self._table = table
        self._calls = calls
        self.turns = turns
        self._door = door
        self._pages = pages
        self._mounts = mounts
        self._on_status = on_status
        self._on_fault = on_fault

    # -- one request at a time --

    def admit(self, verb: str, path: bytes, headers: Headers) -> Admitted | Response:
        """Before any body is read; a response is a refusal, and nothing is raised."""
        try:
            return Admitted(self._admission.admit(headers), self._table.find(verb, path))
        except Exception as error:  # noqa: BLE001 - see `_refused`
            return self._refused(error)

    def is_direct(self, admitted: Admitted) -> bool:
        """Whether `answer` answers it; else it is for ASGI."""
        method = admitted.found.route.method
        mounted = self._calls.methods.get(method)
        return method in self._pages or (mounted is not None and not mounted.streams)

    def answer(self, admitted: Admitted, query: bytes, headers: Headers, body: bytes) -> Response | Held:
        """Execute a request; nothing is raised."""
        try:
            return self._answer(admitted, query, headers, body)
        except Exception as error:  # noqa: BLE001 - see `_refused`
            return self._refused(error)

    def finished(self, held: Held) -> Response:
        """The response to a held call that is settled and was not withdrawn."""
        error = held.later.exception()
        if error is None:
            return self._response(held.route, held.later.result())
        return self._refused(error)

    def left(self, held: Held) -> None:
        """The client left before it could be answered: a dead waiter eats no messages, an effect stays one."""
        later = held.later
        if not later.done():
            row = self._calls.methods[held.call.method].row
            # A run belongs to the caller that waits for it; a call that waits or has not begun has changed nothing.
            waits = row.shape in (Shape.WAIT, Shape.RUN) or bool(getattr(held.call.params, "wait_ms", 0))
            if waits or (isinstance(later, Answer) and not later.begun):
                later.cancel()
        elif not later.cancelled() and later.exception() is None:
            self._calls.abandoned(held.call, later.result())

    def _refused(self, error: BaseException) -> Response:
        """The boundary of I4: of an unexpected error the peer gets an id, the log has the rest."""
        return self.refusal(error if isinstance(error, BasculeError) else self._on_fault(error))

    def refusal(self, error: BasculeError) -> Response:
        self._on_status(error.status)
        headers = [_JSON]
        if error.retry_after is not None:
            # Whole seconds by RFC 9110; never zero, which would mean at once.
            headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after + 0.5))))
        if error.status == 401:
            headers.append((b"www-authenticate", b'Bearer realm="bascule"'))
        if error.status == 405 and error.details:
            headers.append((b"allow", error.details["allow"].encode()))
        # The body may be unread: what follows on this connection would be its rest.
        close = not isinstance(error, Internal | Unavailable) and error.status in (400, 413, 415, 421)
        return Response(error.status, headers, codec.encode({"error": error.body()}), close)

    def _answer(self, admitted: Admitted, query: bytes, headers: Headers, body: bytes) -> Response | Held:
        route, path_params = admitted.found
        page = self._pages.get(route.method)
        if page is not None:
            status, kind, text = page()
            self._on_status(status)
            return Response(status, [(b"content-type", kind)], text)
        form = self._forms.get(route.method)
        try:
            call = self._call(admitted.principal, route, path_params, self._fields(route, query, headers, body))
        except InvalidRequest as error:
            if form is None:
                raise
            return self._response(route, form.refusal(error))
        answer = self._calls.call(call)
        if isinstance(answer, Deferred):
            return Held(call, route, answer)
        return self._response(route, answer)

    def _response(self, route: Route, answer: Any) -> Response:
        if answer is None or route.status == 204:
            self._on_status(204)
            return Response(204, [], b"")
        form = self._forms.get(route.method)
        status = form.status(answer) if form is not None else route.status
        self._on_status(status)
        return Response(status, [_JSON], codec.encode(answer))

    def _fields(self, route: Route, query: bytes, headers: Headers, body: bytes) -> dict[str, Any]:
        if route.verb == "GET":
            return dict(query_params(query)) if query else {}
        if query:
            raise InvalidRequest("this path takes no query string", hint="put the fields into the JSON body")
        return _json(headers, body) if body else {}

    def _call(self, principal: Principal, route: Route, path_params: dict[str, Any], fields: dict[str, Any]) -> Call:
        for name, value in path_params.items():
            if name in fields:
                raise InvalidRequest(f"`{name}` stands in the path already", hint="leave it out of the rest")
            fields[name] = value
        try:
            params: Any = codec.convert(fields, self._calls.methods[route.method].params, lax=route.verb == "GET")
        except codec.BadJson as error:
            refusal = InvalidRequest(error.message, details={"method": route.method})
            ids = (_known_id(fields, "agentId", is_agent_id), _known_id(fields, "ticketId", is_ticket_id))
            self._calls.call_log.refused(Call(principal, route.method, None, door=self._door), refusal, *ids)
            raise refusal from error
        as_owner = principal == LOCAL and route.method in self._as_owner
        return Call(principal, route.method, params, door=self._door, as_owner=as_owner)

    # -- ASGI --

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # No WebSocket is served, so an upgrade is refused before anything else can happen.
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        try:
            await self._serve(scope, receive, send)
        except _Gone:
            return
        except Exception as error:  # noqa: BLE001 - see `_refused`
            await _send(send, self._refused(error))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        admitted: Admitted | Response | None = scope.get("bascule.admitted")
        if admitted is None:
            # On a server that is not ours: nothing has been judged yet.
            path: bytes = scope.get("raw_path") or scope["path"].encode()
            admitted = self.admit(scope["method"], path.partition(b"?")[0], scope["headers"])
        if isinstance(admitted, Response):
            await _send(send, admitted)
            return
        route, path_params = admitted.found
        await self.turns.turn(admitted.principal, calls=HTTP_CALLS)
        mount = self._mounts.get(route.method)
        if mount is not None:
            body = b"" if scope["method"] == "GET" else await _read_body(receive, MAX_BODY_BYTES)
            await mount(admitted.principal, scope, body, receive, self._dressed(send))
            return
        if self.is_direct(admitted):
            body = b"" if route.verb == "GET" else await _read_body(receive, route.max_body or MAX_BODY_BYTES)
            answer = self.answer(admitted, scope["query_string"], scope["headers"], body)
            if isinstance(answer, Held):
                await self._until_gone(receive, answer)
                answer = self.finished(answer)
            await _send(send, answer)
            return
        fields = self._fields(route, scope["query_string"], scope["headers"], b"")
        stream = self._calls.call(self._call(admitted.principal, route, path_params, fields))
        await self._stream(receive, send, route, stream)

    async def _until_gone(self, receive: Receive, held: Held) -> None:
        """Hold a call until it is settled, and let go of it the moment its client leaves."""
        turn = asyncio.Event()
        held.later.add_done_callback(lambda _: turn.set())
        watcher = asyncio.ensure_future(_disconnected(receive))
        watcher.add_done_callback(lambda _: turn.set())
        try:
            await turn.wait()
        except BaseException:
            self.left(held)
            raise
        finally:
            watcher.cancel()
        if watcher.done() or held.later.cancelled():
            self.left(held)
            raise _Gone

    async def _stream(self, receive: Receive, send: Send, route: Route, stream: Stream) -> None:
        headers = [*_COMMON, (b"content-type", b"text/event-stream")]
        self._on_status(200)
        wake = asyncio.Event()
        stream.on_ready = wake.set
        watcher = asyncio.ensure_future(_disconnected(receive))
        watcher.add_done_callback(lambda _: wake.set())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            # Something at once, so that a client's "connected" fires before the first event.
            await send({"type": "http.response.body", "body": b": open\n\n", "more_body": True})
            while not watcher.done():
                wake.clear()
                items, dropped = stream.drain()
                body = b"".join(_event(route, item) for item in items)
                if dropped:
                    body += sse.encode_event(codec.encode({"dropped": dropped}), event="overflow")
                if stream.ended:
                    await send({"type": "http.response.body", "body": body, "more_body": False})
                    return
                if body:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    continue
                try:
                    async with asyncio.timeout(SSE_PING_SECONDS):
                        await wake.wait()
                except TimeoutError:
                    await send({"type": "http.response.body", "body": sse.COMMENT_PING, "more_body": True})
        finally:
            watcher.cancel()
            stream.close()

    def _dressed(self, send: Send) -> Send:
        """What a mount answers is counted, and has the headers of every other answer."""

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._on_status(message["status"])
                rest = [header for header in message["headers"] if header[0].lower() != b"cache-control"]
                message = {**message, "headers": [*_COMMON, *rest]}
            await send(message)

        return dressed


def _head(status: int) -> bytes:
    lines = [b"HTTP/1.1 %d %b" % (status, HTTPStatus(status).phrase.encode())]
    return b"\r\n".join([*lines, *(b"%b: %b" % header for header in _COMMON)]) + b"\r\n"


_HEADS = {status.value: _head(status.value) for status in HTTPStatus}
_JSON_LINE = b"%b: %b\r\n" % _JSON


def encode_response(response: Response, *, close: bool, only_head: bool = False) -> bytes:
    """A response as it is written. `only_head` answers HEAD: the length of the body, without the body."""
    status, headers, body, _ = response
    lines = _JSON_LINE if headers == [_JSON] else b"".join(b"%b: %b\r\n" % header for header in headers)
    length = b"" if status == 204 else b"content-length: %d\r\n" % len(body)
    ending = b"connection: close\r\n" if close else b""
    return b"%b%b%b%b\r\n%b" % (_HEADS[status], lines, length, ending, b"" if only_head else body)


def too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"the body is larger than {limit} bytes",
        hint="write the content to a file and send its path",
    )


def body_too_slow() -> InvalidRequest:
    return InvalidRequest(f"the body did not arrive within {BODY_SECONDS:.0f} s")


def _known_id(fields: dict[str, Any], name: str, valid: Callable[[str], bool]) -> str | None:
    """Only what looks like an id goes into the log: the rest of a refused request is anybody's text."""
    value = fields.get(name)
    return value if isinstance(value, str) and valid(value) else None


def _event(route: Route, item: Any) -> bytes:
    """One SSE event; how it is named depends on the stream."""
    match route.method:
        case "replies.stream":
            name, view = item
            return sse.encode_event(codec.encode(view), event=name)
        case "events.stream":
            return sse.encode_event(codec.encode(item), event=item.event, id=str(item.id))
        case "runs.stream":
            return sse.encode_event(codec.encode(item), event=item.kind, id=str(item.seq))
        case "games.stream":
            # Not named after its channel: that is a mod's word.
            return sse.encode_event(codec.encode(item), event="game", id=str(item.cursor))
        case _:
            return sse.encode_event(codec.encode(item), event="message", id=item.ticket_id)


def _json(headers: Headers, body: bytes) -> dict[str, Any]:
    kind = next((value for name, value in headers if name == b"content-type"), b"")
    if kind.partition(b";")[0].strip().lower() != b"application/json":
        raise UnsupportedMediaType("the body must be JSON", hint="send the header `Content-Type: application/json`")
    try:
        return _body.decode(body)
    except codec.BadJson as error:
        raise InvalidRequest(error.message) from error


async def _send(send: Send, response: Response) -> None:
    headers = [*_COMMON, *response.headers]
    if response.status != 204:
        headers.append((b"content-length", b"%d" % len(response.body)))
    if response.close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def _read_body(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _Gone
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise too_large(limit)
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError:
        raise body_too_slow() from None
