"""Answering: first, late, second and repeated replies, and who may."""

import pytest
from broker_acts import JERRY, SPOCK, ack, answer, cancel, events_named, reply, send, show, take, wait

from bascule.broker.limits import BrokerLimits
from bascule.foundation.errors import Conflict, Forbidden, NotFound

SECOND = 1_000


def test_a_reply_answers_with_payload_sender_and_latency(house):
    send(house, "t", by=SPOCK)
    house.advance(4.523)
    assert reply(house, "t", {"joke": 1}, metadata={"status": "completed"}) == {
        "ticketId": "t",
        "status": "responded",
        "first": True,
    }
    assert answer(house, "t", by=SPOCK) == {
        "ticketId": "t",
        "status": "responded",
        "payload": {"joke": 1},
        "latencyMs": 4523,
        "metadata": {"status": "completed"},
        "from": "Jerry",
    }


def test_a_reply_acknowledges_the_message(house):
    send(house, "t")
    take(house)
    reply(house, "t")
    house.advance(61)
    assert take(house) == []
    assert "ackedAt" in show(house, "t")


def test_every_waiter_of_a_ticket_is_woken(house):
    send(house, "t")
    waiting = [wait(house, "t") for _ in range(3)]
    reply(house, "t", "to all")
    assert [each.result()["payload"] for each in waiting] == ["to all"] * 3


def test_a_late_reply_still_answers_and_is_marked(house):
    send(house, "t", timeoutMs=SECOND)
    house.advance(2)
    assert answer(house, "t")["status"] == "timeout"
    assert reply(house, "t", "slow")["late"] is True
    late = answer(house, "t")
    assert (late["status"], late["payload"], late["late"], late["latencyMs"]) == (
        "responded",
        "slow",
        True,
        2000,
    )


def test_a_second_reply_is_kept_behind_the_first(house):
    send(house, "t")
    reply(house, "t", "one")
    house.advance(1)
    assert reply(house, "t", "two")["first"] is False
    answered = answer(house, "t")
    assert answered["payload"] == "one"
    assert [item["payload"] for item in answered["replies"]] == ["one", "two"]
    assert [item["at"][-7:] for item in answered["replies"]] == ["00.000Z", "01.000Z"]
    assert len(events_named(house, "ticket.extra_reply")) == 1


def test_a_second_reply_does_not_prolong_the_tickets_life(house):
    send(house, "t")
    reply(house, "t", "one")
    house.advance(29 * 60)
    reply(house, "t", "two")
    house.advance(60)
    with pytest.raises(NotFound, match="ticket expired"):
        show(house, "t")


@pytest.mark.parametrize("replies", [1, 2])
def test_the_same_reply_again_is_a_retry_and_kept_once(house, replies):
    send(house, "t")
    for number in range(replies):
        first = reply(house, "t", f"answer {number}")
    records = len(house.ledger())
    assert reply(house, "t", f"answer {replies - 1}") == first
    assert len(house.ledger()) == records
    assert len(show(house, "t")["replies"]) == replies


def test_a_retried_late_reply_gets_the_same_answer(house):
    send(house, "t", timeoutMs=SECOND)
    house.advance(1)
    assert (
        reply(house, "t") == reply(house, "t") == {"ticketId": "t", "status": "responded", "first": True, "late": True}
    )


def test_replies_behind_one_ticket_are_bounded(make_house):
    house = make_house(limits=BrokerLimits(max_replies=2))
    house.register("Jerry")
    send(house, "t")
    reply(house, "t", 1)
    reply(house, "t", 2)
    with pytest.raises(Conflict, match="ticket t has 2 replies already"):
        reply(house, "t", 3)
    assert reply(house, "t", 2)["first"] is False


def test_a_reply_to_a_cancelled_ticket_says_that_it_was_cancelled(house):
    send(house, "t")
    cancel(house, "t")
    with pytest.raises(Conflict, match="ticket cancelled"):
        reply(house, "t")


def test_only_the_addressee_replies(house):
    send(house, "t", by=SPOCK)
    for other in (SPOCK, "local", "person"):
        with pytest.raises(Forbidden):
            reply(house, "t", by=other)
    assert show(house, "t")["status"] == "pending"


