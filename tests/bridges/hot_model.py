"""Send, take, ack, reply, wait, heartbeat, cancel and revoke as the documents describe them, in plain Python.

An oracle for the calls that agents make most. It decides each call in the order that is security: quota, owner, policy,
limits, work; and it knows what is left when a commit fails.
"""

import copy
from collections import Counter
from dataclasses import dataclass, field

AGENTS = ("Ann", "Bob", "Mute")
DENIED = ("messages.send", "replies.post", "inbox.ack")
BURST, PER_SECOND = 12, 2
MAX_BYTES, MAX_OPEN, MAX_REPLIES, MAX_KEPT, MAX_PER_SENDER = 8, 4, 2, 8, 2
RECORDED_ONE_BY_ONE = 20
CHANGES = ("messages.send", "replies.post", "inbox.ack", "tickets.cancel")


class Refused(Exception):
    """`code`; `at_once` when it rests on nothing that could be undone."""

    def __init__(self, code, *, at_once=False):
        super().__init__(code)
        self.code = code
        self.at_once = at_once


@dataclass
class Ticket:
    ticket_id: str
    sender: str
    target: str
    word: str
    expects: bool
    status: str = "pending"
    acked: bool = False
    replies: list = field(default_factory=list)
    # What those who waited were answered: how it ended the first time.
    end: dict | None = None

    @property
    def settled(self):
        return self.status in ("responded", "cancelled") or (self.status == "delivered" and not self.expects)

    @property
    def open(self):
        return self.status == "pending" or (self.status == "delivered" and self.expects)

    @property
    def undelivered(self):
        return not self.acked and self.status == "pending"


