"""Which tickets a list is about, newest first, without a look at the others.

Tickets are numbered in the order of sending. A shelf holds the numbers of those that have something in common (sender,
addressee, group; all of them), one list per status. A ticket that changes is added where it belongs now. Where it was
it is taken out if it stands at an end, else left: the entry is stale, is dropped by the next list that meets it, and
counts against the space that stale entries may take. So a change costs an append per shelf, and a list costs what it
returns.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from bascule.broker.person import principal_of
from bascule.broker.protocol import TicketStatus
from bascule.broker.records import Ticket

_PLACES = {status: place for place, status in enumerate(TicketStatus)}
_EVERY_PLACE = range(len(_PLACES))
# Where a new ticket comes from; counted like a place, so that a new ticket and a changed one are one case.
_NOWHERE = len(_PLACES)
# Stale entries that a list may have beside as many as there are live ones.
MAX_STALE = 64
# Up to this length the oldest entry of a list is taken out at once: moving the rest costs less than a look at it later.
SHORT = 1_024


class Shelf:
    """The tickets with one value in one field, or all of them."""

    __slots__ = ("field", "live", "numbers", "value")

    def __init__(self, field: str | None = None, value: str = "") -> None:
        self.field = field
        self.value = value
        # By status: numbers in order, some stale or twice; and how many of them are neither.
        self.numbers: list[list[int]] = [[] for _ in _EVERY_PLACE]
        self.live = [0] * (_NOWHERE + 1)

    def holds(self, ticket: Ticket | None, place: int) -> bool:
        return (
            ticket is not None
            and _PLACES[ticket.status] == place
            and (self.field is None or getattr(ticket, self.field) == self.value)
        )


class TicketIndex:
    """Kept by `changed`, which a table calls for every change, done and undone."""

    def __init__(self, rows: dict[str, Ticket]) -> None:
        self._rows = rows
        self._ids: dict[int, str] = {}
        self._all = Shelf()
        self._from: dict[str, Shelf] = {}
        self._to: dict[str, Shelf] = {}
        self._group: dict[str, Shelf] = {}
        # Entries that lists have looked at: what the growth of a list is measured by.
        self.looked_at = 0

    # -- keeping it --

    def fill(self, loaded: Iterable[tuple[str, Ticket]]) -> None:
        """What `changed` would do for each of them, oldest first, in an index where nothing was before."""
        ids = self._ids
        for ticket_id, ticket in loaded:
            place, number = _PLACES[ticket.status], ticket.number
            ids[number] = ticket_id
            for shelf in self._shelves(ticket):
                shelf.live[place] += 1
                shelf.numbers[place].append(number)

    def changed(self, ticket_id: str, old: Ticket | None, new: Ticket | None) -> None:
        if old is not None and new is not None and old.target == new.target:
            if old.status is not new.status:
                self._put(new, _PLACES[old.status])
            return
        if old is not None:
            if new is None:
                self._ids.pop(old.number, None)
            self._remove(old)
        if new is not None:
            self._ids[new.number] = ticket_id
            self._put(new, _NOWHERE)

    def _put(self, ticket: Ticket, was: int) -> None:
        place, number = _PLACES[ticket.status], ticket.number
        for shelf in self._shelves(ticket):
            live = shelf.live
            live[was] -= 1
            if was != _NOWHERE:
                _leave(shelf.numbers[was], number)
            live[place] += 1
            numbers = shelf.numbers[place]
            if not numbers or numbers[-1] < number:
                numbers.append(number)
            else:
                insort(numbers, number)
            if len(numbers) > 2 * live[place] + MAX_STALE:
                shelf.numbers[place] = [
                    each for each in dict.fromkeys(numbers) if shelf.holds(self._ticket(each), place)
                ]

    def _remove(self, ticket: Ticket) -> None:
        place = _PLACES[ticket.status]
        for shelf in self._shelves(ticket):
            shelf.live[place] -= 1
            if shelf.field is not None and not any(shelf.live[:_NOWHERE]):
                del self._shelves_by(shelf.field)[shelf.value]

    def _shelves(self, ticket: Ticket) -> tuple[Shelf, ...]:
        sender = self._from.get(ticket.sender)
        if sender is None:
            sender = self._from[ticket.sender] = Shelf("sender", ticket.sender)
        target = self._to.get(ticket.target)
        if target is None:
            target = self._to[ticket.target] = Shelf("target", ticket.target)
        if ticket.group is None:
            return self._all, sender, target
        group = self._group.get(ticket.group)
        if group is None:
            group = self._group[ticket.group] = Shelf("group", ticket.group)
        return self._all, sender, target, group

    def _shelves_by(self, field: str) -> dict[str, Shelf]:
        return {"sender": self._from, "target": self._to, "group": self._group}[field]

    def _ticket(self, number: int) -> Ticket | None:
        return self._rows.get(self._ids.get(number, ""))

    # -- asking it --

    def find(
        self,
        *,
        status: TicketStatus | None,
        addressee: str | None,
        party: str | None,
        before: int | None = None,
        sender: str | None = None,
    ) -> Iterator[Ticket]:
        """Newest first. `addressee`: an agent or a group. `party`: an agent that is its sender or has it. `before`:
        only tickets with a smaller number. `sender`: a principal.

        Of two names those are looked at that fewer tickets have to do with.
        """
        places = _EVERY_PLACE if status is None else (_PLACES[status],)
        choices: list[list[Shelf]] = []
        if addressee is not None:
            choices.append(_known(self._to.get(addressee), self._group.get(addressee)))
        if party is not None:
            choices.append(_known(self._to.get(party), self._from.get(principal_of(party))))
        if sender is not None:
            choices.append(_known(self._from.get(sender)))
        shelves = min(choices, key=lambda each: _count(each, places)) if choices else [self._all]
        streams = [self._newest(shelf, place, before) for shelf in shelves for place in places if shelf.live[place]]
        last: Ticket | None = None
        for ticket in streams[0] if len(streams) == 1 else heapq.merge(*streams, key=_number, reverse=True):
            if ticket is last:
                continue
            last = ticket
            if addressee is not None and addressee not in (ticket.target, ticket.group):
                continue
            if party is not None and party != ticket.target and principal_of(party) != ticket.sender:
                continue
            if sender is not None and sender != ticket.sender:
                continue
            yield ticket

    def _newest(self, shelf: Shelf, place: int, before: int | None) -> Iterator[Ticket]:
        numbers, left = shelf.numbers[place], shelf.live[place]
        at, last = len(numbers), None
        if before is not None:
            # How many of them are live is not known: to the end of the list, which holds few that are not.
            at = bisect_left(numbers, before)
        while left and at:
            at -= 1
            self.looked_at += 1
            number = numbers[at]
            ticket = self._ticket(number)
            if number == last or ticket is None or not shelf.holds(ticket, place):
                # Near the end, behind what this list returned: little is moved.
                del numbers[at]
                continue
            last = number
            left -= 1
            yield ticket
        if not left:
            # All that is before the oldest live one is stale.
            del numbers[:at]


def _leave(numbers: list[int], number: int) -> None:
    """Most tickets change while they are the newest or the oldest in their list; others leave a stale entry."""
    if numbers:
        if numbers[-1] == number:
            del numbers[-1]
        elif numbers[0] == number and len(numbers) <= SHORT:
            del numbers[0]


def _known(*shelves: Shelf | None) -> list[Shelf]:
    return [shelf for shelf in shelves if shelf is not None]


def _count(shelves: list[Shelf], places: Iterable[int]) -> int:
    return sum(shelf.live[place] for shelf in shelves for place in places)


def _number(ticket: Ticket) -> int:
    return ticket.number
