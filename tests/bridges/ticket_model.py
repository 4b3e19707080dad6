"""The life of tickets as the documents tell it, in plain Python and whole milliseconds: an oracle for the broker.

Every limit and deadline leaves its own remainder when divided by 250 ms, and acts happen on whole quarters of a second,
so no two different things are ever due at the same moment.
"""

import itertools
from dataclasses import dataclass, field
from typing import Any

LEASE, TIMEOUT, TTL, REMEMBER, RETENTION, WAIT = 2_003, 5_017, 20_029, 40_053, 300_071, 3_011
SWEEP = 60_000
MAX_INBOX, MAX_OPEN, MAX_KEPT, MAX_REPLIES, MAX_BYTES = 4, 5, 14, 3, 8
TARGETS = ("Jerry", "Spock")


class Refused(Exception):
    """The code of the error."""


@dataclass
class T:
    ticket_id: str
    number: int
    sender: str
    target: str
    body: str
    expects: bool
    conversation: str
    sent: int
    due: int | None
    status: str = "pending"
    acked: bool = False
    late: bool = False
    # Who, what, and whether the sender had stopped waiting.
    replies: list[tuple[str, str, bool]] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        return self.status in ("responded", "timeout", "cancelled") or (self.status == "delivered" and not self.expects)

    @property
    def undelivered(self) -> bool:
        return not self.acked and self.status in ("pending", "timeout")

    @property
    def open(self) -> bool:
        return self.status == "pending" or (self.status == "delivered" and self.expects)

    def view(self) -> dict[str, Any]:
        """What a wait for its end is told."""
        view: dict[str, Any] = {"status": self.status}
        if self.status == "responded":
            view |= {"payload": self.replies[0][1], "late": self.late}
            view["replies"] = [word for _, word, _ in self.replies] if len(self.replies) > 1 else []
        return view


@dataclass
class Held:
    """A call that waits: a poll on an inbox, a wait or a stream on a ticket."""

    subject: str
    until: int | None
    most: int = 0
    done: bool = False
    result: Any = None


