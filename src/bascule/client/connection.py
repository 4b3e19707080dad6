"""One link connection on asyncio: futures by request id, notifications to the streams they belong to.

No task per request: an answer goes from the socket's callback into the future that waits for it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Self, TypeVar

from bascule.client.answers import decoder_of, read_result
from bascule.client.door import check_peer, unreachable
from bascule.client.faults import BadAnswer, ConnectionLost
from bascule.client.feeds import Opened, pass_note
from bascule.client.steps import FirstOf, Params, Program, Request
from bascule.foundation.agreement import MAX_LINK_FRAME_BYTES
from bascule.foundation.errors import BasculeError, Overloaded
from bascule.transports.framed import FramedConnection
from bascule.transports.peercred import Peer
from bascule.wire import jsonrpc
from gabp import codec
from gabp.content_length import FrameError

T = TypeVar("T")

# The daemon refuses more than 4096 on one connection; with a little room, so that we say it first.
MAX_OPEN_REQUESTS = 4_000
# What was sent has this long to leave when we close.
CLOSE_SECONDS = 1.0


async def run(program: Program[T], execute: Callable[[Any], Awaitable[Any]]) -> T:
    """Carry out a program's steps one after the other."""
    try:
        step = next(program)
        while True:
            try:
                answer = await execute(step)
            except BasculeError as error:
                step = program.throw(error)
            else:
                step = program.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


class _Pending:
    __slots__ = ("decoder", "future", "timer")

    def __init__(self, future: "asyncio.Future[Any]", decoder: codec.Decoder[Any]) -> None:
        self.future = future
        self.decoder = decoder
        self.timer: asyncio.TimerHandle | None = None


