"""Reads one stream by a consumer of our own: one pull waits at the server all the time, answered as letters come.

Heartbeats tell a quiet stream from a dead server.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from bascule.foundation.backoff import Backoff
from bascule.mesh.machine import layout
from bascule.mesh.machine.bus import NO_CONSUMER, ApiFault, Bus
from bascule.mesh.machine.login import BusFault
from bascule.mesh.machine.nats_wire import Message
from gabp import codec

# A cursor beyond this could not be stored, nor what is committed with it.
MAX_NUMBER = 2**53
_SECOND_NS = 1_000_000_000
# Letters for one pull: a few turns of the loop; the next pull is asked for when they are read.
BATCH = 256
# Bytes for one pull, so that a full mailbox is not in memory at once.
BATCH_BYTES = 8 * 1024 * 1024
# Heartbeats that may be missed: a loaded machine is late with one.
MISSED = 2.3
# No pull is shorter, but by a server that cannot serve it.
LEAST_PULL_SECONDS = 1.0
FIRST_RETRY_SECONDS = 0.2
LONGEST_RETRY_SECONDS = 5.0


class Pace(NamedTuple):
    """How long a pull waits at the server, and how often that says that it is alive."""

    expires: float
    heartbeat: float


# The mailbox is how we notice a frozen server; a board may be late.
MAIL_PACE = Pace(20.0, 3.0)
BOARD_PACE = Pace(120.0, 30.0)


class Letter(NamedTuple):
    subject: str
    data: bytes
    # Its place in the stream, and when it came there by the server's clock.
    number: int
    stored_ms: int
    # A value of a board that is gone.
    gone: bool


class Feed:
    def __init__(
        self,
        bus: Bus,
        stream: str,
        node: str,
        subject: str,
        take: Callable[[Letter], object],
        *,
        pace: Pace,
        # Where to begin, asked whenever the consumer is made; None: the newest of each subject.
        start: Callable[[], Awaitable[int]] | None = None,
        report: Callable[[BusFault | None], object],
    ) -> None:
        self._bus = bus
        self._stream = stream
        self._node = node
        self._subject = subject
        self._take = take
        self._pace = pace
        self._start = start
        self._report = report
        self._inbox = f"{bus.inbox}.f.{stream}"
        self._pull = f"{layout.API}.CONSUMER.MSG.NEXT.{stream}.{node}"
        self._left = 0
        self._seen = self._asked = 0.0
        self._ended = asyncio.Event()
        self._body = codec.encode(
            {
                "batch": BATCH,
                "max_bytes": max(BATCH_BYTES, 2 * bus.max_bytes),
                "expires": int(pace.expires * _SECOND_NS),
                "idle_heartbeat": int(pace.heartbeat * _SECOND_NS),
            }
        )

    async def run(self) -> None:
        """Until the connection is lost."""
        self._bus.subscribe(self._inbox, self._on_message)
        waits = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        while not self._bus.lost.done():
            try:
                await self._make_consumer()
            except BusFault as fault:
                self._report(fault)
            else:
                self._report(None)
                waits.reset()
                await self._read()
            # Its consumer was on a server that is gone, or the server is: only the second ends the connection.
            if not await self._bus.answers():
                self._bus.lose("the server does not answer")
                return
            await asyncio.sleep(next(waits))

    async def _make_consumer(self) -> None:
        with contextlib.suppress(_NoConsumer):
            await self._delete()
        start = None if self._start is None else await self._start()
        body = layout.consumer(self._stream, self._node, self._subject, start)
        await self._bus.api(f"CONSUMER.CREATE.{self._stream}.{self._node}.{self._subject}", body)

    async def _delete(self) -> None:
        try:
            await self._bus.api(f"CONSUMER.DELETE.{self._stream}.{self._node}")
        except ApiFault as fault:
            if fault.code == NO_CONSUMER:
                raise _NoConsumer from None
            raise

    async def _read(self) -> None:
        """Until the consumer is gone, or silent for too long."""
        loop = asyncio.get_running_loop()
        self._ended.clear()
        self._ask()
        patience = self._pace.heartbeat * MISSED
        while not self._ended.is_set():
            late = self._seen + patience - loop.time()
            if late <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(late):
                    await self._ended.wait()

    def _ask(self) -> None:
        self._left = BATCH
        self._seen = self._asked = asyncio.get_running_loop().time()
        if not self._bus.publish(self._pull, self._body, self._inbox):
            self._ended.set()

    def _on_message(self, message: Message) -> None:
        self._seen = asyncio.get_running_loop().time()
        # By the subject, not by a header: whoever wrote a letter may have given it any.
        if message.subject == self._inbox:
            self._on_status(message.status)
            return
        # Also a letter that nobody can read is one of the batch.
        self._left -= 1
        try:
            number, stored_ms = _place(message.reply)
            gone = "KV-Operation" in message.headers or "Nats-Marker-Reason" in message.headers
            self._take(Letter(message.subject, message.data, number, stored_ms, gone))
        finally:
            if self._left == 0:
                self._ask()

    def _on_status(self, status: str) -> None:
        code, _, text = status.partition(" ")
        if code == "100":
            return
        # It waited for its whole time, or the next letter is more than it may bring. One that ends at once, without a
        # letter, is not asked for again without a pause.
        over = code in ("404", "408") or (code == "409" and "maxbytes" in text.lower())
        if over and (self._left < BATCH or self._seen - self._asked > LEAST_PULL_SECONDS):
            self._ask()
        else:
            self._ended.set()


class _NoConsumer(Exception):
    pass


def _place(reply: str) -> tuple[int, int]:
    """Out of `$JS.ACK.<stream>.<consumer>.<delivered>.<number>.<of consumer>.<time>.<pending>`; newer servers say in
    between which domain and account it was, and more behind it."""
    tokens = reply.split(".")
    at = 5 if len(tokens) == 9 else 7
    number, stored_ms = int(tokens[at]), int(tokens[at + 2]) // 1_000_000
    if not (0 < number < MAX_NUMBER and 0 <= stored_ms < MAX_NUMBER):
        raise ValueError(f"not a place in a stream: {reply[:200]!r}")
    return number, stored_ms
