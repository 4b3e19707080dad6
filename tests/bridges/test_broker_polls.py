"""Long polls: first come, first served, and a dead one eats nothing."""

import pytest
from broker_acts import JERRY, ack, ids_of, poll, send, take, take_ids, wait

from bascule.broker.limits import BrokerLimits
from bascule.foundation.errors import Overloaded, StorageFull
from bascule.kernel.call import Call, Principal
from bascule.testing.stores import HeldStore
from gabp import codec


def send_now(house, ticket_id, to="Jerry"):
    """A send that does not let the loop turn: what else a busy moment brings, happens with it."""
    params = codec.encode({"agentId": to, "payload": "hi", "ticketId": ticket_id})
    return lambda: house.gate.call(Call(Principal("local"), "messages.send", params, door="testing"))


def test_a_poll_waits_for_a_message(house):
    waiting = poll(house)
    assert not waiting.done
    send(house, "t")
    assert ids_of(waiting.result()) == ["t"]


def test_a_poll_on_an_empty_inbox_ends_with_nothing(house):
    waiting = poll(house, wait_ms=1_000)
    house.advance(1)
    assert waiting.result() is None
    send(house, "t")
    assert take_ids(house) == ["t"]


def test_a_poll_is_clamped_to_a_minute(house):
    waiting = poll(house, wait_ms=3_600_000)
    house.advance(60)
    assert waiting.result() is None


def test_the_poll_that_came_first_is_served_first(house):
    first, second = poll(house), poll(house)
    send(house, "a")
    assert ids_of(first.result()) == ["a"]
    assert not second.done
    send(house, "b")
    assert ids_of(second.result()) == ["b"]


def test_a_poll_that_just_came_does_not_overtake_one_that_waits(house):
    waiting = poll(house)
    send_now_b = send_now(house, "t")
    late = {}

    def arrive():
        params = codec.encode({"agentId": "Jerry", "waitMs": 0})
        late["answer"] = house.gate.call(Call(Principal(JERRY), "inbox.take", params, door="testing"))

    house.at_once(send_now_b, arrive)
    assert ids_of(waiting.result()) == ["t"]
    assert late["answer"] is None


def test_a_poll_takes_no_more_than_it_asked_for(house):
    first, second = poll(house, count=2), poll(house, count=2)
    house.at_once(*(send_now(house, name) for name in "abc"))
    taken = ids_of(first.result()) + ids_of(second.result())
    assert taken + take_ids(house) == ["a", "b", "c"]


# -- receivers that die --


def test_a_killed_poll_eats_nothing(house):
    poll(house).cancel()
    send(house, "t")
    assert take_ids(house) == ["t"]


def test_a_killed_poll_makes_room_for_the_next(house):
    killed, alive = poll(house), poll(house)
    killed.cancel()
    send(house, "t")
    assert ids_of(alive.result()) == ["t"]


def test_a_poll_killed_in_the_very_moment_a_message_comes_eats_nothing(house):
    killed = poll(house)
    house.at_once(killed.later.cancel, send_now(house, "t"))
    (message,) = take(house)
    assert (message["ticketId"], message["attempts"]) == ("t", 1)


def test_a_poll_killed_in_the_very_moment_a_message_comes_leaves_it_to_the_next_poll(house):
    killed, alive = poll(house), poll(house)
    house.at_once(killed.later.cancel, send_now(house, "t"))
    assert ids_of(alive.result()) == ["t"]


def test_a_poll_and_a_lease_that_end_in_the_same_moment_lose_nothing(house):
    send(house, "t")
    take(house)
    waiting = poll(house, wait_ms=59_000)
    house.stall(61)
    assert waiting.done
    left = take_ids(house) if waiting.result() is None else ids_of(waiting.result())
    assert left == ["t"]


def test_time_goes_on_after_a_poll_and_a_lease_ended_in_the_same_moment(house):
    send(house, "t", timeoutMs=120_000)
    take(house)
    poll(house, wait_ms=59_000)
    house.stall(61)
    waiting = wait(house, "t", wait_ms=60_000)
    house.advance(59)
    assert waiting.result()["status"] == "timeout"


