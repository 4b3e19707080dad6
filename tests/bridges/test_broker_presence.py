"""Presence: heartbeats, silence, connections, and that any act is a sign of life."""

import pytest
from broker_acts import JERRY, ack, events_named, poll, reply, send, status_of, take

from bascule.broker.limits import BrokerLimits
from bascule.foundation.errors import BasculeError

SILENCE = 30 * 60


def test_without_a_heartbeat_an_agent_is_online_for_half_an_hour(house):
    house.advance(SILENCE - 1)
    assert status_of(house) == "online"
    house.advance(1)
    assert status_of(house) == "offline"


def test_with_a_heartbeat_an_agent_is_offline_after_three_missed(make_house):
    house = make_house()
    house.register("Jerry", heartbeatIntervalMs=1_000)
    house.advance(2.9)
    assert status_of(house) == "online"
    house.advance(0.1)
    assert status_of(house) == "offline"
    assert [event["agentId"] for event in events_named(house, "agent.offline")] == ["Jerry"]


def test_a_heartbeat_prolongs_and_says_until_when(make_house):
    house = make_house()
    house.register("Jerry", heartbeatIntervalMs=1_000)
    send(house, "t")
    house.advance(2)
    assert house.call(JERRY, "agents.heartbeat", {"agentId": "Jerry"}) == {
        "agentId": "Jerry",
        "status": "online",
        "expiresAt": "2025-10-20T08:00:05.000Z",
        "unread": 1,
    }
    house.advance(2.9)
    assert status_of(house) == "online"


def test_a_heartbeat_leaves_no_record_in_the_ledger(house):
    records = len(house.ledger())
    house.call(JERRY, "agents.heartbeat", {"agentId": "Jerry"})
    assert len(house.ledger()) == records


ACTS = {
    "agents.list": lambda house: house.call(JERRY, "agents.list"),
    "messages.send": lambda house: send(house, by=JERRY, to="Spock"),
    "inbox.take": take,
    "inbox.take that waits": poll,
    "inbox.ack": lambda house: ack(house, "t"),
    "replies.post": lambda house: reply(house, "t"),
    "events.stream": lambda house: house.call(JERRY, "events.stream"),
    "daemon.status": lambda house: house.call(JERRY, "daemon.status"),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_any_act_of_an_agent_is_a_heartbeat(house, act):
    send(house, "t", timeoutMs=2 * SILENCE * 1_000)
    house.advance(SILENCE - 1)
    act(house)
    house.advance(SILENCE - 1)
    assert status_of(house) == "online"


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_any_act_brings_an_offline_agent_back(house, act):
    send(house, "t", timeoutMs=2 * SILENCE * 1_000)
    house.advance(SILENCE)
    assert status_of(house) == "offline"
    act(house)
    assert status_of(house) == "online"
    assert [event["event"] for event in house.events() if event["agentId"] == "Jerry"][-1] in (
        "agent.online",
        "ticket.delivered",
        "ticket.responded",
    )


def test_a_refused_act_is_no_sign_of_life(house):
    house.advance(SILENCE)
    with pytest.raises(BasculeError):
        house.call(JERRY, "ledger.tail")
    assert status_of(house) == "offline"


def test_messages_for_an_agent_are_no_sign_of_its_life(house):
    house.advance(SILENCE - 1)
    send(house, "t")
    house.advance(1)
    assert status_of(house) == "offline"


def test_a_live_connection_keeps_its_agent_online(house):
    connection = house.connect("Jerry")
    house.advance(10 * SILENCE)
    assert status_of(house) == "online"
    house.disconnect("Jerry", connection)
    assert status_of(house) == "offline"
    assert [event["agentId"] for event in events_named(house, "agent.offline")] == ["Spock", "Jerry"]


def test_an_agent_is_offline_only_when_its_last_connection_is_gone(house):
    first, second = house.connect("Jerry"), house.connect("Jerry")
    house.disconnect("Jerry", first)
    assert status_of(house) == "online"
    house.disconnect("Jerry", second)
    assert status_of(house) == "offline"


def test_an_act_after_the_last_connection_is_gone_brings_the_agent_back(house):
    house.disconnect("Jerry", house.connect("Jerry"))
    take(house)
    assert status_of(house) == "online"


def test_going_offline_and_coming_back_is_reported_once_each(make_house):
    house = make_house()
    house.register("Jerry", heartbeatIntervalMs=1_000)
    for _ in range(5):
        take(house)
        house.advance(1)
    house.advance(10)
    take(house)
    events = [event["event"] for event in house.events() if event["event"] in ("agent.online", "agent.offline")]
    assert events == ["agent.online", "agent.offline", "agent.online"]


def test_the_offline_event_comes_in_time_when_a_reconnect_shortened_the_interval(make_house):
    house = make_house()
    house.register("Jerry")
    house.call(JERRY, "agents.register", {"agentId": "Jerry", "heartbeatIntervalMs": 1_000})
    house.advance(3)
    assert status_of(house) == "offline"
    assert len(events_named(house, "agent.offline")) == 1


def test_agents_are_filtered_by_type_and_status(make_house):
    house = make_house()
    house.register("Jerry", type="codex")
    house.register("Spock", type="claude-code", heartbeatIntervalMs=1_000)
    house.advance(5)

    def listed(**filters):
        return [each["agentId"] for each in house.call("local", "agents.list", filters)]

    assert listed() == ["Jerry", "Spock"]
    assert listed(type="codex") == ["Jerry"]
    assert listed(status="offline") == ["Spock"]
    assert listed(status="online", type="claude-code") == []
    status = house.call("local", "daemon.status")
    assert (status["agents"], status["agentsOnline"]) == (2, 1)


def test_an_agent_whose_lifetime_does_not_add_up_in_floats_goes_offline_like_the_others(make_house):
    """(seen + 20.003) - seen may be less than 20.003: its deadline then came up, found it online, and came up again."""
    house = make_house(limits=BrokerLimits(silence_ms=20_003))
    for number in range(40):
        name = f"A{number}"
        house.register(name)
        assert status_of(house, name) == "online"
        house.advance(20.25)
        assert status_of(house, name) == "offline"


def test_a_list_says_what_changed_since_the_last_one(make_house):
    house = make_house()
    house.register("Jerry", heartbeatIntervalMs=1_000, metadata={"pid": 1})

    def listed():
        (view,) = house.call("local", "agents.list")
        return view

    first = listed()
    assert listed() == first
    send(house, "t")
    assert listed() == first | {"unread": 1}
    house.advance(1)
    house.call(JERRY, "agents.heartbeat", {"agentId": "Jerry"})
    later = listed()
    assert later == first | {"unread": 1, "lastHeartbeat": later["lastHeartbeat"]}
    assert later["lastHeartbeat"] > first["lastHeartbeat"]
    house.call(JERRY, "agents.register", {"agentId": "Jerry", "metadata": {"pid": 2}, "heartbeatIntervalMs": 1_000})
    assert listed()["metadata"] == {"pid": 2}
    house.advance(3)
    assert listed()["status"] == "offline"
