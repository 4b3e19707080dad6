"""Groups share a queue: each message to exactly one member, and to another when that one dies."""

import random

import pytest
from broker_acts import ack, answer, events_named, ids_of, poll, reply, send, show, status_of, take, take_ids

from bascule.broker.groups import GRACE_MS
from bascule.foundation.errors import Conflict, Forbidden, InvalidRequest, NotFound
from bascule.testing.house import House, StillWaiting

TO = "reviewers"


@pytest.fixture
def house():
    with House() as made:
        for name in ("Ann", "Bob", "Cid"):
            made.register(name, groups=[TO])
        made.register("Zoe")
        yield made


def holder(house, ticket):
    return show(house, ticket)["targetAgent"]


def watch(house, name, **more):
    return house.begin(f"agent:{name}", "inbox.watch", {"agentId": name, "waitMs": 25_000, **more})


# -- who is in --


def test_a_group_is_listed_with_its_members_and_is_online_with_them(house):
    listed = {each["agentId"]: each for each in house.call("local", "agents.list")}
    assert listed[TO]["type"] == "group"
    assert listed[TO]["metadata"] == {"members": ["Ann", "Bob", "Cid"]}
    assert listed["Ann"]["groups"] == [TO]
    assert "groups" not in listed["Zoe"]
    assert status_of(house, TO) == "online"
    house.advance(31 * 60)
    assert status_of(house, TO) == "offline"


def test_a_name_is_an_agent_s_or_a_group_s(house):
    with pytest.raises(Conflict, match="is a group"):
        house.register(TO)
    for groups in (["Zoe"], ["Dan"]):
        with pytest.raises(Conflict, match="has the name of an agent"):
            house.register("Dan", groups=groups)
    for group in ("person", "spc_0123456789abcdef0123"):
        with pytest.raises(InvalidRequest, match="is reserved"):
            house.register("Dan", groups=[group])


def test_a_reconnect_stays_in_its_groups_unless_it_says_otherwise(house):
    def groups_of(name):
        return {each["agentId"]: each.get("groups", []) for each in house.call("local", "agents.list")}[name]

    house.call("agent:Ann", "agents.register", {"agentId": "Ann"})
    assert groups_of("Ann") == [TO]
    house.call("agent:Ann", "agents.register", {"agentId": "Ann", "groups": []})
    assert groups_of("Ann") == []
    for name in ("Bob", "Cid"):
        house.call(f"agent:{name}", "agents.register", {"agentId": name, "groups": []})
    with pytest.raises(NotFound, match="agent not registered"):
        send(house, to=TO)


# -- one message, one member --


def test_a_message_goes_to_one_member_that_waits(house):
    polls = {name: poll(house, name) for name in ("Ann", "Bob", "Cid")}
    first = send(house, to=TO)
    got = [name for name, each in polls.items() if each.done]
    assert len(got) == 1
    item = polls[got[0]].result()["messages"][0]
    assert (item["ticketId"], item["group"]) == (first, TO)
    assert show(house, first)["group"] == TO
    assert holder(house, first) == got[0]


def test_members_that_wait_take_turns(house):
    streams = {name: house.call(f"agent:{name}", "inbox.stream", {"agentId": name}) for name in ("Ann", "Bob", "Cid")}
    for round_ in range(4):
        for _ in range(3):
            send(house, to=TO)
        got = {name: [item["ticketId"] for item in each.items()] for name, each in streams.items()}
        assert [len(tickets) for tickets in got.values()] == [1, 1, 1], round_
        for name, tickets in got.items():
            reply(house, tickets[0], by=f"agent:{name}")


def test_what_nobody_is_free_for_waits_for_the_first_who_is(house):
    tickets = [send(house, to=TO) for _ in range(3)]
    assert take_ids(house, "Bob") == [tickets[0]]
    # One in hand: the rest is for others.
    assert take_ids(house, "Bob") == []
    assert take_ids(house, "Ann") == [tickets[1]]
    ack(house, tickets[0], agent_id="Bob")
    assert take_ids(house, "Bob") == [tickets[2]]


def test_a_member_s_own_messages_come_first(house):
    shared = send(house, to=TO)
    own = send(house, to="Ann")
    assert take_ids(house, "Ann") == [own]
    assert take_ids(house, "Ann") == [shared]


def test_a_member_that_writes_to_its_own_group_gets_another_s_attention(house):
    mine = poll(house, "Ann")
    asked = send(house, to=TO, by="agent:Ann")
    next_ = send(house, to=TO)
    assert ids_of(mine.result()) == [next_]
    assert take_ids(house, "Ann") == []
    assert take_ids(house, "Bob") == [asked]