def test_only_the_sender_and_the_person_cancel(house):
    send(house, "one", by=SPOCK)
    send(house, "two", by=SPOCK)
    for other in (JERRY, "local"):
        with pytest.raises(Forbidden):
            cancel(house, "one", by=other)
    assert cancel(house, "one", by=SPOCK)["status"] == "cancelled"
    assert cancel(house, "two", by="person")["status"] == "cancelled"


def test_cancelling_twice_is_the_same_as_once(house):
    send(house, "t")
    assert cancel(house, "t", reason="first") == cancel(house, "t", reason="second")


def test_only_the_sides_wait_for_a_reply(house):
    send(house, "t", by=SPOCK)
    for other in ("local", "agent:Mallory"):
        with pytest.raises(Forbidden, match="is not a side of ticket t"):
            answer(house, "t", by=other)
    for side in (SPOCK, JERRY, "person"):
        assert answer(house, "t", by=side) is None


# -- no reply expected --


def test_without_an_expected_reply_a_ticket_ends_when_it_is_delivered(house):
    send(house, "t", expectReply=False)
    waiting = wait(house, "t")
    stream = house.call("local", "replies.stream", {"ticketId": "t"})
    ack(house, "t")
    assert waiting.result() == {"ticketId": "t", "status": "delivered"}
    assert stream.items() == [["delivered", {"ticketId": "t", "status": "delivered"}]]
    assert "settledAt" in show(house, "t")
    house.advance(30 * 60)
    with pytest.raises(NotFound, match="ticket expired"):
        show(house, "t")


def test_without_an_expected_reply_a_delivered_ticket_does_not_time_out(house):
    send(house, "t", expectReply=False, timeoutMs=SECOND)
    ack(house, "t")
    house.advance(2)
    assert show(house, "t")["status"] == "delivered"


def test_a_reply_nobody_expected_is_still_stored(house):
    send(house, "t", expectReply=False)
    ack(house, "t")
    assert reply(house, "t", "you should know")["status"] == "responded"
    assert answer(house, "t")["payload"] == "you should know"


def test_a_delivered_ticket_without_an_expected_reply_cannot_be_cancelled(house):
    send(house, "t", expectReply=False)
    ack(house, "t")
    with pytest.raises(Conflict, match="ticket already delivered"):
        cancel(house, "t")


# -- after the end --


@pytest.mark.parametrize("end", [reply, cancel])
def test_a_settled_ticket_expires_after_its_time_to_live(house, end):
    send(house, "t")
    ack(house, "t")
    house.advance(600)
    end(house, "t")
    house.advance(30 * 60 - 1)
    show(house, "t")
    house.advance(1)
    with pytest.raises(NotFound, match="ticket expired") as gone:
        answer(house, "t")
    assert gone.value.details == {"ticketId": "t"}


def test_an_expired_ticket_leaves_no_payload_behind(house):
    send(house, "t", "a secret")
    reply(house, "t", "one")
    reply(house, "t", "two")
    house.advance(30 * 60)
    assert list(house.store.load("messages", object)) == []
    assert house.broker.state.messages.rows == {}


def test_a_ticket_that_never_was_is_unknown_not_expired(house):
    with pytest.raises(NotFound, match="unknown ticket"):
        show(house, "never")


def test_an_expired_id_is_remembered_for_a_day(house):
    send(house, "t")
    reply(house, "t")
    house.advance(30 * 60 + 24 * 3600 - 60)
    with pytest.raises(NotFound, match="ticket expired"):
        show(house, "t")
    house.advance(120)
    with pytest.raises(NotFound, match="unknown ticket"):
        show(house, "t")


def test_a_timed_out_ticket_that_was_never_fetched_outlives_its_time_to_live(house):
    send(house, "t", timeoutMs=SECOND)
    house.advance(3600)
    assert [message["ticketId"] for message in take(house)] == ["t"]
    ack(house, "t")
    house.advance(30 * 60)
    with pytest.raises(NotFound, match="ticket expired"):
        show(house, "t")
