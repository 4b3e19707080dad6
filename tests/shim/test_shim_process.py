"""`bascule mcp` as a process, between a client of a few lines and a scripted daemon."""

import json
import os
import subprocess
import time

import pytest
from fake_link import HANG_UP, HOLD, FakeLink, Refused
from raw_client import CLIENT_INFO, COMMAND, KEPT, RawClient, modern

from bascule import places
from bascule.shim.identity import invented_name
from patience import PATIENCE

MESSAGE = {
    "ticketId": "t-1",
    "from": "Spock",
    "payload": "hi \u202e",
    "metadata": {},
    "expectReply": True,
    "createdAt": "",
    "replyBy": "",
    "attempts": 1,
    "leaseMs": 60000,
}


def answers(value):
    return lambda _peer, _params: value


def in_turn(*values):
    left = list(values)

    def method(_peer, _params):
        value = left.pop(0)
        if isinstance(value, Exception):
            raise value
        return value

    return method


def text_of(result):
    return result["content"][0]["text"]


# -- opening --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ],
)
def test_initialize_echoes_a_version_we_know_and_names_the_handle(state, asked, given, tmp_path):
    with FakeLink(state) as daemon, RawClient(state, cwd=str(tmp_path)) as client:
        result = client.initialize(asked)
        name = invented_name("claude-code", str(tmp_path))
        assert result["protocolVersion"] == given
        assert f"You are the agent `{name}`" in result["instructions"]
        assert result["serverInfo"]["name"] == "bascule"
        params = daemon.wait_for("agents.register")
    assert client.exit_code == 0
    assert (params["agentId"], params["type"], params["exclusive"]) == (name, "claude-code", True)
    assert params["metadata"] == {"cwd": str(tmp_path), "pid": client.process.pid, "clientVersion": "2.1.0"}


def test_options_and_environment_choose_the_name(state):
    with FakeLink(state) as daemon:
        with RawClient(state, "--agent", "Jerry", "--type", "codex", BRIDGE_AGENT_ID="Tom", TMUX_PANE="%3") as client:
            assert "`Jerry`" in client.initialize()["instructions"]
        with RawClient(state, BRIDGE_AGENT_ID="Tom") as client:
            assert "`Tom`" in client.initialize()["instructions"]
        params = daemon.wait_for("agents.register")
    assert (params["type"], params["metadata"]["paneId"]) == ("codex", "%3")


def test_without_a_daemon_the_session_opens_and_the_tools_say_what_to_do(state):
    with RawClient(state, "--no-start") as client:
        assert "bascule up -d" in client.initialize()["instructions"]
        assert client.request("ping")["result"] == {}
        assert len(client.request("tools/list")["result"]["tools"]) == 21
        begun = client.start_call("list_agents")
        # It goes on trying for ten seconds; meanwhile the client is served.
        assert client.request("ping")["result"] == {}
        with FakeLink(state, agents_list=answers([])):
            assert client.answer_to(begun)["result"]["structuredContent"]["agents"] == []


def test_a_daemon_that_does_not_answer_does_not_hold_up_the_session(state):
    with FakeLink(state, hello=answers(HOLD)), RawClient(state, "--agent", "Jerry") as client:
        assert "you will be the agent `Jerry`" in client.initialize()["instructions"]


def test_tools_are_listed_before_anybody_said_who_they_are(state):
    with FakeLink(state) as daemon, RawClient(state) as client:
        assert client.request("tools/list")["result"]["tools"]
    assert daemon.calls == []


def test_both_eras_work_in_any_order_on_one_connection(state):
    with FakeLink(state, agents_list=answers([])), RawClient(state) as client:
        found = client.request("server/discover", _meta=modern())["result"]
        assert found["supportedVersions"] == ["2026-07-28"]
        assert (found["resultType"], found["ttlMs"], found["cacheScope"]) == ("complete", 0, "private")
        assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "bascule"
        old = client.initialize()
        assert found["instructions"] == old["instructions"]
        listed = client.request("tools/list", _meta=modern())["result"]
        plain = client.request("tools/list")["result"]
        assert set(plain) == {"tools"}
        assert listed["tools"] == plain["tools"]
        assert (listed["resultType"], listed["cacheScope"]) == ("complete", "private")
        called = client.request("tools/call", name="list_agents", _meta=modern())["result"]
        assert called["resultType"] == "complete"
        assert "resultType" not in client.call("list_agents")


def test_a_modern_call_needs_no_opening(state):
    with FakeLink(state, agents_list=answers([])), RawClient(state) as client:
        result = client.request("tools/call", name="list_agents", arguments={}, _meta=modern())["result"]
        assert result["structuredContent"]["you"].startswith("claude-")


