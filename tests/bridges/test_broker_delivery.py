"""Bells: hearing that messages wait without taking them, and what the sender sees of that."""

import pytest
from broker_acts import JERRY, SPOCK, ack, cancel, events_named, poll, reply, send, show, take, take_ids

from bascule.broker.bells import MAX_BELLS, MAX_NAMED
from bascule.broker.limits import BrokerLimits
from bascule.foundation.errors import Forbidden, InvalidRequest, Overloaded
from bascule.testing.stores import HeldStore


def watch(house, agent_id="Jerry", *, wait_ms=25_000, **params):
    """A watch that waits, held open."""
    return house.begin(f"agent:{agent_id}", "inbox.watch", {"agentId": agent_id, "waitMs": wait_ms, **params})


def look(house, agent_id="Jerry", **params):
    """What a watch sees now, without waiting."""
    return house.call(f"agent:{agent_id}", "inbox.watch", {"agentId": agent_id, "waitMs": 0, **params})


def delivery(house, ticket_id):
    return show(house, ticket_id).get("delivery")


# -- looking takes nothing --


def test_a_look_says_how_many_wait_and_from_whom(house):
    send(house, "a", by=SPOCK)
    send(house, "b", by=SPOCK)
    send(house, "c")
    assert look(house) == {"unread": 3, "from": ["Spock", "local"], "oldest": "a"}
    assert take_ids(house) == ["a", "b", "c"]


def test_a_look_into_an_empty_inbox_says_nothing(house):
    assert look(house) is None


def test_a_watch_waits_for_a_message_and_leaves_it_there(house):
    waiting = watch(house)
    assert not waiting.done
    send(house, "t", by=SPOCK)
    assert waiting.result() == {"unread": 1, "from": ["Spock"], "oldest": "t"}
    assert take_ids(house) == ["t"]


def test_a_watch_ends_with_nothing_after_its_time(house):
    waiting = watch(house, wait_ms=1_000)
    house.advance(1)
    assert waiting.result() is None


def test_a_watch_is_clamped_to_a_minute(house):
    waiting = watch(house, wait_ms=3_600_000)
    house.advance(60)
    assert waiting.result() is None


def test_every_watch_hears_of_a_message(house):
    first, second = watch(house), watch(house)
    send(house, "t")
    assert first.result() == second.result() == {"unread": 1, "from": ["local"], "oldest": "t"}


def test_a_message_is_not_seen_before_it_is_durable(make_house):
    store = HeldStore(hold=False)
    house = make_house(store=store)
    house.register("Jerry")
    store.hold = True
    waiting = watch(house)
    sending = house.begin("local", "messages.send", {"agentId": "Jerry", "payload": "hi"})
    assert not sending.done
    assert not waiting.done
    house.run(store.finish)
    assert waiting.result()["unread"] == 1


def test_a_message_out_under_a_lease_is_not_counted(house):
    send(house, "a")
    take(house)
    assert look(house) is None
    waiting = watch(house, wait_ms=60_000)
    house.advance(60)
    # The lease ends in the same moment as the wait; it had its turn first.
    assert (waiting.result() or look(house))["oldest"] == "a"


def test_a_waiting_receiver_is_served_and_no_bell_is_rung(house):
    bell, receiver = watch(house, by="bell"), poll(house)
    send(house, "t")
    assert receiver.result()["messages"][0]["ticketId"] == "t"
    assert not bell.done


def test_a_receiver_without_room_leaves_it_to_the_bell(house):
    bell = watch(house)
    poll(house).cancel()
    send(house, "t")
    assert bell.done


def test_only_some_senders_are_named(house):
    for number in range(MAX_NAMED + 2):
        house.register(f"A{number}")
        send(house, by=f"agent:A{number}")
    seen = look(house)
    assert seen["unread"] == MAX_NAMED + 2
    assert seen["from"] == [f"A{number}" for number in range(MAX_NAMED)]


def test_nobody_watches_the_inbox_of_another(house):
    for principal in ("local", SPOCK, "person"):
        with pytest.raises(Forbidden):
            house.call(principal, "inbox.watch", {"agentId": "Jerry", "waitMs": 0})


@pytest.mark.parametrize("name", ["", " ", "a\nb", "trailing ", "x" * 65, "bell\u202e"])
def test_a_bell_has_a_name_that_can_be_shown(house, name):
    with pytest.raises(InvalidRequest):
        look(house, by=name)


def test_watches_are_counted_with_the_other_waits(make_house):
    house = make_house(limits=BrokerLimits(max_waits=2))
    house.register("Jerry")
    first, _ = watch(house), watch(house)
    with pytest.raises(Overloaded):
        watch(house)
    first.cancel()
    watch(house)


def test_a_revoked_agent_hears_no_bell(house):
    waiting = watch(house)
    house.call("person", "agents.revoke", {"agentId": "Jerry"})
    assert waiting.result() is None
    send(house, "t")
    assert house.broker.waits.count() == 0


def test_a_stopping_daemon_answers_every_watch(house):
    waiting = watch(house)
    house.run(house.broker.end)
    assert waiting.result() is None
    assert house.broker.waits.count() == 0


# -- a bell rings once --


def test_a_bell_does_not_ring_twice_for_a_message_it_rang_for(house):
    send(house, "a")
    assert look(house, by="bell", skipRung="own")["unread"] == 1
    assert look(house, by="bell", skipRung="own") is None
    waiting = watch(house, by="bell", skipRung="own")
    assert not waiting.done
    send(house, "b")
    assert waiting.result() == {"unread": 2, "from": ["local"], "oldest": "a"}


def test_another_bell_may_still_ring_for_it(house):
    send(house, "a")
    look(house, by="first", skipRung="own")
    assert look(house, by="second", skipRung="any") is None
    assert look(house, by="second", skipRung="own")["unread"] == 1


