"""A list or a watch costs what it answers, however much there is of everything else.

Work is counted in steps of the interpreter, which no other program on the machine changes.
"""

import sys

import msgspec
import pytest
from workspace_scene import JERRY, Scene, make_machine

from bascule.broker.inbox import MAX_STALE, Inbox
from bascule.broker.limits import BrokerLimits
from bascule.broker.protocol import TicketStatus
from bascule.broker.quotas import check_share_of_node
from bascule.broker.records import AgentRecord, Message, Ticket
from bascule.testing.house import House
from bascule.workspace.records import RunRecord

MOST = 1.2
ROOM = 10**9
LIMITS = BrokerLimits(
    max_open_tickets=ROOM,
    max_inbox_messages=ROOM,
    max_inbox_messages_per_sender=ROOM,
    max_kept_messages=ROOM,
    max_kept_bytes=ROOM,
    max_agents=ROOM,
)


def steps(act):
    """How many the third time: the first ones fill caches, drop what is stale and ring."""
    for _ in range(2):
        act()
    return steps_of_one(act)


def steps_of_one(act):
    counted = 0

    def look(frame, event, _):
        nonlocal counted
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        counted += event == "opcode"
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        act()
    finally:
        sys.settrace(before)
    return counted


def ticket(number, **more):
    fields = {"sender": "agent:Tom", "target": "Jerry", "status": TicketStatus.PENDING, **more}
    return Ticket(
        ticket_id=f"t{number:06d}",
        number=number,
        expect_reply=True,
        created_at=1,
        updated_at=1,
        reply_by=10**15,
        payload_bytes=2,
        digest="",
        conversation_id="long",
        **fields,
    )


def with_tickets(count):
    """Ten that are answered, ten of another sender, so many of one; the first are the oldest."""
    house = House(limits=LIMITS)
    for name in ("Tom", "Jerry", "Ann"):
        house.register(name)
    state = house.broker.state
    answered = {"status": TicketStatus.RESPONDED, "acked_at": 1, "settled_at": 1, "replied_at": 1}
    for _ in range(10):
        add(state, ticket(state.next_number(), **answered))
    for _ in range(count):
        add(state, ticket(state.next_number()))
    add(state, ticket(state.next_number(), sender="agent:Ann"))
    return house


def add(state, row):
    state.messages.apply(f"{row.ticket_id}/0", Message(payload=msgspec.Raw(b"{}"), sender=row.sender, at=1))
    state.tickets.apply(row.ticket_id, row)


@pytest.fixture(scope="module")
def few_and_many():
    with with_tickets(10) as few, with_tickets(100_000) as many:
        yield few, many


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("inbox.watch", {"agentId": "Jerry", "waitMs": 0}),
        # Rings once; what is counted is a look at what was rung for.
        ("inbox.watch", {"agentId": "Jerry", "waitMs": 0, "by": "hook", "skipRung": "own"}),
        ("tickets.list", {"limit": 10}),
        ("tickets.list", {"status": "responded", "limit": 10}),
        ("tickets.list", {"status": "responded", "party": "Jerry", "limit": 10}),
        ("tickets.list", {"status": "pending", "agentId": "Jerry", "limit": 10}),
        ("tickets.list", {"party": "Ann", "limit": 10}),
        ("tickets.list", {"party": "Ann", "agentId": "Jerry", "limit": 10}),
        ("tickets.list", {"status": "timeout"}),
        # From the middle of those that are there in both.
        ("tickets.list", {"before": "t000020", "limit": 10}),
        ("tickets.list", {"before": "t000020", "status": "pending", "party": "Jerry", "limit": 5}),
        ("tickets.list", {"text": "ann", "party": "Ann", "limit": 10}),
        ("conversations.list", {"limit": 10}),
        ("conversations.show", {"conversationId": "long", "limit": 10}),
        ("daemon.status", {}),
    ],
)
def test_a_list_costs_the_same_with_100_000_tickets_as_with_10(few_and_many, method, params):
    few, many = few_and_many
    by = "agent:Jerry"
    answers = [house.call(by, method, params) for house in few_and_many]
    if isinstance(answers[0], list):
        # The same answer costs the same.
        assert len(answers[0]) == len(answers[1])
    assert steps(lambda: many.call(by, method, params)) <= MOST * steps(lambda: few.call(by, method, params))


def test_every_call_of_an_ask_costs_the_same_with_10_000_tickets_as_with_10():
    costs = []
    for count in (10_000, 10):
        with with_tickets(count) as house:
            # The first ones fill caches.
            for _ in range(3):
                spent = steps_of_an_ask(house)
            costs.append(spent)
    assert {name: many for name, many in costs[0].items() if many > MOST * costs[1][name]} == {}


