"""`bascule mcp` as a process, between a client of a few lines and a scripted daemon."""

import json
import os
import subprocess

import pytest
from fake_link import HANG_UP, HOLD, FakeLink, Refused
from raw_client import CLIENT_INFO, COMMAND, KEPT, RawClient, modern

from bascule.foundation import paths
from bascule.programs.mcp_stdio.identity import invented_name
from patience import PATIENCE


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
        # "You are" or, where the machine is busy, "you will be".
        assert f"the agent `{name}`" in result["instructions"]
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
        assert len(client.request("tools/list")["result"]["tools"]) == 22
        begun = client.start_call("list_agents")
        # It goes on trying for ten seconds; meanwhile the client is served.
        assert client.request("ping")["result"] == {}
        with FakeLink(state, list_agents=answers({"agents": [], "you": "Jerry"})):
            assert client.answer_to(begun)["result"]["structuredContent"]["agents"] == []


def test_a_daemon_that_does_not_answer_does_not_hold_up_the_session(state):
    with FakeLink(state, hello=answers(HOLD)), RawClient(state, "--agent", "Jerry") as client:
        assert "you will be the agent `Jerry`" in client.initialize()["instructions"]


def test_tools_are_listed_before_anybody_said_who_they_are(state):
    with FakeLink(state) as daemon, RawClient(state) as client:
        assert client.request("tools/list")["result"]["tools"]
    assert daemon.calls == []


def test_both_eras_work_in_any_order_on_one_connection(state):
    with FakeLink(state, list_agents=answers({"agents": [], "you": "Jerry"})), RawClient(state) as client:
        found = client.request("server/discover", _meta=modern())["result"]
        assert found["supportedVersions"] == ["2026-07-28"]
        assert (found["resultType"], found["ttlMs"], found["cacheScope"]) == ("complete", 0, "private")
        assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "bascule"
        old = client.initialize()
        assert found["instructions"] == old["instructions"]
        listed = client.request("tools/list", _meta=modern())["result"]
        plain = client.request("tools/list")["result"]
        assert set(plain) == {"tools"}
        # Which of them can be a task is said to the one revision that has a place for it.
        support = [each.pop("execution", None) for each in plain["tools"]]
        assert {"taskSupport": "optional"} in support
        assert listed["tools"] == plain["tools"]
        assert (listed["resultType"], listed["cacheScope"]) == ("complete", "private")
        called = client.request("tools/call", name="list_agents", _meta=modern())["result"]
        assert called["resultType"] == "complete"
        assert "resultType" not in client.call("list_agents")


def test_a_modern_call_needs_no_opening(state):
    with FakeLink(state, list_agents=answers({"agents": [], "you": "Jerry"})) as daemon, RawClient(state) as client:
        result = client.request("tools/call", name="list_agents", arguments={}, _meta=modern())["result"]
        assert not result["isError"]
    assert daemon.wait_for("agents.register")["agentId"].startswith("claude-")


def test_a_version_of_the_future_is_told_which_one_we_speak(state):
    with RawClient(state, "--no-start") as client:
        error = client.request("server/discover", _meta=modern("2030-01-01"))["error"]
    assert (error["code"], error["data"]) == (-32022, {"supported": ["2026-07-28"], "requested": "2030-01-01"})


def test_a_taken_name_gets_a_number_and_the_model_is_told(state):
    register = in_turn(Refused("conflict"), {"agentToken": "token-Jerry-2"})
    with FakeLink(state, agents_register=register) as daemon, RawClient(state, "--agent", "Jerry") as client:
        known = client.initialize()["instructions"]
        # Where the machine is busy, the opening is answered first: then a result names it, as the next test shows.
        assert "You are the agent `Jerry-2`" in known or "if that name is taken, what `you` says" in known
    assert daemon.wait_for("hello", 4)["token"] == "token-Jerry-2"


def test_the_daemon_hears_which_name_the_client_knows(state):
    with RawClient(state, "--no-start", "--agent", "Jerry") as client:
        client.initialize()
        register = in_turn(Refused("conflict"), {"agentToken": "token-Jerry-2"})
        with FakeLink(state, agents_register=register, post_reply=answers({"status": "responded"})) as daemon:
            client.call("post_reply", ticketId="t", payload="x")
            # It is another one now: the result names it.
            assert daemon.wait_for("post_reply")["named"] == "Jerry"
            assert daemon.peers[0].principal == "agent:Jerry-2"