class Broker:
    def __init__(self) -> None:
        self.now = 0
        self.sweep_at = SWEEP
        self.tickets: dict[str, T] = {}
        self.remembered: dict[str, int] = {}
        self.leases: dict[str, int] = {}
        self.attempts: dict[str, int] = {}
        self.hand_overs: list[tuple[int, int, str, list[str]]] = []
        self.polls: list[Held] = []
        self.waits: list[Held] = []
        self.streams: list[Held] = []
        self._numbers = itertools.count(1)
        self._order = itertools.count()

    # -- what is so --

    def inbox(self, agent: str) -> list[str]:
        return [each.ticket_id for each in self.tickets.values() if each.undelivered and each.target == agent]

    def kept(self, principal: str) -> list[str]:
        """Every word of theirs that is still here."""
        words = [each.body for each in self.tickets.values() if each.sender == principal]
        return words + [w for each in self.tickets.values() for by, w, _ in each.replies if by == principal]

    def opened(self, principal: str) -> int:
        return sum(each.open for each in self.tickets.values() if each.sender == principal)

    def delivery(self, ticket: T) -> str | None:
        if ticket.acked:
            return "acknowledged"
        if not ticket.undelivered:
            return None
        return "fetched" if ticket.ticket_id in self.leases else "queued"

    # -- what callers do --

    def send(self, by: str, to: str, ticket_id: str, body: str, *, expects: bool, talk: str) -> str:
        if to not in TARGETS:
            raise Refused("not_found")
        if len(body) + 2 > MAX_BYTES:
            raise Refused("too_large")
        known = self.tickets.get(ticket_id)
        if known is not None:
            sent = (known.sender, known.target, known.body, known.expects, known.conversation)
            if sent != (by, to, body, expects, talk):
                raise Refused("conflict")
            return ticket_id
        if ticket_id in self.remembered:
            raise Refused("conflict")
        if len(self.kept(by)) >= MAX_KEPT or self.opened(by) >= MAX_OPEN or len(self.inbox(to)) >= MAX_INBOX:
            raise Refused("overloaded")
        due = self.now + TIMEOUT
        self.tickets[ticket_id] = T(ticket_id, next(self._numbers), by, to, body, expects, talk, self.now, due)
        self.pump(to)
        return ticket_id

    def broadcast(self, by: str, name: str, body: str, talk: str) -> list[tuple[str, str]]:
        """Each target, and how it went."""
        outcomes = []
        for to in TARGETS:
            try:
                self.send(by, to, f"{name}.{to}", body, expects=True, talk=talk)
                outcomes.append((to, "sent"))
            except Refused as refused:
                outcomes.append((to, str(refused)))
        return sorted(outcomes)

    def take(self, agent: str, most: int) -> dict[str, Any] | None:
        free = [each for each in self.inbox(agent) if each not in self.leases][:most]
        if not free:
            return None
        for each in free:
            self.leases[each] = self.now + LEASE
            self.attempts[each] = self.attempts.get(each, 0) + 1
        self.hand_overs.append((self.now + LEASE, next(self._order), agent, free))
        items = [(each, self.attempts[each], self.tickets[each].status == "timeout") for each in free]
        inbox = self.inbox(agent)
        return {"items": items, "remaining": len(inbox) - sum(each in self.leases for each in inbox)}

    def pump(self, agent: str) -> None:
        for poll in [each for each in self.polls if each.subject == agent]:
            taken = self.take(agent, poll.most)
            if taken is None:
                return
            self.end(self.polls, poll, taken)

    def ack(self, agent: str, ticket_ids: list[str]) -> tuple[list[str], list[str]]:
        known = [each for each in ticket_ids if each in self.tickets and self.tickets[each].target == agent]
        for each in known:
            ticket = self.tickets[each]
            if not ticket.acked:
                ticket.acked = True
                self.leave(each)
                if ticket.status == "pending":
                    ticket.status = "delivered"
                if ticket.settled:
                    self.settle(ticket)
        return known, [each for each in ticket_ids if each not in known]

    def party(self, by: str, ticket_id: str) -> T:
        if ticket_id not in self.tickets:
            raise Refused("expired" if ticket_id in self.remembered else "unknown")
        ticket = self.tickets[ticket_id]
        if by not in ("person", ticket.sender, f"agent:{ticket.target}"):
            raise Refused("forbidden")
        return ticket

    def reply(self, by: str, ticket_id: str, word: str) -> tuple[str, bool, bool]:
        ticket = self.party(by, ticket_id)
        if by != f"agent:{ticket.target}":
            raise Refused("forbidden")
        if ticket.status == "cancelled":
            raise Refused("conflict")
        if len(word) + 2 > MAX_BYTES:
            raise Refused("too_large")
        if ticket.replies and ticket.replies[-1][1] == word:
            return ticket.status, len(ticket.replies) == 1, ticket.late
        if len(ticket.replies) >= MAX_REPLIES:
            raise Refused("conflict")
        if len(self.kept(by)) >= MAX_KEPT:
            raise Refused("overloaded")
        first = not ticket.replies
        late = ticket.status == "timeout" or ticket.late
        ticket.replies.append((by, word, late))
        ticket.acked = True
        self.leave(ticket_id)
        if first:
            ticket.late = late
            ticket.status = "responded"
            self.settle(ticket)
        return ticket.status, first, ticket.late

    def cancel(self, by: str, ticket_id: str) -> str:
        ticket = self.party(by, ticket_id)
        if by not in ("person", ticket.sender):
            raise Refused("forbidden")
        if ticket.status != "cancelled":
            if ticket.settled:
                raise Refused("conflict")
            ticket.status = "cancelled"
            self.leave(ticket_id)
            self.settle(ticket)
        return "cancelled"

    def conversation(self, by: str, name: str) -> list[str]:
        members = [each for each in self.tickets.values() if each.conversation == name]
        mine = [each.ticket_id for each in members if by in ("person", each.sender, f"agent:{each.target}")]
        if not mine:
            raise Refused("not_found")
        return mine

    # -- what follows --

    def leave(self, ticket_id: str) -> None:
        self.leases.pop(ticket_id, None)
        self.attempts.pop(ticket_id, None)

    def settle(self, ticket: T) -> None:
        ticket.due = self.now + TTL
        for held in [each for each in self.waits if each.subject == ticket.ticket_id]:
            self.end(self.waits, held, ticket.view())
        for held in [each for each in self.streams if each.subject == ticket.ticket_id]:
            name = {"responded": "reply"}.get(ticket.status, ticket.status)
            self.end(self.streams, held, [name, ticket.view()])

    @staticmethod
    def end(among: list[Held], held: Held, result: Any) -> None:
        held.done, held.result = True, result
        among.remove(held)

    def drop(self, ticket: T) -> None:
        del self.tickets[ticket.ticket_id]
        self.leave(ticket.ticket_id)
        self.remembered[ticket.ticket_id] = self.now + REMEMBER
        for among in (self.waits, self.streams):
            for held in [each for each in among if each.subject == ticket.ticket_id]:
                self.end(among, held, None)

    # -- time --

    def advance(self, ms: int) -> None:
        until = self.now + ms
        while (moment := self.next_moment()) <= until:
            self.now = max(self.now, moment)
            self.happen()
        self.now = until

    def next_moment(self) -> int:
        times = [each.due for each in self.tickets.values() if each.due is not None]
        times += [each[0] for each in self.hand_overs]
        times += [each.until for each in (*self.polls, *self.waits) if each.until is not None]
        return min([*times, self.sweep_at])

    def happen(self) -> None:
        now = self.now
        for ticket in [each for each in self.tickets.values() if each.due is not None and each.due <= now]:
            if not ticket.settled:
                ticket.status = "timeout"
                self.settle(ticket)
            elif ticket.undelivered:
                ticket.due = None
            else:
                self.drop(ticket)
        # What was handed over at one moment, in several answers, is free again at one moment: whoever gets the first of
        # it hears how much else there is.
        over = sorted(each for each in self.hand_overs if each[0] <= now)
        for agent in dict.fromkeys(each[2] for each in over):
            ended = [ticket for each in over if each[2] == agent for ticket in each[3]]
            self.end_leases(agent, [each for each in ended if self.leases.get(each, now + 1) <= now])
        self.hand_overs = [each for each in self.hand_overs if each not in over]
        for among in (self.polls, self.waits):
            for held in [each for each in among if each.until is not None and each.until <= now]:
                self.end(among, held, None)
        if self.sweep_at <= now:
            self.sweep()

    def end_leases(self, agent: str, ticket_ids: list[str]) -> None:
        for each in ticket_ids:
            del self.leases[each]
        if ticket_ids:
            self.pump(agent)

    def sweep(self) -> None:
        self.sweep_at += SWEEP
        for ticket_id in [each for each, until in self.remembered.items() if until <= self.now]:
            del self.remembered[ticket_id]
        for ticket in [each for each in self.tickets.values() if each.undelivered]:
            if ticket.sent <= self.now - RETENTION:
                self.drop(ticket)

    def restart(self, down: int) -> None:
        """What was held is lost with the process, leases too; deadlines go on with what is left of them."""
        self.now += down
        self.sweep_at = self.now + SWEEP
        for each in (self.leases, self.attempts, self.hand_overs, self.polls, self.waits, self.streams):
            each.clear()
        for ticket in self.tickets.values():
            if ticket.settled and ticket.undelivered:
                ticket.due = None
