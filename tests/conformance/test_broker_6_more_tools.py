"""Broker specification 6.3, 6.6 and 11: who else is there, withdrawing, writing to many, and what happened lately."""

import json
from pathlib import Path

import pytest
from real_house import until

RECENT = "bascule://transactions/recent"
SECRET = "correct horse battery staple"


@pytest.fixture
def client(house):
    with house.mcp("--agent", house.new_name("Asker")) as connected:
        yield connected


def events_in(client) -> list[dict]:
    (content,) = client.answer(client.request("resources/read", {"uri": RECENT}))["contents"]
    assert (content["uri"], content["mimeType"]) == (RECENT, "application/json")
    return json.loads(content["text"])


# -- 6.3 ------------------------------------------------------------------------------------------


@pytest.mark.req("BRK-6.3-2")
def test_co_workers_shows_handle_type_status_and_directory_and_nothing_more(house, client):
    jerry = house.new_name()
    house.register(jerry, type="codex", metadata={"cwd": "/project", "team": "blue"})
    shown = client.call("co_workers").structured["agents"]
    assert [each for each in shown if each["agentId"] == jerry] == [
        {"agentId": jerry, "type": "codex", "status": "online", "cwd": "/project"}
    ]


@pytest.mark.req("BRK-6.3-2")
def test_a_client_shows_its_own_directory_to_its_co_workers_and_not_to_itself(house, client):
    handle = house.new_name("Neighbour")
    with house.mcp("--agent", handle, client="codex") as neighbour:
        shown = client.call("co_workers").structured
        entry = next(each for each in shown["agents"] if each["agentId"] == handle)
        assert (entry["status"], entry["cwd"]) == ("online", str(Path.cwd()))
        seen = neighbour.call("co_workers").structured
    assert seen["you"] == handle
    assert handle not in [each["agentId"] for each in seen["agents"]]
    assert shown["you"] in [each["agentId"] for each in seen["agents"]]


@pytest.mark.req("BRK-6.3-2")
def test_co_workers_says_who_is_offline(house, client):
    gone = house.register_offline()
    shown = client.call("co_workers").structured["agents"]
    assert next(each for each in shown if each["agentId"] == gone.handle)["status"] == "offline"


# -- 6.6 ------------------------------------------------------------------------------------------


@pytest.mark.req("BRK-6.6-1", "BRK-8-7")
def test_cancel_ticket_withdraws_what_the_client_sent(house, client, agent):
    ticket = client.call("send_message", agentId=agent.handle, payload="x", awaitResponse=False).structured["ticketId"]
    result = client.call("cancel_ticket", ticketId=ticket, reason="found it myself")
    assert (result.failed, result.structured) == (False, {"ticketId": ticket, "status": "cancelled"})
    assert house.ticket(ticket)["status"] == "cancelled"
    assert house.take(agent).status == 204
    assert house.reply(agent, ticket).status == 409


@pytest.mark.req("BRK-6.6-1")
def test_cancel_ticket_ends_the_clients_own_wait(client, agent):
    ticket = client.call("send_message", agentId=agent.handle, payload="x", awaitResponse=False).structured["ticketId"]
    waiting = client.begin("await_reply", ticketId=ticket)
    client.call("cancel_ticket", ticketId=ticket)
    assert client.result(waiting).structured["status"] == "cancelled"


@pytest.mark.req("BRK-6.6-1")
def test_cancel_ticket_leaves_the_messages_of_others_alone(house, client, agent):
    ticket = house.send(agent.handle)
    assert client.call("cancel_ticket", ticketId=ticket).failed
    assert house.ticket(ticket)["status"] == "pending"


