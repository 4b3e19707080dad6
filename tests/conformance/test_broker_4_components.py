"""Broker specification 4: what the parts are and what each must offer."""

import shutil
import socket
from pathlib import Path

import pytest


@pytest.mark.req("BRK-4.1-1")
def test_an_mcp_client_is_greeted_and_shown_the_tools(house):
    with house.mcp("--agent", "Greeted") as client:
        assert client.initialized["serverInfo"]["name"] == "bascule"
        assert "Greeted" in client.initialized["instructions"]
        tools = {"send_message", "await_reply", "wait_for_message", "post_reply", "list_agents", "register_agent"}
        assert tools <= set(client.tools)


@pytest.mark.req("BRK-4.1-2")
def test_one_tool_waits_for_the_answer_and_another_way_does_not(house, agent):
    with house.mcp() as client:
        sent = client.call("send_message", agentId=agent.handle, payload="later", awaitResponse=False)
        assert sent.structured["status"] == "pending"
        waiting = client.begin("send_message", agentId=agent.handle, payload="now")
        first, second = (house.take(agent, "waitMs=10000").json["messages"][0] for _ in range(2))
        assert (first["payload"], second["payload"]) == ("later", "now")
        house.reply(agent, second["ticketId"], "at once")
        assert client.result(waiting).structured["payload"] == "at once"


@pytest.mark.req("BRK-4.1-3")
def test_what_an_mcp_client_sends_is_seen_over_http(house, agent):
    with house.mcp("--agent", "Passer") as client:
        sent = client.call("send_message", agentId=agent.handle, payload="x", awaitResponse=False)
    view = house.ticket(sent.structured["ticketId"], token=agent.token)
    assert (view["from"], view["targetAgent"], view["payload"]) == ("Passer", agent.handle, "x")


@pytest.mark.req("BRK-4.2-1", "BRK-10-7")
def test_the_broker_serves_http_on_localhost_at_the_port_that_was_chosen(house):
    assert house.get("/healthz").status == 200
    assert house.get("/status").json["doors"]["tcp"] == f"http://127.0.0.1:{house.port}"


@pytest.mark.req("BRK-4.2-1")
def test_port_zero_leaves_the_unix_sockets_only(house_with):
    house = house_with({"port": 0, "durability": "memory"})
    assert set(house.get("/status", door="unix").json["doors"]) == {"link", "http"}


@pytest.mark.req("BRK-4.2-2")
def test_with_durability_memory_nothing_but_the_process_holds_the_tickets(house_with):
    house = house_with({"port": 0, "durability": "memory"})
    assert house.get("/status", door="unix").json["durability"] == "memory"
    assert not Path(house.state, "bascule.db").exists()


@pytest.mark.req("BRK-4.2-2", "DEC-BRK-3")
def test_agents_tokens_queues_and_replies_survive_kill_dash_nine(new_house):
    house = new_house({"durability": "fsync"})
    agent = house.register(metadata={"cwd": "/a"})
    tickets = [house.send(agent.handle, number) for number in range(5)]
    house.reply(agent, tickets[0], "kept")
    # Handed over but not acknowledged: offered again although its lease has not ended.
    house.take(agent, "waitMs=0&max=2")
    house.kill()
    house.start()
    assert house.agent_view(agent.handle)["metadata"] == {"cwd": "/a"}
    assert house.get(f"/replies/{tickets[0]}").json["payload"] == "kept"
    messages = house.take(agent, "waitMs=0&max=9").json["messages"]
    assert [(each["ticketId"], each["attempts"]) for each in messages] == [(ticket, 1) for ticket in tickets[1:]]


@pytest.mark.req("BRK-4.2-6", "BRK-8-4")
def test_a_ticket_passes_through_the_states_of_the_specification(house, agent):
    ticket = house.send(agent.handle)
    states = [house.ticket(ticket)["status"]]
    house.ack(agent, ticket)
    states.append(house.ticket(ticket)["status"])
    house.reply(agent, ticket)
    states.append(house.ticket(ticket)["status"])
    late = house.send(agent.handle, timeoutMs=1)
    states.append(house.get(f"/replies/{late}?waitMs=10000").json["status"])
    assert states == ["pending", "delivered", "responded", "timeout"]


@pytest.mark.req("BRK-4.2-16", "BRK-7.1-1")
def test_registering_from_a_tmux_pane_records_the_pane(house):
    handle = house.new_name()
    assert house.run("bridge-register", "--agent", handle, TMUX_PANE="%7").returncode == 0
    assert house.agent_view(handle)["metadata"]["paneId"] == "%7"


@pytest.mark.req("BRK-4.3-1")
@pytest.mark.parametrize("command", ["bridge-register", "bridge-reply", "bridge-recv", "bridge-send", "bridgectl"])
def test_the_helper_commands_are_installed_and_explain_themselves(house, command):
    assert shutil.which(command, path=house.environment()["PATH"])
    helped = house.run(command, "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "examples:" in helped.stdout


@pytest.mark.req("BRK-4.3-2", "BRK-4.3-3")
def test_the_reply_helper_posts_ticket_message_and_metadata(house, agent):
    ticket = house.send(agent.handle)
    done = house.run("bridge-reply", ticket, "Here it is", "--metadata", '{"status":"completed"}')
    assert done.returncode == 0, done.stderr
    view = house.get(f"/replies/{ticket}").json
    assert (view["payload"], view["metadata"]) == ("Here it is", {"status": "completed"})
    house.logged("call", method="replies.post", door="unix", outcome="ok", subject=ticket)


@pytest.mark.req("BRK-4.3-5", "BRK-7.3-2")
def test_the_command_that_a_received_message_names_answers_it(house, agent):
    ticket = house.send(agent.handle, "a question")
    received = house.run("bridge-recv", "--agent", agent.handle)
    line = next(line for line in received.stdout.splitlines() if "reply with: " in line)
    command, named, words = line.partition("reply with: ")[2].split(" ", 2)
    assert house.run(command, named, words.strip('"')).returncode == 0
    assert house.get(f"/replies/{ticket}").json["payload"] == "your answer"


@pytest.mark.req("BRK-4.4-1")
def test_an_agent_without_tmux_registers_receives_and_replies(house):
    handle = house.new_name()
    registered = house.run("bridge-register", "--agent", handle)
    assert registered.returncode == 0
    assert "paneId" not in house.agent_view(handle)["metadata"]
    ticket = house.send(handle, "no panes needed")
    assert "no panes needed" in house.run("bridge-recv", "--agent", handle).stdout
    assert house.run("bridge-reply", ticket, "indeed").returncode == 0


@pytest.mark.req("BRK-4.4-2")
def test_a_launch_script_can_name_the_ticket_in_the_environment(house, agent):
    ticket = house.send(agent.handle)
    assert house.run("bridge-reply", "from the environment", BRIDGE_TICKET=ticket).returncode == 0
    assert house.get(f"/replies/{ticket}").json["payload"] == "from the environment"


@pytest.mark.req("BRK-12-1")
def test_the_port_is_bound_on_127_0_0_1_and_nowhere_else(house):
    # Another address of the same loopback interface: what listens on all addresses would answer there.
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.2", house.port))
