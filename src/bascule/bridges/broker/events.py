"""Lifecycle events: one ring that remembers a little, and the streams that follow it."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from bascule.audit.ports import Log
from bascule.call import Call
from bascule.clock import Clock, rfc3339
from bascule.protocols.broker import Event, EventsParams, RecentEventsParams
from bascule.stream import Stream

# What a reader that reconnects with `after` can still get; older is in the ledger.
RING_EVENTS = 1_000


class _Happened(NamedTuple):
    """An event as it is kept: most are never read, so the wire form is made for those who do."""

    id: int
    at: int
    event: str
    ticket_id: str | None
    agent_id: str | None
    sender: str | None
    status: str | None
    detail: str | None

    def concerns(self, agent_id: str | None) -> bool:
        return agent_id is None or agent_id in (self.agent_id, self.sender)

    def view(self) -> Event:
        return Event(
            id=self.id,
            event=self.event,
            at=rfc3339(self.at),
            ticket_id=self.ticket_id,
            agent_id=self.agent_id,
            from_=self.sender,
            status=self.status,
            detail=self.detail,
        )


class EventHub:
    def __init__(self, clock: Clock, log: Log, *, ring: int = RING_EVENTS) -> None:
        self._clock = clock
        self._log = log
        self._ring: deque[_Happened] = deque(maxlen=ring)
        self._streams: dict[Stream, str | None] = {}
        # Counted on from the clock, so that ids go on rising over a restart and `after` keeps its meaning.
        self._last = clock.wall_ms()

    def emit(
        self,
        event: str,
        *,
        ticket_id: str | None = None,
        agent_id: str | None = None,
        sender: str | None = None,
        status: str | None = None,
        detail: str | None = None,
    ) -> None:
        self._last += 1
        item = _Happened(self._last, self._clock.wall_ms(), event, ticket_id, agent_id, sender, status, detail)
        self._ring.append(item)
        self._log(event, ticket=ticket_id, agent=agent_id, sender=sender, status=status, detail=detail)
        for stream, wanted in self._streams.items():
            if item.concerns(wanted):
                stream.push(item.view())

    def open(self, params: EventsParams, let_go: Callable[[], None] | None = None) -> Stream:
        def closed() -> None:
            if let_go is not None:
                let_go()
            self._streams.pop(stream, None)

        stream = Stream(on_close=closed)
        if params.after is not None:
            for item in self._ring:
                if item.id > params.after and item.concerns(params.agent_id):
                    stream.push(item.view())
        self._streams[stream] = params.agent_id
        return stream

    def recent(self, call: Call, params: RecentEventsParams) -> list[Event]:
        found = [item for item in self._ring if item.concerns(params.agent_id)]
        return [item.view() for item in found[-params.limit :]]

    def end(self) -> None:
        for stream in list(self._streams):
            stream.end()
        self._streams.clear()
