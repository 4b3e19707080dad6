"""Every answer of the broker, and everything it keeps, is what a plain model of tickets says, on every store."""

import os
import shutil
import tempfile
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from on_disk import OnDisk
from ticket_model import (
    LEASE,
    MAX_BYTES,
    MAX_INBOX,
    MAX_KEPT,
    MAX_OPEN,
    MAX_REPLIES,
    REMEMBER,
    RETENTION,
    TARGETS,
    TIMEOUT,
    TTL,
    WAIT,
    Broker,
    Held,
    Refused,
)

from bascule.broker.limits import BrokerLimits
from bascule.foundation.errors import BasculeError, Internal, NotFound

LONG = bool(os.environ.get("BASCULE_LONG"))
STORIES = {"memory": 20, "fsync": 3, "relaxed": 4}
PRINCIPALS = ["local", "agent:Jerry", "agent:Spock", "person"]
LIMITS = BrokerLimits(
    default_timeout_ms=TIMEOUT,
    lease_ms=LEASE,
    ticket_ttl_ms=TTL,
    remember_ms=REMEMBER,
    agent_retention_ms=RETENTION,
    max_inbox_messages=MAX_INBOX,
    max_open_tickets=MAX_OPEN,
    max_kept_messages=MAX_KEPT,
    max_replies=MAX_REPLIES,
    max_payload_bytes=MAX_BYTES,
)

targets = st.sampled_from(TARGETS)
principals = st.sampled_from(PRINCIPALS)
tickets = st.sampled_from(["t0", "t1", "t2", "t3", "t4", "b0.Jerry", "b0.Spock"])
# Mostly whoever may: the others are refused, and that is soon told.
sides = st.sampled_from(["right", "right", "right", "right", *PRINCIPALS])
words = st.sampled_from(["", "a", "b", "a", "b", "a", "b", "too long"])
conversations = st.sampled_from(["c0", "c1"])


