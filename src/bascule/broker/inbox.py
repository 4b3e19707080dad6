"""One agent's inbox: what waits, what is out under a lease, who is waiting for it.

Hand-over is a lease, never a removal: a receiver that dies between fetch and acknowledgement gets the
message offered again, and a poller that went away has left no waiter behind that could eat one.
Leases and attempts live in memory only; after a restart everything unacknowledged is offered again.
"""

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

import msgspec

from bascule.kernel.call import Principal, node_of

# Payloads handed over at once: with metadata around them they stay below the 8 MiB of a link frame.
MAX_HANDOVER_BYTES = 4 * 1024 * 1024
# With up to this many senders, the first message of each is looked up. With more, this many of the oldest messages are
# searched first: a caller wants a few names, and with many senders those are among the oldest messages.
LOOKED_THROUGH = 32
# Stale entries that the line of a sender may have beside twice as many as there are messages of it.
MAX_STALE = 64


class Receiver(Protocol):
    """Somebody who takes messages: a long poll (room for its `max`, once) or a stream (room for its credit)."""

    @property
    def room(self) -> int:
        """How many more it can take; 0 once nobody is behind it."""

    def give_credit(self) -> None:
        """One of its messages is off its hands."""

    def hand_over(self, ticket_ids: list[str]) -> None: ...


class Lease(msgspec.Struct, eq=False):
    expires: float
    receiver: Receiver | None