def test_a_daemon_that_cannot_carry_mcp_is_to_be_restarted(state):
    def unknown(_peer, _params):
        raise Refused("not_found", "no method 'mcp.open'")

    with FakeLink(state, mcp_open=unknown), RawClient(state) as client:
        client.initialize()
        result = client.call("list_agents")
    assert result["isError"]
    assert "older than this program" in text_of(result)
    assert "bascule down && bascule up -d" in text_of(result)


def test_another_version_of_the_daemon_is_one_clear_sentence(state):
    def mismatch(_peer, _params):
        raise Refused("version_mismatch", "this program is Bascule 0 and the running daemon is 9: restart")

    with FakeLink(state, hello=mismatch), RawClient(state) as client:
        assert "restart" in client.initialize()["instructions"]
        result = client.call("list_agents")
    assert result["isError"]
    assert "the running daemon is 9" in text_of(result)


# -- calls ----------------------------------------------------------------------------------------


def test_a_request_is_passed_on_as_the_client_wrote_it(state):
    with FakeLink(state, list_agents=answers({"agents": [], "you": "x"})) as daemon, RawClient(state) as client:
        client.initialize()
        number = client.start_call("list_agents", meta={"progressToken": 7}, type="codex \u00e9")
        client.answer_to(number)
        params = daemon.wait_for("list_agents")
    assert params["message"] == {
        "jsonrpc": "2.0",
        "id": number,
        "method": "tools/call",
        "params": {"name": "list_agents", "arguments": {"type": "codex \u00e9"}, "_meta": {"progressToken": 7}},
    }
    assert 0 < params["leftMs"] <= 45_000
    assert (params["again"], len(params["call"])) == (False, 36)


def test_calls_run_side_by_side_on_one_connection(state):
    agents = answers({"agents": [], "you": "x"})
    with FakeLink(state, wait_for_message=answers(HOLD), list_agents=agents) as daemon, RawClient(state) as client:
        client.initialize()
        waiting = client.start_call("wait_for_message")
        daemon.wait_for("wait_for_message")
        peer = daemon.peers[0]
        held, request = peer.number, peer.request
        assert client.call("list_agents")["structuredContent"]["agents"] == []
        peer.answer_call(held, request, {"status": "empty"})
        assert client.answer_to(waiting)["result"]["structuredContent"]["status"] == "empty"
        assert len(daemon.peers) == 1


def test_what_is_to_be_confirmed_is_confirmed_once_the_client_has_it(state):
    def confirmed(peer, _params):
        peer.answer_call(peer.number, peer.request, {"status": "message"}, confirm=True)
        return HOLD

    script = {"wait_for_message": confirmed, "list_agents": answers({"agents": [], "you": "x"})}
    with FakeLink(state, **script) as daemon, RawClient(state) as client:
        client.initialize()
        client.call("list_agents")
        client.call("wait_for_message")
        assert daemon.wait_for_note("mcp.done") == {"call": daemon.wait_for("wait_for_message")["call"]}
    # The other call did not want it.
    assert [method for method, _ in daemon.notes] == ["mcp.done"]


def test_what_the_daemon_says_by_itself_goes_to_the_client(state):
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 2}}

    def notes(peer, _params):
        peer.notify("mcp.message", message=progress)
        return {"agents": [], "you": "x"}

    with FakeLink(state, list_agents=notes), RawClient(state) as client:
        client.initialize()
        client.call("list_agents")
        assert client.aside == [progress]


def test_a_cancelled_call_is_withdrawn_and_not_answered(state):
    with FakeLink(state, wait_for_message=answers(HOLD)) as daemon, RawClient(state) as client:
        client.initialize()
        number = client.start_call("wait_for_message")
        daemon.wait_for("wait_for_message")
        client.notify("notifications/cancelled", requestId=number, reason="enough")
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": number}}
        assert daemon.wait_for_note("mcp.message") == {"message": cancelled}
        # The daemon's late answer goes nowhere, and the program goes on.
        peer = daemon.peers[0]
        peer.answer_call(peer.number, peer.request, {"status": "message"}, confirm=True)
        assert client.request("ping")["result"] == {}
        assert client.aside == []
        assert "mcp.done" not in [method for method, _ in daemon.notes]


