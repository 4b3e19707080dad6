"""Broker specification 5.0, 5.5 and 5.6: registering, the directory of agents, heartbeats; presence."""

from datetime import UTC, datetime

import pytest
from real_house import until

# The body of the specification's example, but for the handle.
EXAMPLE = {
    "type": "codex",
    "metadata": {
        "paneId": "%0",
        "session": "Session",
        "cwd": "/home/user/project-a",
        "capabilities": ["review", "tests"],
    },
    "heartbeatIntervalMs": 30_000,
}
RESPONSE_KEYS = {"agentId", "status", "expiresAt"}
AGENT_KEYS = {"agentId", "type", "status", "lastHeartbeat", "metadata"}


def moment(text: str) -> datetime:
    assert text.endswith("Z")
    return datetime.fromisoformat(text)


@pytest.mark.req("BRK-5.0-1")
@pytest.mark.parametrize("door", ["tcp", "unix"])
def test_the_body_of_the_example_registers_an_agent(house, door):
    handle = house.new_name()
    answer = house.post("/agents/register", {"agentId": handle, **EXAMPLE}, door=door)
    assert answer.status == 200
    view = house.agent_view(handle)
    assert (view["type"], view["metadata"]) == (EXAMPLE["type"], EXAMPLE["metadata"])


@pytest.mark.req("BRK-5.0-1")
def test_a_handle_alone_is_enough_to_register(house):
    handle = house.new_name()
    assert house.post("/agents/register", {"agentId": handle}).status == 200
    assert house.agent_view(handle)["metadata"] == {}


@pytest.mark.req("BRK-5.0-2")
def test_a_first_registration_answers_the_keys_of_the_example_and_the_token(house):
    handle = house.new_name()
    answer = house.post("/agents/register", {"agentId": handle, **EXAMPLE})
    assert set(answer.json) == RESPONSE_KEYS | {"agentToken"}
    assert (answer.json["agentId"], answer.json["status"]) == (handle, "registered")


@pytest.mark.req("BRK-5.0-2")
def test_a_reconnect_answers_the_keys_of_the_example_and_that_it_is_one(house, agent):
    answer = house.post("/agents/register", {"agentId": agent.handle, **EXAMPLE}, token=agent.token)
    assert set(answer.json) == RESPONSE_KEYS | {"reconnected"}
    house.send(agent.handle)
    answer = house.post("/agents/register", {"agentId": agent.handle}, token=agent.token)
    assert set(answer.json) == RESPONSE_KEYS | {"reconnected", "unread"}


@pytest.mark.req("BRK-5.0-3", "DEC-BRK-24")
def test_expires_at_is_three_heartbeat_intervals_away(house):
    before = datetime.now(UTC)
    answer = house.post("/agents/register", {"agentId": house.new_name(), "heartbeatIntervalMs": 30_000})
    left = (moment(answer.json["expiresAt"]) - before).total_seconds()
    assert 89.9 <= left <= 95


@pytest.mark.req("BRK-5.0-3", "DEC-BRK-25")
def test_without_an_interval_expires_at_is_half_an_hour_away(house):
    before = datetime.now(UTC)
    answer = house.post("/agents/register", {"agentId": house.new_name()})
    left = (moment(answer.json["expiresAt"]) - before).total_seconds()
    assert 1799.9 <= left <= 1805


@pytest.mark.req("BRK-5.0-4", "BRK-4.2-11")
def test_registering_again_with_the_token_replaces_the_record_and_keeps_the_inbox(house, agent):
    ticket = house.send(agent.handle)
    answer = house.post(
        "/agents/register", {"agentId": agent.handle, "type": "gemini", "metadata": {"cwd": "/b"}}, token=agent.token
    )
    assert answer.json["reconnected"] is True
    view = house.agent_view(agent.handle)
    assert (view["type"], view["metadata"]) == ("gemini", {"cwd": "/b"})
    assert [view["agentId"] for view in house.get("/agents").json].count(agent.handle) == 1
    assert house.take(agent).json["messages"][0]["ticketId"] == ticket


@pytest.mark.req("BRK-5.0-4", "BRK-4.2-10", "BRK-15-6")
def test_a_taken_handle_without_its_token_is_refused_with_the_name_of_a_free_one(house, agent):
    answer = house.post("/agents/register", {"agentId": agent.handle})
    assert (answer.status, answer.error["code"]) == (409, "conflict")
    free = answer.error["details"]["free"]
    assert house.post("/agents/register", {"agentId": free}).status == 200


@pytest.mark.req("BRK-4.2-10")
def test_the_token_of_one_agent_does_not_take_the_handle_of_another(house, agent):
    other = house.register()
    answer = house.post("/agents/register", {"agentId": agent.handle}, token=other.token)
    assert answer.status == 409


@pytest.mark.req("BRK-5.5-1", "BRK-4.2-15", "DEC-BRK-26")
def test_the_directory_lists_agents_online_and_offline(house):
    here, gone = house.register(), house.register_offline()
    listed = {view["agentId"]: view["status"] for view in house.get("/agents").json}
    assert (listed[here.handle], listed[gone.handle]) == ("online", "offline")