class Inbox:
    __slots__ = (
        *("_numbers", "_of_sender", "_returned", "_senders", "_sizes", "agent_id", "attempts", "by_machine"),
        *("by_sender", "bytes", "leases", "ready", "receivers", "rung", "rung_to", "sealed", "watched"),
    )

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        # Never handed over, oldest first; O(1) to drop from the middle.
        self.ready: OrderedDict[str, None] = OrderedDict()
        # Back after a lease or an undone change: a heap by order of sending, older than all of `ready`.
        self._returned: list[tuple[int, str]] = []
        self._numbers: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._senders: dict[str, str] = {}
        # Those of each sender that wait, as a heap by order of sending; some entries are stale: gone, or under a lease.
        self._of_sender: dict[str, list[tuple[int, str]]] = {}
        # How many messages of each sender are here, and their bytes.
        self.by_sender: dict[str, tuple[int, int]] = {}
        # The same of all senders of another machine together.
        self.by_machine: dict[str, tuple[int, int]] = {}
        # In the order they were given, which is the order they end in.
        self.leases: dict[str, Lease] = {}
        # A deadline looks after the first lease.
        self.watched = False
        self.attempts: dict[str, int] = {}
        self.receivers: OrderedDict[Receiver, None] = OrderedDict()
        # Bells rung for what waits, and when (wall time): the agent knows that it is there, not its content.
        self.rung: dict[str, dict[str, int]] = {}
        # By bell, "" for any of them: what is ready and was sent up to this number has been rung for. A note, so that
        # the next look need not go through all of it; dropped when it may no longer be true.
        self.rung_to: dict[str, int] = {}
        self.bytes = 0
        # Added but not durable yet: not to be handed over.
        self.sealed: set[str] = set()

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def idle(self) -> bool:
        return not self._numbers and not self.receivers and not self.sealed

    @property
    def ids(self) -> Collection[str]:
        """Everything that is not acknowledged."""
        return self._numbers.keys()

    @property
    def waiting(self) -> int:
        """How many are here and not out under a lease."""
        return len(self._numbers) - len(self.leases)

    def add(self, ticket_id: str, number: int, size: int, sender: str) -> None:
        self._numbers[ticket_id] = number
        self._sizes[ticket_id] = size
        self.bytes += size
        self._senders[ticket_id] = sender
        self._count(sender, 1, size)
        if self.rung_to and number <= max(self.rung_to.values()):
            # It was here before, or in another inbox.
            self.rung_to.clear()
        self._line_up(sender, number, ticket_id)
        newest = next(reversed(self.ready), None)
        if newest is None or self._numbers[newest] < number:
            self.ready[ticket_id] = None
        else:
            heapq.heappush(self._returned, (number, ticket_id))

    def discard(self, ticket_id: str, size: int) -> None:
        self._numbers.pop(ticket_id, None)
        self._sizes.pop(ticket_id, None)
        if not self._end_lease(ticket_id):
            self.ready.pop(ticket_id, None)
        self.attempts.pop(ticket_id, None)
        if self.rung:
            self.rung.pop(ticket_id, None)
        self.sealed.discard(ticket_id)
        self.bytes -= size
        sender = self._senders.pop(ticket_id, None)
        if sender is not None:
            self._count(sender, -1, -size)

    def _count(self, sender: str, messages: int, size: int) -> None:
        if not _add_to(self.by_sender, sender, messages, size):
            del self._of_sender[sender]
        machine = node_of(Principal(sender))
        if machine is not None:
            _add_to(self.by_machine, machine, messages, size)

    def put_back(self, ticket_id: str) -> bool:
        """End a lease without acknowledgement: the message takes its old place in the order."""
        if not self._end_lease(ticket_id):
            return False
        # Its receiver lost it: it may be rung for anew.
        self.rung.pop(ticket_id, None)
        number = self._numbers[ticket_id]
        heapq.heappush(self._returned, (number, ticket_id))
        self._line_up(self._senders[ticket_id], number, ticket_id)
        return True

    @property
    def unread(self) -> int:
        """How many wait and are durable."""
        return len(self._numbers) - len(self.leases) - len(self.sealed)

    def unleased(self) -> Iterator[str]:
        """What waits and is durable, in the order of sending; not to be changed meanwhile."""
        back = self._returned.copy()
        last = 0
        for number, ticket_id in heapq.merge(_in_order(back), ((self._numbers[each], each) for each in self.ready)):
            # Entries of messages that are gone or out again are left in the heap until they come up.
            if number != last and self._numbers.get(ticket_id) == number and self._waits(ticket_id):
                last = number
                yield ticket_id

    def sent_after(self, number: int) -> Iterator[str]:
        """What waits, is durable and was sent after this, and all that came back; in no order."""
        for ticket_id in reversed(self.ready):
            if self._numbers[ticket_id] <= number:
                break
            if self._waits(ticket_id):
                yield ticket_id
        for sent, ticket_id in self._returned:
            if self._numbers.get(ticket_id) == sent and self._waits(ticket_id):
                yield ticket_id

    def all_are_rung(self, bell: str) -> None:
        """Everything that waits has been rung for, by this bell."""
        if self.ready and not self.sealed:
            self.rung_to[bell] = self._numbers[next(reversed(self.ready))]

    def senders(self) -> Iterator[str]:
        """Each once, in the order of the oldest message of it that waits."""
        seen: set[str] = set()
        if len(self._of_sender) > LOOKED_THROUGH:
            for ticket_id in itertools.islice(self.unleased(), LOOKED_THROUGH):
                sender = self._senders[ticket_id]
                if sender not in seen:
                    seen.add(sender)
                    yield sender
        rest = self._of_sender.keys() - seen
        firsts = [(first, sender) for sender in rest if (first := self._oldest_of(sender)) is not None]
        yield from (sender for _, sender in sorted(firsts))

    def _line_up(self, sender: str, number: int, ticket_id: str) -> None:
        line = self._of_sender.get(sender)
        if line is None:
            self._of_sender[sender] = [(number, ticket_id)]
            return
        heapq.heappush(line, (number, ticket_id))
        if len(line) > 2 * self.by_sender[sender][0] + MAX_STALE:
            # A sorted list is a heap.
            self._of_sender[sender] = sorted({each for each in line if self._is_current(each)})

    def _oldest_of(self, sender: str) -> int | None:
        """The number of its first message that waits. Stale entries before it go; `put_back` adds them again."""
        line = self._of_sender[sender]
        sealed: list[tuple[int, str]] = []
        while line and not (self._is_current(line[0]) and line[0][1] not in self.sealed):
            entry = heapq.heappop(line)
            if self._is_current(entry):
                sealed.append(entry)
        found = line[0][0] if line else None
        for each in sealed:
            heapq.heappush(line, each)
        return found

    def _is_current(self, entry: tuple[int, str]) -> bool:
        number, ticket_id = entry
        return self._numbers.get(ticket_id) == number and ticket_id not in self.leases

    def _waits(self, ticket_id: str) -> bool:
        return ticket_id not in self.leases and ticket_id not in self.sealed

    def take(self, room: int, expires: float, receiver: Receiver | None) -> list[str]:
        """Lease up to `room` messages that are durable, in the order of sending."""
        taken: list[str] = []
        size = 0
        for ticket_id in self._next(room):
            size += self._sizes[ticket_id]
            if taken and size > MAX_HANDOVER_BYTES:
                break
            self.ready.pop(ticket_id, None)
            self.leases[ticket_id] = Lease(expires, receiver)
            self.attempts[ticket_id] = self.attempts.get(ticket_id, 0) + 1
            taken.append(ticket_id)
        return taken

    def _next(self, room: int) -> list[str]:
        """What would be handed over next, at most `room`."""
        fresh: list[str] = []
        for ticket_id in self.ready:
            if len(fresh) >= room:
                break
            if ticket_id not in self.sealed:
                fresh.append(ticket_id)
        if not self._returned:
            return fresh
        # One that came back twice may be among both.
        return sorted({*self._first_returned(room), *fresh}, key=self._numbers.__getitem__)[:room]

    def pump(self, expires: Callable[[], float], leased: Callable[[], None]) -> None:
        """Give what is ready to the waiters, longest waiting first."""
        while len(self._numbers) > len(self.leases):
            for receiver in self.receivers:
                room = receiver.room
                if room > 0:
                    break
            else:
                return
            taken = self.take(room, expires(), receiver)
            if not taken:
                return
            leased()
            receiver.hand_over(taken)

    def size_of(self, ticket_id: str) -> int:
        return self._sizes.get(ticket_id, 0)

    def someone_waits(self) -> bool:
        return bool(self.receivers) and any(each.room > 0 for each in self.receivers)

    def _first_returned(self, limit: int) -> list[str]:
        """The oldest that came back. Entries of messages acknowledged meanwhile, or out again, are dropped.

        They stay in the heap, where their lease makes them such entries; each once, however often it came back.
        """
        found: dict[str, int] = {}
        while self._returned:
            number, ticket_id = self._returned[0]
            if ticket_id not in found and self._numbers.get(ticket_id) == number and ticket_id not in self.leases:
                if len(found) == limit:
                    break
                found[ticket_id] = number
            heapq.heappop(self._returned)
        for ticket_id, number in found.items():
            heapq.heappush(self._returned, (number, ticket_id))
        return list(found)

    def _end_lease(self, ticket_id: str) -> bool:
        lease = self.leases.pop(ticket_id, None)
        if lease is None:
            return False
        if lease.receiver is not None:
            lease.receiver.give_credit()
        return True


def _in_order(heap: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """As far as it is looked at: a heap is not sorted."""
    while heap:
        yield heapq.heappop(heap)


def _add_to(counts: dict[str, tuple[int, int]], who: str, messages: int, size: int) -> bool:
    """Whether any are left of `who`."""
    count, total = counts.get(who, (0, 0))
    if count + messages:
        counts[who] = (count + messages, total + size)
        return True
    del counts[who]
    return False
