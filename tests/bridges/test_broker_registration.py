"""Handles: who gets one, who keeps it, who can take it over."""

import pytest
from broker_acts import JERRY, events_named, send, status_of, take_ids

from bascule.broker.limits import BrokerLimits
from bascule.broker.records import AgentRecord
from bascule.foundation.errors import Conflict, Forbidden, InvalidRequest, NotFound

DAY = 24 * 3600


def register(house, agent_id="Jerry", *, by="local", connection=None, **params):
    return house.call(by, "agents.register", {"agentId": agent_id, **params}, connection=connection)


def test_a_free_handle_is_registered_with_a_token_of_its_own(make_house):
    house = make_house()
    answer = register(house, type="codex", metadata={"paneId": "%0"}, heartbeatIntervalMs=30_000)
    token = answer.pop("agentToken")
    assert answer == {
        "agentId": "Jerry",
        "status": "registered",
        "expiresAt": "2025-10-20T08:01:30.000Z",
    }
    assert house.tokens.find(token) == "Jerry"
    assert house.files.tokens == {"Jerry": token}
    (listed,) = house.call("local", "agents.list")
    assert listed == {
        "agentId": "Jerry",
        "type": "codex",
        "status": "online",
        "lastHeartbeat": "2025-10-20T08:00:00.000Z",
        "metadata": {"paneId": "%0"},
    }


def test_the_token_is_kept_as_a_hash_only(house):
    token = house.register("Data")
    assert token not in str(list(house.store.load("agents", AgentRecord)))
    assert token not in str(house.ledger()) + str(house.log) + str(house.events())


RESERVED = ("local", "person", "daemon", "bascule", "register", ".", "..")
PASSES = ("PERSON", "Person", "Local", "lOCAL", "Daemon", "BASCULE", "pers0n", "l0ca1", "Iocal", "_person", "person.")


@pytest.mark.parametrize("reserved", [*RESERVED, *PASSES])
def test_a_reserved_name_and_one_that_passes_for_it_is_refused_with_one_that_is_free(house, reserved):
    for caller in ("local", "agent:Tom"):
        with pytest.raises(InvalidRequest, match="reserved") as refused:
            register(house, reserved, by=caller)
        assert "agent-2" in refused.value.hint


@pytest.mark.parametrize("handle", ["persons", "localhost", "my-daemon", "bascule-2", "-", "...", "__"])
def test_a_handle_that_only_holds_a_reserved_name_is_free(house, handle):
    assert register(house, handle)["status"] == "registered"


def test_a_twin_of_a_handle_that_lives_is_refused_until_that_one_is_gone(house):
    for twin in ("jerry", "JERRY", "jErry"):
        with pytest.raises(Conflict, match="Jerry is registered") as refused:
            register(house, twin)
        assert refused.value.details["free"].lower() == "jerry-2"
    assert register(house, "Jerry-2")["status"] == "registered"
    with pytest.raises(Conflict) as refused:
        register(house, "jerry")
    assert refused.value.details["free"] == "jerry-3", "not a twin either"
    house.restart()
    with pytest.raises(Conflict, match="Jerry is registered"):
        register(house, "jerry")
    house.call("person", "agents.revoke", {"agentId": "Jerry"})
    assert register(house, "jerry")["status"] == "registered"


def test_a_twin_may_come_once_the_other_was_silent_for_a_day(house):
    house.advance(25 * 3600)
    assert register(house, "jerry")["status"] == "registered"


def test_handles_are_case_sensitive(house):
    with pytest.raises(NotFound):
        send(house, "t", to="jerry")
    assert take_ids(house, "Jerry") == []


def test_a_live_handle_without_its_token_is_refused_and_a_free_name_offered(house):
    with pytest.raises(Conflict, match="handle Jerry is taken") as refused:
        register(house)
    assert refused.value.details == {"agentId": "Jerry", "free": "Jerry-2"}
    house.register("Jerry-2")
    with pytest.raises(Conflict) as refused:
        register(house)
    assert refused.value.details["free"] == "Jerry-3"


def test_the_free_name_of_the_longest_handle_is_a_handle(house):
    house.register("x" * 64)
    with pytest.raises(Conflict) as refused:
        register(house, "x" * 64)
    house.register(refused.value.details["free"])


def test_another_agent_cannot_register_a_live_handle_either(house):
    with pytest.raises(Conflict):
        register(house, by="agent:Spock")


def test_a_refused_registration_is_in_the_ledger(house):
    with pytest.raises(Conflict):
        register(house)
    record = house.ledger()[-1]
    assert (record["method"], record["outcome"], record["subject"]) == ("agents.register", "conflict", "Jerry")


def test_a_reconnect_replaces_the_record_and_keeps_token_and_inbox(make_house):
    house = make_house()
    token = house.register("Jerry", type="codex", metadata={"paneId": "%0"})
    send(house, "t")
    answer = register(house, by=JERRY, type="claude-code", metadata={"cwd": "/work"})
    assert (answer["reconnected"], answer["unread"]) == (True, 1)
    assert "agentToken" not in answer
    assert house.tokens.find(token) == "Jerry"
    (listed,) = house.call("local", "agents.list")
    assert (listed["type"], listed["metadata"], listed["unread"]) == ("claude-code", {"cwd": "/work"}, 1)
    assert take_ids(house) == ["t"]


