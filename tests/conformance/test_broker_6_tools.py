"""Broker specification 6: the MCP tools, through a real `bascule mcp` and its stdin and stdout."""

import time
import uuid

import pytest
from real_house import until

# What a tool may always add: who you are, what waits for you, and a word about the sender.
ALWAYS = {"you", "unread", "note"}


@pytest.fixture(scope="module")
def client(house):
    with house.mcp("--agent", "Claude") as connected:
        yield connected


def arguments_of(client, tool: str) -> tuple[set[str], set[str]]:
    schema = client.tools[tool]["inputSchema"]
    return set(schema["properties"]), set(schema["required"])


def answered(house, client, agent, reply="the answer", **arguments):
    """A send_message that waits, answered by the agent."""
    asked = client.begin("send_message", agentId=agent.handle, payload="a question", **arguments)
    message = house.take(agent, "waitMs=10000").json["messages"][0]
    house.reply(agent, message["ticketId"], reply)
    return message, client.result(asked)


@pytest.mark.req("BRK-6.1-1", "BRK-6.1-2", "BRK-6.1-3", "BRK-6.1-4")
def test_send_message_takes_the_arguments_of_the_specification(client):
    _, required = arguments_of(client, "send_message")
    assert required == {"agentId", "payload"}
    properties = client.tools["send_message"]["inputSchema"]["properties"]
    types = {name: schema["type"] for name, schema in properties.items()}
    # Ours.
    types.pop("conversationId", None)
    assert types == {
        "agentId": "string",
        "payload": "string",
        "timeoutMs": "integer",
        "awaitResponse": "boolean",
        "metadata": "object",
    }
    assert properties["awaitResponse"]["default"] is True


@pytest.mark.req("BRK-6.1-1", "BRK-6.1-6")
def test_send_message_puts_the_payload_into_the_agents_inbox(house, client, agent):
    client.call("send_message", agentId=agent.handle, payload="hello you", awaitResponse=False)
    message = house.take(agent).json["messages"][0]
    assert (message["payload"], message["from"]) == ("hello you", "Claude")


@pytest.mark.req("BRK-6.1-2")
def test_timeout_ms_of_send_message_is_the_deadline_of_the_ticket(house, client, agent):
    result = client.call("send_message", agentId=agent.handle, payload="x", timeoutMs=150)
    assert (result.structured["status"], result.failed) == ("timeout", False)
    assert house.ticket(result.structured["ticketId"])["status"] == "timeout"


@pytest.mark.req("BRK-6.1-4")
def test_metadata_of_send_message_reaches_the_receiver(house, client, agent):
    client.call("send_message", agentId=agent.handle, payload="x", metadata={"k": [1]}, awaitResponse=False)
    assert house.take(agent).json["messages"][0]["metadata"] == {"k": [1]}


@pytest.mark.req("BRK-6.1-5")
def test_send_message_makes_up_a_ticket_id_each_time(client, agent):
    tickets = {
        client.call("send_message", agentId=agent.handle, payload="x", awaitResponse=False).structured["ticketId"]
        for _ in range(3)
    }
    assert {uuid.UUID(ticket).version for ticket in tickets} == {7}
    assert len(tickets) == 3


@pytest.mark.req("BRK-6.1-3", "BRK-6.1-7", "BRK-6.1-9", "BRK-15-2")
def test_send_message_waits_and_returns_the_reply_in_the_form_of_the_specification(house, client, agent):
    message, result = answered(house, client, agent)
    spec = {"ticketId", "status", "payload", "latencyMs"}
    assert spec <= set(result.structured) <= spec | {"from", "agentStatus"} | ALWAYS
    assert (result.structured["ticketId"], result.structured["status"]) == (message["ticketId"], "responded")
    assert (result.structured["payload"], result.structured["from"]) == ("the answer", agent.handle)
    assert not result.failed


