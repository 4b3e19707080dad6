"""Is there one order of these calls that explains every answer?

`explain` is the search of Wing and Gong with Lowe's memory of where it has been: try whatever could have come first,
follow each choice, and never look twice at the same set of calls done with the same outcome. A call that was never
answered (`DOUBT`) may have happened or not. `Model` is what the broker promises about one inbox, as plain as it can be
said: one call at a time, no clock, no disk. A crash is a call too, so a restart has its place in the order.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

DOUBT: Any = object()


class Op(NamedTuple):
    call: tuple[Any, ...]
    # What was answered, or DOUBT.
    answer: Any
    began: float
    # Infinite when there was no answer.
    ended: float
    # Which life of the daemon the call was made to: the first is 0.
    life: int = 0


class Ticket(NamedTuple):
    ticket_id: str
    body: str
    expects: bool
    status: str = "pending"
    acked: bool = False
    leased: bool = False
    attempts: int = 0
    replies: tuple[str, ...] = ()
    # A withdrawal or reply that was on its way to the disk when the daemon died: takes passed the message over already.
    hidden: bool = False

    @property
    def waits(self) -> bool:
        return not self.acked and self.status == "pending"

    @property
    def settled(self) -> bool:
        return self.status in ("responded", "cancelled") or (self.status == "delivered" and not self.expects)


class Box(NamedTuple):
    """One inbox: its tickets in the order of sending."""

    life: int = 0
    tickets: tuple[Ticket, ...] = ()

    def find(self, ticket_id: str) -> Ticket | None:
        return next((each for each in self.tickets if each.ticket_id == ticket_id), None)

    def put(self, ticket: Ticket) -> "Box":
        changed = tuple(ticket if each.ticket_id == ticket.ticket_id else each for each in self.tickets)
        return self._replace(tickets=changed)


Outcome = tuple[Box, Any]


class Model:
    """Each method: the inbox before, the call; the inbox after, the answer."""

    def send(self, box: Box, ticket_id: str, body: str, expects: bool) -> Outcome:
        known = box.find(ticket_id)
        if known is not None:
            return box, "ok" if (known.body, known.expects) == (body, expects) else "conflict"
        return box._replace(tickets=(*box.tickets, Ticket(ticket_id, body, expects))), "ok"

    def take(self, box: Box, most: int) -> Outcome:
        free = [each for each in box.tickets if each.waits and not each.leased and not each.hidden][:most]
        for each in free:
            box = box.put(each._replace(leased=True, attempts=each.attempts + 1))
        return box, tuple((each.ticket_id, each.attempts + 1) for each in free)

    def ack(self, box: Box, *ticket_ids: str) -> Outcome:
        known = [each for each in map(box.find, ticket_ids) if each is not None]
        for each in known:
            status = "delivered" if each.status == "pending" else each.status
            box = box.put(each._replace(acked=True, leased=False, status=status))
        return box, tuple(each.ticket_id for each in known)

    def reply(self, box: Box, ticket_id: str, word: str) -> Outcome:
        ticket = box.find(ticket_id)
        if ticket is None:
            return box, "unknown"
        if ticket.status == "cancelled":
            return box, "conflict"
        if ticket.replies[-1:] == (word,):
            return box, "first" if len(ticket.replies) == 1 else "more"
        after = ticket._replace(acked=True, leased=False, status="responded", replies=(*ticket.replies, word))
        return box.put(after), "more" if ticket.replies else "first"

    def cancel(self, box: Box, ticket_id: str) -> Outcome:
        ticket = box.find(ticket_id)
        if ticket is None:
            return box, "unknown"
        if ticket.status != "cancelled" and ticket.settled:
            return box, "conflict"
        return box.put(ticket._replace(status="cancelled", leased=False)), "cancelled"

    def wait(self, box: Box, ticket_id: str) -> Outcome:
        ticket = box.find(ticket_id)
        if ticket is None:
            return box, "unknown"
        return box, (ticket.status, ticket.replies) if ticket.settled else None

    def show(self, box: Box, ticket_id: str) -> Outcome:
        ticket = box.find(ticket_id)
        return box, "unknown" if ticket is None else (ticket.status, ticket.acked, ticket.replies)

    def unread(self, box: Box) -> Outcome:
        return box, sum(each.waits for each in box.tickets)

    def crash(self, box: Box) -> Outcome:
        """Leases and attempts live in memory; everything that was answered stays."""
        kept = tuple(each._replace(leased=False, attempts=0, hidden=False) for each in box.tickets)
        return Box(box.life + 1, kept), None

    def outcomes(self, box: Box, op: Op) -> list[Box]:
        """Every way the inbox can be after this call, given what it was answered."""
        if op.life != box.life:
            return []
        after, answer = getattr(self, op.call[0])(box, *op.call[1:])
        if op.answer is not DOUBT:
            # Over HTTP a reply is answered 204, which does not say whether it was the first.
            same = answer == op.answer or (op.answer == "stored" and answer in ("first", "more"))
            return [after] if same else []
        if op.call[0] not in ("cancel", "reply", "ack") or after == box:
            return [after]
        passed_over = box
        for ticket in map(box.find, op.call[1:] if op.call[0] == "ack" else op.call[1:2]):
            passed_over = passed_over.put(ticket._replace(hidden=True)) if ticket is not None else passed_over
        return [after, passed_over]


def explain(history: Sequence[Op], model: Model) -> list[Op] | None:
    """The calls in an order that makes all answers right, or None when there is none."""
    ops = sorted(history, key=lambda op: op.began)
    needed = sum(1 << number for number, op in enumerate(ops) if op.answer is not DOUBT)
    been: set[tuple[int, Box]] = set()
    stack: list[tuple[int, Box, tuple[int, ...]]] = [(0, Box(), ())]
    while stack:
        done, box, path = stack.pop()
        if done & needed == needed:
            return [ops[number] for number in path]
        # Nothing that began after another call had ended can come before it.
        left = [number for number in range(len(ops)) if not done >> number & 1]
        latest = min(ops[number].ended for number in left if needed >> number & 1)
        for number in left:
            if ops[number].began > latest:
                break
            for after in model.outcomes(box, ops[number]):
                place = (done | 1 << number, after)
                if place not in been:
                    been.add(place)
                    stack.append((*place, (*path, number)))
    return None
