"""Content-Length frames over a stream socket, on asyncio's protocol interface.

No task and no StreamReader per connection: whole frames go straight from `data_received` to `on_frame`,
and what is sent in one turn of the loop goes out in one write. uvloop itself writes at once: each of
sixteen messages for one receiver would be a system call that wakes it.
"""

import asyncio
import socket
from abc import ABC, abstractmethod
from typing import cast

from bascule.transports.peercred import Peer, peer_of
from gabp.content_length import FrameError, FrameReader

# A peer that does not read while we write this much is dead or hostile; the connection is cut.
MAX_UNSENT_BYTES = 32 * 1024 * 1024


# What is sent in one turn goes out in one write, up to this much.
MAX_BATCH_BYTES = 1024 * 1024


class FramedConnection(asyncio.Protocol, ABC):
    """One connection. Subclasses implement `on_frame`, `on_open`, `on_lost`, `on_bad_frame`."""

    # Set with the transport.
    _loop: asyncio.AbstractEventLoop

    def __init__(self, *, max_body_bytes: int, max_unsent_bytes: int = MAX_UNSENT_BYTES) -> None:
        self._reader = FrameReader(max_body_bytes=max_body_bytes)
        self._max_unsent = max_unsent_bytes
        self._transport: asyncio.Transport | None = None
        self._batch: list[bytes] | None = None
        self._batch_bytes = 0
        # Read and not handled yet, because it was not our turn.
        self._rest: tuple[list[bytes], FrameError | None] | None = None
        # The peer reads slower than we write: who can wait, waits.
        self.congested = False

    # -- for subclasses --

    def on_open(self, peer: Peer | None) -> None:
        """The connection is up."""

    @abstractmethod
    def on_frame(self, body: bytes) -> None:
        """A whole frame has come."""

    def on_bad_frame(self, error: FrameError) -> None:
        """The peer broke the framing; the connection is closed after this returns."""

    def on_lost(self, error: Exception | None) -> None:
        """The connection is gone."""

    def on_relieved(self) -> None:
        """The peer has caught up after `congested`."""

    def must_wait(self, body: bytes) -> bool:  # noqa: ARG002 - for those who look at it
        """Whether others come first; then `go_on` is to be called later, and nothing more is read until it is."""
        return False

    # -- for users --

    def send(self, body: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._batch is None:
            # Also from outside of the loop, between two runs of it.
            self._loop.call_soon(self._flush)
            self._batch = []
        size = len(body)
        self._batch += (b"Content-Length: %d\r\n\r\n" % size, body)
        self._batch_bytes += size
        if self._batch_bytes > MAX_BATCH_BYTES:
            # A thousand answers to one read must not be held until the last.
            self._flush()

    def close(self) -> None:
        """Close after what was sent is out."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    # -- asyncio --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        sock = transport.get_extra_info("socket")
        peer = peer_of(sock) if sock is not None and sock.family == socket.AF_UNIX else None
        self.on_open(peer)

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        self.on_relieved()

    def eof_received(self) -> None:
        """The transport is closed behind this."""
        self._flush()

    def data_received(self, data: bytes) -> None:
        try:
            bodies = self._reader.feed(data)
        except FrameError as error:
            # Whole frames that came before the broken one in the same read were sent in good faith.
            self._handle(error.frames, error)
        else:
            if bodies:
                self._handle(bodies, None)

    def go_on(self) -> None:
        """With what had to wait."""
        if self.open and self._rest is not None:
            rest, self._rest = self._rest, None
            self._handle(*rest)
            if self._rest is None and self._transport is not None and self.open:
                self._transport.resume_reading()

    def _handle(self, bodies: list[bytes], broken: FrameError | None) -> None:
        if self._batch is None:
            self._batch = []
        try:
            for position, body in enumerate(bodies):
                if not self.open:
                    # Closed by what an earlier frame said: the rest is not for us any more.
                    return
                if self.must_wait(body):
                    self._rest = (bodies[position:], broken)
                    if self._transport is not None:
                        self._transport.pause_reading()
                    return
                self.on_frame(body)
        finally:
            self._flush()
        if broken is not None and self.open:
            self.on_bad_frame(broken)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.on_lost(exc)

    def _flush(self) -> None:
        batch, self._batch = self._batch, None
        self._batch_bytes = 0
        if batch and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(batch))
            if self._transport.get_write_buffer_size() > self._max_unsent:
                self._transport.abort()
