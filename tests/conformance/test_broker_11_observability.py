"""Broker specification 11: what the log says, and the commands that show it."""

import json
import re
import select
import signal
from datetime import datetime

import pytest
from real_house import until

from patience import PATIENCE


@pytest.mark.req("BRK-11-1")
def test_sends_replies_and_heartbeats_are_logged_as_they_come_in(house, agent):
    ticket = house.send(agent.handle)
    house.reply(agent, ticket)
    house.post(f"/agents/{agent.handle}/heartbeat", token=agent.token)
    house.logged("call", method="messages.send", principal="local", door="tcp", outcome="ok")
    house.logged("call", method="replies.post", principal=f"agent:{agent.handle}", subject=ticket, outcome="ok")
    house.logged("call", method="agents.heartbeat", principal=f"agent:{agent.handle}", subject=agent.handle)


@pytest.mark.req("BRK-11-2")
def test_every_change_of_a_tickets_state_is_logged_with_its_time(house_with):
    house = house_with({"ticket_ttl_ms": 500})
    agent = house.register()
    answered, cancelled = house.send(agent.handle), house.send(agent.handle)
    house.ack(agent, answered)
    house.reply(agent, answered)
    house.post(f"/tickets/{cancelled}/cancel", {})
    late = house.send(agent.handle, timeoutMs=1)
    states = {
        answered: ["ticket.sent", "ticket.delivered", "ticket.responded", "ticket.expired"],
        cancelled: ["ticket.sent", "ticket.cancelled", "ticket.expired"],
        late: ["ticket.sent", "ticket.timeout"],
    }
    for ticket, events in states.items():
        house.logged(events[-1], ticket=ticket)
        lines = [line for line in house.log() if line.get("ticket") == ticket]
        assert [line["event"] for line in lines] == events
        assert {(line["agent"], line["sender"]) for line in lines} == {(agent.handle, "local")}
        moments = [datetime.fromisoformat(line["at"]) for line in lines]
        assert moments == sorted(moments)


@pytest.mark.req("BRK-11-3")
def test_a_timeout_is_logged_with_its_agent(house, agent):
    ticket = house.send(agent.handle, timeoutMs=1)
    assert house.logged("ticket.timeout", ticket=ticket)["agent"] == agent.handle


@pytest.mark.req("BRK-11-3")
@pytest.mark.parametrize("more", [{}, {"ticketId": "t-missing"}], ids=["without-ticket", "with-ticket"])
def test_a_send_to_an_unknown_agent_is_logged_with_that_agent(house, more):
    handle = house.new_name("Missing")
    assert house.post(f"/agents/{handle}/send", {"payload": "x", **more}).status == 404
    assert handle in json.dumps(calls_so_far(house, "messages.send", "not_found"))


@pytest.mark.req("BRK-11-3")
def test_a_refused_reply_is_logged_with_who_tried_it(house, agent):
    stranger = house.register()
    ticket = house.send(agent.handle)
    house.post("/replies", {"ticketId": ticket, "payload": "x"}, token=stranger.token)
    house.logged("call", principal=f"agent:{stranger.handle}", subject=ticket, outcome="forbidden")


@pytest.mark.req("BRK-11-1", "BRK-11-3")
def test_a_request_that_cannot_be_read_is_logged(house, agent):
    answer = house.post(f"/agents/{agent.handle}/send", {"payload": "x", "no": "such field"}, token=agent.token)
    assert answer.status == 400
    assert agent.handle in json.dumps(calls_so_far(house, "messages.send", "invalid_request"))


def calls_so_far(house, method: str, outcome: str) -> list[dict]:
    """The log up to now: a call made after all others is in it."""
    marker = house.new_name("marker")
    house.get(f"/tickets/{marker}")
    house.logged("call", subject=marker)
    return [line for line in house.log() if line.get("method") == method and line["outcome"] == outcome]


