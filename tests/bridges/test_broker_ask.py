"""An ask in one call: `messages.send` with `waitMs`."""

import pytest
from broker_acts import JERRY, SPOCK, cancel, reply, send, show, take, wait

from bascule.broker.limits import BrokerLimits
from bascule.foundation.errors import Conflict, Overloaded, StorageFull
from bascule.testing.stores import HeldStore


def ask(house, ticket_id="t", *, by="local", wait_ms=25_000, **params):
    body = {"agentId": "Jerry", "payload": "hi", "ticketId": ticket_id, "waitMs": wait_ms, **params}
    return house.begin(by, "messages.send", body)


def test_ask_returns_the_reply(house):
    asked = ask(house)
    assert not asked.done
    assert [message["ticketId"] for message in take(house)] == ["t"]
    reply(house, "t", "forty-two")
    answer = asked.result()
    assert (answer["ticketId"], answer["status"]) == ("t", "responded")
    assert (answer["reply"]["payload"], answer["reply"]["from"]) == ("forty-two", "Jerry")
    assert answer["reply"] == wait(house, "t").result()


def test_an_ask_that_does_not_wait_is_a_send(house):
    assert ask(house, wait_ms=0).result() == house.call(
        "local", "messages.send", {"agentId": "Jerry", "payload": "hi", "ticketId": "t"}
    )


def test_an_ask_whose_time_is_over_answers_like_a_send_and_the_ticket_goes_on(house):
    asked = ask(house, wait_ms=1_000)
    house.advance(1)
    assert (asked.result()["status"], "reply" in asked.result()) == ("pending", False)
    reply(house, "t")
    assert wait(house, "t").result()["status"] == "responded"


@pytest.mark.parametrize(
    ("end", "status"),
    [(lambda house: cancel(house, "t"), "cancelled"), (lambda house: house.advance(5), "timeout")],
    ids=["cancelled", "timed out"],
)
def test_a_ticket_that_ends_otherwise_is_reported_as_such(house, end, status):
    asked = ask(house, timeoutMs=5_000)
    end(house)
    assert (asked.result()["status"], asked.result()["reply"]["status"]) == (status, status)


def test_a_message_that_wants_no_reply_is_waited_for_until_it_is_delivered(house):
    asked = ask(house, expectReply=False)
    take(house)
    house.call(JERRY, "inbox.ack", {"agentId": "Jerry", "ticketIds": ["t"]})
    assert asked.result()["status"] == "delivered"


def test_the_same_ask_again_waits_for_the_same_ticket(house):
    first, again = ask(house), ask(house)
    assert len(take(house)) == 1
    reply(house, "t")
    assert first.result() == again.result() == ask(house).result()


def test_another_message_under_the_same_id_is_refused(house):
    ask(house)
    with pytest.raises(Conflict):
        ask(house, payload="something else")


def test_an_ask_whose_caller_leaves_has_sent_the_message(house):
    asked = ask(house)
    asked.leave()
    assert [message["ticketId"] for message in take(house)] == ["t"]
    reply(house, "t")
    assert show(house, "t")["status"] == "responded"


def test_an_ask_beyond_the_limit_of_waits_sends_nothing(make_house):
    house = make_house(limits=BrokerLimits(max_waits=1))
    house.register("Jerry")
    held = ask(house, by=SPOCK)
    with pytest.raises(Overloaded):
        ask(house, "t-2", by=SPOCK)
    assert [message["ticketId"] for message in take(house)] == ["t"]
    reply(house, "t")
    assert held.result()["status"] == "responded"
    assert not ask(house, "t-2", by=SPOCK).done


def test_one_record_in_the_ledger(house):
    ask(house)
    reply(house, "t")
    records = [(each["method"], each["subject"]) for each in house.ledger() if each.get("subject") == "t"]
    assert records == [("messages.send", "t"), ("replies.post", "t")]


# -- while the disk takes its time --


@pytest.fixture
def slow(make_house):
    store = HeldStore(hold=False)
    house = make_house(store=store)
    house.register("Jerry")
    store.hold = True
    return house, store


def test_time_that_is_over_before_the_message_is_durable_is_reported_only_then(slow):
    house, store = slow
    asked = ask(house, wait_ms=1_000)
    house.advance(2)
    assert not asked.done
    house.run(store.finish_all)
    house.advance(1)
    assert asked.result()["status"] == "pending"


def test_a_message_that_could_not_be_stored_is_not_waited_for(slow):
    house, store = slow
    asked = ask(house)
    house.run(store.fail)
    with pytest.raises(StorageFull):
        asked.result()
    store.hold = False
    assert house.broker.waits.count() == 0
    assert take(house) == []
    assert send(house, "t") == "t"
