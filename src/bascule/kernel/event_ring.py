"""Everything that happens, in one order: what `events.all` streams.

Bridges publish facts here once they are durable, and none imports another. A fact has ids, names and states; what an
agent wrote is not in it, but for summaries that `foundation.text` has made visible. Publishing is on the way of every
message, so it is an append: what readers get is made when there are readers, in a turn of the loop of its own.

A cursor counts facts on from the clock, in microseconds: it rises over restarts, because no daemon has a million facts
a second. A reader that comes back with a cursor that the ring does not reach, or that is from another life, gets a
`gap`: what it shows is to be read again.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from bascule.foundation.clock import Clock
from bascule.foundation.errors import Overloaded, Unavailable
from bascule.foundation.stream import Stream
from bascule.kernel.call import LOCAL, Principal

# A reader that was away for a minute finds a person's minute here, and some tenths of a second of a busy broker.
RING_FACTS = 4_096
# Handed to one reader before it took them: what it has not taken stays in the ring, which all readers share.
READER_ITEMS = 256
# One per browser and terminal that watches, and some that were left open; of the person as many again, so that no
# program takes every place and the person sees nothing.
MAX_READERS = 64


class Kind(StrEnum):
    AGENT = "agent"
    TICKET = "ticket"
    APPROVAL = "approval"
    RUN = "run"
    PROCESS = "process"
    GAME = "game"
    DESKTOP = "desktop"
    PERSON = "person"
    DAEMON = "daemon"
    # Another machine of the mesh.
    NODE = "node"


class Fact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that happened: ids, names and states. `text` is one visible line of ours, never a payload."""

    kind: Kind
    event: str
    id: str | None = None
    principal: str | None = None
    agent_id: str | None = None
    sender: str | None = None
    status: str | None = None
    text: str | None = None

    def as_fact(self) -> "Fact":
        return self


class Published(Protocol):
    """What is kept in the ring: a fact, or what becomes one for those who read it."""

    def as_fact(self) -> Fact: ...


class Entry(NamedTuple):
    """A fact with its place in the order."""

    cursor: int
    # Wall clock, in ms.
    at: int
    fact: Fact


class _Reader:
    __slots__ = ("after", "kinds", "principal", "stream", "view")

    def __init__(
        self,
        stream: Stream,
        after: int,
        kinds: frozenset[str] | None,
        view: Callable[[Entry], object],
        principal: Principal,
    ) -> None:
        self.principal = principal
        self.stream = stream
        self.after = after
        self.kinds = kinds
        self.view = view


class EventRing:
    def __init__(self, clock: Clock, *, size: int = RING_FACTS, max_readers: int = MAX_READERS) -> None:
        self._clock = clock
        self._size = size
        self._max_readers = max_readers
        self._ring: list[tuple[int, Published] | None] = [None] * size
        # Of the newest fact; `_first` is the cursor before the first one of this life.
        self.cursor = self._first = clock.wall_ms() * 1_000
        self._readers: dict[Stream, _Reader] = {}
        # `_pump` runs in the next turn of the loop.
        self._due = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False

    # -- publishing --

    def publish(self, what: Published, at: int | None = None) -> None:
        """`at`: where its owner has read the wall clock."""
        self.cursor += 1
        self._ring[self.cursor % self._size] = (self._clock.wall_ms() if at is None else at, what)
        if self._readers and not self._due:
            self._schedule()

    def end(self) -> None:
        """The daemon stops: readers get what there is, and their end."""
        self._stopping = True
        for reader in list(self._readers.values()):
            self._hand_over(reader)
            reader.stream.end()
        self._readers.clear()

    # -- reading --

    def open(
        self,
        after: int | None,
        kinds: frozenset[str] | None,
        view: Callable[[Entry], object],
        principal: Principal = LOCAL,
    ) -> Stream:
        """Facts behind the cursor `after`, or from now on; `view` makes the items."""
        if self._stopping:
            raise Unavailable("the daemon is stopping", hint="try again in a moment", retry_after=1.0)
        if sum(each.principal == principal for each in self._readers.values()) >= self._max_readers:
            raise Overloaded(
                f"{self._max_readers} streams follow everything already", hint="close one of them", retry_after=5.0
            )

        def closed() -> None:
            self._readers.pop(stream, None)

        self._loop = asyncio.get_running_loop()
        stream = Stream(limit=READER_ITEMS, on_close=closed)
        reader = _Reader(stream, self.cursor if after is None else after, kinds, view, principal)
        stream.on_drained = self._schedule
        self._readers[stream] = reader
        if after is None:
            # A reader that loses its connection before anything happens needs a place to go on from.
            self._push(reader, Entry(self.cursor, self._clock.wall_ms(), Fact(kind=Kind.DAEMON, event="open")))
        self._schedule()
        return stream

    @property
    def readers(self) -> int:
        return len(self._readers)

    def _schedule(self) -> None:
        if not self._due:
            self._due = True
            assert self._loop is not None, "only readers have it scheduled, and they are opened on the loop"
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._due = False
        for reader in list(self._readers.values()):
            self._hand_over(reader)

    def _hand_over(self, reader: _Reader) -> None:
        """As much as the reader has room for; it says when it took it."""
        room = READER_ITEMS - reader.stream.waiting
        if room <= 0:
            return
        # Of the newest fact that is no longer kept.
        gone = max(self._first, self.cursor - self._size)
        if not gone <= reader.after <= self.cursor:
            self._push_gap(reader, gone)
            room -= 1
        for cursor in range(reader.after + 1, min(self.cursor, reader.after + room) + 1):
            kept = self._ring[cursor % self._size]
            assert kept is not None
            fact = kept[1].as_fact()
            if reader.kinds is None or fact.kind in reader.kinds:
                self._push(reader, Entry(cursor, kept[0], fact))
            reader.after = cursor
        if reader.after < self.cursor and reader.stream.waiting < READER_ITEMS:
            # In a turn of its own: others want theirs.
            self._schedule()

    def _push_gap(self, reader: _Reader, gone: int) -> None:
        same_life = self._first <= reader.after <= self.cursor
        text = f"{gone - reader.after} facts are no longer kept" if same_life else "the daemon was started anew"
        # To a reader of another life all of this one is new.
        reader.after = gone
        self._push(reader, Entry(gone, self._clock.wall_ms(), Fact(kind=Kind.DAEMON, event="gap", text=text)))

    def _push(self, reader: _Reader, entry: Entry) -> None:
        reader.stream.push(reader.view(entry))
