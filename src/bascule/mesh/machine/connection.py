"""One connection to a server of NATS: what is written goes out with the turn of the loop, what comes is passed on as it
is read. It is not repaired: who lost it makes another.

A client of our own, because nats-py needs a private attribute for our login, leaves a connection that breaks while
bytes are unsent without a word and its tasks behind, writes to a server without TLS where TLS was asked for, and passes
each message through a queue and a task.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import msgspec

from bascule.foundation.deferred import Deferred
from bascule.mesh.machine import nats_wire
from bascule.mesh.machine.nats_wire import BadFrame, Control, Event, FrameReader, Message
from gabp import codec

# Over a slow line a TLS handshake takes a second or two.
CONNECT_SECONDS = 10.0
# How a connection is watched: two pings without an answer, nothing read meanwhile, and it is lost.
PING_SECONDS = 10.0
MAX_PINGS = 2
# Letters that wait to be written: beyond it the other end is stuck, and letters are refused.
MAX_UNSENT_BYTES = 8 * 1024 * 1024
# After so long with what was read the loop turns: what the first letter brought is answered while the second is read.
# Without it many questions move as one wave, and of two machines one always waits for the other.
SLICE_SECONDS = 0.001

Take = Callable[[Message], object]


class ServerError(Exception):
    """What the server said, or that it went away, while we logged in."""


class ServerInfo(msgspec.Struct, frozen=True):
    """What we read of INFO."""

    version: str = ""
    max_payload: int = 1024 * 1024
    nonce: str = ""
    tls_required: bool = False


_INFO: codec.Decoder[ServerInfo] = codec.Decoder(ServerInfo)


class NatsConnection(asyncio.Protocol):
    def __init__(
        self,
        on_error: Callable[[str], object],
        on_lost: Callable[[str], object],
        report: Callable[[str, BaseException], object],
    ) -> None:
        self.info = ServerInfo()
        self._on_error, self._on_lost, self._report = on_error, on_lost, report
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        # Read and not passed on. Nothing more is read meanwhile.
        self._events: deque[Event] = deque()
        self._is_paused = False
        self._takers: dict[int, Take] = {}
        # Something came since the last look: a PONG may be far behind letters that wait.
        self._has_read = False
        # Who waits for a PONG, in the order of the pings.
        self._pings: list[Deferred[None]] = []
        self._greeted: Deferred[None] = Deferred()
        # Why, once it is.
        self._lost: str | None = None
        self._timer: asyncio.TimerHandle | None = None

    # -- logging in

    async def open(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        handshake_first: bool,
        login: Callable[[str], dict[str, Any]],
    ) -> None:
        """`login` makes of the server's nonce what proves who we are. Raises `OSError` and `ServerError`."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await loop.create_connection(
                    lambda: self, host, port, ssl=tls if handshake_first else None, server_hostname=None
                )
                await self._greeted
                if not handshake_first and (tls is not None or self.info.tls_required):
                    await self._start_tls(tls, host)
                options = {
                    "verbose": False,
                    "pedantic": False,
                    "lang": "bascule",
                    "protocol": 1,
                    "headers": True,
                    "no_responders": True,
                    **login(self.info.nonce),
                }
                self._write(nats_wire.connect(codec.encode(options)))
                await self.ping()
        except BaseException:
            self.abort()
            raise
        self._watch()

    async def _start_tls(self, tls: ssl.SSLContext | None, host: str) -> None:
        if not self.info.tls_required:
            raise ServerError("it has no TLS, which this address asks for")
        assert self._transport is not None
        # What came in the clear, from whoever is between us, must not be read with what the server says behind TLS.
        self._reader, self._events = FrameReader(), deque()
        started = await asyncio.get_running_loop().start_tls(
            self._transport, self, tls or ssl.create_default_context(), server_hostname=host
        )
        self._transport = cast("asyncio.Transport", started)

    # -- out

    def publish(self, subject: str, data: bytes, reply: str = "", headers: dict[str, str] | None = None) -> bool:
        """False: lost, stuck, or larger than the server takes."""
        if self._lost is not None or len(data) > self.info.max_payload or self._stuck(len(data)):
            return False
        self._write(nats_wire.publish(subject, data, reply, headers))
        return True

    def subscribe(self, subject: str, take: Take) -> None:
        """`take` is called while bytes are read: what it does not do at once holds up the rest."""
        sid = len(self._takers) + 1
        self._takers[sid] = take
        self._write(nats_wire.subscribe(subject, sid))

    def ping(self) -> Deferred[None]:
        """Answered when the server has read all that was written before; fails when the connection is lost."""
        later: Deferred[None] = Deferred()
        if self._lost is not None:
            later.set_exception(ServerError(self._lost))
            return later
        self._pings.append(later)
        self._write(nats_wire.PING)
        return later

    def abort(self) -> None:
        """At once: closing in order would wait for bytes that a frozen server does not take."""
        self._end("closed")
        if self._transport is not None:
            self._transport.abort()

    def _stuck(self, more: int) -> bool:
        assert self._transport is not None
        return self._transport.get_write_buffer_size() + more > MAX_UNSENT_BYTES

    def _write(self, data: bytes) -> None:
        """Into the transport's buffer, which leaves with this turn of the loop."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # -- in

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._has_read = True
        try:
            events = self._reader.feed(data)
        except BadFrame as error:
            self._fail(f"it does not speak as NATS does: {error}")
            return
        self._events += events
        if not self._is_paused:
            self._pass_slice()

    def _pass_slice(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + SLICE_SECONDS
        while self._events:
            event = self._events.popleft()
            if isinstance(event, Message):
                self._pass_on(event)
            else:
                self._on_control(event)
            if self._events and loop.time() >= until:
                self._pause(paused=True)
                loop.call_soon(self._pass_rest)
                return

    def _pass_rest(self) -> None:
        self._pause(paused=False)
        self._pass_slice()

    def _pause(self, *, paused: bool) -> None:
        self._is_paused = paused
        if self._transport is not None and not self._transport.is_closing():
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _pass_on(self, message: Message) -> None:
        take = self._takers.get(message.sid)
        if take is None or self._lost is not None:
            return
        try:
            take(message)
        except Exception as error:  # noqa: BLE001 - one letter's fault must not end the connection of all
            self._report("what NATS brought", error)

    def _on_control(self, control: Control) -> None:
        match control.word:
            case "PING":
                # One that asks and never reads would fill our memory with answers.
                if self._stuck(len(nats_wire.PONG)):
                    self._fail("it does not read")
                else:
                    self._write(nats_wire.PONG)
            case "PONG":
                if self._pings and not (later := self._pings.pop(0)).done():
                    later.set_result(None)
            case "INFO":
                self._on_info(control.text)
            case _:
                text = control.text.decode(errors="replace")
                # Of all errors these alone leave the connection open.
                if text.lower().startswith("permissions violation"):
                    self._on_error(text)
                else:
                    self._fail(text)

    def _on_info(self, text: bytes) -> None:
        try:
            self.info = _INFO.decode(text)
        except codec.BadJson as error:
            self._fail(f"it does not speak as NATS does: {error}")
            return
        # It comes again when servers of a cluster come or go.
        if not self._greeted.done():
            self._greeted.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc or "it closed the connection"))

    # -- the end

    def _fail(self, why: str) -> None:
        self._end(why)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, why: str) -> None:
        if self._lost is not None:
            return
        self._lost = why
        self._events.clear()
        if self._timer is not None:
            self._timer.cancel()
        for later in (self._greeted, *self._pings):
            if not later.done():
                later.set_exception(ServerError(why))
        self._on_lost(why)

    def _watch(self) -> None:
        """Every `PING_SECONDS`."""
        has_read, self._has_read = self._has_read or bool(self._events), False
        if len(self._pings) < MAX_PINGS:
            self.ping()
        elif not has_read:
            self._fail("it does not answer")
            return
        self._timer = asyncio.get_running_loop().call_later(PING_SECONDS, self._watch)
