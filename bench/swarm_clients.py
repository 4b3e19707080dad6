"""What the swarm is made of: a connection to the link, and one for raw HTTP."""

import asyncio
import re
import time
from collections.abc import Callable

from ends_frames import Envelope, FrameClient
from gabp.content_length import frame

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


class Link(FrameClient):
    """A link connection: many requests in one write, and whoever waits when it is lost is told."""

    def call(self, method: str, params: bytes) -> "asyncio.Future[Envelope]":
        return self.calls(method, params, 1)[0]

    def calls(self, method: str, params: bytes, count: int) -> "list[asyncio.Future[Envelope]]":
        futures, frames = [], []
        for _ in range(count):
            self._last += 1
            body = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}' % (self._last, method.encode(), params)
            frames.append(frame(body))
            futures.append(self._waiting.setdefault(self._last, self._loop.create_future()))
        if self._transport is None:
            raise ConnectionResetError("the daemon closed the connection")
        self._transport.write(b"".join(frames))
        return futures

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def write(self, data: bytes) -> None:
        """Bytes that need not be a frame."""
        if self._transport is not None:
            self._transport.write(data)

    def on_lost(self, error: Exception | None) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error or ConnectionResetError("closed"))
                future.exception()


class Http(asyncio.Protocol):
    """One HTTP connection; `answer` is a future for the answer to what was written last."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._need = 0
        self.transport: asyncio.Transport | None = None
        self.began = time.monotonic()
        self.answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.lost_at: float | None = None
        self.silent = False
        self.on_lost: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment] # asyncio's base class says less

    def ask(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        assert self.transport is not None
        self.answer = self._loop.create_future()
        self.transport.write(request)
        return self.answer

    def data_received(self, data: bytes) -> None:
        self._buffer = buffer = self._buffer + data if self._buffer else data
        if not self._need:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            length = _LENGTH.search(buffer, 0, end + 2)
            self._need = end + 4 + (int(length[1]) if length else 0)
        if len(buffer) >= self._need:
            body = buffer[buffer.index(b"\r\n\r\n") + 4 : self._need]
            self._buffer, self._need = b"", 0
            if self.answer is not None and not self.answer.done():
                self.answer.set_result((int(buffer[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost_at = time.monotonic()
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(exc or ConnectionResetError("closed"))
            # Read by whoever gathers; a loris reads nothing.
            self.answer.exception()
        if self.on_lost is not None:
            self.on_lost()