class Tickets(RuleBasedStateMachine):
    durability = "memory"
    model_type = Broker

    def __init__(self):
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="bsc-model-")
        self.house = OnDisk(self.folder, self.durability, limits=LIMITS)
        self.model = self.model_type()
        self.held = []
        for name in TARGETS:
            self.house.register(name)
            self.house.connect(name)

    def both(self, expected, real):
        """The model's answer and the broker's, or the same refusal of both."""
        try:
            wanted = expected()
        except Refused as refused:
            wanted = refused
        try:
            got = real()
        except Internal:
            raise
        except NotFound as error:
            named = {"ticket expired": "expired", "unknown ticket": "unknown"}
            got = Refused(named.get(error.message, error.code))
        except BasculeError as error:
            got = Refused(error.code)
        assert repr(got) == repr(wanted)

    def side(self, by, ticket, right):
        known = self.model.tickets.get(ticket)
        return by if by != "right" else right(known) if known is not None else "local"

    def call(self, by, method, **params):
        return self.house.call(by, method, params)

    # -- acts --

    @rule(
        by=principals,
        to=st.sampled_from([*TARGETS, *TARGETS, "Nobody"]),
        ticket=tickets,
        word=words,
        expects=st.booleans(),
        talk=conversations,
    )
    def send(self, *, by, to, ticket, word, expects, talk):
        def real():
            params = {
                "agentId": to,
                "ticketId": ticket,
                "payload": word,
                "expectReply": expects,
                "conversationId": talk,
            }
            return self.call(by, "messages.send", **params)["ticketId"]

        self.both(lambda: self.model.send(by, to, ticket, word, expects=expects, talk=talk), real)

    @rule(by=principals, word=words, talk=conversations)
    def broadcast(self, by, word, talk):
        def real():
            params = {"broadcastId": "b0", "payload": word, "agentIds": list(TARGETS), "conversationId": talk}
            sent = self.call(by, "messages.broadcast", **params)
            outcomes = [(each["agentId"], "sent") for each in sent["tickets"]]
            return sorted(outcomes + [(each["agentId"], each["error"]["code"]) for each in sent.get("failed", ())])

        self.both(lambda: self.model.broadcast(by, "b0", word, talk), real)

    @rule(agent=targets, most=st.integers(1, 3))
    def take(self, agent, most):
        def real():
            return shown_take(self.call(f"agent:{agent}", "inbox.take", agentId=agent, max=most, waitMs=0))

        self.both(lambda: self.model.take(agent, most), real)

    @rule(agent=targets, most=st.integers(1, 3))
    def poll(self, agent, most):
        taken = self.model.take(agent, most)
        held = Held(agent, self.model.now + WAIT, most, done=taken is not None, result=taken)
        pending = self.house.begin(f"agent:{agent}", "inbox.take", {"agentId": agent, "max": most, "waitMs": WAIT})
        if not held.done:
            self.model.polls.append(held)
        self.held.append((held, pending, shown_take))

    @rule(by=principals, ticket=tickets)
    def wait(self, by, ticket):
        try:
            known = self.model.party(by, ticket)
        except Refused:
            self.both(lambda: self.model.party(by, ticket), lambda: self.call(by, "replies.wait", ticketId=ticket))
            return
        view = known.view() if known.settled else None
        held = Held(ticket, self.model.now + WAIT, done=known.settled, result=view)
        pending = self.house.begin(by, "replies.wait", {"ticketId": ticket, "waitMs": WAIT})
        if not held.done:
            self.model.waits.append(held)
        self.held.append((held, pending, shown_view))

    @rule(by=principals, ticket=tickets)
    def stream(self, by, ticket):
        try:
            known = self.model.party(by, ticket)
        except Refused:
            self.both(lambda: self.model.party(by, ticket), lambda: self.call(by, "replies.stream", ticketId=ticket))
            return
        held = Held(ticket, None)
        self.model.streams.append(held)
        if known.settled:
            name = {"responded": "reply"}.get(known.status, known.status)
            Broker.end(self.model.streams, held, [name, known.view()])
        self.held.append((held, Followed(self.call(by, "replies.stream", ticketId=ticket)), shown_end))

    @rule(agent=targets, ids=st.lists(tickets, min_size=1, max_size=3, unique=True))
    def ack(self, agent, ids):
        def real():
            answer = self.call(f"agent:{agent}", "inbox.ack", agentId=agent, ticketIds=ids)
            return answer["acked"], answer.get("unknown", [])

        self.both(lambda: self.model.ack(agent, ids), real)

    @rule(by=sides, ticket=tickets, word=words)
    def reply(self, by, ticket, word):
        by = self.side(by, ticket, lambda known: f"agent:{known.target}")

        def real():
            answer = self.call(by, "replies.post", ticketId=ticket, payload=word)
            return answer["status"], answer["first"], answer.get("late", False)

        self.both(lambda: self.model.reply(by, ticket, word), real)

    @rule(ticket=tickets, words=st.lists(words, min_size=2, max_size=5))
    def reply_again_and_again(self, ticket, words):
        for word in words:
            Tickets.reply(self, "right", ticket, word)

    @rule(ticket=tickets, word=words, withdrawn_first=st.booleans())
    def answer_and_withdraw(self, ticket, word, withdrawn_first):
        Tickets.send(self, by="local", to="Jerry", ticket=ticket, word="a", expects=True, talk="c0")
        if withdrawn_first:
            Tickets.cancel(self, "right", ticket)
        Tickets.reply(self, "right", ticket, word)
        Tickets.cancel(self, "right", ticket)

    @rule(by=sides, ticket=tickets)
    def cancel(self, by, ticket):
        by = self.side(by, ticket, lambda known: known.sender)
        self.both(
            lambda: self.model.cancel(by, ticket), lambda: self.call(by, "tickets.cancel", ticketId=ticket)["status"]
        )

    @rule(by=principals, talk=conversations)
    def read_conversation(self, by, talk):
        def real():
            return [each["ticketId"] for each in self.call(by, "conversations.show", conversationId=talk)["tickets"]]

        self.both(lambda: self.model.conversation(by, talk), real)

    @rule(quarters=st.sampled_from([1, 1, 1, 8, 9, 20, 24, 100, 1_300]))
    def time_passes(self, quarters):
        self.model.advance(quarters * 250)
        self.house.advance(quarters / 4)

    @rule(clean=st.booleans(), quarters=st.sampled_from([0, 0, 1, 24, 100]))
    def restart(self, clean, quarters):
        for _, pending, _ in self.held:
            if isinstance(pending, Followed):
                pending.stream.close()
        self.held.clear()
        self.model.restart(quarters * 250)
        self.house.restart(clean=clean, down_seconds=quarters / 4)
        for name in TARGETS:
            self.house.connect(name)
        self.model.advance(0)
        self.house.advance(0)

    # -- what holds after each --

    @invariant()
    def waiters_are_answered_as_the_model_says(self):
        for entry in list(self.held):
            held, pending, shown = entry
            assert pending.done == held.done, held
            if held.done:
                assert shown(pending.result()) == held.result
                self.held.remove(entry)

    @invariant()
    def every_ticket_looks_as_the_model_has_it(self):
        listed = self.call("person", "tickets.list", limit=1_000)
        assert [each["ticketId"] for each in reversed(listed)] == list(self.model.tickets)
        for each in self.model.tickets.values():
            view = self.call("person", "tickets.show", ticketId=each.ticket_id)
            seen = (
                *(view["status"], view["payload"], view["expectReply"], view.get("late", False), "ackedAt" in view),
                *(view.get("attempts", 0), view.get("delivery", {}).get("state"), view["conversationId"]),
                [(reply["payload"], reply.get("late", False)) for reply in view.get("replies", ())],
            )
            assert seen == (
                *(each.status, each.body, each.expects, each.late, each.acked),
                *(self.model.attempts.get(each.ticket_id, 0), self.model.delivery(each), each.conversation),
                [(word, late) for _, word, late in each.replies],
            )

    @invariant()
    def the_accounts_are_the_sums_of_what_is_kept(self):
        state, model = self.house.broker.state, self.model
        unread = {each["agentId"]: each.get("unread", 0) for each in self.call("local", "agents.list")}
        for name in TARGETS:
            inbox = model.inbox(name)
            assert unread[name] == len(inbox)
            assert state.inbox(name).bytes == sum(len(model.tickets[each].body) + 2 for each in inbox)
            assert set(state.inbox(name).leases) == {each for each in inbox if each in model.leases}
        kept = {
            by: (len(replies), sum(len(word) + 2 for word in replies))
            for by in PRINCIPALS
            if (replies := model.kept(by))
        }
        assert state.kept == kept
        opened = Counter(each.sender for each in model.tickets.values() if each.open)
        assert (state.open_by_sender, state.open_count) == (opened, opened.total())
        assert state.remembered.rows.keys() == model.remembered.keys()

    @invariant()
    def nothing_is_held_for_nobody(self):
        waits, model = self.house.broker.waits, self.model
        following = [*model.waits, *model.streams]
        assert {key: len(each) for key, each in waits._on_ticket.items()} == Counter(each.subject for each in following)

    def teardown(self):
        try:
            self.nothing_is_left_when_everything_is_over()
        finally:
            self.house.close()
            shutil.rmtree(self.folder)

    def nothing_is_left_when_everything_is_over(self):
        for held, pending, _ in self.held:
            if isinstance(pending, Followed) and not held.done:
                pending.stream.close()
        self.held.clear()
        self.model.streams.clear()
        # Long enough for a message nobody fetched, for its id, and for a sweep behind each.
        over = RETENTION + TTL + REMEMBER + TIMEOUT + 3 * 60_000
        self.model.advance(over - over % 250)
        self.house.advance((over - over % 250) / 1000)
        state, waits, kept = self.house.broker.state, self.house.broker.waits, self.house.broker.tickets.lifetimes
        assert not self.model.tickets
        left = (state.tickets.rows, state.messages.rows, state.remembered.rows, state.conversations, state.kept)
        assert not any((*left, state.open_by_sender, waits._on_ticket, waits._open))
        assert not any((kept._due, kept._ends, kept._sent_at, kept._forget_at))
        # The sweep, and one look at each agent.
        assert len(state.timers) <= 1 + 2 * len(TARGETS)
        assert self.call("local", "ledger.verify")["ok"]


