"""The ASGI application: gate, route, decode, dispatch, answer."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from bascule import __version__
from bascule.call import Call, Principal
from bascule.dispatch import Dispatch
from bascule.errors import BasculeError, Internal, InvalidRequest, TooLarge, Unavailable, UnsupportedMediaType
from bascule.ids import is_agent_id, is_ticket_id
from bascule.later import Later
from bascule.protocols.methods import Shape
from bascule.protocols.route import Route
from bascule.stream import Stream
from bascule.web.gate import Gate
from bascule.web.routes import RouteTable, query_params
from bascule.wire import codec, sse

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# A payload of 1 MiB whose every character is escaped, and its envelope.
MAX_BODY_BYTES = 8 * 1024 * 1024
# Time for a whole body to arrive: loopback needs milliseconds, a peer that trickles is no client.
BODY_SECONDS = 20.0
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
# An application of its own behind our gate, given who came and the body that was read: /mcp.
Mount = Callable[[Principal, Scope, bytes, Receive, Send], Awaitable[None]]


class _Gone(Exception):
    """The client left; there is nobody to answer."""


class App:
    """One per door: the same table behind that door's gate."""

    def __init__(
        self,
        gate: Gate,
        table: RouteTable,
        dispatch: Dispatch,
        *,
        door: str,
        pages: dict[str, Page],
        mounts: dict[str, Mount],
        on_status: Callable[[int], None],
        on_fault: Callable[[Exception], BasculeError],
    ) -> None:
        self._gate = gate
        self._table = table
        self._dispatch = dispatch
        self._door = door
        self._pages = pages
        self._mounts = mounts
        self._on_status = on_status
        self._on_fault = on_fault

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
        except BasculeError as error:
            await self._refuse(send, error)
        except Exception as error:  # noqa: BLE001 - the boundary of I4: the peer hears an id, the log has the rest
            await self._refuse(send, self._on_fault(error))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal = self._gate.admit(scope["headers"])
        verb: str = scope["method"]
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        found = self._table.find(verb, raw_path.partition(b"?")[0])
        page = self._pages.get(found.route.method)
        if page is not None:
            status, kind, body = page()
            await self._answer(send, status, body, kind)
            return
        mount = self._mounts.get(found.route.method)
        if mount is not None:
            body = b"" if verb == "GET" else await _read_body(receive)
            await mount(principal, scope, body, receive, self._dressed(send))
            return
        call = await self._call(scope, receive, principal, found.route, found.params)
        answer = self._dispatch.call(call)
        if isinstance(answer, Stream):
            await self._stream(receive, send, found.route, answer)
            return
        if isinstance(answer, Later):
            if self._dispatch.methods[call.method].row.shape is Shape.WAIT:
                answer = await self._until_gone(receive, call, answer)
            else:
                # Shielded by nothing: if this task is cancelled the effect has happened, only its answer is lost.
                answer = await answer
        if answer is None or found.route.status == 204:
            await self._answer(send, 204, b"", None)
        else:
            await self._answer(send, found.route.status, codec.encode(answer))

    async def _call(
        self, scope: Scope, receive: Receive, principal: Principal, route: Route, path_params: dict[str, Any]
    ) -> Call:
        row = self._dispatch.methods[route.method].row
        fields: dict[str, Any]
        if route.verb == "GET":
            fields = dict(query_params(scope["query_string"]))
        else:
            if scope["query_string"]:
                raise InvalidRequest("this path takes no query string", hint="put the fields into the JSON body")
            fields = await _read_json(scope, receive)
        for name, value in path_params.items():
            if name in fields:
                raise InvalidRequest(f"`{name}` stands in the path already", hint="leave it out of the rest")
            fields[name] = value
        try:
            params = codec.convert(fields, row.params, lax=route.verb == "GET")
        except codec.BadJson as error:
            refusal = InvalidRequest(error.message, details={"method": row.name})
            ids = (_known_id(fields, "agentId", is_agent_id), _known_id(fields, "ticketId", is_ticket_id))
            self._dispatch.refused(Call(principal, route.method, None, door=self._door), refusal, *ids)
            raise refusal from error
        return Call(principal, route.method, params, door=self._door)

    async def _until_gone(self, receive: Receive, call: Call, answer: Later[Any]) -> Any:
        """Hold a wait, and let go of it the moment its client leaves: a dead waiter eats messages."""
        watcher = asyncio.ensure_future(_disconnected(receive))
        turn = asyncio.Event()
        answer.add_done_callback(lambda _: turn.set())
        watcher.add_done_callback(lambda _: turn.set())
        try:
            await turn.wait()
            if not watcher.done():
                return answer.result()
            if not answer.done():
                answer.cancel()
            elif not answer.cancelled() and answer.exception() is None:
                self._dispatch.abandoned(call, answer.result())
            raise _Gone
        finally:
            watcher.cancel()
            if not answer.done():
                answer.cancel()

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

    async def _answer(self, send: Send, status: int, body: bytes, kind: bytes | None = b"application/json") -> None:
        self._on_status(status)
        headers = [*_COMMON]
        if kind is not None:
            headers.append((b"content-type", kind))
        if status != 204:
            headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _refuse(self, send: Send, error: BasculeError) -> None:
        self._on_status(error.status)
        body = codec.encode({"error": error.body()})
        headers = [*_COMMON, _JSON, (b"content-length", b"%d" % len(body))]
        if error.retry_after is not None:
            # Whole seconds by RFC 9110; never zero, which would mean at once.
            headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after + 0.5))))
        if error.status == 401:
            headers.append((b"www-authenticate", b'Bearer realm="bascule"'))
        if error.status == 405 and error.details:
            headers.append((b"allow", error.details["allow"].encode()))
        if not isinstance(error, Internal | Unavailable) and error.status in (400, 413, 415, 421):
            # The body may be unread: what follows on this connection would be its rest.
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": error.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


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
        case _:
            return sse.encode_event(codec.encode(item), event="message", id=item.ticket_id)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def _read_json(scope: Scope, receive: Receive) -> dict[str, Any]:
    body = await _read_body(receive)
    if not body:
        return {}
    if len(body) > MAX_BODY_BYTES:
        raise _too_large()
    kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    if kind.partition(b";")[0].strip().lower() != b"application/json":
        raise UnsupportedMediaType("the body must be JSON", hint="send the header `Content-Type: application/json`")
    try:
        return _body.decode(body)
    except codec.BadJson as error:
        raise InvalidRequest(error.message) from error


async def _read_body(receive: Receive) -> bytes:
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
                if size > MAX_BODY_BYTES:
                    raise _too_large()
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError:
        raise InvalidRequest(f"the body did not arrive within {BODY_SECONDS:.0f} s") from None


def _too_large() -> TooLarge:
    return TooLarge(
        f"the body is larger than {MAX_BODY_BYTES} bytes",
        hint="write the content to a file and send its path",
    )