def test_a_version_of_the_future_is_told_which_one_we_speak(state):
    with RawClient(state, "--no-start") as client:
        error = client.request("server/discover", _meta=modern("2030-01-01"))["error"]
    assert (error["code"], error["data"]) == (-32022, {"supported": ["2026-07-28"], "requested": "2030-01-01"})


def test_a_taken_name_gets_a_number_and_the_model_is_told(state):
    register = in_turn(Refused("conflict"), {"agentToken": "token-Jerry-2"})
    with FakeLink(state, agents_register=register) as daemon, RawClient(state, "--agent", "Jerry") as client:
        assert "You are the agent `Jerry-2`" in client.initialize()["instructions"]
    assert daemon.wait_for("hello", 4)["token"] == "token-Jerry-2"


def test_a_name_found_after_the_session_opened_is_in_every_result(state):
    with RawClient(state, "--no-start", "--agent", "Jerry") as client:
        client.initialize()
        register = in_turn(Refused("conflict"), {"agentToken": "token-Jerry-2"})
        with FakeLink(state, agents_register=register, replies_post=answers({"ticketId": "t", "status": "responded"})):
            result = client.call("post_reply", ticketId="t", payload="x")
    assert result["structuredContent"]["you"] == "Jerry-2"


def test_another_version_of_the_daemon_is_one_clear_sentence(state):
    def mismatch(_peer, _params):
        raise Refused("version_mismatch", "this program is Bascule 0 and the running daemon is 9: restart")

    with FakeLink(state, hello=mismatch), RawClient(state) as client:
        assert "restart" in client.initialize()["instructions"]
        result = client.call("list_agents")
    assert result["isError"]
    assert "the running daemon is 9" in text_of(result)


# -- calls ----------------------------------------------------------------------------------------


def test_a_result_is_structured_and_the_same_as_text(state):
    with FakeLink(state, agents_list=answers([{"agentId": "Spock"}])), RawClient(state) as client:
        client.initialize()
        result = client.call("list_agents")
    assert result["isError"] is False
    assert json.loads(text_of(result)) == result["structuredContent"]


def test_unread_messages_are_told_with_a_result(state):
    beat = {"agentId": "x", "status": "online", "expiresAt": "", "unread": 2}
    with FakeLink(state, agents_list=answers([]), agents_heartbeat=answers(beat)), RawClient(state) as client:
        client.initialize()
        assert client.call("list_agents")["structuredContent"]["unread"] == 2


def test_calls_run_side_by_side_on_one_connection(state):
    with FakeLink(state, inbox_take=answers(HOLD), agents_list=answers([])) as daemon, RawClient(state) as client:
        client.initialize()
        waiting = client.start_call("wait_for_message")
        daemon.wait_for("inbox.take")
        peer = daemon.peers[0]
        held = peer.number
        assert client.call("list_agents")["structuredContent"]["agents"] == []
        peer.answer(held, {"messages": []})
        assert client.answer_to(waiting)["result"]["structuredContent"]["status"] == "empty"
        assert len(daemon.peers) == 1


def test_a_message_is_acknowledged_once_it_was_handed_over(state):
    script = {"inbox_take": answers({"messages": [MESSAGE]}), "inbox_ack": answers({"acked": ["t-1"]})}
    with FakeLink(state, **script) as daemon, RawClient(state, "--agent", "Jerry") as client:
        client.initialize()
        result = client.call("wait_for_message", waitMs=1000)["structuredContent"]
        assert (result["from"], result["ticketId"], result["payload"]) == ("Spock", "t-1", "hi \u202e")
        assert daemon.wait_for("inbox.ack") == {"agentId": "Jerry", "ticketIds": ["t-1"]}
    assert daemon.wait_for("inbox.take") == {"agentId": "Jerry", "max": 1, "waitMs": 1000}


def test_a_cancelled_call_is_withdrawn_and_not_answered(state):
    with FakeLink(state, inbox_take=answers(HOLD)) as daemon, RawClient(state) as client:
        client.initialize()
        number = client.start_call("wait_for_message")
        daemon.wait_for("inbox.take")
        client.notify("notifications/cancelled", requestId=number, reason="enough")
        with daemon.happened:
            assert daemon.happened.wait_for(lambda: daemon.cancelled == [daemon.peers[0].number], PATIENCE)
        # The daemon's late answer goes nowhere, and the shim goes on.
        daemon.peers[0].answer(daemon.peers[0].number, {"messages": [MESSAGE]})
        assert client.request("ping")["result"] == {}
        assert client.aside == []