def steps_of_an_ask(house):
    spent = {}

    def call(by, method, **params):
        answers = []
        spent[method] = steps_of_one(lambda: answers.append(house.call(by, method, params)))
        return answers[0]

    call("agent:Tom", "messages.send", agentId="Jerry", payload="x")
    (message,) = call("agent:Jerry", "inbox.take", agentId="Jerry", waitMs=0)["messages"]
    ticket = message["ticketId"]
    call("agent:Jerry", "inbox.ack", agentId="Jerry", ticketIds=[ticket])
    call("agent:Jerry", "replies.post", ticketId=ticket, payload="y")
    call(f"agent:{message['from']}", "replies.wait", ticketId=ticket)
    call(f"agent:{message['from']}", "tickets.show", ticketId=ticket)
    call("agent:Jerry", "agents.heartbeat", agentId="Jerry")
    return spent


def test_the_watch_names_senders_in_the_order_of_their_oldest_message(few_and_many):
    for house in few_and_many:
        seen = house.call("agent:Jerry", "inbox.watch", {"agentId": "Jerry", "waitMs": 0})
        assert (seen["from"], seen["oldest"]) == (["Tom", "Ann"], "t000011")
        assert seen["unread"] == len(house.broker.state.inbox("Jerry"))


def with_agents(count):
    house = House(limits=LIMITS)
    for number in range(5):
        house.register(f"reviewer-{number}", type="reviewer")
    for number in range(count):
        house.broker.state.agents.apply(f"agent-{number}", AgentRecord(agent_id=f"agent-{number}", type="agent"))
    return house


@pytest.fixture(scope="module")
def small_and_large_office():
    with with_agents(10) as few, with_agents(10_000) as many:
        yield few, many


@pytest.mark.parametrize(
    "params", [{"status": "online"}, {"type": "reviewer"}, {"type": "reviewer", "status": "online"}]
)
def test_a_list_of_few_agents_costs_the_same_among_10_000_as_among_10(small_and_large_office, params):
    few, many = small_and_large_office
    names = [f"reviewer-{number}" for number in range(5)]
    for house in (few, many):
        assert [each["agentId"] for each in house.call("local", "agents.list", params)] == names
    costs = [steps(lambda house=house: house.call("local", "agents.list", params)) for house in (many, few)]
    assert costs[0] <= MOST * costs[1]


def test_a_list_of_everybody_costs_more_with_more_agents(small_and_large_office):
    """The control: everybody is the answer here."""
    few, many = small_and_large_office
    costs = [steps(lambda house=house: house.call("local", "agents.list", {})) for house in (many, few)]
    assert costs[0] > 100 * costs[1]


def with_runs(count):
    scene = Scene(House(machine=make_machine()))
    book = scene.house.workspace.book
    for number in range(1, count + 1):
        record = RunRecord(
            run_id=f"run_{number:06d}",
            space_id=scene.space,
            number=number,
            started_by=JERRY,
            started_at=1,
            status="completed",
            operations=1,
        )
        book.table.apply(record.run_id, record)
    return scene


@pytest.fixture(scope="module")
def short_and_long_history():
    few, many = with_runs(10), with_runs(1_000)
    with few.house, many.house:
        yield few, many


@pytest.mark.parametrize("in_space", [True, False])
def test_a_list_of_runs_costs_the_same_after_1_000_runs_as_after_10(short_and_long_history, in_space):
    costs, newest = [], []
    for scene in short_and_long_history:
        params = {"limit": 10} | ({"spaceId": scene.space} if in_space else {})
        newest.append([each["runId"] for each in scene.house.call(JERRY, "runs.list", params)])
        costs.append(steps(lambda scene=scene, params=params: scene.house.call(JERRY, "runs.list", params)))
    assert newest == [[f"run_{last - each:06d}" for each in range(10)] for last in (10, 1_000)]
    assert costs[1] <= MOST * costs[0]


def test_a_run_costs_the_same_after_1_000_runs_as_after_10():
    """After as many as are kept, each makes the oldest one go."""
    costs = []
    for earlier in (1_000, 10):
        scene = with_runs(earlier)
        params = {"spaceId": scene.space, "protocolVersion": "1.0", "operations": [{"type": "message", "content": "x"}]}
        with scene.house as house:
            costs.append(steps(lambda house=house, params=params: house.call(JERRY, "runs.start", params)))
    assert costs[0] <= MOST * costs[1]


def test_a_run_that_comes_back_takes_its_old_place(short_and_long_history):
    scene = short_and_long_history[0]
    table = scene.house.workspace.book.table
    gone = table.apply("run_000004", None)
    table.apply("run_000004", gone)
    assert [each.number for each in scene.house.workspace.book.newest(10, scene.space)] == list(range(10, 0, -1))
    assert [each.number for each in scene.house.workspace.book.all()] == list(range(1, 11))