def test_somebody_outside_the_group_gets_nothing(house):
    waiting = poll(house, "Zoe")
    send(house, to=TO)
    with pytest.raises(StillWaiting):
        waiting.result()


def test_a_bell_rings_at_one_member_only_and_at_the_next_when_it_is_not_heard(house):
    bells = {name: watch(house, name, by="wrap", skipRung="own") for name in ("Ann", "Bob")}
    ticket = send(house, to=TO)
    rung = [name for name, each in bells.items() if each.done]
    assert len(rung) == 1
    assert holder(house, ticket) == rung[0]
    # Longer than a lease: nobody fetched it.
    other = next(name for name in bells if name not in rung)
    house.advance(50)
    again = watch(house, other, by="wrap", skipRung="own")
    assert not again.done
    house.advance(11)
    assert again.result()["unread"] == 1
    assert holder(house, ticket) == other
    assert take_ids(house, other) == [ticket]


# -- death --


def test_a_message_whose_lease_ends_goes_to_another_member_and_says_so(house):
    ticket = send(house, to=TO)
    assert take_ids(house, "Ann") == [ticket]
    waiting = poll(house, "Bob", wait_ms=60_000)
    house.advance(61)
    if not waiting.done:
        waiting = poll(house, "Bob")
    item = waiting.result()["messages"][0]
    assert (item["ticketId"], item["attempts"]) == (ticket, 2)
    assert [event["detail"] for event in events_named(house, "ticket.reoffered")] == ["Ann had it"]


def test_a_message_is_offered_again_when_the_member_that_works_on_it_dies(house):
    connection = house.connect("Ann")
    ticket = send(house, to=TO)
    assert take_ids(house, "Ann") == [ticket]
    ack(house, ticket, agent_id="Ann")
    assert show(house, ticket)["status"] == "delivered"
    waiting = poll(house, "Bob")
    house.disconnect("Ann", connection)
    with pytest.raises(StillWaiting):
        waiting.result()
    house.advance(GRACE_MS / 1000 + 0.1)
    assert ids_of(waiting.result()) == [ticket]
    assert show(house, ticket)["status"] == "pending"
    reply(house, ticket, "done", by="agent:Bob")
    assert answer(house, ticket)["payload"] == "done"


def test_a_connection_lost_for_a_moment_is_not_a_death(house):
    connection = house.connect("Ann")
    ticket = send(house, to=TO)
    take_ids(house, "Ann")
    ack(house, ticket, agent_id="Ann")
    house.disconnect("Ann", connection)
    house.connect("Ann")
    house.advance(GRACE_MS / 1000 + 0.1)
    assert holder(house, ticket) == "Ann"


def test_a_stream_that_closes_gives_its_message_to_another_member_at_once(house):
    stream = house.call("agent:Ann", "inbox.stream", {"agentId": "Ann"})
    ticket = send(house, to=TO)
    assert [item["ticketId"] for item in stream.items()] == [ticket]
    waiting = poll(house, "Bob")
    stream.close()
    assert ids_of(waiting.result()) == [ticket]


def test_the_one_that_was_slow_may_still_answer(house):
    ticket = send(house, to=TO)
    take_ids(house, "Ann")
    house.advance(61)
    assert take_ids(house, "Bob") == [ticket]
    reply(house, ticket, "late but right", by="agent:Ann")
    assert answer(house, ticket)["payload"] == "late but right"
    with pytest.raises(Forbidden):
        reply(house, send(house, to=TO), by="agent:Zoe")


def test_a_group_s_messages_survive_a_restart_and_nobody_has_what_was_not_acknowledged(house):
    tickets = [send(house, to=TO) for _ in range(2)]
    take_ids(house, "Ann")
    working = take(house, "Bob")[0]["ticketId"]
    ack(house, working, agent_id="Bob")
    house.restart(clean=False)
    house.advance(0.1)
    assert holder(house, tickets[0]) == TO
    assert holder(house, working) == "Bob"
    assert take_ids(house, "Cid") == [tickets[0]]


def test_what_is_moved_is_in_the_ledger(house):
    ticket = send(house, to=TO)
    take_ids(house, "Ann")
    house.advance(61)
    moved = [(each["method"], each["details"]) for each in house.ledger() if each.get("subject") == ticket][1:]
    assert moved == [
        ("tickets.assign", {"from": TO, "to": "Ann"}),
        ("tickets.reoffer", {"from": "Ann", "to": TO}),
    ]


