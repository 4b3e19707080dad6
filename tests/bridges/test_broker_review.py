"""What a second reader found: each stays mended."""

import pytest
from broker_acts import JERRY, ack, cancel, reply, send, show, take, wait

from bascule.broker.inbox import MAX_HANDOVER_BYTES
from bascule.broker.limits import BrokerLimits
from bascule.foundation.errors import Overloaded
from bascule.testing.stores import HeldStore

MIB = 1024 * 1024


def test_a_deadline_that_passes_while_a_reply_is_being_stored_does_not_destroy_it(make_house):
    store = HeldStore(hold=False)
    house = make_house(store=store)
    house.register("Jerry")
    send(house, "t", timeoutMs=1_000)
    waiting = wait(house, "t", wait_ms=30_000)
    house.advance(0.9)
    store.hold = True
    replying = house.begin(JERRY, "replies.post", {"ticketId": "t", "payload": "in time"})
    house.advance(0.2)
    house.run(store.finish_all)
    store.hold = False
    house.advance(2)
    assert replying.result()["status"] == "responded"
    assert waiting.result()["payload"] == "in time"
    assert show(house, "t")["status"] == "responded"


def test_what_one_principal_has_said_and_is_kept_is_bounded_even_when_it_is_settled(make_house):
    house = make_house(limits=BrokerLimits(max_kept_messages=3))
    house.register("Jerry")
    for name in "abc":
        send(house, name)
        cancel(house, name)
    with pytest.raises(Overloaded) as refused:
        send(house, "d")
    assert refused.value.retry_after
    house.advance(31 * 60)
    send(house, "d")


def test_kept_bytes_are_counted_for_replies_too_and_come_back_after_a_restart(make_house):
    house = make_house(limits=BrokerLimits(max_kept_bytes=100))
    house.register("Jerry")
    send(house, "t")
    reply(house, "t", payload="x" * 60)
    house.restart()
    with pytest.raises(Overloaded):
        house.call(JERRY, "replies.post", {"ticketId": "t", "payload": "y" * 60})


def test_large_messages_are_handed_over_a_few_at_a_time(house):
    for number in range(8):
        send(house, f"t{number}", payload="x" * (MIB - 100))
    first = take(house, count=8)
    assert 0 < sum(len(item["payload"]) for item in first) <= MAX_HANDOVER_BYTES
    assert len(first) < 8
    ack(house, *[item["ticketId"] for item in first])
    assert take(house, count=8)[0]["ticketId"] == f"t{len(first)}"


def test_two_sweeps_that_meet_forget_an_id_once(make_house):
    store = HeldStore(hold=False)
    house = make_house(store=store, limits=BrokerLimits(remember_ms=1_000, ticket_ttl_ms=1_000))
    house.register("Jerry")
    send(house, "t")
    cancel(house, "t")
    house.advance(1.5)
    house.clock.advance(2)
    store.hold = True
    both = [house.begin("local", "daemon.gc", {}) for _ in range(2)]
    house.run(store.finish_all)
    store.hold = False
    assert [len(each.result()["items"]) > 0 for each in both] == [True, True]
    assert house.broker.state.remembered.rows == {}