@pytest.mark.req("BRK-6.1-8", "BRK-6.1-10", "BRK-6.2-3")
def test_send_message_without_waiting_returns_the_ticket_for_await_reply(house, client, agent):
    sent = client.call("send_message", agentId=agent.handle, payload="x", awaitResponse=False).structured
    assert {"ticketId", "status"} <= set(sent) <= {"ticketId", "status", "next", "agentStatus"} | ALWAYS
    assert (sent["status"], sent["next"]) == ("pending", "await_reply")
    house.reply(agent, sent["ticketId"], "there")
    waited = client.call("await_reply", ticketId=sent["ticketId"]).structured
    spec = {"ticketId", "status", "payload", "latencyMs"}
    assert spec <= set(waited) <= spec | {"from"} | ALWAYS
    assert (waited["status"], waited["payload"]) == ("responded", "there")


@pytest.mark.req("BRK-6.2-1")
def test_await_reply_takes_the_arguments_of_the_specification(client):
    assert arguments_of(client, "await_reply") == ({"ticketId", "timeoutMs"}, {"ticketId"})


@pytest.mark.req("BRK-6.2-2")
def test_await_reply_is_held_until_the_reply_comes(house, client, agent):
    ticket = client.call("send_message", agentId=agent.handle, payload="x", awaitResponse=False).structured["ticketId"]
    asked = client.begin("await_reply", ticketId=ticket)
    house.reply(agent, ticket, {"json": True})
    assert client.result(asked).structured["payload"] == {"json": True}


@pytest.mark.req("BRK-6.2-4", "DEC-BRK-19")
def test_await_reply_whose_own_time_is_over_says_timeout_and_what_the_ticket_is(house, client, agent):
    ticket = client.call("send_message", agentId=agent.handle, payload="x", awaitResponse=False).structured["ticketId"]
    result = client.call("await_reply", ticketId=ticket, timeoutMs=50)
    assert result.structured["status"] == "timeout"
    assert result.structured["ticketStatus"] == "pending"
    house.ack(agent, ticket)
    result = client.call("await_reply", ticketId=ticket, timeoutMs=50)
    assert result.structured["ticketStatus"] == "delivered"


@pytest.mark.long
@pytest.mark.req("DEC-BRK-20")
def test_a_tool_that_waited_its_slice_says_pending_and_what_to_call_next(client, agent):
    start = time.monotonic()
    result = client.call("send_message", agentId=agent.handle, payload="x", timeoutMs=600_000)
    # Its own time would be ten minutes.
    assert time.monotonic() - start > 44
    assert (result.structured["status"], result.structured["next"]) == ("pending", "await_reply")


@pytest.mark.req("DEC-BRK-20")
def test_the_tool_tells_the_model_that_it_waits_45_seconds_and_then_to_call_await_reply(client):
    text = client.tools["send_message"]["description"]
    assert "45 s" in text
    assert "await_reply" in text


@pytest.mark.req("BRK-8-8")
def test_send_message_tells_a_cancelled_ticket_from_one_that_timed_out(house, client, agent):
    asked = client.begin("send_message", agentId=agent.handle, payload="x")
    ticket = house.take(agent, "waitMs=10000").json["messages"][0]["ticketId"]
    token = house.token_path("Claude").read_text("utf-8")
    house.post(f"/tickets/{ticket}/cancel", {}, token=token)
    assert client.result(asked).structured["status"] == "cancelled"
    assert client.call("send_message", agentId=agent.handle, payload="x", timeoutMs=1).structured["status"] == "timeout"


@pytest.mark.req("BRK-8-8")
def test_send_message_says_when_the_addressee_is_offline(house, client):
    with house.mcp("--agent", "Visitor") as visitor:
        # Its connection is its own now: one that ends before that leaves an agent that is online until its lease ends.
        visitor.call("co_workers")
    until(lambda: house.agent_view("Visitor")["status"] == "offline", "the visitor to be seen gone")
    result = client.call("send_message", agentId="Visitor", payload="x", awaitResponse=False)
    assert result.structured["agentStatus"] == "offline"


