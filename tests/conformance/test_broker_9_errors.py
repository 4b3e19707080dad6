"""Broker specification 9: agents that are not there, daemons that are away, and trying again."""

import os
import re
import time

import pytest
from real_house import until

from patience import PATIENCE


@pytest.mark.req("BRK-9-2", "DEC-BRK-27", "DEC-BRK-29")
def test_a_message_to_nobody_is_404_agent_not_registered_and_names_who_is_online(new_house):
    house = new_house({"offline": "reject"})
    house.register("Spock")
    gone = house.register_offline()
    for door in ("tcp", "unix"):
        answer = house.post("/agents/Nobody/send", {"payload": "x"}, door=door)
        assert (answer.status, answer.error["code"]) == (404, "not_found")
        assert answer.error["message"] == "agent not registered"
        assert "online now: Spock;" in answer.error["hint"]
    # The setting makes no difference between nobody and somebody who is not there.
    answer = house.post(f"/agents/{gone.handle}/send", {"payload": "x"})
    assert (answer.status, answer.error["message"]) == (404, "agent not registered")


@pytest.mark.req("DEC-BRK-28", "DEC-BRK-26")
def test_a_message_to_an_agent_that_is_offline_is_queued_and_the_sender_is_told(house):
    agent = house.register_offline()
    answer = house.post(f"/agents/{agent.handle}/send", {"payload": "for later"})
    assert (answer.status, answer.json["agentStatus"]) == (200, "offline")
    assert house.take(agent).json["messages"][0]["payload"] == "for later"


@pytest.mark.req("DEC-BRK-29", "BRK-9-2")
def test_require_online_gives_the_404_of_the_specification(house):
    agent = house.register_offline()
    answer = house.post(f"/agents/{agent.handle}/send", {"payload": "x", "requireOnline": True})
    assert (answer.status, answer.error["message"]) == (404, "agent not registered")
    assert answer.error["details"] == {"agentId": agent.handle, "agentStatus": "offline"}
    assert house.take(agent).status == 204


@pytest.mark.req("BRK-9-3", "BRK-15-4")
def test_the_tool_names_who_is_there_when_the_addressee_is_not(house, agent):
    with house.mcp() as client:
        result = client.call("send_message", agentId="Nobody", payload="x")
    assert result.failed
    assert result.text.startswith("agent not registered\nNext: ")
    assert agent.handle in result.text or "bridge-register --agent Nobody" in result.text


@pytest.mark.req("BRK-9-4", "BRK-15-4")
def test_await_reply_says_timeout_and_the_model_may_ask_again(house, agent):
    with house.mcp() as client:
        ticket = client.call("send_message", agentId=agent.handle, payload="x", awaitResponse=False).structured[
            "ticketId"
        ]
        result = client.call("await_reply", ticketId=ticket, timeoutMs=50)
        assert not result.failed
        assert (result.structured["status"], result.structured["ticketStatus"]) == ("timeout", "pending")
        house.reply(agent, ticket, "at last")
        assert client.call("await_reply", ticketId=ticket).structured["payload"] == "at last"


@pytest.mark.req("BRK-9-5")
def test_a_client_that_finds_no_daemon_is_told_so_when_it_connects(house, tmp_path):
    os.chmod(tmp_path, 0o700)
    with house.mcp("--state-dir", str(tmp_path)) as client:
        assert "Bascule is not running: start it with `bascule up -d`" in client.initialized["instructions"]


@pytest.mark.long
@pytest.mark.req("BRK-9-5", "DEC-BRK-38")
def test_a_tool_whose_daemon_stays_away_says_so_after_ten_seconds_and_how_to_start_it(house, tmp_path):
    os.chmod(tmp_path, 0o700)
    with house.mcp("--state-dir", str(tmp_path)) as client:
        start = time.monotonic()
        result = client.call("list_agents")
    assert result.failed
    assert "bascule up" in result.text
    assert time.monotonic() - start > 8


@pytest.mark.req("BRK-9-1", "DEC-BRK-38")
def test_sends_and_replies_while_the_daemon_is_away_are_repeated_until_it_is_back(new_house):
    house = new_house()
    agent = house.register()
    ticket = house.send(agent.handle)
    with house.mcp() as client:
        client.call("list_agents")
        house.kill()
        sender = house.started("bridge-send", agent.handle, "by command", "--no-wait", "--ticket", "t-1")
        replier = house.started("bridge-reply", ticket, "answered", "--agent", agent.handle)
        asked = client.begin("send_message", agentId=agent.handle, payload="by tool", awaitResponse=False)
        house.start()
        assert not client.result(asked).failed
    assert (sender.communicate(timeout=PATIENCE)[0], sender.returncode) == ("t-1\n", 0)
    assert (replier.communicate(timeout=PATIENCE)[0], replier.returncode) == (f"replied to {ticket}\n", 0)
    assert house.get(f"/replies/{ticket}").json["payload"] == "answered"
    messages = house.take(agent, "waitMs=0&max=9").json["messages"]
    assert sorted(each["payload"] for each in messages) == ["by command", "by tool"]


@pytest.mark.req("DEC-BRK-39")
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_question_goes_on_waiting_for_its_answer_after_a_restart(new_house, how):
    house = new_house()
    agent = house.register()
    with house.mcp() as client:
        asked = client.begin("send_message", agentId=agent.handle, payload="patient", timeoutMs=30_000)
        sender = house.started("bridge-send", agent.handle, "patient too")
        until(lambda: house.waits() == 2, "both to wait")
        getattr(house, how)()
        house.start()
        messages = house.take(agent, "waitMs=10000&max=9").json["messages"]
        assert sorted(each["payload"] for each in messages) == ["patient", "patient too"]
        for each in messages:
            house.reply(agent, each["ticketId"], f"answer to {each['payload']}")
        assert sender.communicate(timeout=PATIENCE)[0] == "answer to patient too\n"
        result = client.result(asked).structured
    assert (result["status"], result.get("payload")) == ("responded", "answer to patient")


@pytest.mark.req("BRK-15-4")
def test_every_error_has_a_code_and_says_what_to_do_next(house, agent):
    stranger = house.register()
    ticket = house.send(agent.handle)
    answers = [
        house.post("/agents/Nobody/send", {"payload": "x"}),
        house.get("/nowhere"),
        house.http("DELETE", "/agents"),
        house.post("/replies", {"ticketId": ticket, "payload": "x"}, token=stranger.token),
        house.post("/agents/register", {"agentId": agent.handle}),
        house.post("/agents/register", b"agentId=x", headers={"Content-Type": "text/plain"}),
        house.get("/agents", headers={"Bascule-Protocol": "99"}),
    ]
    assert [answer.status for answer in answers] == [404, 404, 405, 403, 409, 415, 426]
    for answer in answers:
        assert {"code", "message"} <= set(answer.error) <= {"code", "message", "details", "hint"}
        assert re.fullmatch("[a-z_]+", answer.error["code"])
        assert answer.error.get("hint") or "bascule" in answer.error["message"]