class Story:
    """Members that come, take, acknowledge, answer, die and return."""

    def __init__(self, house, draw):
        self.house, self.draw = house, draw
        self.names = ["Ann", "Bob", "Cid"]
        self.sent, self.answered = [], []
        self.words = 0
        self.connections, self.held = {}, {}
        for name in self.names:
            house.register(name, groups=[TO])
            self.come(name)

    def come(self, name):
        if not self.connections.get(name):
            self.connections[name] = self.house.connect(name)
            self.held[name] = []

    def take(self, name):
        if self.connections[name]:
            self.held[name] += take_ids(self.house, name)

    def ack(self, name):
        if self.held[name]:
            ack(self.house, self.held[name][-1], agent_id=name)

    def answer(self, name):
        if self.held[name]:
            ticket = self.held[name].pop()
            # The same words again would be taken for a retry.
            self.words += 1
            first = reply(self.house, ticket, f"{self.words} by {name}", by=f"agent:{name}")["first"]
            self.answered += [ticket] if first else []

    def die(self, name):
        if self.connections[name]:
            self.house.disconnect(name, self.connections[name])
            self.connections[name], self.held[name] = None, []
            self.house.advance(3)

    def send(self, _name):
        self.sent.append(send(self.house, to=TO))

    def wait(self, _name):
        self.house.advance(self.draw.choice([0.1, 5, 30]))

    def step(self):
        acts = [self.send, self.send, self.take, self.take, self.ack, self.answer, self.die, self.come, self.wait]
        self.draw.choice(acts)(self.draw.choice(self.names))


@pytest.mark.parametrize("seed", range(20))
def test_through_any_story_each_message_is_held_by_one_and_answered_once(seed):
    with House() as house:
        story = Story(house, random.Random(seed))
        for _ in range(120):
            story.step()
        for name in story.names:
            story.die(name)
        house.advance(70)
        # Whoever is left works the rest off: nothing stayed with the dead.
        story.come("Ann")
        for _ in story.sent:
            story.take("Ann")
            story.answer("Ann")
        assert sorted(story.answered) == sorted(story.sent)
        assert {show(house, ticket)["status"] for ticket in story.sent} == {"responded"}


# -- broadcast: all, or the first few --


@pytest.fixture
def asked(house):
    answer = house.call("local", "messages.broadcast", {"payload": "ready?", "agentIds": ["Ann", "Bob", "Cid"]})
    return [each["ticketId"] for each in answer["tickets"]]


def gather(house, tickets, *, by="local", **more):
    return house.begin(by, "replies.gather", {"ticketIds": tickets, **more})


def test_all_answers_are_awaited_in_one_call(house, asked):
    waiting = gather(house, asked)
    for ticket, name in zip(asked[:2], ("Ann", "Bob"), strict=True):
        reply(house, ticket, f"{name} is", by=f"agent:{name}")
        assert not waiting.done
    reply(house, asked[2], "Cid is", by="agent:Cid")
    result = waiting.result()
    assert [each["payload"] for each in result["replies"]] == ["Ann is", "Bob is", "Cid is"]
    assert (result["done"], result.get("open", [])) == (True, [])


def test_the_first_few_answers_are_enough_when_that_is_asked(house, asked):
    waiting = gather(house, asked, count=2)
    reply(house, asked[2], "third", by="agent:Cid")
    assert not waiting.done
    reply(house, asked[0], "first", by="agent:Ann")
    result = waiting.result()
    assert [each["payload"] for each in result["replies"]] == ["first", "third"]
    assert (result["done"], result["open"]) == (True, [asked[1]])


def test_when_too_few_can_still_answer_nobody_waits_longer(house, asked):
    waiting = gather(house, asked, count=3)
    house.call("local", "tickets.cancel", {"ticketId": asked[0]})
    result = waiting.result()
    assert result["done"] is True
    assert [each["status"] for each in result["replies"]] == ["cancelled"]


def test_time_runs_out_with_what_there_is(house, asked):
    waiting = gather(house, asked, waitMs=5_000)
    reply(house, asked[0], by="agent:Ann")
    house.advance(5.1)
    result = waiting.result()
    assert (result["done"], result["open"]) == (False, asked[1:])
    assert len(result["replies"]) == 1
    assert house.call("local", "replies.gather", {"ticketIds": asked, "waitMs": 0})["open"] == asked[1:]


def test_only_the_sides_of_a_ticket_may_wait_for_it(house, asked):
    with pytest.raises(Forbidden, match="is not yours"):
        gather(house, asked, by="agent:Zoe")
    with pytest.raises(NotFound, match="unknown ticket"):
        gather(house, ["nope"])


def test_a_caller_that_leaves_leaves_no_wait_behind(house, asked):
    before = house.broker.waits.count()
    waiting = gather(house, asked)
    assert house.broker.waits.count() == before + 3
    waiting.cancel()
    assert house.broker.waits.count() == before
    done = gather(house, asked, count=1)
    reply(house, asked[0], by="agent:Ann")
    assert done.done
    assert house.broker.waits.count() == before
