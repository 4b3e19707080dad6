"""Answering: first, late, second and repeated replies, and who may."""

import pytest
from broker_acts import JERRY, SPOCK, ack, answer, cancel, events_named, reply, send, show, take, wait

from bascule.broker.limits import BrokerLimits
from bascule.foundation.agreement import MAX_LINK_FRAME_BYTES
from bascule.foundation.errors import Conflict, Forbidden, NotFound
from gabp import codec

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


# -- answers that fit into one frame --

LARGE = "x" * (1024 * 1024 - 2)


def encoded(answer):
    return len(codec.encode(answer))


def settled_with_large_answers(house, count):
    tickets = [f"t{number}" for number in range(count)]
    for ticket in tickets:
        send(house, ticket, by=SPOCK)
        reply(house, ticket, LARGE)
    return tickets


def test_gathered_answers_come_in_parts_that_fit_into_a_frame(house):
    left = tickets = settled_with_large_answers(house, 9)
    seen = []
    while left:
        part = house.call(SPOCK, "replies.gather", {"ticketIds": left})
        assert part["done"]
        assert encoded(part) < MAX_LINK_FRAME_BYTES
        seen += [each["ticketId"] for each in part["replies"]]
        left = part.get("more", [])
    assert seen == tickets


def test_without_its_bound_the_same_gathering_would_be_larger_than_a_frame(house, monkeypatch):
    """The control of the test above."""
    monkeypatch.setattr("bascule.broker.gathering.MAX_HANDOVER_BYTES", 1 << 40)
    tickets = settled_with_large_answers(house, 9)
    assert encoded(house.call(SPOCK, "replies.gather", {"ticketIds": tickets})) > MAX_LINK_FRAME_BYTES


def test_what_a_gathering_leaves_out_for_its_size_counts_as_answered(house):
    tickets = settled_with_large_answers(house, 6)
    send(house, "open", by=SPOCK)
    answer = house.call(SPOCK, "replies.gather", {"ticketIds": [*tickets, "open"], "count": 6, "waitMs": 60_000})
    assert answer["done"]
    assert answer["open"] == ["open"]
    assert len(answer["replies"]) + len(answer["more"]) == 6


def test_later_replies_come_in_parts_and_the_first_is_in_each(house):
    """Any receiver can post a hundred of them: the reply that its sender waits for stays readable."""
    send(house, "t", by=SPOCK)
    for number in range(12):
        reply(house, "t", f"{number} {LARGE[:-3]}")
    seen, more = [], 1
    while more:
        part = house.call(SPOCK, "replies.wait", {"ticketId": "t", "after": len(seen)})
        assert encoded(part) < MAX_LINK_FRAME_BYTES
        assert part["payload"].startswith("0 ")
        seen += [each["payload"].partition(" ")[0] for each in part["replies"]]
        more = part.get("more", 0)
        assert len(seen) + more == 12
    assert seen == [str(number) for number in range(12)]


def test_metadata_counts_for_the_size_of_an_answer(house):
    send(house, "t", by=SPOCK)
    for number in range(100):
        reply(house, "t", number, metadata={"x": "y" * 60_000})
    part = house.call(SPOCK, "replies.wait", {"ticketId": "t"})
    assert encoded(part) < MAX_LINK_FRAME_BYTES
    assert len(part["replies"]) + part["more"] == 100


def test_a_ticket_and_a_conversation_fit_into_a_frame(house):
    for number in range(9):
        send(house, f"t{number}", LARGE, by=SPOCK, conversationId="thread")
    for number in range(9):
        reply(house, "t8", f"{number} {LARGE[:-3]}")
    shown = house.call(SPOCK, "tickets.show", {"ticketId": "t8"})
    assert encoded(shown) < MAX_LINK_FRAME_BYTES
    assert len(shown["replies"]) + shown["moreReplies"] == 9
    seen, before = [], {}
    while True:
        part = house.call(SPOCK, "conversations.show", {"conversationId": "thread", **before})
        assert encoded(part) < MAX_LINK_FRAME_BYTES
        seen = [each["ticketId"] for each in part["tickets"]] + seen
        if not part.get("more"):
            break
        before = {"before": seen[0]}
    assert seen == [f"t{number}" for number in range(9)]
