"""Limits: one that is full says so and leaves the others alone."""

import pytest
from broker_acts import SPOCK, ack, cancel, reply, send, take, take_ids

from bascule.bridges.broker.limits import Limits
from bascule.errors import Overloaded


def house_with(make_house, **limits):
    house = make_house(limits=Limits(**limits))
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
    house = make_house(limits=Limits(max_agents=1))
    house.register("Jerry")
    with pytest.raises(Overloaded, match="1 agents are registered"):
        house.register("Spock")
    house.call("agent:Jerry", "agents.register", {"agentId": "Jerry"})
