"""Hand-over is a lease: nothing is lost with a receiver that dies, and nothing overtakes."""

import pytest
from broker_acts import JERRY, ack, events_named, ids_of, poll, send, show, take, take_ids

from bascule.broker.limits import BrokerLimits
from bascule.foundation.errors import Forbidden

LEASE = 60


def test_a_taken_message_is_not_given_to_a_second_taker(house):
    send(house, "t")
    assert take_ids(house) == ["t"]
    assert take_ids(house) == []


def test_taking_leaves_the_ticket_pending_until_it_is_acknowledged(house):
    send(house, "t")
    take(house)
    assert show(house, "t")["status"] == "pending"
    ack(house, "t")
    assert show(house, "t")["status"] == "delivered"


def test_an_unacknowledged_message_is_offered_again_when_its_lease_is_over(house):
    send(house, "t")
    take(house)
    house.advance(LEASE - 1)
    assert take(house) == []
    house.advance(1)
    (again,) = take(house)
    assert (again["ticketId"], again["attempts"]) == ("t", 2)
    assert show(house, "t")["attempts"] == 2


def test_an_acknowledged_message_does_not_come_again(house):
    send(house, "t")
    take(house)
    ack(house, "t")
    house.advance(2 * LEASE)
    assert take(house) == []


def test_a_lease_that_ends_wakes_a_poll_that_waits(house):
    send(house, "t")
    take(house)
    house.advance(LEASE - 1)
    waiting = poll(house)
    house.advance(1)
    assert ids_of(waiting.result()) == ["t"]


def test_a_message_that_goes_out_again_makes_no_other_lease_longer(house):
    send(house, "a")
    take(house)
    house.advance(10)
    send(house, "b")
    take(house)
    house.advance(LEASE - 11)
    waiting = poll(house)
    house.advance(1)
    # The lease of `a` is over, and the poll has it for another minute; that of `b` ends in ten seconds all the same.
    assert ids_of(waiting.result()) == ["a"]
    house.advance(9)
    assert take_ids(house) == []
    house.advance(1)
    assert take_ids(house) == ["b"]


def test_messages_come_in_the_order_of_sending(house):
    for name in "abcde":
        send(house, name)
    assert take_ids(house, count=2) == ["a", "b"]
    assert take_ids(house, count=32) == ["c", "d", "e"]


def test_the_answer_says_how_many_wait_behind_it(house):
    for name in "abc":
        send(house, name)
    taken = house.call(JERRY, "inbox.take", {"agentId": "Jerry", "max": 2})
    assert taken["remaining"] == 1


def test_messages_of_one_lease_come_again_in_order_and_before_newer_ones(house):
    for name in "abc":
        send(house, name)
    take_ids(house, count=2)
    house.advance(LEASE)
    assert take_ids(house) == ["a", "b", "c"]


def test_messages_of_several_leases_come_again_in_the_order_of_sending(house):
    for name in "abc":
        send(house, name)
    take_ids(house, count=1)
    house.advance(1)
    take_ids(house, count=1)
    house.advance(LEASE)
    assert take_ids(house) == ["a", "b", "c"]


def test_after_five_leases_an_event_says_that_something_is_wrong(house):
    send(house, "t")
    for _ in range(4):
        take(house)
        house.advance(LEASE)
    assert events_named(house, "ticket.undeliverable") == []
    take(house)
    house.advance(LEASE)
    (event,) = events_named(house, "ticket.undeliverable")
    assert (event["ticketId"], event["agentId"]) == ("t", "Jerry")
    assert event["detail"] == "handed over 5 times and never acknowledged"
    take(house)
    house.advance(LEASE)
    assert len(events_named(house, "ticket.undeliverable")) == 1
    assert take_ids(house) == ["t"]


def test_the_event_also_comes_when_the_fifth_receiver_was_gone_before_its_answer(house):
    send(house, "t")
    for _ in range(4):
        take(house)
        house.advance(LEASE)
    poll(house).abandon()
    take(house)
    house.advance(LEASE)
    assert len(events_named(house, "ticket.undeliverable")) == 1


def test_the_lease_and_the_attempts_are_settings(make_house):
    house = make_house(limits=BrokerLimits(lease_ms=500, undeliverable_after=1))
    house.register("Jerry")
    send(house, "t")
    assert take(house)[0]["leaseMs"] == 500
    house.advance(0.5)
    assert len(events_named(house, "ticket.undeliverable")) == 1


# -- acknowledging --


def test_what_was_never_taken_can_be_acknowledged(house):
    send(house, "t")
    assert ack(house, "t") == {"acked": ["t"]}
    assert take(house) == []


def test_acknowledging_twice_is_the_same_as_once(house):
    send(house, "t")
    ack(house, "t")
    records = len(house.ledger())
    assert ack(house, "t") == {"acked": ["t"]}
    assert len(house.ledger()) == records


def test_ids_that_are_not_in_this_inbox_are_named_and_left_alone(house):
    send(house, "mine")
    send(house, "other", to="Spock")
    assert ack(house, "mine", "other", "never") == {"acked": ["mine"], "unknown": ["other", "never"]}
    assert show(house, "other")["status"] == "pending"


def test_many_messages_are_acknowledged_in_one_record(house):
    for name in "abc":
        send(house, name)
    ack(house, "a", "b", "c")
    record = house.ledger()[-1]
    assert (record["method"], record["subject"]) == ("inbox.ack", "Jerry")
    assert record["details"] == {"tickets": ["a", "b", "c"]}


@pytest.mark.parametrize("other", ["agent:Spock", "local", "person"])
def test_nobody_reads_or_acknowledges_for_another(house, other):
    send(house, "t")
    with pytest.raises(Forbidden, match=f"{other} may not act as Jerry"):
        house.call(other, "inbox.take", {"agentId": "Jerry"})
    with pytest.raises(Forbidden):
        house.call(other, "inbox.ack", {"agentId": "Jerry", "ticketIds": ["t"]})
    with pytest.raises(Forbidden):
        house.call(other, "inbox.stream", {"agentId": "Jerry"})
    assert take_ids(house) == ["t"]