def test_an_exclusive_reconnect_is_refused_while_another_connection_acts_as_the_agent(house):
    mine, other = house.connect("Jerry"), house.connect("Jerry")
    with pytest.raises(Conflict, match="another live connection acts as it") as refused:
        register(house, by=JERRY, connection=mine, exclusive=True)
    assert refused.value.details["free"] == "Jerry-2"
    house.disconnect("Jerry", other)
    assert register(house, by=JERRY, connection=mine, exclusive=True)["reconnected"] is True


def test_after_a_day_of_silence_a_handle_may_be_taken_over(make_house):
    house = make_house()
    old = house.register("Jerry")
    send(house, "t")
    house.advance(DAY - 1)
    with pytest.raises(Conflict):
        register(house)
    house.advance(1)
    new = house.register("Jerry")
    assert house.tokens.find(new) == "Jerry"
    assert house.tokens.find(old) is None
    assert house.files.tokens["Jerry"] == new
    assert take_ids(house) == ["t"]
    assert events_named(house, "agent.registered")[-1]["status"] == "takeover"


def test_an_agent_with_a_live_connection_is_not_silent_however_long_it_says_nothing(house):
    house.connect("Jerry")
    house.advance(2 * DAY)
    with pytest.raises(Conflict):
        register(house)


def test_the_person_takes_over_at_once_and_the_old_connections_are_dropped(make_house):
    house = make_house()
    old = house.register("Jerry")
    connection = house.connect("Jerry")
    new = register(house, by="person")["agentToken"]
    assert connection.dropped
    assert (house.tokens.find(old), house.tokens.find(new)) == (None, "Jerry")


def test_a_handle_that_was_just_taken_over_is_online_when_the_old_connection_ends(make_house):
    house = make_house()
    house.register("Jerry")
    connection = house.connect("Jerry")
    register(house, by="person")
    house.disconnect("Jerry", connection)
    assert status_of(house) == "online"


# -- declared in the configuration --


def test_a_declared_agent_can_be_written_to_before_it_ever_came(make_house):
    house = make_house()
    house.run(lambda: house.broker.declare([AgentRecord(agent_id="Jerry", type="codex")]))
    assert status_of(house) == "offline"
    send(house, "t")
    house.register("Jerry")
    assert status_of(house) == "online"
    assert take_ids(house) == ["t"]


def test_a_declared_handle_belongs_to_the_first_that_claims_it(make_house):
    house = make_house()
    house.run(lambda: house.broker.declare([AgentRecord(agent_id="Jerry", type="codex")]))
    house.register("Jerry")
    with pytest.raises(Conflict):
        register(house)


def test_declaring_again_changes_nothing_about_an_agent_that_is_there(house):
    records = len(house.ledger())
    house.run(lambda: house.broker.declare([AgentRecord(agent_id="Jerry", type="other")]))
    assert len(house.ledger()) == records
    assert house.call("local", "agents.list")[0]["type"] == "agent"


# -- revoking --


def test_revoking_ends_the_token_and_frees_the_handle_with_its_inbox(make_house):
    house = make_house()
    old = house.register("Jerry")
    connection = house.connect("Jerry")
    send(house, "t")
    assert house.call("person", "agents.revoke", {"agentId": "Jerry"}) == {"agentId": "Jerry", "status": "revoked"}
    assert house.tokens.find(old) is None
    assert house.files.tokens == {}
    assert connection.dropped
    assert status_of(house) == "offline"
    house.register("Jerry")
    assert take_ids(house) == ["t"]


@pytest.mark.parametrize("other", ["local", JERRY, "agent:Spock"])
def test_only_the_person_revokes(house, other):
    with pytest.raises(Forbidden):
        house.call(other, "agents.revoke", {"agentId": "Jerry"})
    assert status_of(house) == "online"


def test_an_unknown_agent_cannot_be_revoked(house):
    with pytest.raises(NotFound, match="agent not registered"):
        house.call("person", "agents.revoke", {"agentId": "Nobody"})


# -- long gone --


def test_an_agent_that_was_offline_for_a_week_is_removed_with_its_token_file(make_house):
    house = make_house(limits=BrokerLimits(agent_retention_ms=3_600_000, silence_ms=60_000))
    house.register("Jerry")
    house.register("Alive")
    house.connect("Alive")
    house.advance(3_600 + 120)
    assert [each["agentId"] for each in house.call("local", "agents.list")] == ["Alive"]
    assert list(house.files.tokens) == ["Alive"]
    assert events_named(house, "agent.removed")[0]["agentId"] == "Jerry"


def test_a_declared_agent_that_never_came_is_not_removed(make_house):
    house = make_house(limits=BrokerLimits(agent_retention_ms=3_600_000))
    house.run(lambda: house.broker.declare([AgentRecord(agent_id="Jerry", type="codex")]))
    house.advance(2 * 3_600)
    assert status_of(house) == "offline"
