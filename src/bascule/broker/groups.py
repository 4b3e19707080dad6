"""Groups: a name whose members share one queue, each message to exactly one of them.

A message to a group waits in the group's own inbox. A member that is free gets one: the ticket's target becomes that
member, and from then on it is a message like any other. It goes back into the queue when the member does not
acknowledge it in time, and when the member dies before it has answered. Membership is part of each agent's own
registration, so that a group lives as long as one of its members does.
"""

from functools import partial
from itertools import islice

import msgspec

from bascule.broker.agents import Agents
from bascule.broker.events import EventHub
from bascule.broker.protocol import AgentStatus, TicketStatus
from bascule.broker.records import Ticket
from bascule.broker.state import BrokerState
from bascule.broker.waits import Waits
from bascule.kernel.call import DAEMON, agent_principal
from bascule.kernel.journal import Journal, Transaction

# Unacknowledged messages of groups that one member may have: a quick one must not find the queue in a slow one's hands.
MAX_IN_HAND = 1
# A connection that was lost for a moment is not a death.
GRACE_MS = 2_000
_replace = msgspec.structs.replace


class Groups:
    def __init__(self, state: BrokerState, agents: Agents, events: EventHub, journal: Journal, waits: Waits) -> None:
        self._state = state
        self._agents = agents
        self._events = events
        self._journal = journal
        self._waits = waits
        waits.groups = self
        agents.on_offline = self._offline
        agents.on_groups = self.freed
        if state.assigned:
            # Leases end with the daemon: what nobody had acknowledged is anybody's again.
            state.timers.after_ms(0, self._resume)

    # -- called by waits --

    def wanted(self, agent_id: str, room: int) -> None:
        """The agent looks for messages now: it gets a group's when it has none of its own."""
        for group in self._groups_of(agent_id):
            inbox = self._state.inboxes.get(group)
            mine = self._state.inboxes.get(agent_id)
            if inbox is None or not inbox.waiting or (mine is not None and mine.waiting):
                continue
            rows, me = self._state.tickets.rows, agent_principal(agent_id)
            others = (ticket_id for ticket_id in inbox.unleased() if rows[ticket_id].sender != me)
            for ticket_id in list(islice(others, max(0, min(room, MAX_IN_HAND - self._in_hand(agent_id))))):
                self._assign(ticket_id, agent_id)

    def freed(self, agent_id: str) -> None:
        """A group's messages, or a member's hands, may be free now."""
        for group in (agent_id,) if agent_id in self._state.groups else self._groups_of(agent_id):
            self._share_out(group)

    def put_back(self, ticket_ids: list[str]) -> None:
        """Handed over and not acknowledged: somebody else may do better."""
        for ticket_id in ticket_ids:
            ticket = self._state.tickets.rows.get(ticket_id)
            if ticket is not None and ticket.is_assigned and ticket.acked_at is None:
                self._give_back(ticket)

    def has_free_member(self, group: str) -> bool:
        """Somebody would get a message now, before those that wait in the queue are counted."""
        inbox = self._state.inboxes.get(group)
        return (inbox is None or not inbox.waiting) and self._free_member(group) is not None

    # -- sharing out --

    def _share_out(self, group: str) -> None:
        inbox = self._state.inboxes.get(group)
        if inbox is None or not inbox.waiting or self._free_member(group) is None:
            return
        rows = self._state.tickets.rows
        for ticket_id in list(inbox.unleased()):
            # Handing one over may have shared out the next.
            if rows[ticket_id].target != group:
                continue
            member = self._free_member(group, but=rows[ticket_id].sender)
            if member is not None:
                self._assign(ticket_id, member)
                self._waits.pump(member)
            elif self._free_member(group) is None:
                return

    def _free_member(self, group: str, but: str | None = None) -> str | None:
        """Somebody who waits for a message, the longest waiting first; else somebody who can be rung for.

        Never its sender: a member that writes to its own group wants another.
        """
        can_be_rung = None
        for member in self._state.groups.get(group, ()):
            if self._in_hand(member) >= MAX_IN_HAND or agent_principal(member) == but:
                continue
            inbox = self._state.inboxes.get(member)
            if inbox is not None and inbox.someone_waits() and not inbox.waiting:
                return member
            if can_be_rung is None and member in self._waits.bells.watchers and member not in self._state.assigned:
                can_be_rung = member
        return can_be_rung

    def _in_hand(self, member: str) -> int:
        """Messages of groups that it has and has not acknowledged."""
        rows = self._state.tickets.rows
        return sum(rows[ticket_id].acked_at is None for ticket_id in self._state.assigned.get(member, ()))

    def _groups_of(self, agent_id: str) -> list[str]:
        record = self._state.agents.rows.get(agent_id)
        return record.groups if record is not None else []

    # -- moving --

    def _assign(self, ticket_id: str, member: str) -> None:
        ticket = self._state.tickets.rows[ticket_id]
        assert ticket.group is not None
        self._move(ticket, _replace(ticket, target=member), "tickets.assign")
        # Behind the others for the next one.
        members = self._state.groups.get(ticket.group, {})
        if member in members:
            del members[member]
            members[member] = None
        self._events.emit(
            "ticket.assigned", ticket_id=ticket_id, agent_id=member, status=ticket.status.value, detail=ticket.group
        )
        limit = self._state.limits.lease_ms
        self._state.timers.after_ms(limit, partial(self._untouched, ticket_id, member))

    def _give_back(self, ticket: Ticket) -> None:
        """As if it had never been handed out, except that it says how often it was."""
        assert ticket.group is not None
        status = TicketStatus.PENDING if ticket.status is TicketStatus.DELIVERED else ticket.status
        back = _replace(ticket, target=ticket.group, status=status, acked_at=None)
        self._move(ticket, back, "tickets.reoffer")
        self._events.emit(
            "ticket.reoffered",
            ticket_id=ticket.ticket_id,
            agent_id=ticket.group,
            status=status.value,
            detail=f"{ticket.target} had it",
        )
        self._share_out(ticket.group)

    def _move(self, ticket: Ticket, moved: Ticket, method: str) -> None:
        attempts = self._state.inbox(ticket.target).attempts.get(ticket.ticket_id, 0)
        tx = Transaction()
        tx.subject = ticket.ticket_id
        tx.details = {"from": ticket.target, "to": moved.target}
        tx.put(self._state.tickets, ticket.ticket_id, _replace(moved, updated_at=self._state.clock.wall_ms()))
        if attempts:
            self._state.inbox(moved.target).attempts[ticket.ticket_id] = attempts
        self._journal.commit(tx, DAEMON, method)

    # -- what happens by itself --

    def _untouched(self, ticket_id: str, member: str, _now: float) -> None:
        """Rung for and not fetched: another member may be quicker, if there is one."""
        ticket = self._state.tickets.rows.get(ticket_id)
        if ticket is None or ticket.target != member or ticket.acked_at is not None or not ticket.is_assigned:
            return
        inbox = self._state.inbox(member)
        others = (each for each in self._state.groups.get(ticket.group or "", ()) if each != member)
        if ticket_id not in inbox.leases and any(self._agents.status(each) is AgentStatus.ONLINE for each in others):
            self._give_back(ticket)

    def _offline(self, agent_id: str) -> None:
        if agent_id in self._state.assigned:
            self._state.timers.after_ms(GRACE_MS, partial(self._dead, agent_id))

    def _dead(self, agent_id: str, _now: float) -> None:
        if self._agents.status(agent_id) is AgentStatus.ONLINE:
            return
        for ticket_id in list(self._state.assigned.get(agent_id, ())):
            self._give_back(self._state.tickets.rows[ticket_id])

    def _resume(self, _now: float) -> None:
        for held in list(self._state.assigned.values()):
            for ticket_id in list(held):
                ticket = self._state.tickets.rows[ticket_id]
                if ticket.acked_at is None and ticket.is_assigned:
                    self._give_back(ticket)
