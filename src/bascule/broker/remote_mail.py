"""What the broker does for those who stand behind an `@`: see `kernel.ports.RemoteMail`.

Each function is a part of the caller's transaction, which the gate has admitted. Of a ticket to an agent elsewhere this
daemon is the home; of one from elsewhere it has a copy, whose end its home decides.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from bascule.broker.agents import Agents, check_metadata
from bascule.broker.groups import Groups
from bascule.broker.person import HANDLE as PERSON_HANDLE
from bascule.broker.protocol import MAX_TIMEOUT_MS, OPEN_STATUSES, AgentStatus, TicketStatus
from bascule.broker.quotas import check_kept_of_machine, check_room, check_share_of_node
from bascule.broker.records import Message, Ticket
from bascule.broker.state import BrokerState, message_key
from bascule.broker.tickets import Tickets
from bascule.broker.views import is_settled
from bascule.foundation.errors import NotFound, TooLarge
from bascule.foundation.ids import is_reserved_handle
from bascule.kernel.call import Principal
from bascule.kernel.journal import Transaction
from bascule.kernel.ports import (
    Incoming,
    IncomingReply,
    KnownTicket,
    OnAgents,
    Outgoing,
    RemoteAgent,
    TicketCancelled,
)

_replace = msgspec.structs.replace
_EVENTS = {
    TicketStatus.RESPONDED: "ticket.responded",
    TicketStatus.TIMEOUT: "ticket.timeout",
    TicketStatus.CANCELLED: "ticket.cancelled",
}


class RemoteMail:
    def __init__(self, state: BrokerState, agents: Agents, tickets: Tickets, groups: Groups) -> None:
        self._state = state
        self._agents = agents
        self._tickets = tickets
        self._groups = groups

    # -- copies --

    def deliver(self, tx: Transaction, message: Incoming) -> None:
        state = self._state
        target = message.target
        # Neither the person nor the commands in sandboxes answer strangers.
        if target == PERSON_HANDLE or is_reserved_handle(target):
            raise NotFound("agent not registered", hint="this handle cannot be written to from another machine")
        self._agents.check_target(target)
        size = len(message.payload)
        self._check_size(message.payload, message.metadata)
        check_kept_of_machine(state, message.sender, size)
        check_share_of_node(state, message.sender, target, size)
        check_room(state, self._agents, message.sender, target, size)
        now = state.clock.wall_ms()
        ticket = Ticket(
            ticket_id=message.ticket_id,
            number=state.next_number(),
            sender=message.sender,
            target=target,
            status=TicketStatus.PENDING,
            expect_reply=message.expect_reply,
            created_at=now,
            updated_at=now,
            reply_by=now + min(message.left_ms, MAX_TIMEOUT_MS),
            payload_bytes=size,
            # Home compares what is sent again; here the id stands for it, which ends with a digest.
            digest=message.ticket_id[-32:],
            conversation_id=message.conversation_id,
            group=target if target in state.groups else None,
        )
        kept = Message(payload=msgspec.Raw(message.payload), metadata=message.metadata, sender=message.sender, at=now)
        tx.put(state.messages, message_key(ticket.ticket_id, 0), kept)
        if message.kept_there and ticket.group is None and self._tickets.can_store:
            tx.can_wait = True
            tx.then = partial(self._tickets.hand_over, ticket)
        else:
            # Sealed until durable, as a message that was sent here.
            state.inbox(target).sealed.add(ticket.ticket_id)
        tx.put(state.tickets, ticket.ticket_id, ticket)
        tx.after.append(partial(self._tickets.after_delivery, ticket))

    def mirror(self, tx: Transaction, ticket_id: str, status: str, *, late: bool, reason: str | None) -> None:
        ticket = self._state.tickets.rows.get(ticket_id)
        if ticket is None or not ticket.is_copy:
            return
        to = TicketStatus(status)
        now = self._state.clock.wall_ms()
        # A message whose sender has stopped waiting stays in the inbox; one that was withdrawn does not.
        mirrored = _replace(ticket, status=to, late=late, reason=reason, updated_at=now)
        newly = is_settled(mirrored) and ticket.status is not to
        if newly:
            mirrored = _replace(mirrored, settled_at=now)
        if mirrored == ticket:
            return
        tx.put(self._state.tickets, ticket_id, mirrored)
        if newly and to in _EVENTS:
            tx.after.append(partial(self._tickets.after_end, mirrored, _EVENTS[to]))

    # -- tickets whose home is here --

    def acknowledge(self, tx: Transaction, ticket_id: str) -> None:
        ticket = self._home(ticket_id)
        if ticket.acked_at is None and ticket.status is not TicketStatus.CANCELLED:
            acked = self._tickets.acknowledge(ticket, tx)
            tx.after.append(partial(self._tickets.after_ack, ticket.target, [acked]))

    def answer(self, tx: Transaction, ticket_id: str, reply: IncomingReply) -> None:
        ticket = self._home(ticket_id)
        if ticket.status is TicketStatus.CANCELLED:
            raise TicketCancelled
        self._check_size(reply.payload, reply.metadata)
        check_kept_of_machine(self._state, reply.sender, len(reply.payload))
        self._tickets.answer(tx, ticket, reply.sender, reply.payload, reply.metadata)
        if reply.kept_there and self._tickets.can_store:
            tx.can_wait = True
            tx.then = partial(self._tickets.show_reply, ticket_id)

    def refuse(self, tx: Transaction, ticket_id: str, reason: str) -> None:
        ticket = self._home(ticket_id)
        if ticket.status in OPEN_STATUSES:
            now = self._state.clock.wall_ms()
            ended = _replace(ticket, status=TicketStatus.CANCELLED, updated_at=now, settled_at=now, reason=reason)
            tx.put(self._state.tickets, ticket_id, ended)
            tx.after.append(partial(self._tickets.after_refusal, ended, reason))
        elif ticket.undelivered:
            # Its sender has stopped waiting already; nothing is left to wait for.
            self._tickets.drop(tx, ticket)
            tx.after.append(partial(self._tickets.after_refusal, ticket, reason, gone=True))

    def known(self, ticket_id: str) -> KnownTicket | None:
        ticket = self._state.tickets.rows.get(ticket_id)
        if ticket is None:
            return None
        return KnownTicket(ticket.status, ticket.replies, ticket.late, ticket.reason)

    def outgoing(self, ticket_id: str) -> Outgoing | None:
        ticket = self._state.tickets.rows.get(ticket_id)
        if ticket is None or not ticket.is_for_elsewhere or not (ticket.is_open or ticket.undelivered):
            return None
        message = self._state.message(ticket_id)
        return Outgoing(
            ticket_id=ticket_id,
            sender=Principal(ticket.sender),
            target=ticket.target,
            payload=bytes(message.payload),
            metadata=message.metadata,
            expect_reply=ticket.expect_reply,
            timeout_ms=max(0, ticket.reply_by - self._state.clock.wall_ms()),
            conversation_id=ticket.conversation_id,
            at=ticket.created_at,
        )

    def replies(self, ticket_id: str) -> Sequence[IncomingReply]:
        ticket = self._state.tickets.rows.get(ticket_id)
        if ticket is None or not ticket.is_copy:
            return ()
        numbered = ((number, self._state.message(ticket_id, number)) for number in range(1, ticket.replies + 1))
        return [
            IncomingReply(Principal(message.sender), number, bytes(message.payload), message.metadata)
            for number, message in numbered
        ]

    def _check_size(self, payload: bytes, metadata: dict[str, Any]) -> None:
        limits = self._state.limits
        if len(payload) > limits.max_payload_bytes:
            raise TooLarge(
                f"the payload is {len(payload)} bytes; the limit there is {limits.max_payload_bytes}",
                hint="send a reference to a file instead",
            )
        check_metadata(metadata, limits.max_metadata_bytes)

    def _home(self, ticket_id: str) -> Ticket:
        ticket = self._state.tickets.rows.get(ticket_id)
        if ticket is None or not ticket.is_for_elsewhere:
            raise NotFound("unknown ticket", hint="it is gone at its home", details={"ticketId": ticket_id})
        return ticket

    # -- who is here --

    def agents(self) -> Iterable[RemoteAgent]:
        for record in self._state.agents.rows.values():
            if not is_reserved_handle(record.agent_id):
                status = self._agents.status(record.agent_id)
                online = AgentStatus.ONLINE if status is AgentStatus.ONLINE else AgentStatus.OFFLINE
                yield RemoteAgent(record.agent_id, record.type, online.value, 0, tuple(record.groups))

    def has_free_member(self, group: str) -> bool:
        return self._groups.has_free_member(group)

    def watch_agents(self, callback: OnAgents) -> None:
        self._agents.on_list.append(callback)
