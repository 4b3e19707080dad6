"""Lifecycle events: one ring that remembers a little, and the streams that follow it."""

from collections import deque
from collections.abc import Callable

from bascule.broker.protocol import Event, EventsParams, RecentEventsParams
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.stream import Stream
from bascule.foundation.text import one_line
from bascule.kernel.call import Call
from bascule.kernel.event_ring import EventRing, Fact, Kind
from bascule.kernel.journal_ports import Log, LogLine

# What a reader that reconnects with `after` can still get; older is in the ledger.
RING_EVENTS = 1_000
# A bell's name, a group's, or a short sentence of ours.
MAX_DETAIL_CHARS = 120


class BrokerEvent(LogLine, frozen=True, gc=False):
    """An event as it is logged and kept: most are never read, so the wire form is made for those who do."""

    event: str
    ticket: str | None = None
    agent: str | None = None
    sender: str | None = None
    status: str | None = None
    detail: str | None = None

    def as_fact(self) -> Fact:
        kind, _, event = self.event.partition(".")
        return Fact(
            kind=Kind.TICKET if kind == "ticket" else Kind.AGENT,
            event=event,
            id=self.ticket or self.agent,
            agent_id=self.agent,
            sender=self.sender,
            status=self.status,
            text=one_line(self.detail, MAX_DETAIL_CHARS) if self.detail else None,
        )

    def concerns(self, agent_id: str | None) -> bool:
        return agent_id is None or agent_id in (self.agent, self.sender)

    def view(self, id_: int, at: int) -> Event:
        return Event(
            id=id_,
            event=self.event,
            at=rfc3339(at),
            ticket_id=self.ticket,
            agent_id=self.agent,
            from_=self.sender,
            status=self.status,
            detail=self.detail,
        )


class EventHub:
    def __init__(self, clock: Clock, log: Log, event_ring: EventRing, *, ring: int = RING_EVENTS) -> None:
        """`event_ring` gets each event as well: it is what `events.all` shows of agents and tickets."""
        self._clock = clock
        self._log = log
        self._event_ring = event_ring
        # Number, wall time, event.
        self._ring: deque[tuple[int, int, BrokerEvent]] = deque(maxlen=ring)
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
        self.publish(BrokerEvent(event, ticket_id, agent_id, sender, status, detail))

    def publish(self, broker_event: BrokerEvent) -> None:
        self._last += 1
        at = self._clock.wall_ms()
        self._ring.append((self._last, at, broker_event))
        self._log(broker_event)
        self._event_ring.publish(broker_event, at)
        if self._streams:
            for stream, wanted in self._streams.items():
                if broker_event.concerns(wanted):
                    stream.push(broker_event.view(self._last, at))

    def open(self, params: EventsParams, on_close: Callable[[], None] | None = None) -> Stream:
        def closed() -> None:
            if on_close is not None:
                on_close()
            self._streams.pop(stream, None)

        stream = Stream(on_close=closed)
        if params.after is not None:
            for id_, at, broker_event in self._ring:
                if id_ > params.after and broker_event.concerns(params.agent_id):
                    stream.push(broker_event.view(id_, at))
        self._streams[stream] = params.agent_id
        return stream

    def recent(self, call: Call, params: RecentEventsParams) -> list[Event]:
        found = [item for item in self._ring if item[2].concerns(params.agent_id)]
        return [broker_event.view(id_, at) for id_, at, broker_event in found[-params.limit :]]

    def end(self) -> None:
        for stream in list(self._streams):
            stream.end()
        self._streams.clear()