def test_the_watch_names_the_same_senders_when_there_are_many():
    """Many senders behind one with many messages: the first ten names, in the order of their oldest message."""
    with House(limits=LIMITS) as house:
        house.register("Jerry")
        state = house.broker.state
        senders = ["Tom"] * 40 + [f"agent-{number}" for number in range(60)]
        for name in senders:
            add(state, ticket(state.next_number(), sender=f"agent:{name}"))
        seen = house.call("agent:Jerry", "inbox.watch", {"agentId": "Jerry", "waitMs": 0})
        assert seen["from"] == list(dict.fromkeys(senders))[:10]
        for most in (32, 9):
            house.call("agent:Jerry", "inbox.take", {"agentId": "Jerry", "max": most})
        seen = house.call("agent:Jerry", "inbox.watch", {"agentId": "Jerry", "waitMs": 0})
        assert seen["from"] == [f"agent-{number}" for number in range(1, 11)]


@pytest.mark.parametrize("more", [{}, {"principal": JERRY}, {"status": "completed"}])
def test_a_page_of_runs_from_the_middle_costs_the_same_after_1_000_runs_as_after_10(short_and_long_history, more):
    costs = []
    for scene, last in zip(short_and_long_history, (9, 500), strict=True):
        params = {"limit": 5, "before": f"run_{last:06d}", **more}
        page = scene.house.call("local", "runs.list", params)
        assert [each["runId"] for each in page] == [f"run_{last - each:06d}" for each in range(1, 6)]
        costs.append(steps(lambda scene=scene, params=params: scene.house.call("local", "runs.list", params)))
    assert costs[1] <= MOST * costs[0]


def test_runs_under_way_are_listed_without_a_look_at_those_that_are_over(short_and_long_history):
    costs = [
        steps(lambda scene=scene: scene.house.call("local", "runs.list", {"status": "running"}))
        for scene in short_and_long_history
    ]
    assert costs[1] <= MOST * costs[0]


def test_a_search_that_finds_nothing_ends_at_its_bound():
    """The control is the search with a larger bound."""
    with with_tickets(10_000) as house:
        params = {"text": "nobody has this name", "limit": 10}
        lists = house.broker.lists
        looked_at = []
        for bound in (100, 1_000):
            lists._max_tickets = bound
            before = house.broker.state.index.looked_at
            assert house.call("person", "tickets.list", params) == []
            looked_at.append(house.broker.state.index.looked_at - before)
        # A merge of several lists looks at the next of each.
        for seen, bound in zip(looked_at, (100, 1_000), strict=True):
            assert bound <= seen <= bound + len(TicketStatus)


# -- an inbox --


def inbox_of(count):
    inbox = Inbox("Jerry")
    for number in range(1, count + 1):
        inbox.add(f"t{number}", number, 1, "agent:Tom")
    return inbox


def test_a_watch_costs_the_same_behind_10_000_messages_that_are_out_as_behind_10():
    costs = []
    for out in (10_000, 10):
        inbox = inbox_of(out + 10)
        assert len(inbox.take(out, 1e9, None)) == out
        assert list(inbox.senders()) == ["agent:Tom"]
        costs.append(steps(lambda inbox=inbox: list(inbox.senders())))
    assert costs[0] <= MOST * costs[1]


def test_an_inbox_that_nobody_watches_keeps_few_entries_of_what_is_gone():
    inbox = inbox_of(10)
    for number in range(11, 10_000):
        inbox.add(f"t{number}", number, 1, "agent:Tom")
        (taken,) = inbox.take(1, 1e9, None)
        if number % 3:
            inbox.discard(taken, 1)
        else:
            inbox.put_back(taken)
            inbox.discard(f"t{number}", 1)
    assert len(inbox) == 10
    assert len(inbox._of_sender["agent:Tom"]) <= 2 * 10 + MAX_STALE
    assert inbox._oldest_of("agent:Tom") == min(inbox._numbers.values())
    for ticket_id in list(inbox.ids):
        inbox.discard(ticket_id, 1)
    assert list(inbox.senders()) == []
    assert inbox._of_sender == {}


def test_a_message_of_another_machine_costs_the_same_whoever_of_it_has_written_before():
    counted = []
    for senders in (10, 1_000):
        with House(limits=LIMITS) as house:
            house.register("Jerry")
            state = house.broker.state
            for number in range(senders):
                add(state, ticket(state.next_number(), sender=f"agent:A{number}@desk"))
            counted.append(steps(lambda state=state: check_share_of_node(state, "agent:A1@desk", "Jerry", 1)))
    assert counted[1] <= MOST * counted[0]


def test_an_inbox_counts_each_machine_and_nobody_of_its_own():
    inbox = Inbox("Jerry")
    for number, sender in enumerate(("agent:A@desk", "agent:B@desk", "local@vm", "agent:C")):
        inbox.add(f"t{number}", number, 10, sender)
    assert inbox.by_machine == {"desk": (2, 20), "vm": (1, 10)}
    for number in range(4):
        inbox.discard(f"t{number}", 10)
    assert (inbox.by_machine, inbox.by_sender) == ({}, {})
