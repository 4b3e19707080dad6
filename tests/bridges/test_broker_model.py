"""Whatever happens, in whatever order, with a disk that fails now and then: the books agree."""

from collections import Counter

from broker_acts import take_ids
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bascule.broker.limits import BrokerLimits
from bascule.broker.protocol import OPEN_STATUSES, TicketStatus
from bascule.broker.records import AgentRecord, Message, Remembered, Ticket
from bascule.foundation.errors import BasculeError, Internal
from bascule.testing.house import House
from bascule.testing.stores import HeldStore

AGENTS = ["Jerry", "Spock"]
PRINCIPALS = ["local", "agent:Jerry", "agent:Spock", "person"]
agents = st.sampled_from(AGENTS)
principals = st.sampled_from(PRINCIPALS)
tickets = st.sampled_from([f"t{number}" for number in range(6)])
fails = st.sampled_from([False, False, False, True])


class Books(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.store = HeldStore(hold=False)
        limits = BrokerLimits(
            lease_ms=2_000,
            ticket_ttl_ms=20_000,
            remember_ms=40_000,
            agent_retention_ms=300_000,
            max_inbox_messages=4,
            max_open_tickets=5,
        )
        self.house = House(store=self.store, limits=limits)
        for name in AGENTS:
            self.house.register(name)
            self.house.connect(name)
        self.polls = []
        self.streams = []

    def act(self, by, method, params, *, failing=False):
        """A refusal is as good as an answer here; an internal error is not a refusal."""
        self.store.hold = failing
        try:
            pending = self.house.begin(by, method, params)
            if self.store.waiting:
                self.house.run(self.store.fail)
            if pending.done:
                return pending.result()
            self.polls.append(pending)
        except Internal:
            raise
        except BasculeError:
            if self.store.waiting:
                self.house.run(self.store.finish_all)
        finally:
            self.store.hold = False
        return None

    @rule(by=principals, to=agents, ticket=tickets, expect=st.booleans(), size=st.integers(0, 2), failing=fails)
    def send(self, *, by, to, ticket, expect, size, failing):
        params = {
            "agentId": to,
            "ticketId": ticket,
            "payload": "x" * size,
            "expectReply": expect,
            "timeoutMs": 5_000,
            "conversationId": f"c{size}",
        }
        self.act(by, "messages.send", params, failing=failing)

    @rule(who=agents, count=st.integers(1, 3), wait=st.sampled_from([0, 3_000]))
    def take(self, who, count, wait):
        self.act(f"agent:{who}", "inbox.take", {"agentId": who, "max": count, "waitMs": wait})

    @rule(who=agents)
    def stream(self, who):
        self.streams.append(self.act(f"agent:{who}", "inbox.stream", {"agentId": who}))

    @rule(who=agents, ids=st.lists(tickets, min_size=1, max_size=3), failing=fails)
    def ack(self, who, ids, failing):
        self.act(f"agent:{who}", "inbox.ack", {"agentId": who, "ticketIds": ids}, failing=failing)

    @rule(by=principals, ticket=tickets, word=st.sampled_from("ab"), failing=fails)
    def reply(self, by, ticket, word, failing):
        self.act(by, "replies.post", {"ticketId": ticket, "payload": word}, failing=failing)

    @rule(by=principals, ticket=tickets, failing=fails)
    def cancel(self, by, ticket, failing):
        self.act(by, "tickets.cancel", {"ticketId": ticket}, failing=failing)

    @rule(by=principals, ticket=tickets)
    def wait(self, by, ticket):
        self.act(by, "replies.wait", {"ticketId": ticket, "waitMs": 3_000})

    @rule()
    def somebody_leaves(self):
        if self.polls:
            self.polls.pop(0).leave()
        elif self.streams:
            self.streams.pop(0).close()

    @rule(seconds=st.sampled_from([0.5, 2, 6, 25, 100]), stalled=st.booleans())
    def time_passes(self, seconds, stalled):
        (self.house.stall if stalled else self.house.advance)(seconds)

    @rule(seconds=st.sampled_from([-3_600, 3_600]))
    def the_wall_clock_jumps(self, seconds):
        self.house.clock.jump_wall(seconds)

    @rule(clean=st.booleans())
    def restart(self, clean):
        self.house.restart(clean=clean, down_seconds=1)
        for name in AGENTS:
            self.house.connect(name)
        self.polls.clear()
        self.streams.clear()

    @invariant()
    def the_inboxes_hold_what_is_undelivered(self):
        state = self.house.broker.state
        for name in AGENTS:
            waiting = {key: row for key, row in state.tickets.rows.items() if row.undelivered and row.target == name}
            inbox = state.inbox(name)
            assert inbox._numbers.keys() == waiting.keys()
            assert inbox.leases.keys() <= waiting.keys()
            assert (len(inbox), inbox.waiting) == (len(waiting), len(waiting) - len(inbox.leases))
            assert inbox.bytes == sum(row.payload_bytes for row in waiting.values())
            assert inbox.attempts.keys() <= waiting.keys()
            assert inbox.sealed == set()

    @rule(name=agents, by=st.sampled_from(["hook", "wrap"]), skip=st.sampled_from(["own", "any"]), record=st.booleans())
    def look(self, name, by, skip, record):
        """A bell rings exactly when something waits that it was not rung for."""
        inbox = self.house.broker.state.inbox(name)
        bells = [inbox.rung.get(key, {}) for key in self.undelivered(name) if key not in inbox.leases]
        news = any(by not in each if skip == "own" else not each for each in bells)
        params = {"agentId": name, "waitMs": 0, "by": by, "skipRung": skip, "record": record}
        assert (self.house.call(f"agent:{name}", "inbox.watch", params) is not None) == news

    @invariant()
    def what_waits_is_looked_through_in_the_order_of_sending(self):
        state = self.house.broker.state
        for name in AGENTS:
            inbox = state.inbox(name)
            waiting = [key for key in self.undelivered(name) if key not in inbox.leases]
            assert list(inbox.unleased()) == waiting
            assert inbox.unread == len(waiting)
            assert list(inbox.senders()) == list(dict.fromkeys(state.tickets.rows[key].sender for key in waiting))

    @invariant()
    def lists_are_what_the_table_says(self):
        state = self.house.broker.state
        newest = sorted(state.tickets.rows.values(), key=lambda row: -row.number)
        for status in (None, *TicketStatus):
            for name in (None, *AGENTS):
                found = list(state.index.find(status=status, addressee=name, party=None))
                wanted = [row for row in newest if status in (None, row.status) and name in (None, row.target)]
                assert found == wanted

    @invariant()
    def what_counts_as_open_is_what_is_not_settled(self):
        state = self.house.broker.state
        still = [row for row in state.tickets.rows.values() if row.status in OPEN_STATUSES]
        waited_for = [row for row in still if row.status == "pending" or row.expect_reply]
        assert state.open_count == len(waited_for)
        assert state.open_by_sender == Counter(row.sender for row in waited_for)

    @invariant()
    def conversations_know_their_tickets(self):
        state = self.house.broker.state
        members = {}
        for key, row in state.tickets.rows.items():
            members.setdefault(row.conversation_id, set()).add(key)
        assert {name: set(keys) for name, keys in state.conversations.items()} == members

    @invariant()
    def every_ticket_has_its_words_and_no_words_are_left_over(self):
        state = self.house.broker.state
        expected = {f"{key}/{number}" for key, row in state.tickets.rows.items() for number in range(row.replies + 1)}
        assert state.messages.rows.keys() == expected

    @invariant()
    def memory_and_store_agree(self):
        state = self.house.broker.state
        for table, type_ in (
            (state.tickets, Ticket),
            (state.messages, Message),
            (state.agents, AgentRecord),
            (state.remembered, Remembered),
        ):
            assert dict(self.store.load(table.name, type_)) == table.rows

    @invariant()
    def who_is_online_is_counted_as_it_is_listed(self):
        agents = self.house.broker.agents
        listed = [name for name in self.house.broker.state.agents.rows if agents.status(name) == "online"]
        assert agents.online_count() == len(listed)

    @invariant()
    def a_settled_ticket_has_an_end(self):
        state, tickets = self.house.broker.state, self.house.broker.tickets
        for key, row in state.tickets.rows.items():
            if not row.undelivered:
                assert key in tickets.lifetimes

    def teardown(self):
        with self.house:
            self.what_is_left_can_be_had()

    def what_is_left_can_be_had(self):
        verdict = self.house.call("local", "ledger.verify")
        assert verdict["ok"], verdict["faults"]
        # Nobody is in the way any more.
        for each in self.polls:
            each.leave()
        for each in self.streams:
            each.close()
        self.house.advance(2)
        left = {name: self.undelivered(name) for name in AGENTS}
        assert {name: take_ids(self.house, name) for name in AGENTS} == left
        self.house.restart(clean=False)
        assert {name: take_ids(self.house, name) for name in AGENTS} == left

    def undelivered(self, name):
        """In the order of sending."""
        rows = [row for row in self.house.broker.state.tickets.rows.values() if row.undelivered]
        return [row.ticket_id for row in sorted(rows, key=lambda row: row.number) if row.target == name]


# Without shrinking: a story of forty steps is read faster than a shorter one is found.
Books.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    report_multiple_bugs=False,
)
TestBooks = Books.TestCase
