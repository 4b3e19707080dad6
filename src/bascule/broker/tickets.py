"""The life of a ticket: send, broadcast, reply, acknowledge, cancel, time out, expire."""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from bascule.broker.agents import Agents, check_metadata
from bascule.broker.events import BrokerEvent, EventHub
from bascule.broker.lifetimes import RETRY_SECONDS, Lifetimes
from bascule.broker.person import HANDLE as PERSON_HANDLE
from bascule.broker.person import check_question
from bascule.broker.protocol import (
    TRANSITIONS,
    AgentStatus,
    BroadcastParams,
    CancelParams,
    InboxAckParams,
    InboxAckResult,
    ReplyParams,
    ReplyResult,
    SendParams,
    SendResult,
    TicketEvent,
    TicketStatus,
    TicketView,
)
from bascule.broker.quotas import check_kept, check_room
from bascule.broker.records import Message, Ticket
from bascule.broker.state import BrokerState, message_key
from bascule.broker.views import is_settled, ticket_view
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Conflict, Forbidden, InvalidRequest, NotFound, TooLarge
from bascule.foundation.ids import COPY_ID_PREFIX, new_ticket_id
from bascule.kernel.call import DAEMON, PERSON, Call, Principal, is_outside, sender_name
from bascule.kernel.journal import Journal, Transaction
from bascule.kernel.ports import IncomingReply, OnQuestion, Outgoing, RemoteAgent, TicketCancelled
from gabp import codec

_replace = msgspec.structs.replace
_DOTS = frozenset({".", ".."})
# 128 bits: enough that nobody meets a second message with the same one.
_DIGEST_CHARS = 32


_HOW_NOT_ONLINE = {
    AgentStatus.OFFLINE: "offline",
    AgentStatus.UNKNOWN: "has not been seen since the daemon started",
    AgentStatus.UNREACHABLE: "its machine cannot be reached now",
}


class Waiting(Protocol):
    """What the life of a ticket means to those who wait."""

    def pump(self, agent_id: str) -> None:
        """Something may be there for this agent."""

    def settled(self, ticket: Ticket) -> None: ...

    def gone(self, ticket_id: str) -> None:
        """It was dropped, settled or not."""

    def check_room(self, principal: Principal) -> None:
        """Raise `Overloaded` when this principal waits too much already."""

    def asked(self, principal: Principal, wait_ms: int, sent: SendResult) -> SendResult | Deferred[SendResult]:
        """The rest of an ask: what was sent, with its reply, once there is one within this time."""


class Written(NamedTuple):
    """What a message says, as JSON."""

    payload: bytes
    metadata: bytes