class Followed:
    """A stream on a ticket, as something that is done once it has ended."""

    def __init__(self, stream):
        self.stream = stream

    @property
    def done(self):
        return self.stream.ended

    def result(self):
        items = self.stream.items()
        self.stream.close()
        return items


def shown_take(taken):
    if taken is None:
        return None
    items = [(each["ticketId"], each["attempts"], each.get("timedOut", False)) for each in taken["messages"]]
    return {"items": items, "remaining": taken.get("remaining", 0)}


def shown_view(view):
    if view is None or view["status"] != "responded":
        return view and {"status": view["status"]}
    replies = [each["payload"] for each in view.get("replies", ())]
    return {"status": "responded", "payload": view["payload"], "late": view.get("late", False), "replies": replies}


def shown_end(items):
    if not items:
        return None
    ((name, view),) = items
    return [name, shown_view(view)]


def play(stories, *, derandomize=False, **how):
    machine = type("Machine", (Tickets,), how)
    # Without shrinking: a story of fifty steps is read faster than a shorter one is found.
    choices = settings(
        max_examples=stories,
        stateful_step_count=50,
        deadline=None,
        database=None,
        derandomize=derandomize,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(machine, settings=choices)


@pytest.mark.parametrize("durability", STORIES)
def test_the_broker_does_what_the_model_says(durability):
    play(STORIES[durability] * (20 if LONG else 1), durability=durability)


# -- the model is really compared: a broker that did this instead would be found out ---------------


class LeasesNeverEnd(Broker):
    def happen(self):
        self.hand_overs.clear()
        super().happen()


class LeasesSurviveARestart(Broker):
    def restart(self, down):
        leases = dict(self.leases)
        super().restart(down)
        self.leases |= leases


class EveryReplyIsTheFirst(Broker):
    def reply(self, by, ticket_id, word):
        status, _, late = super().reply(by, ticket_id, word)
        return status, True, late


class NoReplyIsLate(Broker):
    def reply(self, by, ticket_id, word):
        status, first, _ = super().reply(by, ticket_id, word)
        return status, first, False


class TheCancelledMayBeAnswered(Broker):
    def reply(self, by, ticket_id, word):
        ticket = self.party(by, ticket_id)
        if ticket.status == "cancelled":
            ticket.status = "pending"
        return super().reply(by, ticket_id, word)


class TimeoutsStartAnewAtARestart(Broker):
    def restart(self, down):
        super().restart(down)
        for ticket in self.tickets.values():
            ticket.due = ticket.due and self.now + TIMEOUT


class IdsAreForgottenAtOnce(Broker):
    def drop(self, ticket):
        super().drop(ticket)
        del self.remembered[ticket.ticket_id]


class RepliesAreNotCounted(Broker):
    def kept(self, principal):
        return [each.body for each in self.tickets.values() if each.sender == principal]


class TheNewestComesFirst(Broker):
    def inbox(self, agent):
        return super().inbox(agent)[::-1]


WRONG = Broker.__subclasses__()


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_a_broker_that_did_otherwise_would_be_found_out(wrong):
    with pytest.raises(AssertionError):
        # The same stories every time: whether a bug shows must not be left to luck.
        play(200, derandomize=True, model_type=wrong)
