"""Broker specification 7: the helper commands, as a shell runs them."""

import json
import time

import pytest

# Held apart: what would be a ticket id but for one letter or its length.
BAD_TICKETS = ["a/b", "$(id)", "x" * 129, "ä", "abc\n"]


@pytest.mark.req("BRK-7.1-1", "BRK-7.1-2")
def test_the_usage_line_of_the_specification_registers_the_agent(house):
    handle = house.new_name()
    done = house.run("bridge-register", "--agent", handle, "--type", "codex", "--pane", "%0")
    assert done.returncode == 0, done.stderr
    view = house.agent_view(handle)
    assert (view["type"], view["metadata"]["paneId"]) == ("codex", "%0")
    assert handle in done.stdout


@pytest.mark.req("BRK-7.1-1")
def test_further_metadata_goes_with_the_registration(house):
    handle = house.new_name()
    flags = ("--session", "Session", "--cwd", "/p", "--capability", "review", "--capability", "tests")
    house.run("bridge-register", "--agent", handle, *flags, "--metadata", '{"team":"blue"}')
    expected = {"session": "Session", "cwd": "/p", "capabilities": ["review", "tests"], "team": "blue"}
    assert house.agent_view(handle)["metadata"] == expected


@pytest.mark.req("BRK-7.1-1", "BRK-5.0-4")
def test_running_bridge_register_again_is_a_reconnect(house):
    handle = house.new_name()
    house.run("bridge-register", "--agent", handle)
    again = house.run("bridge-register", "--agent", handle, "--json")
    assert json.loads(again.stdout)["reconnected"] is True


@pytest.mark.req("BRK-7.1-3", "BRK-10-2", "BRK-10-9")
def test_the_helpers_go_where_bridge_broker_url_says(house, tmp_path):
    handle = house.new_name()
    url = f"http://127.0.0.1:{house.port}"
    # Its own daemon's address is another name of its socket.
    assert house.run("bridge-register", "--agent", handle, BRIDGE_BROKER_URL=url).returncode == 0
    house.logged("call", method="agents.register", door="unix", subject=handle)
    elsewhere = {"BRIDGE_BROKER_URL": url, "BASCULE_STATE_DIR": str(tmp_path)}
    token = house.token_path(handle).read_text()
    assert house.run("bridge-register", "--agent", handle, BRIDGE_AGENT_TOKEN=token, **elsewhere).returncode == 0
    house.logged("call", method="agents.register", door="tcp", subject=handle)


@pytest.mark.req("BRK-7.1-3")
def test_without_the_variable_the_helpers_find_the_daemon_on_this_machine(house):
    handle = house.new_name()
    assert house.run("bridge-register", "--agent", handle).returncode == 0
    house.logged("call", method="agents.register", door="unix", subject=handle)


@pytest.mark.req("BRK-10-2")
@pytest.mark.parametrize("url", ["http://example.com:5050", "https://10.0.0.1:5050", "http://127.0.0.1@example.com"])
def test_a_broker_url_beyond_this_machine_is_refused_before_a_token_is_sent(house, url):
    done = house.run("bridge-register", "--agent", house.new_name(), BRIDGE_BROKER_URL=url)
    assert done.returncode == 2
    assert "BRIDGE_BROKER_URL" in done.stderr


@pytest.mark.req("BRK-7.1-4", "BRK-15-6")
def test_bridge_register_fails_with_a_code_of_its_own_for_each_reason(house, agent, tmp_path):
    assert house.run("bridge-register").returncode == 2
    assert house.run("bridge-register", "--agent", "a b").returncode == 2
    # Without the state directory's token TCP does not know who we are.
    url = f"http://127.0.0.1:{house.port}"
    unknown = house.run(
        "bridge-register", "--agent", house.new_name(), BRIDGE_BROKER_URL=url, BASCULE_STATE_DIR=str(tmp_path)
    )
    assert unknown.returncode == 4
    house.token_path(agent.handle).unlink()
    taken = house.run("bridge-register", "--agent", agent.handle)
    assert (taken.returncode, f"{agent.handle}-2" in taken.stderr) == (6, True)


@pytest.mark.long
@pytest.mark.req("BRK-7.1-4", "BRK-7.1-8", "DEC-BRK-38")
@pytest.mark.parametrize("command", [("bridge-register", "--agent", "A"), ("bridge-reply", "t", "x", "--agent", "A")])
def test_without_a_daemon_a_helper_gives_up_after_ten_seconds_and_says_how_to_start_one(house, command, tmp_path):
    start = time.monotonic()
    done = house.run(*command, "--state-dir", str(tmp_path), BRIDGE_AGENT_TOKEN="t")
    assert (done.returncode, "bascule up -d" in done.stderr) == (7, True)
    assert time.monotonic() - start > 8


@pytest.mark.req("BRK-7.1-5", "BRK-7.3-2", "DEC-BRK-34")
def test_bridge_reply_takes_ticket_and_text_as_words(house, agent):
    ticket = house.send(agent.handle)
    done = house.run("bridge-reply", ticket, "in words")
    assert (done.returncode, done.stdout) == (0, f"replied to {ticket}\n")
    assert house.get(f"/replies/{ticket}").json["payload"] == "in words"