def test_a_refusal_is_an_error_the_model_can_act_on(state):
    def unknown(_peer, _params):
        raise Refused("not_found", "agent not registered")

    with FakeLink(state, messages_send=unknown), RawClient(state) as client:
        client.initialize()
        result = client.call("send_message", agentId="Nobody", payload="x")
    assert result["isError"]
    assert text_of(result) == "agent not registered\nNext: call co_workers to see who is there"


def test_an_overloaded_daemon_is_asked_again_when_it_says(state):
    send = in_turn(
        Refused("overloaded", retryAfterMs=10), {"ticketId": "x", "status": "pending", "agentStatus": "online"}
    )
    with FakeLink(state, messages_send=send) as daemon, RawClient(state) as client:
        client.initialize()
        result = client.call("send_message", agentId="Spock", payload="x", awaitResponse=False)
        assert result["structuredContent"]["status"] == "pending"
    assert daemon.wait_for("messages.send", 1) == daemon.wait_for("messages.send", 2)


def test_one_broken_call_does_not_end_the_session(state):
    with FakeLink(state, messages_send=answers([]), agents_list=answers([])), RawClient(state) as client:
        client.initialize()
        result = client.call("send_message", agentId="Spock", payload="x")
        assert result["isError"]
        assert text_of(result).startswith("internal error")
        assert not client.call("list_agents")["isError"]


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"name": "send_message", "arguments": {"agentId": "J"}}, "payload is missing"),
        ({"name": "await_reply", "arguments": {"ticketId": "a b"}}, "is not a ticket id"),
    ],
)
def test_wrong_arguments_are_a_result_the_model_can_correct(state, params, said):
    with FakeLink(state), RawClient(state) as client:
        client.initialize()
        result = client.request("tools/call", **params)["result"]
    assert result["isError"]
    assert said in text_of(result)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'"x"', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"prompts/list"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm"}}', -32602),
        (b"\xff", -32700),
    ],
)
def test_a_broken_line_gets_its_error_and_the_next_one_is_served(state, line, code):
    with RawClient(state, "--no-start") as client:
        client.write(line + b"\n\n" + b'{"jsonrpc":"2.0","result":{},"id":9}\n')
        assert client.next()["error"]["code"] == code
        assert client.request("ping")["result"] == {}


def test_a_line_without_end_is_refused_and_skipped(state):
    with RawClient(state, "--no-start") as client:
        client.write(b"x" * 9_000_000)
        assert client.next()["error"]["code"] == -32700
        client.write(b"y" * 9_000_000 + b"\n")
        assert client.request("ping")["result"] == {}


def test_the_token_never_reaches_the_client(state):
    with FakeLink(state, agents_list=answers([])), RawClient(state, "--agent", "Jerry") as client:
        said = [client.initialize(), client.call("list_agents"), client.call("register_agent", agentId="Tom")]
    assert "token" not in json.dumps(said).lower()


# -- who we are -----------------------------------------------------------------------------------


def test_registering_changes_who_this_process_is(state):
    with FakeLink(state, agents_list=answers([])) as daemon, RawClient(state, "--agent", "Jerry") as client:
        client.initialize()
        result = client.call("register_agent", agentId="Tom", type="codex", metadata={"team": "blue"})
        assert result["structuredContent"] == {"agentId": "Tom", "status": "registered", "you": "Tom"}
        assert client.call("list_agents")["structuredContent"]["you"] == "Tom"
        assert daemon.peers[0].principal == "agent:Tom"
        params = daemon.wait_for("agents.register", 2)
    assert (params["agentId"], params["type"], params["metadata"]["team"]) == ("Tom", "codex", "blue")


def test_a_refused_change_of_name_leaves_us_who_we_were(state):
    register = in_turn({"agentToken": "token-Jerry"}, Refused("conflict", "Tom is taken", hint="Tom-2 is free"))
    script = {"agents_register": register, "agents_list": answers([])}
    with FakeLink(state, **script) as daemon, RawClient(state, "--agent", "Jerry") as client:
        client.initialize()
        result = client.call("register_agent", agentId="Tom")
        assert result["isError"]
        assert text_of(result) == "Tom is taken\nNext: Tom-2 is free"
        assert client.call("list_agents")["structuredContent"]["you"] == "Jerry"
        assert daemon.peers[0].principal == "agent:Jerry"


# -- the daemon goes and comes --------------------------------------------------------------------