def test_a_refusal_is_an_error_the_model_can_act_on(state):
    def unknown(_peer, _params):
        raise Refused("not_found", "agent not registered")

    with FakeLink(state, send_message=unknown), RawClient(state) as client:
        client.initialize()
        result = client.call("send_message", agentId="Nobody", payload="x")
    assert result["isError"]
    assert text_of(result) == "agent not registered\nNext: call co_workers to see who is there"


@pytest.mark.parametrize("answer", [None, [], {"message": []}, {}])
def test_an_answer_without_a_message_does_not_end_the_session(state, answer):
    def odd(peer, _params):
        peer.answer(peer.number, answer)
        return HOLD

    agents = answers({"agents": [], "you": "x"})
    with FakeLink(state, send_message=odd, list_agents=agents), RawClient(state) as client:
        client.initialize()
        result = client.call("send_message", agentId="Spock", payload="x")
        assert result["isError"]
        assert "holds no MCP message" in text_of(result)
        assert not client.call("list_agents")["isError"]


@pytest.mark.parametrize("arguments", [{"agentId": "S", "payload": "a\ud800b"}, {"payload": {"deep": ["\udc80"]}}])
def test_half_a_surrogate_pair_is_refused_before_anything_is_sent(state, arguments):
    with FakeLink(state) as daemon, RawClient(state) as client:
        client.initialize()
        result = client.call("send_message", **arguments)
    assert result["isError"]
    assert "surrogate" in text_of(result)
    assert "mcp.request" not in daemon.methods_called()


def test_a_request_that_no_frame_can_hold_is_refused_with_advice(state):
    with FakeLink(state) as daemon, RawClient(state) as client:
        client.initialize()
        result = client.call("send_message", agentId="S", payload="x" * (8 * 1024 * 1024 - 200))
    assert result["isError"]
    assert "send the path" in text_of(result)
    assert "mcp.request" not in daemon.methods_called()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'"x"', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"logging/setLevel"}', -32601),
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


# -- who we are -----------------------------------------------------------------------------------


def becoming(wanted):
    """The tool asks the program to become another agent, and answers with what came of it."""

    def tool(peer, _params):
        held.append((peer.number, peer.request))
        peer.notify("mcp.become", number=5, wanted=wanted)
        return HOLD

    held = []
    return tool, held


def test_the_program_becomes_another_agent_when_the_daemon_asks_for_it(state):
    tool, held = becoming({"agentId": "Tom", "type": "codex", "metadata": {"team": "blue"}})
    script = {"register_agent": tool, "list_agents": answers({"agents": [], "you": "x"})}
    with FakeLink(state, **script) as daemon, RawClient(state, "--agent", "Jerry") as client:
        client.initialize()
        number = client.start_call("register_agent", agentId="Tom")
        became = daemon.wait_for_note("mcp.became")
        assert (became["number"], became["result"]["agentId"]) == (5, "Tom")
        assert "agentToken" not in became["result"]
        assert daemon.peers[0].principal == "agent:Tom"
        params = daemon.wait_for("agents.register", 2)
        assert (params["agentId"], params["type"], params["metadata"]["team"]) == ("Tom", "codex", "blue")
        daemon.peers[0].answer_call(*held[0], {"agentId": "Tom"})
        assert not client.answer_to(number)["result"]["isError"]
        assert not client.call("list_agents")["isError"]


def test_a_refused_change_of_name_leaves_us_who_we_were(state):
    tool, _ = becoming({"agentId": "Tom"})
    register = in_turn({"agentToken": "token-Jerry"}, Refused("conflict", "Tom is taken", hint="Tom-2 is free"))
    with (
        FakeLink(state, agents_register=register, register_agent=tool) as daemon,
        RawClient(state, "--agent", "Jerry") as client,
    ):
        client.initialize()
        client.start_call("register_agent", agentId="Tom")
        error = daemon.wait_for_note("mcp.became")["error"]
        assert error == {"code": "conflict", "message": "Tom is taken", "hint": "Tom-2 is free"}
        assert daemon.peers[0].principal == "agent:Jerry"


