"""Broker specification 15: the success criteria, played through as people would."""

import pytest

from patience import PATIENCE


@pytest.mark.req("BRK-15-1", "BRK-15-2")
def test_one_client_asks_another_and_gets_the_answer_in_one_tool_call(house):
    with house.mcp("--agent", "Claude") as claude, house.mcp("--agent", "Codex", client="codex") as codex:
        asked = claude.begin("send_message", agentId="Codex", payload="2 + 2?")
        message = codex.call("wait_for_message").structured
        assert (message["payload"], message["from"]) == ("2 + 2?", "Claude")
        codex.call("post_reply", ticketId=message["ticketId"], payload="4")
        answer = claude.result(asked).structured
    assert (answer["status"], answer["payload"], answer["from"]) == ("responded", "4", "Codex")


@pytest.mark.req("BRK-15-3")
def test_a_reply_by_command_finds_its_way_back_to_the_client_that_asked(house):
    house.run("bridge-register", "--agent", "Shelly")
    with house.mcp() as client, house.mcp(client="gemini-cli") as other:
        asked = client.begin("send_message", agentId="Shelly", payload="mine")
        also = other.begin("send_message", agentId="Shelly", payload="theirs")
        for _ in range(2):
            received = house.run("bridge-recv", "--agent", "Shelly").stdout
            ticket = next(line for line in received.splitlines() if "ticket: " in line).rpartition(" ")[2]
            assert house.run("bridge-reply", ticket, f"re: {received.splitlines()[-1]}").returncode == 0
        answers = client.result(asked).structured, other.result(also).structured
    assert [answer["payload"] for answer in answers] == ["re: mine", "re: theirs"]


@pytest.mark.req("BRK-15-3")
def test_two_shells_talk_with_the_commands_alone(house):
    for handle in ("Ask", "Tell"):
        house.run("bridge-register", "--agent", handle)
    sender = house.started("bridge-send", "Tell", "how are you?", "--as", "Ask")
    received = house.run("bridge-recv", "--agent", "Tell")
    assert "from agent Ask (sender verified)" in received.stdout
    ticket = next(line for line in received.stdout.splitlines() if "ticket: " in line).rpartition(" ")[2]
    house.run("bridge-reply", ticket, "fine")
    assert sender.communicate(timeout=PATIENCE)[0] == "fine\n"


@pytest.mark.req("BRK-15-4")
def test_a_command_that_got_no_answer_in_time_says_so_with_its_own_exit_code(house, agent):
    done = house.run("bridge-send", agent.handle, "x", "--timeout", "100")
    assert done.returncode == 3
    assert "no reply" in done.stderr


@pytest.mark.req("BRK-15-5")
def test_a_new_agent_is_found_by_a_client_that_was_there_before_it(house):
    with house.mcp() as client:
        before = [each["agentId"] for each in client.call("list_agents").structured["agents"]]
        house.run("bridge-register", "--agent", "Newcomer", "--type", "aider")
        after = client.call("list_agents").structured["agents"]
        assert "Newcomer" not in before
        assert "Newcomer" in [each["agentId"] for each in after]
        assert not client.call("send_message", agentId="Newcomer", payload="x", awaitResponse=False).failed


@pytest.mark.req("BRK-15-6")
def test_two_clients_started_alike_get_two_handles(house):
    with house.mcp("--agent", "Twin") as first, house.mcp("--agent", "Twin") as second:
        names = [each.call("list_agents").structured["you"] for each in (first, second)]
    assert names == ["Twin", "Twin-2"]
