"""One agent's inbox: what waits, what is out under a lease, who is waiting for it.

Hand-over is a lease, never a removal: a receiver that dies between fetch and acknowledgement gets the
message offered again, and a poller that went away has left no waiter behind that could eat one.
Leases and attempts live in memory only; after a restart everything unacknowledged is offered again.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol


class Receiver(Protocol):
    """Somebody who takes messages: a long poll (room for its `max`, once) or a stream (room for its credit)."""

    room: int

    def hand_over(self, ticket_ids: list[str]) -> None: ...


class Lease:
    __slots__ = ("expires", "receiver")

    def __init__(self, expires: float, receiver: Receiver | None) -> None:
        self.expires = expires
        self.receiver = receiver


class Inbox:
    __slots__ = ("agent_id", "attempts", "bytes", "leases", "ready", "receivers", "sealed")

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        # Ordered sets by ticket id: oldest first, O(1) to drop from the middle.
        self.ready: OrderedDict[str, None] = OrderedDict()
        self.leases: dict[str, Lease] = {}
        self.attempts: dict[str, int] = {}
        self.receivers: OrderedDict[Receiver, None] = OrderedDict()
        self.bytes = 0
        # Added but not durable yet: not to be handed over.
        self.sealed: set[str] = set()

    def __len__(self) -> int:
        return len(self.ready) + len(self.leases)

    def add(self, ticket_id: str, size: int) -> None:
        self.ready[ticket_id] = None
        self.bytes += size

    def discard(self, ticket_id: str, size: int) -> None:
        lease = self.leases.pop(ticket_id, None)
        if lease is not None:
            if lease.receiver is not None:
                lease.receiver.room += 1
        else:
            self.ready.pop(ticket_id, None)
        self.attempts.pop(ticket_id, None)
        self.sealed.discard(ticket_id)
        self.bytes -= size

    def put_back(self, ticket_id: str) -> bool:
        """End a lease without acknowledgement: the message goes to the front again."""
        lease = self.leases.pop(ticket_id, None)
        if lease is None:
            return False
        if lease.receiver is not None:
            lease.receiver.room += 1
        self.ready[ticket_id] = None
        self.ready.move_to_end(ticket_id, last=False)
        return True

    def take(self, room: int, expires: float, receiver: Receiver | None) -> list[str]:
        """Lease up to `room` messages that are durable."""
        taken: list[str] = []
        if not self.ready or room <= 0:
            return taken
        sealed = self.sealed
        if not sealed:
            while self.ready and len(taken) < room:
                taken.append(self.ready.popitem(last=False)[0])
        else:
            for ticket_id in self.ready:
                if ticket_id not in sealed:
                    taken.append(ticket_id)
                    if len(taken) == room:
                        break
            for ticket_id in taken:
                del self.ready[ticket_id]
        for ticket_id in taken:
            self.leases[ticket_id] = Lease(expires, receiver)
            self.attempts[ticket_id] = self.attempts.get(ticket_id, 0) + 1
        return taken

    def pump(self, expires: Callable[[], float], leased: Callable[[list[str]], None]) -> None:
        """Give what is ready to whoever waits, longest waiting first."""
        while self.ready and self.receivers:
            receiver = next((each for each in self.receivers if each.room > 0), None)
            if receiver is None:
                return
            taken = self.take(receiver.room, expires(), receiver)
            if not taken:
                return
            receiver.room -= len(taken)
            leased(taken)
            receiver.hand_over(taken)