@pytest.mark.req("BRK-6.3-1")
def test_list_agents_shows_everybody_with_metadata_and_who_you_are(house, client):
    handle = house.new_name()
    house.register(handle, type="codex", metadata={"cwd": "/project"})
    listed = client.call("list_agents").structured
    assert listed["you"] == "Claude"
    entry = next(each for each in listed["agents"] if each["agentId"] == handle)
    assert (entry["type"], entry["status"], entry["metadata"]) == ("codex", "online", {"cwd": "/project"})
    assert {"agentId", "type", "status", "lastHeartbeat", "metadata"} <= set(entry)


@pytest.mark.req("BRK-6.3-1")
def test_list_agents_takes_the_filters_of_the_http_api(client, house):
    handle = house.new_name()
    house.register(handle, type="rare")
    listed = client.call("list_agents", type="rare", status="online").structured
    assert [each["agentId"] for each in listed["agents"]] == [handle]


@pytest.mark.req("BRK-6.4-1")
def test_register_agent_takes_what_the_http_api_takes(client):
    taken, required = arguments_of(client, "register_agent")
    assert (taken, required) == ({"agentId", "type", "metadata", "heartbeatIntervalMs", "groups"}, {"agentId"})


@pytest.mark.req("BRK-6.4-2")
def test_register_agent_gives_the_client_another_handle(house):
    with house.mcp() as client:
        handle = house.new_name()
        result = client.call("register_agent", agentId=handle, type="codex", metadata={"team": "blue"})
        assert (result.structured["agentId"], result.structured["status"]) == (handle, "registered")
        view = house.agent_view(handle)
        assert (view["type"], view["status"], view["metadata"]["team"]) == ("codex", "online", "blue")
        assert "agentToken" not in result.text


@pytest.mark.req("BRK-6.4-2")
def test_register_agent_with_a_taken_handle_fails_and_the_client_stays_who_it_was(house, agent):
    with house.mcp("--agent", "Stayer") as client:
        house.token_path(agent.handle).unlink()
        result = client.call("register_agent", agentId=agent.handle)
        assert result.failed
        assert f"{agent.handle}-2" in result.text
        assert client.call("list_agents").structured["you"] == "Stayer"


@pytest.mark.req("BRK-6.5-1")
def test_post_reply_takes_the_arguments_of_the_specification(client):
    assert arguments_of(client, "post_reply") == ({"ticketId", "payload", "metadata"}, {"ticketId", "payload"})
    assert "type" not in client.tools["post_reply"]["inputSchema"]["properties"]["payload"]


@pytest.mark.req("BRK-6.5-2", "DEC-BRK-30")
@pytest.mark.parametrize("payload", ["text", {"passed": 12}], ids=["text", "json"])
def test_an_agent_receives_with_wait_for_message_and_answers_with_post_reply(house, client, payload):
    ticket = house.send("Claude", {"please": "review"})
    message = client.call("wait_for_message").structured
    assert (message["status"], message["ticketId"], message["payload"]) == ("message", ticket, {"please": "review"})
    assert message["from"] == "local"
    result = client.call("post_reply", ticketId=ticket, payload=payload, metadata={"status": "completed"})
    assert (result.failed, result.structured["status"]) == (False, "responded")
    view = house.get(f"/replies/{ticket}").json
    assert (view["payload"], view["metadata"]) == (payload, {"status": "completed"})


@pytest.mark.req("BRK-6.5-2")
def test_post_reply_to_an_unknown_ticket_fails_with_a_next_step(client):
    result = client.call("post_reply", ticketId="never-was", payload="x")
    assert result.failed
    assert result.text.startswith("unknown ticket\nNext: ")


@pytest.mark.req("DEC-BRK-30")
def test_a_tool_result_says_how_many_messages_wait(house):
    with house.mcp("--agent", "Reader") as client:
        house.send("Reader")
        assert client.call("list_agents").structured["unread"] == 1


@pytest.mark.req("BRK-6.1-1")
def test_arguments_of_the_wrong_kind_fail_in_words(client):
    for arguments in ({"payload": "x"}, {"agentId": "A", "payload": 7}, {"agentId": "A", "payload": "x", "wait": 1}):
        result = client.call("send_message", **arguments)
        assert result.failed
        assert result.text.startswith("send_message: ")
