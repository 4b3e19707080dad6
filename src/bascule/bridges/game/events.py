"""What happened in a game: the last events of all channels, in order, for readers who come when they come.

A reader says after which cursor it wants more. Whoever comes too late is told how much it missed (-32503) in an item
of its own; a slow reader never holds up the game or another reader.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from bascule.later import Later
from bascule.protocols.game_errors import ErrorCode
from bascule.protocols.game_session import channel_matches
from bascule.protocols.games import EventPage, GameEvent
from bascule.stream import Stream
from bascule.wire.codec import Raw

# Some minutes of a lively game, or half a minute of a flood.
MAX_EVENTS = 2_048
MAX_EVENT_BYTES = 8 * 1024 * 1024
# Channels of which it is known since when they are not all here; a mod can make up any number below `x/*`.
MAX_DROPPED_CHANNELS = 1_024
# Waiting at one game; more agents than that do not play one game.
MAX_WAITERS = 1_024


class _Waiter(msgspec.Struct, eq=False):
    since: int
    channels: tuple[str, ...]
    limit: int
    later: Any


class EventLog:
    def __init__(
        self, now_ms: Callable[[], int], *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_EVENT_BYTES
    ) -> None:
        self._now_ms = now_ms
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events: deque[GameEvent] = deque()
        self._bytes = 0
        self.cursor = 0
        # Channel to the cursor of its newest event that is no longer here; and the same for all others together.
        self._dropped: dict[str, int] = {}
        self._dropped_others = 0
        self._waiters: list[_Waiter] = []
        self._streams: list[tuple[tuple[str, ...], Stream]] = []

    def add(self, channel: str, seq: int, payload: Raw, missed: int) -> None:
        # A Raw points into the whole message it came in.
        payload = payload.copy()
        code = int(ErrorCode.OVERFLOW) if missed else None
        message = f"{missed} earlier events of this channel were lost on the way" if missed else None
        self._append(
            channel, len(memoryview(payload)), seq=seq, payload=payload, missed=missed, code=code, message=message
        )

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
        self._tell(event)

    def _tell(self, event: GameEvent) -> None:
        for channels, stream in self._streams:
            if matches(channels, event.channel):
                stream.push(event)
        for waiter in [each for each in self._waiters if matches(each.channels, event.channel)]:
            self._waiters.remove(waiter)
            if not waiter.later.done():
                waiter.later.set_result(self.page(waiter.since, waiter.channels, waiter.limit))

    def page(self, since: int, channels: tuple[str, ...], limit: int) -> EventPage:
        """What came after `since`, oldest first."""
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
        for event in self._events:
            if event.cursor > since and matches(channels, event.channel):
                if len(found) >= limit:
                    return EventPage(events=found, cursor=found[-1].cursor)
                found.append(event)
        return EventPage(events=found, cursor=max(self.cursor, since) if since <= self.cursor else self.cursor)

    def _is_gone(self, since: int, channels: tuple[str, ...]) -> bool:
        return self._dropped_others > since or any(
            last > since and matches(channels, channel) for channel, last in self._dropped.items()
        )

    def wait(self, since: int, channels: tuple[str, ...], limit: int) -> Later[EventPage]:
        """At once if there is something; else when it comes. Withdraw it to stop waiting."""
        later: Later[EventPage] = Later()
        page = self.page(since, channels, limit)
        if page.events or len(self._waiters) >= MAX_WAITERS:
            later.set_result(page)
            return later
        waiter = _Waiter(min(since, self.cursor), channels, limit, later)
        self._waiters.append(waiter)
        later.add_done_callback(lambda _: self._waiters.remove(waiter) if waiter in self._waiters else None)
        return later

    def end(self) -> None:
        """The house closes: whoever waits is answered with what there is."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.later.done():
                waiter.later.set_result(self.page(waiter.since, waiter.channels, waiter.limit))

    def stream(self, channels: tuple[str, ...], limit: int | None = None) -> Stream:
        """As they come; what a slow reader's buffer cannot hold is counted there."""
        options = {} if limit is None else {"limit": limit}
        entry: tuple[tuple[str, ...], Stream]
        stream = Stream(**options, on_close=lambda: self._streams.remove(entry) if entry in self._streams else None)
        entry = (channels, stream)
        self._streams.append(entry)
        return stream


def matches(wanted: tuple[str, ...], channel: str) -> bool:
    """No channels named is all of them."""
    return not wanted or any(channel_matches(each, channel) for each in wanted)
