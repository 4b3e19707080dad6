"""The broker's tables and everything derived from them.

Indexes are kept by `on_change(old, new)`, which is symmetric: undoing a transaction that did not become
durable runs the same code the other way round.
"""

from collections import defaultdict
from collections.abc import Callable, Collection

from bascule.broker.conversation_index import ConversationIndex
from bascule.broker.inbox import Inbox
from bascule.broker.limits import BrokerLimits
from bascule.broker.records import AgentRecord, Message, Remembered, Ticket
from bascule.broker.remotes import Remotes
from bascule.broker.ticket_index import TicketIndex
from bascule.foundation.clock import Clock
from bascule.foundation.errors import NotFound
from bascule.foundation.timers import Timers
from bascule.kernel.journal import Table, Transaction
from bascule.kernel.journal_ports import JournalStore

# How many messages, and their bytes.
_NONE_KEPT = (0, 0)


def message_key(ticket_id: str, number: int) -> str:
    # Ticket ids cannot contain a slash.
    return f"{ticket_id}/{number}"


class BrokerState:
    def __init__(self, store: JournalStore, clock: Clock, timers: Timers, limits: BrokerLimits) -> None:
        self.clock = clock
        self.limits = limits
        # Who stands behind an `@`.
        self.remotes = Remotes()
        self.timers = timers
        self.agents: Table[AgentRecord] = Table("agents", AgentRecord)
        self.tickets: Table[Ticket] = Table("tickets", Ticket, self._ticket_changed)
        self.index = TicketIndex(self.tickets.rows)
        self.messages: Table[Message] = Table("messages", Message, self._message_changed)
        # By sender, and by `@` and machine of those elsewhere: how many messages and replies are kept, and their bytes.
        self.kept: dict[str, tuple[int, int]] = {}
        self.remembered: Table[Remembered] = Table("remembered", Remembered)
        self.inboxes: dict[str, Inbox] = {}
        self.open_by_sender: dict[str, int] = {}
        self.open_count = 0
        self.conversation_index = ConversationIndex(self.tickets.rows)
        # Tickets of each conversation, the oldest first.
        self.conversations = self.conversation_index.tickets
        # Members of each group, the longest waiting first.
        self.groups: dict[str, dict[str, None]] = {}
        # By member: messages of groups that it has and that are open.
        self.assigned: dict[str, dict[str, None]] = {}
        # Called when a message is back in an inbox because what took it out could not be stored.
        self.on_return: Callable[[str], None] | None = None
        self._number = 0
        self.agents.rows.update(store.load("agents", AgentRecord))
        self.remembered.rows.update(store.load("remembered", Remembered))
        self._load_messages(store)
        self._load_tickets(store)

    # Loading makes the same indexes as `apply` row by row would, in a fraction of the time: no row was there before,
    # and somebody waits for the start.

    def _load_messages(self, store: JournalStore) -> None:
        rows = self.messages.rows
        rows.update(store.load("messages", Message))
        counts: defaultdict[str, int] = defaultdict(int)
        sizes: defaultdict[str, int] = defaultdict(int)
        for message in rows.values():
            for name in _charged(message.sender):
                counts[name] += 1
                sizes[name] += len(message.payload)
        self.kept = {sender: (count, sizes[sender]) for sender, count in counts.items()}

    def _load_tickets(self, store: JournalStore) -> None:
        # Oldest first, so that inboxes come back in the order of sending.
        loaded = sorted(store.load("tickets", Ticket), key=lambda item: item[1].number)
        self.tickets.rows.update(loaded)
        self.index.fill(loaded)
        self.conversation_index.fill(loaded)
        for key, ticket in loaded:
            if ticket.is_open:
                self.open_count += 1
                self.open_by_sender[ticket.sender] = self.open_by_sender.get(ticket.sender, 0) + 1
            if ticket.undelivered:
                self.inbox(ticket.target).add(key, ticket.number, ticket.payload_bytes, ticket.sender)
            if ticket.is_assigned:
                self.assigned.setdefault(ticket.target, {})[key] = None
        if loaded:
            self._number = loaded[-1][1].number

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def inbox(self, agent_id: str) -> Inbox:
        inbox = self.inboxes.get(agent_id)
        if inbox is None:
            inbox = self.inboxes[agent_id] = Inbox(agent_id)
        return inbox

    def drop_idle_inboxes(self) -> None:
        """Inboxes of agents that are gone, once nothing is in them and nobody waits there."""
        for agent_id in [each for each, inbox in self.inboxes.items() if inbox.idle and each not in self.agents.rows]:
            del self.inboxes[agent_id]

    def ticket(self, ticket_id: str) -> Ticket:
        ticket = self.tickets.rows.get(ticket_id)
        if ticket is not None:
            return ticket
        if ticket_id in self.remembered.rows:
            raise NotFound(
                "ticket expired",
                hint="it was settled and its time to live is over; send the message again if it still matters",
                details={"ticketId": ticket_id},
            )
        raise NotFound(
            "unknown ticket",
            hint="check the id; `bridgectl list tickets` shows them",
            details={"ticketId": ticket_id},
        )

    def holders(self, ticket: Ticket) -> Collection[str]:
        """Who may answer: its addressee; of a group any member, because one that was slow may still have the answer."""
        if ticket.group is None:
            return (ticket.target,)
        return {ticket.target, *self.groups.get(ticket.group, ())}

    def message(self, ticket_id: str, number: int = 0) -> Message:
        return self.messages.rows[message_key(ticket_id, number)]

    def forget(self, tx: Transaction, ticket: Ticket, now_ms: int) -> None:
        """Drop a ticket and its payloads; remember its id for a while."""
        for number in range(ticket.replies + 1):
            tx.put(self.messages, message_key(ticket.ticket_id, number), None)
        tx.put(self.tickets, ticket.ticket_id, None)
        tx.put(self.remembered, ticket.ticket_id, Remembered(now_ms + self.limits.remember_ms))

    def _message_changed(self, _key: str, old: Message | None, new: Message | None) -> None:
        kept = self.kept
        if old is not None:
            for name in _charged(old.sender):
                count, size = kept[name]
                if count > 1:
                    kept[name] = (count - 1, size - len(old.payload))
                else:
                    del kept[name]
        if new is not None:
            for name in _charged(new.sender):
                count, size = kept.get(name, _NONE_KEPT)
                kept[name] = (count + 1, size + len(new.payload))

    def _ticket_changed(self, ticket_id: str, old: Ticket | None, new: Ticket | None) -> None:
        self.index.changed(ticket_id, old, new)
        ticket = new or old
        assert ticket is not None
        was_open = old is not None and old.is_open
        if was_open != (new is not None and new.is_open):
            step = -1 if was_open else 1
            self.open_count += step
            left = self.open_by_sender.get(ticket.sender, 0) + step
            if left:
                self.open_by_sender[ticket.sender] = left
            else:
                del self.open_by_sender[ticket.sender]
        self._inbox_changed(ticket_id, ticket, old, new)
        if ticket.group is not None:
            self._assigned_changed(ticket_id, old, new)
        if ticket.conversation_id is not None:
            self.conversation_index.changed(ticket_id, old, new)

    def _inbox_changed(self, ticket_id: str, ticket: Ticket, old: Ticket | None, new: Ticket | None) -> None:
        target = ticket.target
        was_in = old is not None and old.undelivered
        # A message of a group moves from inbox to inbox.
        is_there = was_in and old is not None and old.target == target
        if new is not None and new.undelivered:
            if not is_there:
                if was_in and old is not None:
                    self.inboxes[old.target].discard(ticket_id, ticket.payload_bytes)
                self.inbox(target).add(ticket_id, ticket.number, ticket.payload_bytes, ticket.sender)
                if old is not None and self.on_return is not None:
                    self.on_return(target)
        elif was_in and old is not None:
            self.inboxes[old.target].discard(ticket_id, ticket.payload_bytes)

    def _assigned_changed(self, ticket_id: str, old: Ticket | None, new: Ticket | None) -> None:
        if old is not None and old.is_assigned:
            members = self.assigned.get(old.target, {})
            members.pop(ticket_id, None)
            if not members:
                self.assigned.pop(old.target, None)
        if new is not None and new.is_assigned:
            self.assigned.setdefault(new.target, {})[ticket_id] = None


def _charged(sender: str) -> tuple[str, ...]:
    """Who a message counts for: a sender elsewhere has as many names as its machine likes."""
    name, at, machine = sender.rpartition("@")
    return (sender, at + machine) if name else (sender,)
