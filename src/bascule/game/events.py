"""What happened in a game: the last events of all channels, in order, for readers who come when they come.

A reader says after which cursor it wants more. One that is too late learns how much it missed (-32503) from an item
of its own; a slow reader never holds up the game or another reader.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Overloaded
from bascule.foundation.stream import Stream
from bascule.game.protocol import EventPage, GameEvent
from gabp.codec import Raw
from gabp.errors import ErrorCode
from gabp.session import channel_matches

# Some minutes of a lively game, or half a minute of a flood.
MAX_EVENTS = 2_048
MAX_EVENT_BYTES = 8 * 1024 * 1024
# Of one event: it stays what one message could hold before results were allowed to be larger, so that every page fits.
MAX_PAYLOAD_BYTES = 1024 * 1024
# Channels of which it is known since when they are not all here; a mod can make up any number below `x/*`.
MAX_DROPPED_CHANNELS = 1_024
# Of payloads in one page: half a link frame, because a page above the frame could not be answered at all.
MAX_PAGE_BYTES = 4 * 1024 * 1024
# Waiting at one game; more agents than that do not play one game.
MAX_WAITERS = 1_024
# Following one game at once; each costs every event a look.
MAX_STREAMS = 256
# What a stream holds for a reader that is busy; the rest stays in the log until it has taken these.
STREAM_ITEMS = 64


class _Waiter(msgspec.Struct, eq=False):
    since: int
    channels: tuple[str, ...]
    limit: int
    later: Any


class _Reader(msgspec.Struct, eq=False):
    """One stream and how far it has come. It takes from the log what it has room for."""

    channels: tuple[str, ...]
    stream: Stream
    cursor: int
    room: int
    pumping: bool = False


class EventLog:
    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        max_events: int = MAX_EVENTS,
        max_bytes: int = MAX_EVENT_BYTES,
        max_page_bytes: int = MAX_PAGE_BYTES,
    ) -> None:
        self._now_ms = now_ms
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._max_page_bytes = max_page_bytes
        self._events: deque[GameEvent] = deque()
        self._bytes = 0
        self.cursor = 0
        # Channel to the cursor of its newest event that is no longer here; and the same for all others together.
        self._dropped: dict[str, int] = {}
        self._dropped_others = 0
        self._waiters: list[_Waiter] = []
        self._readers: list[_Reader] = []
        self._ended = False

    def add(self, channel: str, seq: int, payload: Raw, missed: int) -> None:
        size = len(memoryview(payload))
        messages = [f"{missed} earlier events of this channel were lost on the way"] if missed else []
        if size > MAX_PAYLOAD_BYTES:
            messages.append(f"its payload of {size} bytes is over the limit of {MAX_PAYLOAD_BYTES} and was dropped")
            kept, size = None, 0
        else:
            # A Raw points into the whole message it came in.
            kept = payload.copy()
        code = int(ErrorCode.OVERFLOW) if messages else None
        message = "; ".join(messages) or None
        self._append(channel, size, seq=seq, payload=kept, missed=missed, code=code, message=message)

    def mark(self, channel: str, message: str) -> None:
        """Something about the stream itself: a reconnect."""
        self._append(channel, 0, message=message)

    def _append(self, channel: str, size: int, **fields: Any) -> None:
        self.cursor += 1
        event = GameEvent(cursor=self.cursor, channel=channel, at_ms=self._now_ms(), **fields)
        self._events.append(event)
        self._bytes += size
        while len(self._events) > self._max_events or (self._bytes > self._max_bytes and len(self._events) > 1):
            gone = self._events.popleft()
            self._bytes -= len(memoryview(gone.payload)) if gone.payload is not None else 0
            self._dropped.pop(gone.channel, None)
            self._dropped[gone.channel] = gone.cursor
            if len(self._dropped) > MAX_DROPPED_CHANNELS:
                self._dropped_others = self._dropped.pop(next(iter(self._dropped)))
        self._publish(event)

    def _publish(self, event: GameEvent) -> None:
        for reader in self._readers.copy():
            if reader.cursor != event.cursor - 1 or reader.stream.waiting >= reader.room:
                # It is behind; it says when it has room again.
                continue
            reader.cursor = event.cursor
            if matches(reader.channels, event.channel):
                reader.stream.push(event)
        for waiter in [each for each in self._waiters if matches(each.channels, event.channel)]:
            self._waiters.remove(waiter)
            if not waiter.later.done():
                waiter.later.set_result(self.page(waiter.since, waiter.channels, waiter.limit))

    def page(self, since: int, channels: tuple[str, ...], limit: int) -> EventPage:
        """What came after `since`, oldest first."""
        if since > self.cursor:
            # A cursor of an earlier life of the daemon: all there is has come after it.
            since = 0
        found: list[GameEvent] = []
        oldest = self._events[0].cursor if self._events else self.cursor + 1
        if since < oldest - 1 and self._is_gone(since, channels):
            found.append(
                GameEvent(
                    cursor=oldest - 1,
                    channel=channels[0] if len(channels) == 1 else "*",
                    at_ms=self._now_ms(),
                    code=int(ErrorCode.OVERFLOW),
                    message="older events are gone: read sooner, or subscribe to fewer channels",
                )
            )
        size = 0
        # Counted from the newest: a reader at the tip does not walk the whole log.
        newest = list(islice(reversed(self._events), self.cursor - since))
        for event in reversed(newest):
            if matches(channels, event.channel):
                size += len(memoryview(event.payload)) if event.payload is not None else 0
                if found and (len(found) >= limit or size > self._max_page_bytes):
                    return EventPage(events=found, cursor=found[-1].cursor)
                found.append(event)
        return EventPage(events=found, cursor=self.cursor)

    def _is_gone(self, since: int, channels: tuple[str, ...]) -> bool:
        return self._dropped_others > since or any(
            last > since and matches(channels, channel) for channel, last in self._dropped.items()
        )

    def wait(self, since: int, channels: tuple[str, ...], limit: int) -> Deferred[EventPage]:
        """At once if there is something; else when it comes. Withdraw it to stop waiting."""
        later: Deferred[EventPage] = Deferred()
        page = self.page(since, channels, limit)
        if page.events:
            later.set_result(page)
            return later
        if len(self._waiters) >= MAX_WAITERS:
            # Not an empty page: its reader would ask again at once.
            raise Overloaded(f"{MAX_WAITERS} readers wait for this game's events already", retry_after=5.0)
        waiter = _Waiter(min(since, self.cursor), channels, limit, later)
        self._waiters.append(waiter)
        later.add_done_callback(lambda _: self._waiters.remove(waiter) if waiter in self._waiters else None)
        return later

    def end(self) -> None:
        """The daemon stops: answer the waiters with what there is."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.later.done():
                waiter.later.set_result(self.page(waiter.since, waiter.channels, waiter.limit))
        self._ended = True
        for reader in self._readers.copy():
            reader.stream.end()

    def stream(
        self,
        channels: tuple[str, ...],
        since: int | None = None,
        *,
        room: int = STREAM_ITEMS,
        on_close: Callable[[], None] = lambda: None,
    ) -> Stream:
        """As they come, from `since` or from now on. A slow reader is told what it missed by an item of its own."""
        if len(self._readers) >= MAX_STREAMS:
            raise Overloaded(f"{MAX_STREAMS} readers follow this game already", retry_after=5.0)
        reader: _Reader

        def closed() -> None:
            if reader in self._readers:
                self._readers.remove(reader)
                on_close()

        # One more than it takes: what the log itself has to say finds room.
        stream = Stream(limit=room + 1, on_close=closed)
        # A cursor of an earlier life of the daemon is none of ours.
        start = self.cursor if since is None else since if since <= self.cursor else 0
        reader = _Reader(channels, stream, start, room)
        self._readers.append(reader)
        loop = asyncio.get_running_loop()

        def drained() -> None:
            # In its own turn of the loop: draining happens in the middle of handing over.
            if reader.cursor < self.cursor:
                loop.call_soon(self._pump, reader)

        stream.on_drained = drained
        self._pump(reader)
        if self._ended:
            stream.end()
        return stream

    def _pump(self, reader: _Reader) -> None:
        if reader.pumping:
            # One that takes an item in the very call that hands it over gets the next one from the loop below.
            return
        reader.pumping = True
        try:
            while reader.cursor < self.cursor and (room := reader.room - reader.stream.waiting) > 0:
                page = self.page(reader.cursor, reader.channels, room)
                reader.cursor = page.cursor
                for event in page.events:
                    reader.stream.push(event)
        finally:
            reader.pumping = False


def matches(wanted: tuple[str, ...], channel: str) -> bool:
    """No channels named is all of them."""
    return not wanted or any(channel_matches(each, channel) for each in wanted)