@pytest.mark.req("BRK-5.5-2")
def test_type_keeps_agents_of_that_type_only(house):
    kind = house.new_name("kind")
    wanted = house.register(type=kind)
    house.register(type="something-else")
    assert [view["agentId"] for view in house.get(f"/agents?type={kind}").json] == [wanted.handle]


@pytest.mark.req("BRK-5.5-3")
def test_status_keeps_agents_of_that_status_only(house):
    here, gone = house.register(), house.register_offline()
    online = [view["agentId"] for view in house.get("/agents?status=online").json]
    offline = [view["agentId"] for view in house.get("/agents?status=offline").json]
    assert here.handle in online
    assert gone.handle not in online
    assert gone.handle in offline
    assert here.handle not in offline


@pytest.mark.req("BRK-5.5-3")
def test_both_filters_narrow_together(house):
    kind = house.new_name("kind")
    house.register(type=kind)
    assert house.get(f"/agents?type={kind}&status=offline").json == []


@pytest.mark.req("BRK-5.5-3")
def test_a_status_that_does_not_exist_is_refused(house):
    assert house.get("/agents?status=asleep").status == 400


@pytest.mark.req("BRK-5.5-4", "BRK-4.2-9")
def test_an_agent_is_shown_with_the_keys_of_the_example(house, agent):
    view = house.agent_view(agent.handle)
    assert set(view) == AGENT_KEYS
    moment(view["lastHeartbeat"])
    house.send(agent.handle)
    assert set(house.agent_view(agent.handle)) == AGENT_KEYS | {"unread"}


@pytest.mark.req("BRK-5.5-1")
def test_the_directory_over_the_link_is_the_same(house, agent):
    with house.link() as link:
        listed = link.call("agents.list", {"type": house.agent_view(agent.handle)["type"]})
    assert agent.handle in [view["agentId"] for view in listed]


@pytest.mark.req("BRK-5.6-1")
def test_a_heartbeat_answers_with_status_and_the_next_deadline(house, agent):
    answer = house.post(f"/agents/{agent.handle}/heartbeat", token=agent.token)
    assert answer.status == 200
    assert set(answer.json) == {"agentId", "status", "expiresAt"}
    assert answer.json["status"] == "online"


@pytest.mark.req("BRK-5.6-1")
def test_nobody_else_can_send_an_agents_heartbeat(house, agent):
    other = house.register()
    for token in ("local", other.token):
        assert house.post(f"/agents/{agent.handle}/heartbeat", token=token).status == 403


@pytest.mark.req("BRK-5.6-2")
def test_a_heartbeat_brings_an_agent_back_online_and_moves_its_last_heartbeat(house):
    agent = house.register_offline()
    before = house.agent_view(agent.handle)["lastHeartbeat"]
    house.post(f"/agents/{agent.handle}/heartbeat", token=agent.token)
    view = house.agent_view(agent.handle)
    assert view["status"] == "online"
    assert moment(view["lastHeartbeat"]) > moment(before)


@pytest.mark.req("DEC-BRK-23")
def test_any_act_with_the_token_is_a_heartbeat(house):
    agent = house.register_offline()
    house.get("/agents", token=agent.token)
    assert house.agent_view(agent.handle)["status"] == "online"


@pytest.mark.req("DEC-BRK-24")
def test_an_agent_is_offline_after_three_intervals_and_not_before(house):
    handle = house.new_name()
    with house.events(f"/events?agentId={handle}") as stream:
        house.register(handle, heartbeatIntervalMs=100)
        events = iter(stream)
        times = {name: moment(data["at"]) for name, data in (next(events) for _ in range(3))}
    assert set(times) == {"agent.registered", "agent.online", "agent.offline"}
    silent = (times["agent.offline"] - times["agent.online"]).total_seconds()
    assert 0.3 <= silent < 2


@pytest.mark.req("DEC-BRK-25")
def test_an_agent_on_the_link_is_offline_when_its_connection_ends(house, agent):
    with house.link(agent.token) as link:
        assert link.hello["principal"] == f"agent:{agent.handle}"
        assert house.agent_view(agent.handle)["status"] == "online"
    until(lambda: house.agent_view(agent.handle)["status"] == "offline", "the agent to be seen gone")


@pytest.mark.req("DEC-BRK-15")
@pytest.mark.parametrize("handle", ["", "a b", "a/b", "ä", "x" * 65, ".", "..", "local", "person", "a\n"])
def test_a_handle_outside_the_alphabet_is_refused(house, handle):
    answer = house.post("/agents/register", {"agentId": handle})
    assert (answer.status, answer.error["code"]) == (400, "invalid_request")


@pytest.mark.req("DEC-BRK-15")
def test_a_handle_of_different_case_is_another_and_nobodys_while_the_first_lives(house):
    upper = house.new_name("CASE")
    lower = upper.lower()
    first = house.register(upper)
    refused = house.post("/agents/register", {"agentId": lower})
    assert (refused.status, refused.error["code"]) == (409, "conflict")
    assert house.post("/agents/register", {"agentId": refused.error["details"]["free"]}).status == 200
    assert house.post(f"/agents/{lower}/send", {"payload": "for lower"}, token="local").status == 404
    house.send(upper, "for upper")
    assert house.take(first).json["messages"][0]["payload"] == "for upper"