class Model:
    def __init__(self):
        # In the order of sending.
        self.tickets = {}
        self.leased = set()
        self.ledger = []
        self.now = 0
        # Who waits: (request, until, principal, ticket, is it an ask), and (request, until, principal, agent, most).
        self.waits = []
        self.polls = []
        self.answers = {}
        self.quota = dict.fromkeys((f"agent:{each}" for each in AGENTS), BURST)
        self.refused = Counter()

    # -- one call --

    def call(self, request, agent, method, params):
        """The answer, or None while there is none; or `Refused`."""
        principal = f"agent:{agent}"
        if self.quota[principal] < 1:
            raise Refused("overloaded", at_once=True)
        self.quota[principal] -= 1
        self._check_owner(principal, method, params)
        if agent == "Mute" and method in DENIED:
            self._refuse(principal, method, "policy_denied", params)
        return getattr(self, method.replace(".", "_"))(request, principal, params)

    def _check_owner(self, principal, method, params):
        if method in ("inbox.take", "inbox.ack", "agents.heartbeat"):
            mine = f"agent:{params['agentId']}" == principal
        elif method in ("replies.post", "replies.wait", "tickets.cancel"):
            ticket = self.tickets.get(params["ticketId"])
            if ticket is None:
                raise Refused("not_found", at_once=True)
            mine = principal in (ticket.sender, f"agent:{ticket.target}")
        else:
            mine = True
        if not mine:
            self._refuse(principal, method, "forbidden", params)

    def _refuse(self, principal, method, code, params, *, at_once=True):
        kind = (principal, method, code)
        self.refused[kind] += 1
        if method in CHANGES and self.refused[kind] <= RECORDED_ONE_BY_ONE:
            self.ledger.append((*kind, params.get("ticketId") or params.get("agentId")))
        raise Refused(code, at_once=at_once)

    def _record(self, principal, method, subject):
        self.ledger.append((principal, method, "ok", subject))

    # -- the methods --

    def messages_send(self, request, principal, params):
        target, word, ticket_id = params["agentId"], params["payload"], params["ticketId"]
        if target not in AGENTS:
            raise Refused("not_found")
        size = len(word) + 2
        if size > MAX_BYTES:
            raise Refused("too_large")
        known = self.tickets.get(ticket_id)
        content = (principal, target, word, params["expectReply"])
        if known is not None:
            if (known.sender, known.target, known.word, known.expects) != content:
                raise Refused("conflict")
        else:
            self._check_room(principal, target)
            known = self.tickets[ticket_id] = Ticket(ticket_id, *content)
            self._record(principal, "messages.send", ticket_id)
        if not params.get("waitMs"):
            return {"ticketId": ticket_id, "status": "pending"}
        if known.settled:
            return {"ticketId": ticket_id, "reply": self._end_of(known)}
        self.waits.append((request, self._until(params), principal, ticket_id, True))
        return None

    def _check_room(self, principal, target):
        kept = sum(each.sender == principal for each in self.tickets.values())
        kept += sum(by == principal for each in self.tickets.values() for by, _ in each.replies)
        mine = [each for each in self.tickets.values() if each.sender == principal]
        there = sum(each.undelivered and each.target == target for each in mine)
        if kept >= MAX_KEPT or sum(each.open for each in mine) >= MAX_OPEN or there >= MAX_PER_SENDER:
            raise Refused("overloaded")

    def replies_post(self, _request, principal, params):
        ticket, word = self.tickets[params["ticketId"]], params["payload"]
        if principal != f"agent:{ticket.target}":
            self._refuse(principal, "replies.post", "forbidden", params, at_once=False)
        if ticket.status == "cancelled":
            raise Refused("conflict")
        if len(word) + 2 > MAX_BYTES:
            raise Refused("too_large")
        if ticket.replies and ticket.replies[-1][1] == word:
            return {"status": ticket.status, "first": len(ticket.replies) == 1}
        if len(ticket.replies) >= MAX_REPLIES:
            raise Refused("conflict")
        kept = sum(each.sender == principal for each in self.tickets.values())
        if kept + sum(by == principal for each in self.tickets.values() for by, _ in each.replies) >= MAX_KEPT:
            raise Refused("overloaded")
        first = not ticket.replies
        if ticket.status in ("pending", "delivered"):
            ticket.status = "responded"
        ticket.acked = True
        ticket.replies.append((principal, word))
        self._ended(ticket)
        self.leased.discard(ticket.ticket_id)
        self._record(principal, "replies.post", ticket.ticket_id)
        return {"status": ticket.status, "first": first}

    def inbox_ack(self, _request, principal, params):
        agent = params["agentId"]
        mine = [each for each in params["ticketIds"] if (t := self.tickets.get(each)) and t.target == agent]
        changed = [self.tickets[each] for each in mine if not self.tickets[each].acked]
        for ticket in changed:
            ticket.acked = True
            self.leased.discard(ticket.ticket_id)
            if ticket.status == "pending":
                ticket.status = "delivered"
                self._ended(ticket)
        if changed:
            self._record(principal, "inbox.ack", changed[0].ticket_id if len(changed) == 1 else agent)
        return {"acked": mine, "unknown": [each for each in params["ticketIds"] if each not in mine]}

    def tickets_cancel(self, _request, principal, params):
        ticket = self.tickets[params["ticketId"]]
        if principal != ticket.sender:
            self._refuse(principal, "tickets.cancel", "forbidden", params, at_once=False)
        if ticket.status != "cancelled":
            if ticket.settled:
                raise Refused("conflict")
            ticket.status = "cancelled"
            self._ended(ticket)
            self.leased.discard(ticket.ticket_id)
            self._record(principal, "tickets.cancel", ticket.ticket_id)
        return {"status": "cancelled"}

    def inbox_take(self, request, principal, params):
        agent, most = params["agentId"], params["max"]
        if not any(each[3] == agent for each in self.polls) and (taken := self._take(agent, most)):
            return taken
        if params.get("waitMs"):
            self.polls.append((request, self._until(params), principal, agent, most))
            return None
        return {"nothing": True}

    def replies_wait(self, request, principal, params):
        ticket = self.tickets[params["ticketId"]]
        if ticket.settled:
            return self._end_of(ticket)
        if params.get("waitMs"):
            self.waits.append((request, self._until(params), principal, ticket.ticket_id, False))
            return None
        return {"nothing": True}

    def agents_heartbeat(self, _request, _principal, params):
        return {"status": "online", "unread": len(self.inbox(params["agentId"]))}

    # -- what follows --

    def inbox(self, agent):
        return [each.ticket_id for each in self.tickets.values() if each.undelivered and each.target == agent]

    def _take(self, agent, most):
        ready = [each for each in self.inbox(agent) if each not in self.leased]
        self.leased.update(ready[:most])
        if not ready:
            return None
        return {"messages": [(each, self.tickets[each].word) for each in ready[:most]]}

    def _ended(self, ticket):
        if ticket.settled and ticket.end is None:
            ticket.end = self._end_of(ticket)

    def _end_of(self, ticket):
        answer = {"status": ticket.status}
        if ticket.status == "responded":
            answer["payload"] = ticket.replies[0][1]
        return answer

    def wake(self):
        """Everything is durable: who waits for it is answered."""
        for wait in list(self.waits):
            request, _, _, ticket_id, asked = wait
            end = self.tickets[ticket_id].end
            if end is not None:
                self.waits.remove(wait)
                self.answers[request] = {"ticketId": ticket_id, "reply": end} if asked else end
        for poll in list(self.polls):
            request, _, _, agent, most = poll
            # What lands is handed over one by one, so that a poll that waited gets the first.
            taken = self._take(agent, min(most, 1))
            if taken is not None:
                self.polls.remove(poll)
                self.answers[request] = taken

    def _until(self, params):
        return self.now + params["waitMs"] / 1000

    def pass_time(self, seconds):
        self.now += seconds
        for principal, left in self.quota.items():
            self.quota[principal] = min(BURST, left + seconds * PER_SECOND)
        for request, until, _, ticket_id, asked in self.waits:
            if until <= self.now:
                self.answers[request] = {"ticketId": ticket_id, "status": "pending"} if asked else {"nothing": True}
        for request, until, *_ in self.polls:
            if until <= self.now:
                self.answers[request] = {"nothing": True}
        self.waits = [each for each in self.waits if each[1] > self.now]
        self.polls = [each for each in self.polls if each[1] > self.now]

    def revoke(self, agent):
        """Its waits end with its connection, and nobody reads an answer. Then the handle is registered again."""
        self.waits = [each for each in self.waits if each[2] != f"agent:{agent}"]
        self.polls = [each for each in self.polls if each[2] != f"agent:{agent}"]
        self._record("person", "agents.revoke", agent)
        self._record("local", "agents.register", agent)

    # -- failing commits --

    def kept(self):
        return copy.deepcopy((self.tickets, self.leased, self.ledger))

    def undo(self, kept, requests):
        """Back to what was kept; these requests rest on what is undone."""
        self.waits = [each for each in self.waits if each[0] not in requests]
        undone = {each for each, ticket in self.tickets.items() if not ticket.undelivered}
        self.tickets, self.leased, self.ledger = kept
        # What was taken out of an inbox and comes back is anybody's again.
        self.leased -= {each for each in undone if each in self.tickets and self.tickets[each].undelivered}