def test_messages_a_client_did_not_get_go_back_to_the_front_in_order(house):
    for name in "abc":
        send(house, name)
    gone = poll(house, count=2)
    assert ids_of(gone.result()) == ["a", "b"]
    gone.abandon()
    assert take_ids(house) == ["a", "b", "c"]


def test_a_message_a_client_did_not_get_goes_to_the_next_poll_at_once(house):
    gone, alive = poll(house), poll(house)
    send(house, "t")
    gone.abandon()
    assert ids_of(alive.result()) == ["t"]


def test_giving_back_what_was_acknowledged_meanwhile_does_not_bring_it_again(house):
    send(house, "t")
    gone = poll(house)
    ack(house, "t")
    gone.abandon()
    assert take_ids(house) == []


def test_a_client_gone_before_an_empty_answer_leaves_nothing_to_give_back(house):
    waiting = poll(house, wait_ms=1_000)
    house.advance(1)
    waiting.abandon()
    assert take_ids(house) == []


def test_a_poll_killed_while_its_answer_waits_for_the_disk_eats_nothing(make_house):
    store = HeldStore(hold=False)
    house = make_house(store=store)
    house.register("Jerry")
    send(house, "t")
    store.hold = True
    house.begin("local", "messages.send", {"agentId": "Jerry", "payload": "unrelated", "ticketId": "u"})
    poll(house).leave()
    house.run(store.finish_all)
    assert take_ids(house) == ["t", "u"]


# -- not before it is durable --


def test_a_message_is_not_handed_over_before_it_is_durable(make_house):
    store = HeldStore(hold=False)
    house = make_house(store=store)
    house.register("Jerry")
    store.hold = True
    sending = house.begin("local", "messages.send", {"agentId": "Jerry", "payload": 1, "ticketId": "t"})
    waiting = poll(house)
    assert not sending.done
    assert not waiting.done
    house.run(store.finish)
    assert sending.result()["ticketId"] == "t"
    assert ids_of(waiting.result()) == ["t"]


def test_a_message_that_could_not_be_stored_is_never_handed_over(make_house):
    store = HeldStore(hold=False)
    house = make_house(store=store)
    house.register("Jerry")
    waiting = poll(house)
    store.hold = True
    sending = house.begin("local", "messages.send", {"agentId": "Jerry", "payload": 1, "ticketId": "t"})
    house.run(store.fail)
    with pytest.raises(StorageFull):
        sending.result()
    assert not waiting.done
    store.hold = False
    send(house, "t", "said otherwise")
    assert waiting.result()["messages"][0]["payload"] == "said otherwise"


# -- limits --


def test_waits_of_one_principal_are_bounded_and_others_are_untouched(make_house):
    house = make_house(limits=BrokerLimits(max_waits=2))
    house.register("Jerry")
    house.register("Spock")
    held = [poll(house), poll(house)]
    with pytest.raises(Overloaded, match="agent:Jerry holds 2 waits already") as refused:
        poll(house)
    assert refused.value.retry_after == 1.0
    poll(house, "Spock")
    held[0].cancel()
    poll(house)


@pytest.mark.parametrize("method", ["inbox.stream", "replies.stream", "events.stream"])
def test_streams_of_one_principal_are_bounded_like_waits(make_house, method):
    house = make_house(limits=BrokerLimits(max_waits=2))
    house.register("Jerry")
    send(house, "t", by=JERRY)
    params = {"inbox.stream": {"agentId": "Jerry"}, "replies.stream": {"ticketId": "t"}}.get(method, {})
    opened = [house.call(JERRY, method, params) for _ in range(2)]
    with pytest.raises(Overloaded):
        house.call(JERRY, method, params)
    opened[0].close()
    house.call(JERRY, method, params)


# -- stopping --


def test_when_the_daemon_stops_everybody_who_waits_gets_an_answer(house):
    send(house, "t")
    waiting = [wait(house, "t"), poll(house, "Spock")]
    streams = [
        house.call("local", "replies.stream", {"ticketId": "t"}),
        house.call("agent:Spock", "inbox.stream", {"agentId": "Spock"}),
        house.call("local", "events.stream"),
    ]
    house.run(house.broker.end)
    assert [each.result() for each in waiting] == [None, None]
    assert all(stream.ended for stream in streams)
    assert poll(house, "Spock").result() is None
