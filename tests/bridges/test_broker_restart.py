"""A new life on the same store: what was acknowledged is there, and no deadline grew."""

import os

import pytest
from broker_acts import JERRY, ack, answer, cancel, reply, send, show, status_of, take, take_ids

from bascule.bridge_list import tables_of
from bascule.foundation.errors import Conflict, NotFound
from bascule.stores.sqlite import SqliteStore

TTL = 30 * 60


@pytest.fixture(params=["clean", "killed"])
def restart(request):
    return lambda house, down=0.0: house.restart(down_seconds=down, clean=request.param == "clean")


def test_agents_tokens_and_inboxes_are_there_again(make_house, restart):
    house = make_house()
    token = house.register("Jerry", type="codex", metadata={"cwd": "/work"})
    send(house, "t", {"ask": 1})
    restart(house)
    assert house.tokens.find(token) == "Jerry"
    (listed,) = house.call("local", "agents.list")
    assert (listed["type"], listed["metadata"], listed["unread"]) == ("codex", {"cwd": "/work"}, 1)
    assert take(house)[0]["payload"] == {"ask": 1}


def test_what_was_handed_over_and_not_acknowledged_is_offered_again(house, restart):
    for name in "abc":
        send(house, name)
    take(house, count=2)
    ack(house, "a")
    restart(house)
    assert take_ids(house) == ["b", "c"]


def test_replies_are_there_again(house, restart):
    send(house, "t")
    reply(house, "t", "one")
    reply(house, "t", "two")
    restart(house)
    answered = answer(house, "t")
    assert [item["payload"] for item in answered["replies"]] == ["one", "two"]


def test_a_retry_over_a_restart_is_still_a_retry(house, restart):
    send(house, "t")
    restart(house)
    assert send(house, "t") == "t"
    with pytest.raises(Conflict):
        send(house, "t", "something else")
    assert take_ids(house) == ["t"]


def test_a_reply_deadline_goes_on_where_it_was(house, restart):
    send(house, "t", timeoutMs=100_000)
    house.advance(40)
    restart(house, down=30)
    house.advance(29)
    assert show(house, "t")["status"] == "pending"
    house.advance(1)
    assert show(house, "t")["status"] == "timeout"


def test_a_deadline_that_passed_meanwhile_settles_at_once(house, restart):
    send(house, "t", timeoutMs=10_000)
    restart(house, down=60)
    house.advance(0)
    assert answer(house, "t")["status"] == "timeout"


def test_the_time_to_live_goes_on_where_it_was(house, restart):
    send(house, "t")
    reply(house, "t")
    house.advance(600)
    restart(house, down=600)
    house.advance(TTL - 1_200 - 1)
    show(house, "t")
    house.advance(1)
    with pytest.raises(NotFound, match="ticket expired"):
        show(house, "t")


@pytest.mark.parametrize("back", [3_600, 10 * 86_400])
def test_a_wall_clock_that_went_back_while_down_makes_no_deadline_longer_than_it_was(house, restart, back):
    send(house, "open", timeoutMs=100_000)
    send(house, "done")
    reply(house, "done")
    house.clock.jump_wall(-back)
    restart(house)
    house.advance(100)
    assert show(house, "open")["status"] == "timeout"
    house.advance(TTL - 100)
    with pytest.raises(NotFound, match="ticket expired"):
        show(house, "done")


def test_an_expired_id_is_still_told_from_an_unknown_one(house, restart):
    send(house, "t")
    reply(house, "t")
    house.advance(TTL)
    restart(house)
    with pytest.raises(NotFound, match="ticket expired"):
        show(house, "t")


def test_a_timed_out_message_waits_on_and_expires_after_its_acknowledgement(house, restart):
    send(house, "t", timeoutMs=1_000)
    house.advance(10)
    restart(house)
    house.advance(2 * TTL)
    assert take(house)[0]["timedOut"] is True
    ack(house, "t")
    house.advance(TTL)
    with pytest.raises(NotFound, match="ticket expired"):
        show(house, "t")


def test_the_indexes_are_rebuilt_as_they_were(house, restart):
    for name in "abcd":
        send(house, name, conversationId="c")
    ack(house, "a")
    reply(house, "b")
    cancel(house, "c")
    before = house.broker.state
    restart(house)
    after = house.broker.state
    assert after is not before
    assert (after.open_count, after.open_by_sender, after.conversations) == (
        before.open_count,
        before.open_by_sender,
        before.conversations,
    )
    assert after.inboxes["Jerry"].bytes == before.inboxes["Jerry"].bytes
    assert list(after.inboxes["Jerry"].ready) == ["d"]


