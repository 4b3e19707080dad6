"""Limits: one that is full says so and leaves the others alone."""

import pytest
from broker_acts import SPOCK, ack, cancel, reply, send, take, take_ids

from bascule.broker.limits import BrokerLimits
from bascule.foundation.errors import Overloaded


def house_with(make_house, **limits):
    house = make_house(limits=BrokerLimits(**limits))
    house.register("Jerry")
    house.register("Spock")
    return house


def test_a_full_inbox_refuses_and_says_when_to_come_back(make_house):
    house = house_with(make_house, max_inbox_messages=2)
    send(house, "a")
    send(house, "b")
    with pytest.raises(Overloaded, match="the inbox of Jerry is full") as refused:
        send(house, "c")
    assert refused.value.retry_after == 5.0
    assert refused.value.details == {"agentId": "Jerry", "agentStatus": "online"}


def test_one_full_inbox_leaves_the_others_untouched(make_house):
    house = house_with(make_house, max_inbox_messages=1)
    send(house, "a")
    with pytest.raises(Overloaded):
        send(house)
    send(house, "b", to="Spock")
    assert take_ids(house, "Spock") == ["b"]


def test_a_message_under_a_lease_still_takes_its_place(make_house):
    house = house_with(make_house, max_inbox_messages=1)
    send(house, "a")
    take(house)
    with pytest.raises(Overloaded):
        send(house)


@pytest.mark.parametrize("makes_room", [ack, reply, cancel])
def test_a_full_inbox_has_room_again_once_a_message_is_out(make_house, makes_room):
    house = house_with(make_house, max_inbox_messages=1)
    send(house, "a")
    makes_room(house, "a")
    send(house, "b")


def test_an_inbox_is_also_bounded_by_bytes(make_house):
    house = house_with(make_house, max_inbox_bytes=100)
    send(house, "a", "x" * 48)
    send(house, "b", "x" * 48)
    with pytest.raises(Overloaded, match=r"\(2 messages, 100 bytes\)"):
        send(house, "c", "")
    ack(house, "a")
    send(house, "c", "x" * 48)


def test_one_sender_fills_its_share_of_an_inbox_and_nobody_elses(make_house):
    house = house_with(make_house, max_inbox_messages=10, max_inbox_messages_per_sender=3)
    for name in ("a", "b", "c"):
        send(house, name)
    with pytest.raises(Overloaded, match=r"in the inbox of Jerry: one sender's share is 3 messages") as full:
        send(house, "d")
    assert "max_inbox_messages_per_sender" in full.value.hint
    assert full.value.details == {"agentId": "Jerry", "agentStatus": "online"}
    send(house, "e", by=SPOCK)
    send(house, "f", to="Spock")
    ack(house, "a")
    send(house, "d")
    house.restart()
    with pytest.raises(Overloaded, match="local has 3 messages"):
        send(house, "g")


def test_a_senders_share_is_also_bounded_by_bytes(make_house):
    house = house_with(make_house, max_inbox_bytes_per_sender=100)
    send(house, "a", "x" * 48)
    send(house, "b", "x" * 48)
    with pytest.raises(Overloaded, match=r"local has 2 messages \(100 bytes\)"):
        send(house, "c", "")
    send(house, "c", "x" * 48, by=SPOCK)
    cancel(house, "a")
    send(house, "d", "x" * 48)


def test_a_broadcast_reaches_those_where_the_sender_has_room(make_house):
    house = house_with(make_house, max_inbox_messages_per_sender=1)
    send(house, "a")
    answer = house.call("local", "messages.broadcast", {"payload": "all", "agentIds": ["Jerry", "Spock"]})
    assert [each["agentId"] for each in answer["tickets"]] == ["Spock"]
    assert [each["agentId"] for each in answer["failed"]] == ["Jerry"]
    assert "one sender's share is 1 messages" in answer["failed"][0]["error"]["message"]


def test_the_queue_of_a_group_has_a_share_for_each_sender(make_house):
    house = make_house(limits=BrokerLimits(max_inbox_messages_per_sender=2))
    for name in ("Jerry", "Spock"):
        house.register(name)
    house.register("Ann", groups=["crew"])
    send(house, "a", to="crew")
    send(house, "b", to="crew")
    with pytest.raises(Overloaded, match="in the inbox of crew: one sender's share is 2"):
        send(house, "c", to="crew")
    send(house, "c", to="crew", by=SPOCK)


def test_what_was_refused_leaves_nothing_behind(make_house):
    house = house_with(make_house, max_inbox_messages=1)
    send(house, "a")
    tickets = house.call("local", "tickets.list")
    for _ in range(3):
        with pytest.raises(Overloaded):
            send(house, "b")
    assert house.call("local", "tickets.list") == tickets
    ack(house, "a")
    send(house, "b")


def test_open_tickets_of_one_sender_are_bounded_and_other_senders_are_untouched(make_house):
    house = house_with(make_house, max_open_tickets=2)
    send(house, "a")
    send(house, "b", to="Spock")
    with pytest.raises(Overloaded, match="local has 2 open tickets") as refused:
        send(house, "c")
    assert refused.value.retry_after == 1.0
    send(house, "c", by=SPOCK)


@pytest.mark.parametrize("settles", [reply, cancel])
def test_a_settled_ticket_is_no_longer_open(make_house, settles):
    house = house_with(make_house, max_open_tickets=1)
    send(house, "a")
    ack(house, "a")
    with pytest.raises(Overloaded):
        send(house, "b")
    settles(house, "a")
    send(house, "b")
    assert house.call("local", "daemon.status")["ticketsOpen"] == 1


def test_a_timed_out_ticket_is_no_longer_open(make_house):
    house = house_with(make_house, max_open_tickets=1)
    send(house, "a", timeoutMs=1_000)
    house.advance(1)
    send(house, "b")


def test_a_delivered_message_without_an_expected_reply_is_no_longer_open(make_house):
    house = house_with(make_house, max_open_tickets=1)
    send(house, "a", expectReply=False)
    ack(house, "a")
    assert house.call("local", "daemon.status")["ticketsOpen"] == 0
    send(house, "b", expectReply=False)


def test_a_retry_is_answered_though_everything_is_full(make_house):
    house = house_with(make_house, max_open_tickets=1, max_inbox_messages=1)
    send(house, "a")
    assert send(house, "a") == "a"


def test_agents_are_bounded_and_those_who_are_there_can_come_back(make_house):
    house = make_house(limits=BrokerLimits(max_agents=1))
    house.register("Jerry")
    with pytest.raises(Overloaded, match="1 agents are registered"):
        house.register("Spock")
    house.call("agent:Jerry", "agents.register", {"agentId": "Jerry"})