@pytest.mark.req("BRK-6.6-2")
def test_broadcast_message_puts_the_payload_into_every_inbox_under_a_ticket_of_its_own(house, client):
    agents = [house.register(), house.register()]
    sent = client.call("broadcast_message", payload="all of you", agentIds=[each.handle for each in agents])
    assert (sent.failed, sent.structured["next"]) == (False, "await_reply")
    tickets = {each["agentId"]: each["ticketId"] for each in sent.structured["tickets"]}
    assert len(set(tickets.values())) == 2
    for each in agents:
        message = house.take(each).json["messages"][0]
        assert (message["payload"], message["ticketId"]) == ("all of you", tickets[each.handle])
        house.reply(each, message["ticketId"], f"{each.handle} heard it")
        answer = client.call("await_reply", ticketId=message["ticketId"]).structured
        assert (answer["from"], answer["payload"]) == (each.handle, f"{each.handle} heard it")


@pytest.mark.req("BRK-6.6-2")
def test_broadcast_message_goes_to_everybody_of_a_type_who_is_online(house, client):
    kind = house.new_name("kind")
    there = house.register(type=kind)
    house.register()
    sent = client.call("broadcast_message", payload="x", type=kind).structured
    assert [each["agentId"] for each in sent["tickets"]] == [there.handle]


@pytest.mark.req("BRK-6.6-2")
def test_broadcast_message_names_those_it_could_not_reach_and_reaches_the_rest(house, client, agent):
    missing = house.new_name("Missing")
    sent = client.call("broadcast_message", payload="x", agentIds=[agent.handle, missing]).structured
    assert [each["agentId"] for each in sent["tickets"]] == [agent.handle]
    assert [each["agentId"] for each in sent["failed"]] == [missing]


# -- 6.6 and 11: the resource ---------------------------------------------------------------------


@pytest.mark.req("BRK-6.6-3", "BRK-11-5")
def test_recent_transactions_are_a_resource_that_can_be_subscribed_to(client):
    assert client.initialized["capabilities"]["resources"]["subscribe"] is True
    listed = client.answer(client.request("resources/list", {}))["resources"]
    assert [each["uri"] for each in listed] == [RECENT]


@pytest.mark.req("BRK-11-5")
def test_the_resource_tells_the_tickets_states_in_order_and_never_what_was_said(house, client, agent):
    asked = {"agentId": agent.handle, "payload": SECRET, "awaitResponse": False}
    ticket = client.call("send_message", **asked).structured["ticketId"]
    house.reply(agent, ticket, f"{SECRET}!")
    events = until(lambda: events_about(client, ticket, "ticket.responded"), "the reply among the events")
    assert [each["event"] for each in events] == ["ticket.sent", "ticket.responded"]
    assert SECRET not in json.dumps(events_in(client))


@pytest.mark.req("BRK-11-5")
def test_the_resource_says_nothing_of_what_others_do_among_themselves(house, client, agent):
    ticket = house.send(agent.handle)
    mine = client.call("send_message", agentId=agent.handle, payload="x", awaitResponse=False).structured["ticketId"]
    until(lambda: events_about(client, mine, "ticket.sent"), "our own message among the events")
    assert ticket not in json.dumps(events_in(client))


@pytest.mark.req("BRK-6.6-3", "BRK-11-5")
def test_a_subscriber_is_told_when_there_is_more_and_finds_it_there(house, client, agent):
    ticket = client.call("send_message", agentId=agent.handle, payload="x", awaitResponse=False).structured["ticketId"]
    assert client.answer(client.request("resources/subscribe", {"uri": RECENT})) == {}
    house.reply(agent, ticket)
    while True:
        notice = client.notice()
        assert (notice["method"], notice["params"]) == ("notifications/resources/updated", {"uri": RECENT})
        # What happened just before the subscription may be news as well.
        if events_about(client, ticket, "ticket.responded"):
            break


def events_about(client, ticket: str, last: str) -> list[dict]:
    """What the resource has of a ticket, once `last` has happened to it."""
    found = [each for each in events_in(client) if each.get("ticketId") == ticket]
    return found if any(each["event"] == last for each in found) else []
