"""What callers see of the broker's records."""

from typing import Any

import msgspec

from bascule.broker.inbox import MAX_HANDOVER_BYTES, Inbox
from bascule.broker.person import principal_of
from bascule.broker.protocol import (
    Delivery,
    DeliveryState,
    InboxItem,
    ReplyItem,
    ReplyView,
    TicketStatus,
    TicketView,
)
from bascule.broker.records import Message, Ticket
from bascule.broker.state import BrokerState
from bascule.foundation.clock import rfc3339
from bascule.kernel.call import PERSON, Principal, agent_of, sender_name
from gabp import codec

# A settled ticket of these ends a wait; `delivered` does only when no reply is expected.
_SETTLED = frozenset({TicketStatus.RESPONDED, TicketStatus.TIMEOUT, TicketStatus.CANCELLED})


def is_settled(ticket: Ticket) -> bool:
    return ticket.status in _SETTLED or (ticket.status is TicketStatus.DELIVERED and not ticket.expect_reply)


def is_party(ticket: Ticket, principal: Principal) -> bool:
    return principal in (ticket.sender, PERSON) or agent_of(principal) == ticket.target


def sides(ticket: Ticket) -> tuple[Principal, Principal]:
    return Principal(ticket.sender), principal_of(ticket.target)


def _reply_item(message: Message) -> ReplyItem:
    return ReplyItem(
        payload=message.payload,
        metadata=message.metadata,
        from_=sender_name(Principal(message.sender)),
        at=rfc3339(message.at),
        late=message.late,
    )


def size_of(message: Message) -> int:
    """What it adds to an answer; names and times around it are small."""
    return len(message.payload) + (len(codec.encode(message.metadata)) if message.metadata else 0)


def _some_replies(state: BrokerState, ticket: Ticket, after: int, room: int) -> list[ReplyItem]:
    """Those behind the first `after`, as many as fit into `room` bytes: any receiver can post 100 of 1 MiB."""
    shown: list[ReplyItem] = []
    for number in range(after + 1, ticket.replies + 1):
        message = state.message(ticket.ticket_id, number)
        room -= size_of(message)
        if room < 0:
            break
        shown.append(_reply_item(message))
    return shown


def reply_view(state: BrokerState, ticket: Ticket, after: int = 0, room: int = MAX_HANDOVER_BYTES) -> ReplyView:
    """(5.3): what a wait is answered with once the ticket is settled. `room` is for the replies beside the first."""
    if ticket.status is not TicketStatus.RESPONDED or not ticket.replies:
        # A copy may know that home has the reply and have lost its own, to a backup that was restored.
        return ReplyView(ticket_id=ticket.ticket_id, status=ticket.status)
    first = state.message(ticket.ticket_id, 1)
    assert ticket.replied_at is not None
    replies = _some_replies(state, ticket, after, room) if ticket.replies > 1 else []
    return ReplyView(
        ticket_id=ticket.ticket_id,
        status=ticket.status,
        payload=first.payload,
        latency_ms=max(0, ticket.replied_at - ticket.created_at),
        metadata=first.metadata,
        late=ticket.late,
        from_=sender_name(Principal(first.sender)),
        replies=replies,
        more=max(0, ticket.replies - after - len(replies)) if ticket.replies > 1 else 0,
    )


def inbox_item(state: BrokerState, ticket: Ticket, attempts: int) -> InboxItem:
    message = state.message(ticket.ticket_id)
    return InboxItem(
        ticket_id=ticket.ticket_id,
        from_=sender_name(Principal(ticket.sender)),
        payload=message.payload,
        metadata=message.metadata,
        expect_reply=ticket.expect_reply,
        created_at=rfc3339(ticket.created_at),
        reply_by=rfc3339(ticket.reply_by),
        attempts=attempts,
        lease_ms=state.limits.lease_ms,
        timed_out=ticket.status is TicketStatus.TIMEOUT,
        conversation_id=ticket.conversation_id,
        group=ticket.group,
    )


def _delivery(state: BrokerState, ticket: Ticket, inbox: Inbox | None) -> Delivery | None:
    """How far the message got, as far as this life of the daemon knows."""
    if ticket.acked_at is not None:
        return Delivery(state=DeliveryState.ACKNOWLEDGED, at=rfc3339(ticket.acked_at))
    if ticket.is_for_elsewhere:
        remote = state.remotes.delivery(ticket)
        return Delivery(state=DeliveryState(remote.state), at=rfc3339(remote.at)) if remote is not None else None
    if not ticket.undelivered:
        return None
    bells = inbox.rung.get(ticket.ticket_id, {}) if inbox is not None else {}
    lease = inbox.leases.get(ticket.ticket_id) if inbox is not None else None
    if lease is not None:
        held_ms = (state.clock.monotonic() - lease.expires) * 1000 + state.limits.lease_ms
        at, how = state.clock.wall_ms() - round(held_ms), DeliveryState.FETCHED
    elif bells:
        at, how = max(bells.values()), DeliveryState.RUNG
    else:
        at, how = ticket.created_at, DeliveryState.QUEUED
    return Delivery(state=how, at=rfc3339(at), by=list(bells))


def ticket_view(
    state: BrokerState, ticket: Ticket, principal: Principal, *, payloads: bool, room: int = MAX_HANDOVER_BYTES
) -> TicketView:
    """Metadata for everybody; what was said only for its two sides and the person."""
    shown = payloads and is_party(ticket, principal)
    inbox = state.inboxes.get(ticket.target)
    message = state.message(ticket.ticket_id) if shown else None
    replies = _some_replies(state, ticket, 0, room) if shown else []
    response: Any = replies[0].payload if replies else msgspec.UNSET
    return TicketView(
        ticket_id=ticket.ticket_id,
        target_agent=ticket.target,
        from_=sender_name(Principal(ticket.sender)),
        status=ticket.status,
        created_at=rfc3339(ticket.created_at),
        updated_at=rfc3339(ticket.updated_at),
        reply_by=rfc3339(ticket.reply_by),
        expect_reply=ticket.expect_reply,
        attempts=inbox.attempts.get(ticket.ticket_id, 0) if inbox else 0,
        delivery=_delivery(state, ticket, inbox),
        acked_at=rfc3339(ticket.acked_at) if ticket.acked_at is not None else None,
        settled_at=rfc3339(ticket.settled_at) if ticket.settled_at is not None else None,
        late=ticket.late,
        reason=ticket.reason if shown else None,
        conversation_id=ticket.conversation_id,
        group=ticket.group,
        payload_bytes=ticket.payload_bytes,
        payload=message.payload if message else msgspec.UNSET,
        metadata=message.metadata if message else None,
        response=response,
        replies=replies,
        more_replies=ticket.replies - len(replies) if shown else 0,
    )
