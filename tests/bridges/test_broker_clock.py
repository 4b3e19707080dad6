"""Within one life the wall clock may jump as it likes; and what is swept, and when."""

import pytest
from broker_acts import JERRY, ack, events_named, poll, reply, send, show, status_of, take, take_ids

from bascule.broker.limits import BrokerLimits
from bascule.foundation.errors import Conflict, NotFound
from bascule.foundation.timers import MAX_DUE_PER_TICK

DAY = 86_400
JUMPS = [-10 * DAY, -3_600, 3_600, 10 * DAY]


@pytest.fixture(params=JUMPS, ids=lambda seconds: f"{seconds:+d}s")
def jump(request):
    return lambda house: house.clock.jump_wall(request.param)


def test_a_jump_fires_no_reply_deadline_early_or_late(house, jump):
    send(house, "t", timeoutMs=100_000)
    jump(house)
    house.advance(99)
    assert show(house, "t")["status"] == "pending"
    house.advance(1)
    assert show(house, "t")["status"] == "timeout"


def test_a_jump_ends_no_ticket_early_or_late(house, jump):
    send(house, "t")
    reply(house, "t")
    jump(house)
    house.advance(30 * 60 - 1)
    show(house, "t")
    house.advance(1)
    with pytest.raises(NotFound, match="ticket expired"):
        show(house, "t")


def test_a_jump_ends_no_lease_and_no_poll_early_or_late(house, jump):
    send(house, "t")
    take(house)
    waiting = poll(house, "Spock", wait_ms=30_000)
    jump(house)
    house.advance(29)
    assert not waiting.done
    house.advance(1)
    assert waiting.result() is None
    house.advance(29)
    assert take(house) == []
    house.advance(1)
    assert take_ids(house) == ["t"]


def test_a_jump_takes_nobody_offline_and_keeps_nobody_online(house, jump):
    jump(house)
    house.advance(30 * 60 - 1)
    assert status_of(house) == "online"
    house.advance(1)
    assert status_of(house) == "offline"


def test_a_jump_opens_no_handle_to_a_takeover(house, jump):
    jump(house)
    house.advance(60)
    with pytest.raises(Conflict):
        house.register("Jerry")


def test_a_jump_loses_no_message_that_waits_to_be_fetched(house, jump):
    send(house, "t")
    jump(house)
    house.advance(120)
    assert take_ids(house) == ["t"]


def test_a_jump_forgets_no_expired_id_early(house, jump):
    send(house, "t")
    reply(house, "t")
    house.advance(30 * 60)
    jump(house)
    house.advance(120)
    with pytest.raises(NotFound, match="ticket expired"):
        show(house, "t")


def test_a_jump_back_makes_no_latency_negative(house):
    send(house, "t")
    house.clock.jump_wall(-DAY)
    reply(house, "t")
    assert house.call("local", "replies.wait", {"ticketId": "t"})["latencyMs"] >= 0


# -- sweeping --


def test_a_message_nobody_fetched_goes_after_its_week(make_house):
    house = make_house(limits=BrokerLimits(agent_retention_ms=7_200_000))
    house.register("Jerry")
    house.connect("Jerry")
    send(house, "old")
    house.advance(3_600)
    send(house, "new")
    house.advance(3_600 + 60)
    assert take_ids(house) == ["new"]
    with pytest.raises(NotFound, match="ticket expired"):
        show(house, "old")
    record = next(each for each in house.ledger() if each["method"] == "daemon.sweep")
    assert record["details"] == {"messages nobody fetched": 1}


def test_a_sweep_that_one_bridge_could_not_end_has_changed_nothing(make_house):
    """What is gone from memory and not from the disk would be back in the next life, and nobody was told."""
    house = make_house(limits=BrokerLimits(agent_retention_ms=7_200_000))
    house.register("Jerry")
    house.connect("Jerry")
    send(house, "old")
    collect = house.life.collect

    def fails(tx, *, dry_run):
        collect(tx, dry_run=dry_run)
        raise ValueError("not to the end")

    house.life.collect = fails
    house.advance(7_200 + 60)
    assert show(house, "old")["status"] == "timeout"
    assert not [each for each in house.ledger() if each["method"] == "daemon.sweep"]
    house.life.collect = collect
    house.advance(60)
    with pytest.raises(NotFound, match="ticket expired"):
        show(house, "old")


def test_a_sweep_that_finds_nothing_leaves_no_record(house):
    house.connect("Jerry")
    records = len(house.ledger())
    house.advance(600)
    assert len(house.ledger()) == records


def test_gc_says_what_would_go_and_then_removes_it(make_house):
    house = make_house(limits=BrokerLimits(agent_retention_ms=30_000, silence_ms=1_000, remember_ms=1_000))
    house.register("Jerry")
    send(house, "t")
    house.clock.advance(40)
    would = house.call("local", "daemon.gc", {"dryRun": True})
    assert would["dryRun"] is True
    counts = {item["what"]: item["count"] for item in would["items"]}
    assert (counts["messages nobody fetched"], counts["agents long offline"]) == (1, 1)
    show(house, "t")
    did = house.call("local", "daemon.gc")
    assert did["items"] == would["items"]
    with pytest.raises(NotFound):
        show(house, "t")
    assert house.call("local", "agents.list") == []
    assert house.ledger()[-1]["method"] == "daemon.gc"


def test_many_deadlines_at_once_are_worked_off_in_slices(make_house):
    house = make_house(limits=BrokerLimits(max_open_tickets=10_000))
    house.register("Jerry")
    for number in range(MAX_DUE_PER_TICK + 5):
        send(house, f"t{number}", timeoutMs=1_000)
    house.clock.advance(1)
    house.run(lambda: house.timers.tick(house.clock.monotonic()))
    done = len(events_named(house, "ticket.timeout"))
    assert 0 < done <= MAX_DUE_PER_TICK
    house.run(lambda: house.timers.tick(house.clock.monotonic()))
    assert len(events_named(house, "ticket.timeout")) == MAX_DUE_PER_TICK + 5


def test_the_timer_is_told_only_of_an_earlier_deadline(house):
    notified = []
    house.timers.on_earlier = notified.append
    send(house, "late", timeoutMs=50_000)
    send(house, "later", timeoutMs=55_000)
    send(house, "soon", timeoutMs=1_000)
    now = house.clock.monotonic()
    assert notified == [now + 50, now + 1]


def test_what_time_did_to_a_ticket_is_forgotten_with_it(house):
    send(house, "t", by=JERRY)
    take(house)
    ack(house, "t")
    reply(house, "t")
    house.advance(2 * DAY)
    assert len(house.broker.tickets.lifetimes._due) == 0
    assert house.broker.state.remembered.rows == {}
    assert len(house.timers) <= 3