def test_after_a_restart_an_agent_is_unknown_until_it_is_seen_and_offline_after_its_time(make_house):
    house = make_house()
    house.register("Jerry")
    house.register("Ada")
    house.advance(1_200)
    take(house)
    house.restart(down_seconds=300)
    assert (status_of(house), status_of(house, "Ada")) == ("unknown", "unknown")
    sent = house.call("agent:Ada", "messages.send", {"agentId": "Jerry", "payload": "are you there?"})
    assert sent["agentStatus"] == "unknown"
    # Whether its process still runs nobody knows, so that it is there cannot be required.
    with pytest.raises(NotFound, match="agent not registered") as refused:
        house.call("agent:Ada", "messages.send", {"agentId": "Jerry", "payload": "now?", "requireOnline": True})
    assert refused.value.details["agentStatus"] == "unknown"
    take(house)
    assert (status_of(house), status_of(house, "Ada")) == ("online", "online")
    house.restart(down_seconds=600)
    assert status_of(house) == "unknown"
    house.advance(1_200)
    assert status_of(house) == "offline"


def test_the_last_sign_of_life_is_stored_now_and_then(make_house):
    house = make_house()
    house.register("Jerry")
    house.advance(1_200)
    take(house)
    house.advance(60)
    records = len(house.ledger())
    house.restart(down_seconds=1_000, clean=False)
    assert status_of(house) == "unknown"
    assert len(house.ledger()) == records


def test_silence_counts_over_a_restart(make_house):
    house = make_house()
    house.register("Jerry")
    house.advance(12 * 3_600)
    house.restart(down_seconds=12 * 3_600)
    house.register("Jerry")


@pytest.fixture
def house_on_disk(make_house, tmp_path):
    """Closing the house closes its store, so a restart on disk is a second house."""

    def start(clock=None):
        path = os.fspath(tmp_path / "bascule.db")
        return make_house(store=SqliteStore(path, durability="relaxed", tables=tables_of()), clock=clock)

    return start


def test_a_store_on_disk_has_everything_after_a_restart(house_on_disk):
    house = house_on_disk()
    house.register("Jerry")
    send(house, "t", {"ask": "\u2028"}, conversationId="c")
    send(house, "u")
    take(house)
    reply(house, "t", [None, 1.5])
    before = (show(house, "t"), house.ledger())
    house.close()
    house = house_on_disk(house.clock)
    assert (show(house, "t"), house.ledger()) == before
    assert take_ids(house) == ["u"]
    assert house.call("local", "ledger.verify")["ok"] is True


def test_messages_of_one_moment_come_back_from_disk_in_the_order_of_sending(house_on_disk):
    house = house_on_disk()
    house.register("Jerry")
    for name in "cab":
        send(house, name)
    house.close()
    assert take_ids(house_on_disk(house.clock)) == ["c", "a", "b"]


def test_messages_come_back_in_the_order_of_sending_when_the_wall_clock_went_back_between_them(house, restart):
    send(house, "first")
    house.clock.jump_wall(-3_600)
    send(house, "second")
    restart(house)
    assert take_ids(house) == ["first", "second"]


def test_events_of_the_new_life_come_after_those_of_the_old_one(house, restart):
    last = house.events()[-1]["id"]
    restart(house, down=1)
    send(house, "t", by=JERRY)
    stream = house.call("local", "events.stream", {"after": last})
    assert "ticket.sent" in [event["event"] for event in stream.items()]


def indexes(state):
    return {
        "kept": state.kept,
        "open": (state.open_count, state.open_by_sender),
        "conversations": state.conversations,
        "inboxes": {name: (list(inbox.ids), inbox.bytes) for name, inbox in state.inboxes.items() if len(inbox)},
        "next number": state.next_number(),
    }


def test_loading_makes_the_indexes_that_every_change_by_itself_had_made(house, restart):
    """Loading fills them in one go; living, each change moves them a step."""
    house.register("Tom")
    for number in range(40):
        send(house, f"t{number}", "x" * number, to="Jerry" if number % 3 else "Tom", conversationId=f"c{number % 4}")
    send(house, "notice", expectReply=False)
    send(house, "hurried", timeoutMs=1_000)
    ack(house, "t1", "t2", "notice")
    reply(house, "t2", "once")
    reply(house, "t2", "twice")
    reply(house, "t4", "never fetched")
    cancel(house, "t5")
    house.advance(2)
    before = indexes(house.broker.state)
    restart(house)
    assert indexes(house.broker.state) == before
    assert set(house.broker.state.kept) == {"local", JERRY}


def test_an_agent_that_had_gone_is_offline_after_a_restart_and_one_that_was_there_is_unknown(make_house):
    house = make_house()
    for name in ("Jerry", "Spock"):
        house.register(name)
    house.disconnect("Jerry", house.connect("Jerry"))
    house.connect("Spock")
    assert (status_of(house), status_of(house, "Spock")) == ("offline", "online")
    for _ in range(2):
        house.restart(down_seconds=1)
        assert (status_of(house), status_of(house, "Spock")) == ("offline", "unknown")
    house.call(JERRY, "agents.heartbeat", {"agentId": "Jerry"})
    house.restart(down_seconds=1)
    assert status_of(house) == "unknown"
