"""What is over leaves nothing behind, however long it could have lasted."""

import pytest
from broker_acts import JERRY, cancel, reply, send, show, take_ids

from bascule.broker.limits import BrokerLimits
from bascule.foundation.errors import NotFound

HOUR, DAY = 3_600, 24 * 3_600
WEEK_MS = 7 * DAY * 1_000


def test_settled_tickets_leave_no_deadline_that_lasts_as_long_as_they_might_have(house):
    deadlines = house.timers
    before = len(deadlines)
    for number in range(1_000):
        send(house, f"t{number}", timeoutMs=WEEK_MS)
        (cancel if number % 2 else reply)(house, f"t{number}")
    # One for each end of life, and at most as many that were called off.
    assert len(deadlines) <= before + 2 * 1_000 + 1
    house.advance(2 * HOUR)
    assert len(deadlines) <= before + 64


def test_deadlines_that_were_not_called_off_still_come_in_order(house):
    for number in range(200):
        send(house, f"t{number}", timeoutMs=1_000 * (number + 1))
        if number % 4:
            cancel(house, f"t{number}")
    house.advance(100.5)
    timed_out = {f"t{number}" for number in range(0, 100, 4)}
    shown = {f"t{number}": show(house, f"t{number}")["status"] for number in range(0, 200, 4)}
    assert {ticket for ticket, status in shown.items() if status == "timeout"} == timed_out


def test_the_inbox_of_an_agent_that_is_gone_goes_too(make_house):
    house = make_house(limits=BrokerLimits(agent_retention_ms=DAY * 1_000))
    for number in range(50):
        house.register(f"A{number}")
        take_ids(house, f"A{number}")
    assert len(house.broker.state.inboxes) == 50
    house.advance(2 * DAY)
    assert not house.broker.state.agents.rows
    assert not house.broker.state.inboxes


def test_a_message_that_comes_back_again_and_again_is_in_its_inbox_once(house):
    for name in ("a", "b"):
        send(house, name)
    for _ in range(50):
        assert take_ids(house, count=1) == ["a"]
        house.advance(house.broker.state.limits.lease_ms / 1000)
    assert len(house.broker.state.inbox("Jerry")._returned) <= 2
    assert take_ids(house) == ["a", "b"]


def test_an_inbox_with_somebody_in_it_or_something_stays(make_house):
    """A message outlives the agent it was for until it is dropped itself; whoever registers the handle gets it."""
    house = make_house(limits=BrokerLimits(agent_retention_ms=HOUR * 1_000))
    house.register("Jerry")
    house.advance(HOUR - 60)
    send(house, "t")
    house.advance(HOUR / 2)
    house.register("Jerry")
    assert take_ids(house) == ["t"]


def test_a_stream_on_a_ticket_that_is_dropped_unsettled_ends(make_house):
    house = make_house(limits=BrokerLimits(agent_retention_ms=HOUR * 1_000))
    house.register("Jerry")
    house.connect("Jerry")
    send(house, "t", timeoutMs=WEEK_MS)
    streams = [house.call(by, "replies.stream", {"ticketId": "t"}) for by in ("local", JERRY)]
    house.advance(2 * HOUR)
    with pytest.raises(NotFound, match="ticket expired"):
        show(house, "t")
    assert [(stream.ended, stream.items()) for stream in streams] == [(True, []), (True, [])]
    for stream in streams:
        stream.close()
    assert (house.broker.waits._on_ticket, house.broker.waits.count()) == ({}, 0)