@pytest.mark.req("BRK-11-3")
def test_a_wrong_token_is_logged(house):
    assert house.get("/agents", token="wrong").status == 401
    house.logged("wrong_token", level="warning", door="tcp")


@pytest.mark.req("BRK-11-4")
def test_every_line_of_the_log_file_is_a_json_object_with_time_level_and_event(house, agent):
    house.send(agent.handle, "line\nbreak")
    house.logged("ticket.sent", agent=agent.handle)
    for line in house.log():
        assert {"at", "level", "event"} <= set(line)
        assert line["level"] in ("debug", "info", "warning", "error")


@pytest.mark.req("BRK-11-6")
def test_bridgectl_list_tickets_shows_them_newest_first(house, agent):
    first, second = house.send(agent.handle), house.send(agent.handle)
    listed = house.run("bridgectl", "list", "tickets", "--agent", agent.handle)
    assert listed.returncode == 0
    head, *rows = [line.split() for line in listed.stdout.splitlines()]
    assert head == ["TICKET", "STATUS", "FROM", "TO", "CREATED", "BYTES"]
    assert [row[:2] for row in rows] == [[second, "pending"], [first, "pending"]]


@pytest.mark.req("BRK-11-6")
def test_bridgectl_list_tickets_filters_and_speaks_json(house, agent):
    pending, cancelled = house.send(agent.handle), house.send(agent.handle)
    house.post(f"/tickets/{cancelled}/cancel", {})
    flags = ("--agent", agent.handle, "--status", "pending", "--json")
    listed = house.run("bridgectl", "list", "tickets", *flags)
    assert [ticket["ticketId"] for ticket in json.loads(listed.stdout)] == [pending]


@pytest.mark.req("BRK-11-6")
def test_bridgectl_shows_and_cancels_a_ticket_and_lists_agents(house, agent):
    ticket = house.send(agent.handle, "the text")
    shown = house.run("bridgectl", "show", ticket)
    assert "status: pending" in shown.stdout
    assert "the text" in shown.stdout
    assert house.run("bridgectl", "cancel", ticket, "--reason", "solved").returncode == 0
    assert house.ticket(ticket)["status"] == "cancelled"
    assert agent.handle in house.run("bridgectl", "list", "agents", "--status", "online").stdout


@pytest.mark.req("BRK-11-7")
def test_bridgectl_tail_logs_prints_the_end_of_the_log(house, agent):
    ticket = house.send(agent.handle)
    house.logged("ticket.sent", ticket=ticket)
    tail = house.run("bridgectl", "tail", "logs", "-n", "50", "--no-follow")
    assert tail.returncode == 0
    assert re.search(rf"ticket\.sent .*{ticket}", tail.stdout)
    as_json = house.run("bridgectl", "tail", "logs", "-n", "5", "--no-follow", "--json")
    assert len([json.loads(line) for line in as_json.stdout.splitlines()]) == 5


@pytest.mark.req("BRK-11-7")
@pytest.mark.parametrize("what", ["logs", "events"])
def test_bridgectl_tail_begins_with_the_past_and_goes_on_as_things_happen(house, agent, what):
    house.logged("agent.registered", agent=agent.handle)
    tail = house.started("bridgectl", "tail", what, "-n", "1")
    assert tail.stdout.readline()
    ticket = house.send(agent.handle)
    assert any(ticket in line for line in tail.stdout)
    tail.send_signal(signal.SIGINT)
    tail.communicate(timeout=PATIENCE)
    assert tail.returncode == 130


@pytest.mark.req("BRK-11-7")
def test_bridgectl_tail_events_shows_them_while_they_come_without_a_pause(house, agent):
    tail = house.started("bridgectl", "tail", "events", "-n", "0")

    def shown() -> bool:
        house.send(agent.handle, expectReply=False, timeoutMs=60_000)
        return bool(select.select([tail.stdout], [], [], 0.05)[0])

    until(shown, "an event")
