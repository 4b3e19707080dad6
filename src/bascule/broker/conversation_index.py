"""Conversations, the one with the newest ticket first, with what a list shows of them kept at hand.

A conversation stands where its newest ticket does. When another ticket becomes its newest, it is added there, and the
entry where it was is stale: the next list that meets it drops it. So a ticket costs an append, and a list costs what it
returns.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping

from bascule.broker.records import Ticket
from bascule.kernel.call import Principal, sender_name

# Stale entries that the order may have beside as many as there are live ones.
MAX_STALE = 64


class Conversation:
    """What a list shows of it: how many tickets are open, and how often each name is a side."""

    __slots__ = ("names", "newest", "open")

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.open = 0
        # Number of the newest ticket; 0 where there is none.
        self.newest = 0

    def count(self, ticket: Ticket, step: int) -> None:
        self.open += step * ticket.is_open
        for name in (sender_name(Principal(ticket.sender)), ticket.target):
            left = self.names.get(name, 0) + step
            if left:
                self.names[name] = left
            else:
                del self.names[name]


class ConversationIndex:
    """Kept by `changed`, which a table calls for every change, done and undone."""

    def __init__(self, rows: Mapping[str, Ticket]) -> None:
        self._rows = rows
        # Tickets of each, the oldest first.
        self.tickets: dict[str, dict[str, None]] = {}
        self._by_id: dict[str, Conversation] = {}
        # Numbers of newest tickets in order, some stale, and whose they are.
        self._order: list[int] = []
        self._ids: dict[int, str] = {}
        # Entries that lists have looked at: what the growth of a list is measured by.
        self.looked_at = 0

    # -- keeping it --

    def fill(self, loaded: Iterable[tuple[str, Ticket]]) -> None:
        for ticket_id, ticket in loaded:
            self.changed(ticket_id, None, ticket)

    def changed(self, ticket_id: str, old: Ticket | None, new: Ticket | None) -> None:
        ticket = new or old
        assert ticket is not None
        conversation_id = ticket.conversation_id
        if conversation_id is None:
            return
        found = self._by_id.get(conversation_id)
        if found is None:
            found = self._by_id[conversation_id] = Conversation()
            self.tickets[conversation_id] = {}
        if old is not None and new is not None and old.target == new.target:
            # Most changes: delivered, answered.
            found.open += new.is_open - old.is_open
            return
        if old is not None:
            found.count(old, -1)
        if new is not None:
            found.count(new, 1)
        if old is None and new is not None:
            self._add(ticket_id, new, conversation_id, found)
        elif new is None:
            self._remove(ticket_id, conversation_id, found)

    def _add(self, ticket_id: str, ticket: Ticket, conversation_id: str, found: Conversation) -> None:
        members = self.tickets[conversation_id]
        members[ticket_id] = None
        if ticket.number > found.newest:
            self._move(conversation_id, found, ticket.number)
        else:
            # Back, because its end was undone: to its old place.
            in_order = sorted(members, key=lambda each: self._rows[each].number)
            self.tickets[conversation_id] = dict.fromkeys(in_order)

    def _remove(self, ticket_id: str, conversation_id: str, found: Conversation) -> None:
        members = self.tickets[conversation_id]
        members.pop(ticket_id, None)
        self._move(conversation_id, found, self._rows[next(reversed(members))].number if members else 0)
        if not members:
            del self._by_id[conversation_id]
            del self.tickets[conversation_id]

    def _move(self, conversation_id: str, found: Conversation, newest: int) -> None:
        if newest == found.newest:
            return
        self._ids.pop(found.newest, None)
        found.newest = newest
        if not newest:
            return
        self._ids[newest] = conversation_id
        if not self._order or self._order[-1] < newest:
            self._order.append(newest)
        else:
            insort(self._order, newest)
        if len(self._order) > 2 * len(self._ids) + MAX_STALE:
            self._order = sorted(self._ids)

    # -- asking it --

    def get(self, conversation_id: str) -> Conversation | None:
        return self._by_id.get(conversation_id)

    def newest_first(self, before: int | None = None) -> Iterator[tuple[str, Conversation]]:
        """`before`: only those whose newest ticket has a smaller number."""
        order, last = self._order, None
        at = len(order) if before is None else bisect_left(order, before)
        while at:
            at -= 1
            self.looked_at += 1
            number = order[at]
            conversation_id = self._ids.get(number)
            if conversation_id is None or number == last:
                # Behind what this list returned: little is moved.
                del order[at]
                continue
            last = number
            yield conversation_id, self._by_id[conversation_id]