class Connection(FramedConnection):
    """A connected peer of the daemon. Nobody in particular until somebody sends `hello`."""

    def __init__(self, path: str, on_lost: "Callable[[Connection], None]") -> None:
        super().__init__(max_body_bytes=MAX_LINK_FRAME_BYTES)
        self._path = path
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._ids = count(1)
        self._pending: dict[int, _Pending] = {}
        self._streams: dict[int, Opened[Any]] = {}
        # Why we want nothing to do with who listens there.
        self.refusal: BasculeError | None = None
        self._why = "the daemon closed the connection"
        self._gone = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    @classmethod
    async def to(cls, path: str, on_lost: "Callable[[Connection], None]" = lambda _: None) -> Self:
        """A connection to the socket at `path`; `NotRunning` when nobody listens there."""
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_unix_connection(lambda: cls(path, on_lost), path)
        except OSError as error:
            raise unreachable(path, error) from error
        if connection.refusal is not None:
            raise connection.refusal
        return connection

    # -- requests --

    async def request(self, method: str, params: Params, result_type: Any, *, within: float | None = None) -> Any:
        """The typed answer. Cancelling this withdraws the request at the daemon."""
        if not self._writable.is_set():
            await self._writable.wait()
        id_, pending = self._start(method, params, result_type, within)
        try:
            return await pending.future
        finally:
            self._finish(id_, pending)

    async def first_of(self, step: FirstOf) -> tuple[int, Any]:
        """Index and answer of a request that is done; the others are withdrawn."""
        if len(step.requests) == 1:
            return 0, await self._do(step.requests[0])
        if not self._writable.is_set():
            await self._writable.wait()
        started: list[tuple[int, _Pending]] = []
        try:
            for request in step.requests:
                started.append(self._start(*request))  # noqa: PERF401 - what was started is finished even if the next is refused
            await asyncio.wait([pending.future for _, pending in started], return_when=asyncio.FIRST_COMPLETED)
            done = [index for index, (_, pending) in enumerate(started) if pending.future.done()]
            # Several may be done at once: an answer counts more than the end of a wait.
            first = next((each for each in done if _has_answer(started[each][1])), done[0])
            return first, started[first][1].future.result()
        finally:
            for id_, pending in started:
                self._finish(id_, pending)

    async def open_stream(self, request: Request, stream: Opened[Any]) -> int:
        """Open a stream whose notifications go to `stream` until it is over; its id, to close it."""
        id_, pending = self._start(request.method, request.params, Any, request.within)
        self._streams[id_] = stream
        try:
            await pending.future
        except BaseException:
            self._streams.pop(id_, None)
            raise
        finally:
            self._finish(id_, pending)
        return id_

    def close_stream(self, id_: int) -> None:
        if self._streams.pop(id_, None) is not None:
            self._withdraw(id_)

    async def execute(self, step: Request | FirstOf) -> Any:
        return await (self._do(step) if isinstance(step, Request) else self.first_of(step))

    async def _do(self, request: Request) -> Any:
        return await self.request(request.method, request.params, request.result, within=request.within)

    async def closed(self) -> None:
        """Close, and wait until the socket is gone."""
        self._why = "this client closed the connection"
        self.close()
        try:
            await asyncio.wait_for(self._gone.wait(), CLOSE_SECONDS)
        except TimeoutError:
            if self._transport is not None:
                self._transport.abort()

    def _start(self, method: str, params: Params, result_type: Any, within: float | None) -> tuple[int, _Pending]:
        if not self.open:
            raise ConnectionLost(self._why, sent=False)
        if len(self._pending) >= MAX_OPEN_REQUESTS:
            raise Overloaded(
                f"{MAX_OPEN_REQUESTS} requests are open on this connection",
                hint="wait for some, or use another client",
                retry_after=0.05,
            )
        body = codec.encode(params)
        id_ = next(self._ids)
        pending = self._pending[id_] = _Pending(self._loop.create_future(), decoder_of(result_type))
        if within is not None:
            pending.timer = self._loop.call_later(within, self._give_up, id_, method)
        self.send(jsonrpc.request(id_, method, body))
        return id_, pending

    def _finish(self, id_: int, pending: _Pending) -> None:
        if pending.timer is not None:
            pending.timer.cancel()
        if self._pending.pop(id_, None) is None:
            # Seen, so that an error nobody asked for (one of `first_of`) is no warning at exit.
            if not pending.future.cancelled():
                pending.future.exception()
            return
        # Not answered: we stopped waiting, so the daemon need not go on.
        pending.future.cancel()
        self._withdraw(id_)

    def _withdraw(self, id_: int) -> None:
        if self.open:
            self.send(jsonrpc.notification("$/cancel", codec.encode({"id": id_})))

    def _give_up(self, id_: int, method: str) -> None:
        pending = self._pending.pop(id_, None)
        if pending is not None and not pending.future.done():
            self._withdraw(id_)
            pending.future.set_exception(ConnectionLost(f"the daemon did not answer {method} in time", sent=True))

    # -- what arrives --

    def on_open(self, peer: Peer | None) -> None:
        try:
            check_peer(self._path, peer)
        except BasculeError as error:
            self.refusal = error
            self.close()

    def on_frame(self, body: bytes) -> None:
        try:
            message = jsonrpc.parse(body)
            if isinstance(message, jsonrpc.Response):
                self._answer(message)
            elif isinstance(message, jsonrpc.Notification):
                self._note(message)
        except (jsonrpc.BadEnvelope, BadAnswer) as error:
            self._why = f"the daemon sent what this client cannot read: {error}"
            self.close()

    def _answer(self, response: jsonrpc.Response) -> None:
        # An id we do not wait for any more is the answer to something withdrawn.
        pending = self._pending.pop(response.id, None) if isinstance(response.id, int) else None
        if pending is None or pending.future.done():
            return
        try:
            pending.future.set_result(read_result(pending.decoder, response))
        except BasculeError as error:
            pending.future.set_exception(error)

    def _note(self, message: jsonrpc.Notification) -> None:
        pass_note(message, self._streams)

    def on_bad_frame(self, error: FrameError) -> None:
        self._why = f"the daemon broke the framing: {error}"

    def on_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._why = f"the connection to the daemon broke: {error}"
        self._gone.set()
        self._writable.set()
        pending, self._pending = self._pending, {}
        for each in pending.values():
            if not each.future.done():
                each.future.set_exception(ConnectionLost(self._why, sent=True))
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.lost()
        self._on_lost(self)

    # -- asyncio: the daemon reads slower than we write --

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


def _has_answer(pending: _Pending) -> bool:
    future = pending.future
    return future.exception() is not None or future.result() is not None