# -- the daemon goes and comes --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("send_message", {"agentId": "Spock", "payload": "x"}),
        ("post_reply", {"ticketId": "t", "payload": "x"}),
        ("broadcast_message", {"payload": "x"}),
        ("cancel_ticket", {"ticketId": "t"}),
        ("await_reply", {"ticketId": "t"}),
        ("wait_for_message", {}),
    ],
)
def test_a_call_that_may_be_repeated_comes_again_under_its_id_with_the_time_that_is_left(state, tool, arguments):
    with RawClient(state, "--no-start", "--agent", "Jerry") as client:
        with FakeLink(state, **{tool: answers(HANG_UP)}) as daemon:
            client.initialize()
            number = client.start_call(tool, **arguments)
            first = daemon.wait_for(tool)
        with FakeLink(state, **{tool: answers({"status": "ok"})}) as daemon:
            assert client.answer_to(number)["result"]["isError"] is False
            again = daemon.wait_for(tool)
            # It came back as who it was.
            assert daemon.wait_for("hello", 2)["token"] == "token-Jerry"
    assert (again["call"], again["message"]) == (first["call"], first["message"])
    assert (first["again"], again["again"]) == (False, True)
    assert again["leftMs"] < first["leftMs"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("exec", {"command": "make"}),
        ("delete_file", {"path": "a"}),
        ("run_undo", {"runId": "r"}),
        ("register_agent", {"agentId": "Tom"}),
    ],
)
def test_a_call_that_may_have_acted_is_unknown_and_not_repeated(state, tool, arguments):
    agents = answers({"agents": [], "you": "x"})
    with (
        FakeLink(state, **{tool: answers(HANG_UP)}, list_agents=agents) as daemon,
        RawClient(state, "--no-start") as client,
    ):
        client.initialize()
        result = client.call(tool, **arguments)
        assert result["isError"]
        assert text_of(result) == (
            "the connection to the daemon broke; whether it acted is unknown\nNext: look first, then call again"
        )
        assert not client.call("list_agents")["isError"]
    assert daemon.methods_called().count(tool) == 1


def test_an_idle_program_finds_a_new_daemon_with_its_next_call(state):
    with RawClient(state, "--no-start", "--agent", "Jerry") as client:
        with FakeLink(state):
            client.initialize()
        with FakeLink(state, list_agents=answers({"agents": [], "you": "Jerry"})):
            assert client.call("list_agents")["structuredContent"]["you"] == "Jerry"


# -- the end --------------------------------------------------------------------------------------


def test_what_was_asked_before_the_end_of_input_is_answered(state):
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"clientInfo": CLIENT_INFO}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_agents"}},
    ]
    with FakeLink(state, list_agents=answers({"agents": [], "you": "Jerry"})):
        done = subprocess.run(
            [*COMMAND, "--state-dir", state],
            input="\n".join(map(json.dumps, lines)).encode() + b"\n",
            capture_output=True,
            env={name: os.environ[name] for name in KEPT if name in os.environ},
            timeout=PATIENCE,
            check=True,
        )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]


def test_the_end_of_input_ends_a_wait_at_once(state):
    with FakeLink(state, wait_for_message=answers(HOLD)) as daemon:
        with RawClient(state) as client:
            client.initialize()
            number = client.start_call("wait_for_message")
            daemon.wait_for("wait_for_message")
        assert client.exit_code == 0
        # A wait that ends by itself is answered.
        with pytest.raises(AssertionError, match="the shim has ended"):
            client.answer_to(number)


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
        timeout=PATIENCE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_bad_name_is_reported_before_anything_runs(state):
    done = subprocess.run(
        [*COMMAND, "--state-dir", state, "--agent", "a b"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    assert b"is not a handle" in done.stderr
    assert not os.path.exists(paths.link_socket(state))


def test_help_teaches_by_example():
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, timeout=PATIENCE, check=True)
    assert b"examples:" in done.stdout