@pytest.mark.req("BRK-7.1-6", "DEC-BRK-34")
def test_bridge_reply_takes_ticket_and_text_as_flags(house, agent):
    ticket = house.send(agent.handle)
    assert house.run("bridge-reply", "--ticket", ticket, "--message", "in flags").returncode == 0
    assert house.get(f"/replies/{ticket}").json["payload"] == "in flags"


@pytest.mark.req("BRK-7.1-7", "DEC-BRK-34")
def test_bridge_reply_reads_the_text_from_a_pipe(house, agent):
    ticket = house.send(agent.handle)
    assert house.run("bridge-reply", "--ticket", ticket, stdin="line 1\nline 2 ü\n").returncode == 0
    assert house.get(f"/replies/{ticket}").json["payload"] == "line 1\nline 2 ü"


@pytest.mark.req("DEC-BRK-34")
def test_bridge_reply_takes_the_ticket_from_the_environment_and_the_text_from_word_or_pipe(house, agent):
    first, second = house.send(agent.handle), house.send(agent.handle)
    assert house.run("bridge-reply", "a word", BRIDGE_TICKET=first).returncode == 0
    assert house.run("bridge-reply", stdin="a pipe", BRIDGE_TICKET=second).returncode == 0
    payloads = [house.get(f"/replies/{ticket}").json["payload"] for ticket in (first, second)]
    assert payloads == ["a word", "a pipe"]


@pytest.mark.req("DEC-BRK-34")
def test_bridge_reply_can_send_structured_json(house, agent):
    ticket = house.send(agent.handle)
    assert house.run("bridge-reply", ticket, '{"passed": 12}', "--json-payload").returncode == 0
    assert house.get(f"/replies/{ticket}").json["payload"] == {"passed": 12}


@pytest.mark.req("BRK-7.1-8")
def test_bridge_reply_fails_with_a_code_of_its_own_for_each_reason(house, agent, tmp_path):
    ticket, cancelled = house.send(agent.handle), house.send(agent.handle)
    stranger = house.register()
    house.post(f"/tickets/{cancelled}/cancel", {})
    assert house.run("bridge-reply").returncode == 2
    assert house.run("bridge-reply", ticket, stdin="").returncode == 2
    assert house.run("bridge-reply", ticket, "x", "--agent", stranger.handle).returncode == 4
    unknown = house.run("bridge-reply", "no-such-ticket", "x")
    assert (unknown.returncode, "unknown ticket" in unknown.stderr) == (5, True)
    withdrawn = house.run("bridge-reply", cancelled, "x")
    assert (withdrawn.returncode, "ticket cancelled" in withdrawn.stderr) == (6, True)
    assert house.ticket(ticket)["status"] == "pending"


@pytest.mark.req("BRK-12-4")
@pytest.mark.parametrize("ticket", BAD_TICKETS)
def test_a_ticket_id_that_could_be_something_else_is_refused_before_anything_is_sent(house, ticket, tmp_path):
    # Pointed at a daemon that does not exist: whoever asked it first would fail with another code.
    done = house.run("bridge-reply", ticket, "x", "--state-dir", str(tmp_path))
    assert done.returncode == 2
    assert "is not a ticket id" in done.stderr


@pytest.mark.req("DEC-BRK-4", "DEC-BRK-30")
def test_bridge_recv_prints_a_message_and_with_that_it_is_delivered(house, agent):
    ticket = house.send(agent.handle, "read me")
    received = house.run("bridge-recv", "--agent", agent.handle)
    assert received.returncode == 0
    assert received.stdout.endswith("\nread me\n")
    assert house.ticket(ticket)["status"] == "delivered"


@pytest.mark.req("DEC-BRK-30")
def test_bridge_recv_waits_and_says_with_code_3_that_nothing_came(house, agent):
    assert house.run("bridge-recv", "--agent", agent.handle, "--wait", "100").returncode == 3


@pytest.mark.req("DEC-BRK-42")
def test_a_shell_without_sockets_is_told_the_next_step(house, tmp_path):
    done = house.run(
        "bridge-reply", "t", "x", "--state-dir", str(tmp_path), "--agent", "A",
        CODEX_SANDBOX_NETWORK_DISABLED="1", BRIDGE_AGENT_TOKEN="t",
    )  # fmt: skip
    assert done.returncode == 8
    assert "post_reply" in done.stderr
    assert "sandbox" in done.stderr


@pytest.mark.req("BRK-10-9")
def test_bridge_agent_id_tells_every_helper_who_it_is(house):
    handle = house.new_name()
    assert house.run("bridge-register", BRIDGE_AGENT_ID=handle).returncode == 0
    ticket = house.send(handle, "who am I")
    assert "who am I" in house.run("bridge-recv", BRIDGE_AGENT_ID=handle).stdout
    assert house.run("bridge-reply", ticket, "me", BRIDGE_AGENT_ID=handle).returncode == 0
    other = house.register()
    house.run("bridge-send", other.handle, "from me", "--no-wait", BRIDGE_AGENT_ID=handle)
    assert house.take(other).json["messages"][0]["from"] == handle