def test_a_send_that_got_no_answer_is_sent_again_under_the_same_ticket(state):
    with RawClient(state, "--no-start", "--agent", "Jerry") as client:
        with FakeLink(state, messages_send=answers(HANG_UP)) as daemon:
            client.initialize()
            number = client.start_call("send_message", agentId="Spock", payload="x", awaitResponse=False)
            first = daemon.wait_for("messages.send")
        sent = {"ticketId": "x", "status": "pending", "agentStatus": "online"}
        with FakeLink(state, messages_send=answers(sent)) as daemon:
            assert client.answer_to(number)["result"]["structuredContent"]["ticketId"] == first["ticketId"]
            assert daemon.wait_for("messages.send") == first
            # It came back as who it was.
            assert daemon.wait_for("hello", 2)["token"] == "token-Jerry"


@pytest.mark.parametrize(
    ("tool", "arguments", "method", "answer"),
    [
        ("post_reply", {"ticketId": "t", "payload": "x"}, "replies.post", {"ticketId": "t", "status": "responded"}),
        ("broadcast_message", {"payload": "x"}, "messages.broadcast", {"broadcastId": "b", "tickets": []}),
        ("cancel_ticket", {"ticketId": "t"}, "tickets.cancel", {"ticketId": "t", "status": "cancelled"}),
    ],
)
def test_what_has_an_id_of_its_own_is_done_again_when_the_answer_was_lost(state, tool, arguments, method, answer):
    name = method.replace(".", "_")
    with RawClient(state, "--no-start") as client:
        with FakeLink(state, **{name: answers(HANG_UP)}) as daemon:
            client.initialize()
            number = client.start_call(tool, **arguments)
            first = daemon.wait_for(method)
        with FakeLink(state, **{name: answers(answer)}) as daemon:
            assert client.answer_to(number)["result"]["isError"] is False
            assert daemon.wait_for(method) == first


def test_a_wait_goes_on_after_a_restart_with_what_is_left_of_its_time(state):
    with RawClient(state, "--no-start") as client:
        with FakeLink(state, replies_wait=answers(HOLD)) as daemon:
            client.initialize()
            number = client.start_call("await_reply", ticketId="t", timeoutMs=30_000)
            assert daemon.wait_for("replies.wait")["waitMs"] == 30_000
        reply = {"ticketId": "t", "status": "responded", "payload": "ok", "from": "Spock"}
        with FakeLink(state, replies_wait=answers(reply)) as daemon:
            assert client.answer_to(number)["result"]["structuredContent"]["payload"] == "ok"
            assert daemon.wait_for("replies.wait")["waitMs"] < 30_000


def test_a_change_of_name_that_broke_off_is_unknown(state):
    register = in_turn({"agentToken": "token-Jerry"}, HANG_UP, {})
    script = {"agents_register": register, "agents_list": answers([])}
    with FakeLink(state, **script), RawClient(state, "--no-start", "--agent", "Jerry") as client:
        client.initialize()
        result = client.call("register_agent", agentId="Tom")
        assert result["isError"]
        assert "unknown" in text_of(result)
        assert client.call("list_agents")["structuredContent"]["you"] == "Jerry"


def test_an_idle_shim_finds_a_new_daemon_with_its_next_call(state):
    with RawClient(state, "--no-start", "--agent", "Jerry") as client:
        with FakeLink(state):
            client.initialize()
        with FakeLink(state, agents_list=answers([])):
            assert client.call("list_agents")["structuredContent"]["you"] == "Jerry"


# -- the end --------------------------------------------------------------------------------------


def test_what_was_asked_before_the_end_of_input_is_answered(state):
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"clientInfo": CLIENT_INFO}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_agents"}},
    ]
    with FakeLink(state, agents_list=answers([])):
        done = subprocess.run(
            [*COMMAND, "--state-dir", state],
            input="\n".join(map(json.dumps, lines)).encode() + b"\n",
            capture_output=True,
            env={name: os.environ[name] for name in KEPT if name in os.environ},
            timeout=30,
            check=True,
        )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]


def test_the_end_of_input_ends_a_wait_at_once(state):
    with FakeLink(state, inbox_take=answers(HOLD)) as daemon:
        with RawClient(state) as client:
            client.initialize()
            client.start_call("wait_for_message")
            daemon.wait_for("inbox.take")
            begun = time.monotonic()
        assert client.exit_code == 0
        # Long before the wait would have ended by itself.
        assert time.monotonic() - begun < 30


def test_a_client_that_reads_no_more_ends_it_quietly(state):
    with RawClient(state, "--no-start") as client:
        client.initialize()
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, "--state-dir", state, "--no-start"],
        input=b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=30,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_bad_name_is_told_before_anything_runs(state):
    done = subprocess.run(
        [*COMMAND, "--state-dir", state, "--agent", "a b"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert b"is not a handle" in done.stderr
    assert not os.path.exists(places.link_socket(state))


def test_help_teaches_by_example():
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, timeout=30, check=True)
    assert b"examples:" in done.stdout