class Tickets:
    def __init__(
        self,
        state: BrokerState,
        agents: Agents,
        events: EventHub,
        journal: Journal,
        *,
        key: bytes,
        waits: Waiting,
        has_person: Callable[[], bool],
    ) -> None:
        self._state = state
        self._agents = agents
        self._events = events
        self._journal = journal
        # Keys the digests in store and ledger, so that a short secret cannot be guessed back from them.
        self._key = key
        self._waits = waits
        self._has_person = has_person
        # Called when a question to the person is durable.
        self.on_question: list[OnQuestion] = []
        # Whom callers that are not on this machine may write to. Kept by who publishes them.
        self.published: set[str] = set()
        self.lifetimes = Lifetimes(state, on_timeout=self._time_out, on_end=self._expire)

    # -- methods --

    def written(self, params: SendParams | BroadcastParams) -> Written:
        limits = self._state.limits
        payload = codec.encode(params.payload)
        if len(payload) > limits.max_payload_bytes:
            raise TooLarge(
                f"`payload` is {len(payload)} bytes; the limit is {limits.max_payload_bytes}",
                hint="write it to a file and send its path",
            )
        return Written(payload, check_metadata(params.metadata, limits.max_metadata_bytes))

    def send(
        self, call: Call, params: SendParams, tx: Transaction, *, written: Written | TooLarge | None = None
    ) -> SendResult:
        """`written`: of a broadcast, which writes what it says, or hears that it is too large, once for all."""
        state = self._state
        limits = state.limits
        target, remote = params.agent_id, None
        if target not in state.agents.rows:
            target, remote = self._resolve(target)
        self._check_published(call.principal, target, remote)
        now = tx.at = state.clock.wall_ms()
        if isinstance(written, TooLarge):
            raise written
        payload, metadata = written or self.written(params)
        digest = self._digest(params, payload, metadata)
        status = self._agents.status(target) if remote is None else AgentStatus(remote.status)
        ticket_id = params.ticket_id
        if ticket_id is not None:
            known = self._retry_of(ticket_id, call.principal, digest)
            if known is not None:
                if params.wait_ms:
                    tx.then = partial(self._waits.asked, call.principal, params.wait_ms)
                return self._sent_result(known, status)
        else:
            ticket_id = new_ticket_id(now)
        if status is not AgentStatus.ONLINE and (params.require_online or limits.reject_offline):
            raise _not_online(target, status)
        if target == PERSON_HANDLE:
            self._ask_person(tx, ticket_id, call.principal, len(payload))
        check_room(state, self._agents, call.principal, target, len(payload))
        if params.wait_ms:
            self._waits.check_room(call.principal)
            tx.then = partial(self._waits.asked, call.principal, params.wait_ms)
        timeout_ms = params.timeout_ms or limits.default_timeout_ms
        if remote is not None:
            # Before our own changes: it may refuse.
            state.remotes.send(
                tx,
                Outgoing(
                    ticket_id=ticket_id,
                    sender=call.principal,
                    target=target,
                    payload=payload,
                    metadata=params.metadata,
                    expect_reply=params.expect_reply,
                    timeout_ms=timeout_ms,
                    conversation_id=params.conversation_id,
                    at=now,
                ),
            )
        ticket = Ticket(
            ticket_id=ticket_id,
            number=state.next_number(),
            sender=call.principal,
            target=target,
            status=TicketStatus.PENDING,
            expect_reply=params.expect_reply,
            created_at=now,
            updated_at=now,
            reply_by=now + timeout_ms,
            payload_bytes=len(payload),
            digest=digest,
            conversation_id=params.conversation_id,
            group=target if target in state.groups else None,
        )
        message = Message(payload=msgspec.Raw(payload), metadata=params.metadata, sender=call.principal, at=now)
        tx.put(state.messages, message_key(ticket_id, 0), message)
        # Sealed until durable: nobody may receive what a power cut could take back.
        state.inbox(target).sealed.add(ticket_id)
        tx.put(state.tickets, ticket_id, ticket)
        tx.subject = ticket_id
        tx.details = {"to": target, "bytes": len(payload), "digest": digest}
        tx.after.append(partial(self._sent, ticket, state.clock.monotonic(), timeout_ms))
        return self._sent_result(ticket, status)

    def reply(self, call: Call, params: ReplyParams, tx: Transaction) -> ReplyResult:
        state = self._state
        ticket = state.ticket(params.ticket_id)
        # Not even with `--auth off` does anybody else speak for the person.
        if sender_name(call.principal) not in state.holders(ticket) and (
            not call.as_owner or ticket.target == PERSON_HANDLE or ticket.is_for_elsewhere
        ):
            raise Forbidden(
                f"ticket {ticket.ticket_id} is addressed to {ticket.target}",
                hint=f"reply as {ticket.target}: bridge-reply --agent {ticket.target}",
            )
        if ticket.status is TicketStatus.CANCELLED:
            raise TicketCancelled
        payload = codec.encode(params.payload)
        if len(payload) > state.limits.max_payload_bytes:
            raise TooLarge(
                f"`payload` is {len(payload)} bytes; the limit is {state.limits.max_payload_bytes}",
                hint="write it to a file and reply with its path",
            )
        check_metadata(params.metadata, state.limits.max_metadata_bytes)
        return self.answer(tx, ticket, call.principal, payload, params.metadata)

    def answer(
        self, tx: Transaction, ticket: Ticket, sender: Principal, payload: bytes, metadata: dict[str, Any]
    ) -> ReplyResult:
        """Add a reply of somebody who may answer; the first one settles the ticket."""
        state = self._state
        first = ticket.replied_at is None
        if not first:
            last = state.message(ticket.ticket_id, ticket.replies)
            if bytes(last.payload) == payload and last.metadata == metadata:
                # The same words again are a retry whose answer was lost on the way.
                return ReplyResult(
                    ticket_id=ticket.ticket_id,
                    status=ticket.status,
                    first=ticket.replies == 1,
                    late=ticket.late,
                )
        if ticket.replies >= state.limits.max_replies:
            raise Conflict(
                f"ticket {ticket.ticket_id} has {ticket.replies} replies already",
                hint="send a new message instead",
            )
        check_kept(state, sender, len(payload))
        now = tx.at = state.clock.wall_ms()
        late = ticket.status is TicketStatus.TIMEOUT or ticket.late
        answered = _replace(
            ticket,
            status=TRANSITIONS.get((ticket.status, TicketEvent.REPLY), ticket.status),
            updated_at=now,
            acked_at=ticket.acked_at if ticket.acked_at is not None else now,
            settled_at=now if first else ticket.settled_at,
            replied_at=now if first else ticket.replied_at,
            late=late if first else ticket.late,
            replies=ticket.replies + 1,
        )
        message = Message(payload=msgspec.Raw(payload), metadata=metadata, sender=sender, at=now, late=late)
        tx.put(state.messages, message_key(ticket.ticket_id, answered.replies), message)
        tx.put(state.tickets, ticket.ticket_id, answered)
        if ticket.is_copy:
            reply = IncomingReply(sender=sender, number=answered.replies, payload=payload, metadata=metadata)
            state.remotes.replied(tx, answered, reply)
        tx.subject = ticket.ticket_id
        tx.details = {"bytes": len(payload), "digest": self._keyed(payload), "number": answered.replies}
        tx.after.append(partial(self._replied, answered, first=first))
        return ReplyResult(ticket_id=ticket.ticket_id, status=answered.status, first=first, late=answered.late)

    def ack(self, call: Call, params: InboxAckParams, tx: Transaction) -> InboxAckResult:
        state = self._state
        acked: list[str] = []
        unknown: list[str] = []
        changed: list[Ticket] = []
        for ticket_id in params.ticket_ids:
            ticket = state.tickets.rows.get(ticket_id)
            if ticket is None or ticket.target != params.agent_id:
                unknown.append(ticket_id)
                continue
            acked.append(ticket_id)
            if ticket.acked_at is None:
                changed.append(self.acknowledge(ticket, tx))
                if ticket.is_copy:
                    state.remotes.acked(tx, ticket)
        if changed:
            tx.subject = changed[0].ticket_id if len(changed) == 1 else params.agent_id
            tx.details = {"tickets": [ticket.ticket_id for ticket in changed]} if len(changed) > 1 else None
            tx.after.append(partial(self.after_ack, params.agent_id, changed))
        return InboxAckResult(acked=acked, unknown=unknown)

    def cancel(self, call: Call, params: CancelParams, tx: Transaction) -> TicketView:
        state = self._state
        ticket = state.ticket(params.ticket_id)
        if call.principal not in (ticket.sender, PERSON):
            raise Forbidden(
                f"only its sender may cancel ticket {ticket.ticket_id}",
                hint="answer it instead: bridge-reply, or post_reply",
            )
        if ticket.is_copy:
            raise Conflict(
                f"ticket {ticket.ticket_id} is a copy: {sender_name(Principal(ticket.sender))} sent it",
                hint="it is cancelled where it was sent; here it can be answered",
            )
        if ticket.status is TicketStatus.CANCELLED:
            return ticket_view(state, ticket, call.principal, payloads=True)
        to = TRANSITIONS.get((ticket.status, TicketEvent.CANCEL))
        if to is None or is_settled(ticket):
            raise Conflict(
                f"ticket already {ticket.status.value}",
                hint="a settled ticket stays as it is until it expires",
            )
        now = state.clock.wall_ms()
        withdrawn = _replace(ticket, status=to, updated_at=now, settled_at=now, reason=params.reason)
        tx.put(state.tickets, ticket.ticket_id, withdrawn)
        if ticket.is_for_elsewhere:
            state.remotes.ended(tx, withdrawn)
        tx.subject = ticket.ticket_id
        tx.after.append(partial(self.after_end, withdrawn, "ticket.cancelled"))
        return ticket_view(state, withdrawn, call.principal, payloads=True)

    # -- what happens by itself --

    def forget_id(self, tx: Transaction, ticket_id: str) -> None:
        tx.put(self._state.remembered, ticket_id, None)
        tx.after.append(partial(self.lifetimes.forgotten, ticket_id))

    def drop(self, tx: Transaction, ticket: Ticket) -> None:
        self._state.forget(tx, ticket, self._state.clock.wall_ms())
        if ticket.is_copy or ticket.is_for_elsewhere:
            self._state.remotes.dropped(tx, ticket)
        tx.after.append(partial(self._gone, ticket))

    def _time_out(self, ticket: Ticket) -> None:
        now = self._state.clock.wall_ms()
        status = TRANSITIONS[ticket.status, TicketEvent.DEADLINE]
        over = _replace(ticket, status=status, updated_at=now, settled_at=now)
        tx = Transaction()
        tx.put(self._state.tickets, ticket.ticket_id, over)
        if ticket.is_for_elsewhere:
            self._state.remotes.ended(tx, over)
        tx.subject = ticket.ticket_id
        tx.after.append(partial(self.after_end, over, "ticket.timeout"))
        self._commit(tx, "tickets.timeout", partial(self.lifetimes.expect_reply_by, ticket.ticket_id))

    def _expire(self, ticket: Ticket) -> None:
        tx = Transaction()
        tx.subject = ticket.ticket_id
        self.drop(tx, ticket)
        self._commit(tx, "tickets.expire", partial(self.lifetimes.end_at, ticket.ticket_id))

    def _commit(self, tx: Transaction, method: str, again: Callable[[float], None]) -> None:
        """What happens by itself has no caller to try again: if it cannot be stored, it happens later."""

        def look(_: object) -> None:
            if tx.exception() is not None:
                again(self._state.clock.monotonic() + RETRY_SECONDS)

        self._journal.commit(tx, DAEMON, method).add_done_callback(look)

    def acknowledge(self, ticket: Ticket, tx: Transaction) -> Ticket:
        now = self._state.clock.wall_ms()
        status = TRANSITIONS.get((ticket.status, TicketEvent.ACK), ticket.status)
        over = status is TicketStatus.DELIVERED and not ticket.expect_reply
        delivered = _replace(
            ticket,
            status=status,
            updated_at=now,
            acked_at=now,
            settled_at=now if over else ticket.settled_at,
        )
        tx.put(self._state.tickets, ticket.ticket_id, delivered)
        return delivered

    # -- before the commit: what another machine has on its disk, and says again should we lose it --

    @property
    def can_store(self) -> bool:
        """While our disk is full the other machine says all again; it would be handed over and taken back each time."""
        return self._journal.fault is None

    def hand_over(self, ticket: Ticket, answer: None) -> None:
        """A copy, to who waits for it: a lease is lost with our memory, and so is this ticket; both come again."""
        self._waits.pump(ticket.target)
        return answer

    def show_reply(self, ticket_id: str, answer: None) -> None:
        """To who waits for it. All else that a reply means, its deadline and its events, waits for our disk."""
        self._waits.settled(self._state.tickets.rows[ticket_id])
        return answer

    # -- after the commit --

    def _sent(self, ticket: Ticket, at: float, timeout_ms: int) -> None:
        self.lifetimes.sent(ticket.ticket_id, at, timeout_ms)
        self._state.inbox(ticket.target).sealed.discard(ticket.ticket_id)
        self._note("ticket.sent", ticket)
        self._waits.pump(ticket.target)

    def after_delivery(self, ticket: Ticket) -> None:
        """Of a copy: its home watches the time."""
        self._state.inbox(ticket.target).sealed.discard(ticket.ticket_id)
        self.lifetimes.copied(ticket.ticket_id, self._state.clock.monotonic())
        self._note("ticket.sent", ticket)
        self._waits.pump(ticket.target)

    def after_refusal(self, ticket: Ticket, reason: str, *, gone: bool = False) -> None:
        """Nobody elsewhere will ever have it."""
        self._events.emit("ticket.undeliverable", ticket_id=ticket.ticket_id, agent_id=ticket.target, detail=reason)
        if not gone:
            self.after_end(ticket, "ticket.cancelled")

    def _announce_question(self, ticket_id: str, sender: Principal) -> None:
        for callback in self.on_question:
            callback(ticket_id, sender_name(sender))

    def _replied(self, ticket: Ticket, *, first: bool) -> None:
        if first:
            self.after_end(ticket, "ticket.responded")
        else:
            self._note("ticket.extra_reply", ticket)
        self._waits.pump(ticket.target)

    def after_ack(self, agent_id: str, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            if is_settled(ticket):
                self.after_end(ticket, "ticket.delivered")
            else:
                self._note("ticket.delivered", ticket)
        self._waits.pump(agent_id)

    def after_end(self, ticket: Ticket, event: str) -> None:
        self.lifetimes.settled(ticket.ticket_id)
        self._note(event, ticket)
        self._waits.settled(ticket)

    def _gone(self, ticket: Ticket) -> None:
        self.lifetimes.gone(ticket.ticket_id)
        self._note("ticket.expired", ticket)
        self._waits.gone(ticket.ticket_id)

    def _note(self, event: str, ticket: Ticket) -> None:
        sender = sender_name(ticket.sender)
        self._events.publish(BrokerEvent(event, ticket.ticket_id, ticket.target, sender, ticket.status))

    # -- checks --

    def _retry_of(self, ticket_id: str, sender: str, digest: str) -> Ticket | None:
        """The ticket that a repeated send means; 409 when the id stands for something else."""
        if ticket_id in _DOTS or ticket_id.startswith(COPY_ID_PREFIX):
            raise InvalidRequest(f"`ticketId`: {ticket_id!r} is reserved", hint="leave it out, or use a UUID")
        known = self._state.tickets.rows.get(ticket_id)
        if known is None:
            if ticket_id in self._state.remembered.rows:
                raise Conflict(f"ticket id {ticket_id} was used before", hint="use a new id, or leave it out")
            return None
        if known.sender == sender and known.digest == digest:
            return known
        raise Conflict(
            f"ticket id {ticket_id} stands for another message",
            hint="a retry repeats sender and body exactly; for a new message use a new id, or leave it out",
        )

    def _resolve(self, target: str) -> tuple[str, RemoteAgent | None]:
        """A target that is not an agent here: the person, a group, or an agent elsewhere; 404 for anything else."""
        if target == PERSON_HANDLE or target in self._state.groups:
            return target, None
        remote = self._state.remotes.find(target)
        if remote is not None:
            target = remote.agent_id
            if "@" in target:
                return target, remote
        self._agents.check_target(target)
        return target, None

    def _check_published(self, principal: Principal, target: str, remote: RemoteAgent | None) -> None:
        if is_outside(principal) and (target not in self.published or remote is not None):
            # The same for all that is not published: who is here is not told. Nobody is passed on to another machine.
            raise NotFound("agent not published", hint="its agent card says where it is; ask its owner")

    def _ask_person(self, tx: Transaction, ticket_id: str, sender: Principal, size: int) -> None:
        check_question(self._state, sender, size, has_person=self._has_person())
        tx.after.append(partial(self._announce_question, ticket_id, sender))

    def _sent_result(self, ticket: Ticket, status: AgentStatus) -> SendResult:
        # A retry gets the answer of the first time, whatever happened since.
        return SendResult(
            ticket_id=ticket.ticket_id,
            status=TicketStatus.PENDING,
            wait_endpoint=f"/replies/{ticket.ticket_id}/stream",
            agent_status=status,
            conversation_id=ticket.conversation_id,
        )

    def _digest(self, params: SendParams, payload: bytes, metadata: bytes) -> str:
        fields = f"{params.agent_id}\0{params.expect_reply}\0{params.timeout_ms}\0{params.conversation_id}\0".encode()
        return self._keyed(fields, metadata, b"\0", payload)

    def _keyed(self, *parts: bytes) -> str:
        hashed = hashlib.sha256(self._key)
        for part in parts:
            hashed.update(part)
        return hashed.hexdigest()[:_DIGEST_CHARS]


def _not_online(target: str, status: AgentStatus) -> NotFound:
    return NotFound(
        "agent not registered",
        hint=f"{target} is known but {_HOW_NOT_ONLINE[status]}; send without requireOnline to queue the message",
        details={"agentId": target, "agentStatus": status.value},
    )
