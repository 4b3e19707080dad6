"""Lifecycle events: one ring that remembers a little, and the streams that follow it."""

from collections import deque

from bascule.audit.ports import Log
from bascule.clock import Clock, rfc3339
from bascule.protocols.broker import Event, EventsParams
from bascule.stream import Stream

# What a reader that reconnects with `after` can still get; older is in the ledger.
RING_EVENTS = 1_000


class EventHub:
    def __init__(self, clock: Clock, log: Log, *, ring: int = RING_EVENTS) -> None:
        self._clock = clock
        self._log = log
        self._ring: deque[Event] = deque(maxlen=ring)
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
        item = Event(
            id=self._last,
            event=event,
            at=rfc3339(self._clock.wall_ms()),
            ticket_id=ticket_id,
            agent_id=agent_id,
            from_=sender,
            status=status,
            detail=detail,
        )
        self._ring.append(item)
        self._log(event, ticket=ticket_id, agent=agent_id, sender=sender, status=status, detail=detail)
        for stream, wanted in self._streams.items():
            if wanted is None or wanted in (agent_id, sender):
                stream.push(item)

    def open(self, params: EventsParams) -> Stream:
        def closed() -> None:
            self._streams.pop(stream, None)

        stream = Stream(on_close=closed)
        if params.after is not None:
            for item in self._ring:
                if item.id > params.after and params.agent_id in (None, item.agent_id, item.from_):
                    stream.push(item)
        self._streams[stream] = params.agent_id
        return stream

    def end(self) -> None:
        for stream in list(self._streams):
            stream.end()
        self._streams.clear()