def test_a_look_without_a_bell_has_rung_for_nothing(house):
    send(house, "a")
    look(house, by="bell", skipRung="own")
    for _ in range(2):
        assert look(house, skipRung="any") is None
        assert look(house, skipRung="own")["unread"] == 1


def test_a_plain_look_counts_everything_however_often_it_was_rung_for(house):
    send(house, "a")
    for _ in range(3):
        assert look(house, by="reminder")["unread"] == 1


def test_a_message_that_came_back_is_rung_for_anew(house):
    send(house, "a")
    look(house, by="bell", skipRung="own")
    take(house)
    waiting = watch(house, by="bell", skipRung="own", wait_ms=60_000)
    house.advance(59)
    assert not waiting.done
    waiting = watch(house, by="bell", skipRung="own", wait_ms=60_000)
    house.advance(1)
    assert waiting.result()["oldest"] == "a"


def test_the_newer_wait_of_a_bell_takes_the_place_of_the_older(house):
    older = watch(house, by="bell", skipRung="own")
    newer = watch(house, by="bell", skipRung="own")
    assert older.result() == {"superseded": True}
    send(house, "t")
    assert newer.result()["unread"] == 1


def test_bells_of_other_names_and_other_agents_stay(house):
    others = [
        watch(house, by="bell", skipRung="own"),
        watch(house, by="other", skipRung="own"),
        watch(house, by="bell"),
        watch(house, "Spock", by="bell", skipRung="own"),
    ]
    assert not any(each.done for each in others)


def test_a_ring_that_nobody_heard_is_taken_back(house):
    waiting = watch(house, by="bell", skipRung="own")
    send(house, "t")
    waiting.abandon()
    assert delivery(house, "t")["state"] == "queued"
    assert look(house, by="bell", skipRung="own")["unread"] == 1


def test_a_killed_watch_rings_for_nothing(house):
    watch(house, by="bell", skipRung="own").cancel()
    send(house, "t")
    assert delivery(house, "t")["state"] == "queued"
    assert house.broker.waits.count() == 0


def test_a_bell_that_may_fail_records_only_when_it_says_so(house):
    waiting = watch(house, by="queue", skipRung="any", record=False)
    send(house, "t")
    assert waiting.result()["unread"] == 1
    assert delivery(house, "t")["state"] == "queued"
    look(house, by="queue")
    assert delivery(house, "t")["by"] == ["queue"]


def test_only_so_many_bells_are_remembered(house):
    send(house, "t")
    for number in range(MAX_BELLS + 1):
        look(house, by=f"bell {number}")
    assert delivery(house, "t")["by"] == [f"bell {number}" for number in range(1, MAX_BELLS + 1)]


# -- what the sender sees --


def test_the_sender_sees_how_far_a_message_got(house):
    send(house, "t", by=SPOCK)
    sent_at = show(house, "t")["createdAt"]
    assert delivery(house, "t") == {"state": "queued", "at": sent_at}
    house.advance(1)
    look(house, by="claude asyncRewake", skipRung="own")
    rung = delivery(house, "t")
    assert (rung["state"], rung["by"]) == ("rung", ["claude asyncRewake"])
    assert rung["at"] > sent_at
    house.advance(1)
    take(house)
    house.advance(5)
    fetched = delivery(house, "t")
    assert (fetched["state"], fetched["by"]) == ("fetched", ["claude asyncRewake"])
    assert rung["at"] < fetched["at"] < show(house, "t")["replyBy"]
    house.advance(1)
    ack(house, "t")
    assert delivery(house, "t") == {"state": "acknowledged", "at": show(house, "t")["ackedAt"]}


def test_the_moment_of_fetching_does_not_wander(house):
    send(house, "t")
    take(house)
    first = delivery(house, "t")["at"]
    house.advance(30)
    assert delivery(house, "t")["at"] == first


def test_a_fetched_message_whose_lease_ended_waits_again(house):
    send(house, "t")
    look(house, by="bell")
    take(house)
    house.advance(61)
    shown = show(house, "t")
    assert shown["delivery"]["state"] == "queued"
    assert "by" not in shown["delivery"]
    assert shown["attempts"] == 1


def test_a_reply_without_fetching_is_an_acknowledgement(house):
    send(house, "t")
    reply(house, "t", by=JERRY)
    assert delivery(house, "t")["state"] == "acknowledged"


def test_a_message_nobody_waits_for_any_more_is_still_on_its_way(house):
    send(house, "t", timeoutMs=1_000)
    house.advance(2)
    shown = show(house, "t")
    assert (shown["status"], shown["delivery"]["state"]) == ("timeout", "queued")


def test_a_withdrawn_message_is_on_no_way(house):
    send(house, "t")
    cancel(house, "t")
    assert delivery(house, "t") is None


def test_after_a_restart_the_bells_are_forgotten_and_ring_again(house):
    send(house, "t")
    look(house, by="bell", skipRung="own")
    house.restart(clean=False)
    assert delivery(house, "t")["state"] == "queued"
    assert look(house, by="bell", skipRung="own")["unread"] == 1


def test_the_listing_shows_it_too(house):
    send(house, "t")
    look(house, by="bell")
    assert house.call("local", "tickets.list")[0]["delivery"]["by"] == ["bell"]


def test_each_bell_is_one_event_per_message(house):
    send(house, "t", by=SPOCK)
    for _ in range(3):
        look(house, by="bell")
    look(house, by="other")
    rung = events_named(house, "ticket.rung")
    assert [event["detail"] for event in rung] == ["bell", "other"]
    assert {(event["ticketId"], event["agentId"], event["from"]) for event in rung} == {("t", "Jerry", "Spock")}
