"""One HTTP request: whether its client is still there, and whether the answer went out.

A message that a tool call took from the inbox is acknowledged only when the answer with it has been written to a
client that is still there, and is given back at once when it was not. The SDK knows neither: a client of the 2025
revisions that hangs up leaves its call running, and no handler hears when its result is sent.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from bascule.foundation.deferred import Deferred

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Handover:
    """What was taken for the client: `mark` is a piece of the bytes that carry it."""

    __slots__ = ("arrived", "lost", "mark")

    def __init__(self, mark: bytes, arrived: Callable[[], None], lost: Callable[[], None]) -> None:
        self.mark = mark
        self.arrived = arrived
        self.lost = lost


class Delivery:
    def __init__(self, body: bytes, receive: Receive, send: Send) -> None:
        self._first: Message | None = {"type": "http.request", "body": body, "more_body": False}
        self._receive = receive
        self._send = send
        self._gone = asyncio.Event()
        self._over = False
        self._held: Deferred[Any] | None = None
        self._handover: Handover | None = None

    async def serve(self, app: App, scope: Scope) -> None:
        """Let `app` serve the request."""
        watcher = asyncio.ensure_future(self._watch())
        try:
            await app(scope, self._receive_for_app, self._send_for_app)
        finally:
            watcher.cancel()
            self._leave()

    # -- for the call that this request is --

    def hold(self, later: Deferred[Any] | None) -> None:
        """What the call waits for; cancelled when the client leaves, so that no dead waiter eats a message."""
        self._held = later
        if self._over and later is not None:
            later.cancel()

    def hand_over(self, handover: Handover) -> None:
        """The answer that follows carries something that must not get lost."""
        if self._over:
            handover.lost()
        else:
            self._handover = handover

    # -- between the server and the SDK --

    async def _receive_for_app(self) -> Message:
        first, self._first = self._first, None
        if first is not None:
            return first
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send_for_app(self, message: Message) -> None:
        handover = self._handover
        if handover is None or handover.mark not in message.get("body", b""):
            await self._send(message)
            return
        # One turn, so that the watcher has heard of a client that left a moment ago.
        await asyncio.sleep(0)
        there = not self._gone.is_set()
        await self._send(message)
        # An answer is one piece of the body, in SSE as in JSON. What ends the stream behind it says nothing more,
        # and many clients hang up before it.
        if there and self._handover is handover:
            self._handover = None
            handover.arrived()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            continue
        self._leave()

    def _leave(self) -> None:
        """The client is gone, or the request was served. Comes again when both are true."""
        self._gone.set()
        self._over = True
        held, self._held = self._held, None
        if held is not None:
            held.cancel()
        handover, self._handover = self._handover, None
        if handover is not None:
            handover.lost()
