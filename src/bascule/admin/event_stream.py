"""`events.all` behind its row: what the daemon's ring of facts keeps, as items of a stream."""

from bascule.admin.event_protocol import AllEventsParams, EventItem
from bascule.foundation.clock import rfc3339
from bascule.foundation.errors import InvalidRequest
from bascule.foundation.stream import Stream
from bascule.kernel.call import Call
from bascule.kernel.event_ring import Entry, EventRing, Kind

_KINDS = frozenset(each.value for each in Kind)


class AllEvents:
    def __init__(self, ring: EventRing) -> None:
        self._ring = ring

    def stream(self, call: Call, params: AllEventsParams) -> Stream:
        return self._ring.open(params.after, _kinds(params.kinds), _item, call.principal)


def _kinds(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    wanted = frozenset(each.strip() for each in text.split(","))
    if unknown := sorted(wanted - _KINDS):
        raise InvalidRequest(
            f"`kinds`: there is no kind {unknown[0]!r}", hint=f"there are: {', '.join(each.value for each in Kind)}"
        )
    return wanted


def _item(entry: Entry) -> EventItem:
    fact = entry.fact
    return EventItem(
        cursor=entry.cursor,
        at=rfc3339(entry.at),
        kind=fact.kind.value,
        event=fact.event,
        id=fact.id,
        principal=fact.principal,
        agent_id=fact.agent_id,
        from_=fact.sender,
        status=fact.status,
        text=fact.text,
    )
