"""`bascule mcp` against a living daemon, driven by the official client in both of its modes."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from living import Living, eventually, short_dir
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from raw_client import KEPT, RawClient

from bascule.broker import tools as agent_tools
from bascule.surfaces.mcp.recent import RECENT_URI
from bascule.workspace import tools as workspace_tools
from patience import PATIENCE

BASCULE = str(Path(sys.executable).parent / "bascule")

MODES = ["auto", "legacy"]


def official(state, mode, cwd, *options):
    return Client(stdio_client(parameters(state, cwd, *options)), mode=mode)


def parameters(state, cwd, *options):
    """The official client starts the server with HOME, LOGNAME, PATH, SHELL, TERM and USER only."""
    return StdioServerParameters(command=BASCULE, args=["mcp", "--state-dir", state, *options], cwd=cwd)


async def name_of(client):
    """Asked for, because a busy daemon may take longer than the opening of the session waits."""
    return (await client.call_tool("co_workers", {})).structured_content["you"]


def own_name(client):
    client.initialize()
    return client.call("co_workers")["structuredContent"]["you"]


@pytest.mark.parametrize("mode", MODES)
def test_two_official_clients_ask_and_answer(daemon, mode, tmp_path):
    async def story():
        async with official(daemon.state, mode, tmp_path) as one, official(daemon.state, mode, tmp_path) as two:
            first, second = await name_of(one), await name_of(two)
            assert first != second

            async def answer():
                message = (await two.call_tool("wait_for_message", {})).structured_content
                assert (message["from"], message["payload"]) == (first, "What is 6 x 7?")
                assert "not from your user" in message["note"]
                done = await two.call_tool("post_reply", {"ticketId": message["ticketId"], "payload": {"answer": 42}})
                assert done.structured_content["first"]

            async with asyncio.TaskGroup() as both:
                both.create_task(answer())
                asked = await one.call_tool("send_message", {"agentId": second, "payload": "What is 6 x 7?"})
            reply = asked.structured_content
            assert (reply["status"], reply["payload"], reply["from"]) == ("responded", {"answer": 42}, second)
            listed = (await one.call_tool("list_agents", {"status": "online"})).structured_content
            assert {first, second} <= {agent["agentId"] for agent in listed["agents"]}

    asyncio.run(asyncio.wait_for(story(), PATIENCE))


@pytest.mark.parametrize("mode", MODES)
def test_the_official_client_accepts_our_tools_and_results(daemon, mode, tmp_path):
    async def story():
        async with official(daemon.state, mode, tmp_path, "--agent", f"Tester-{mode}") as client:
            listed = await client.list_tools()
            assert [tool.name for tool in listed.tools] == [
                tool.name for tool in (*agent_tools.TOOLSET.tools, *workspace_tools.TOOLSET.tools)
            ]
            assert all(tool.output_schema and tool.annotations for tool in listed.tools)
            # The client checks structured content against the output schema by itself.
            empty = await client.call_tool("wait_for_message", {"waitMs": 0})
            assert empty.structured_content["status"] == "empty"
            sent = await client.call_tool(
                "send_message", {"agentId": f"Tester-{mode}", "payload": "note to self", "awaitResponse": False}
            )
            ticket = sent.structured_content["ticketId"]
            assert sent.structured_content["unread"] == 1
            late = await client.call_tool("await_reply", {"ticketId": ticket, "timeoutMs": 50})
            assert (late.structured_content["status"], late.structured_content["ticketStatus"]) == (
                *("timeout", "pending"),
            )
            refused = await client.call_tool("send_message", {"agentId": "nobody-here", "payload": "x"})
            assert refused.is_error
            assert "agent not registered" in refused.content[0].text
            became = await client.call_tool("register_agent", {"agentId": f"Renamed-{mode}"})
            assert became.structured_content["you"] == f"Renamed-{mode}"

    asyncio.run(asyncio.wait_for(story(), PATIENCE))


@pytest.mark.filterwarnings("ignore:resources/")
def test_the_official_client_reads_and_subscribes_as_before(daemon, tmp_path):
    async def story():
        notified = asyncio.Event()

        async def on_message(message):
            if getattr(message, "method", "") == "notifications/resources/updated":
                notified.set()

        server = stdio_client(parameters(daemon.state, tmp_path, "--agent", "Watcher-legacy"))
        async with Client(server, mode="legacy", message_handler=on_message) as client:
            await client.subscribe_resource(RECENT_URI)
            await client.call_tool(
                "send_message", {"agentId": "Watcher-legacy", "payload": "x", "awaitResponse": False}
            )
            await notified.wait()
            assert "ticket.sent" in await recent(client)
            await client.unsubscribe_resource(RECENT_URI)

    asyncio.run(asyncio.wait_for(story(), PATIENCE))


def test_the_official_client_listens_as_of_2026(daemon, tmp_path):
    async def story():
        async with official(daemon.state, "auto", tmp_path, "--agent", "Watcher-modern") as client:
            assert [resource.uri for resource in (await client.list_resources()).resources] == [RECENT_URI]
            assert (await client.list_resource_templates()).resource_templates == []
            async with client.listen(resource_subscriptions=[RECENT_URI]) as subscription:
                await client.call_tool(
                    "send_message", {"agentId": "Watcher-modern", "payload": "x", "awaitResponse": False}
                )
                event = await anext(aiter(subscription))
                assert event.uri == RECENT_URI
            assert "ticket.sent" in await recent(client)

    asyncio.run(asyncio.wait_for(story(), PATIENCE))


async def recent(client):
    contents = (await client.read_resource(RECENT_URI)).contents
    return [event["event"] for event in json.loads(contents[0].text)]


def test_the_token_never_reaches_the_client(daemon):
    with RawClient(daemon.state, "--agent", "Silent") as client:
        answers = [client.initialize(), client.call("list_agents"), client.call("register_agent", agentId="Silent-too")]
    assert "token" not in json.dumps(answers).lower()
    assert answers[2]["structuredContent"]["expiresAt"]


def test_two_clients_started_alike_at_the_same_moment_get_two_names(daemon, tmp_path):
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(daemon.state, cwd=str(tmp_path))) for _ in range(6)]
        numbers = [
            client.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "codex"})
            for client in clients
        ]
        for client, number in zip(clients, numbers, strict=True):
            client.answer_to(number)
        names = {client.call("list_agents")["structuredContent"]["you"] for client in clients}
        assert len(names) == 6


def test_the_same_project_gets_the_same_name_and_its_inbox_again(daemon, tmp_path):
    with RawClient(daemon.state, cwd=str(tmp_path)) as client:
        name = own_name(client)
    with RawClient(daemon.state, "--agent", f"sender-of-{name}"[:64]) as other:
        other.initialize()
        sent = other.call("send_message", agentId=name, payload="while you were out", awaitResponse=False)
        assert sent["structuredContent"]["agentStatus"] == "offline"
    with RawClient(daemon.state, cwd=str(tmp_path)) as client:
        assert own_name(client) == name
        assert client.call("wait_for_message")["structuredContent"]["payload"] == "while you were out"


def test_a_message_handed_over_is_delivered_and_one_that_was_not_comes_again(daemon):
    with RawClient(daemon.state, "--agent", "Receiver") as client:
        client.initialize()
        sent = client.call("send_message", agentId="Receiver", payload="x", awaitResponse=False)
        ticket = sent["structuredContent"]["ticketId"]
        # Withdrawn while it waits for the second message: nothing may get lost.
        client.call("wait_for_message")
        number = client.start_call("wait_for_message")
        client.notify("notifications/cancelled", requestId=number)
        second = client.call("send_message", agentId="Receiver", payload="y", awaitResponse=False)
        got = client.call("wait_for_message")["structuredContent"]
        assert (got["ticketId"], got["payload"]) == (second["structuredContent"]["ticketId"], "y")
        late = client.call("await_reply", ticketId=ticket, timeoutMs=1)["structuredContent"]
        assert late["ticketStatus"] == "delivered"


def test_calls_in_flight_survive_a_restart_of_the_daemon():
    with short_dir() as folder:
        state = f"{folder}/s"
        with contextlib.ExitStack() as stack:
            before = stack.enter_context(Living(state))
            one = stack.enter_context(RawClient(state, "--no-start", "--agent", "One"))
            two = stack.enter_context(RawClient(state, "--no-start", "--agent", "Two"))
            one.initialize()
            two.initialize()
            asking = one.start_call("send_message", agentId="Two", payload="still there?")
            ticket = two.call("wait_for_message")["structuredContent"]["ticketId"]
            # Answered behind the acknowledgement, and a read waits for what was committed before it.
            two.call("co_workers")
            waiting = two.start_call("wait_for_message")
            before.kill()
            stack.enter_context(Living(state))
            assert not two.call("post_reply", ticketId=ticket, payload="yes")["isError"]
            reply = one.answer_to(asking)["result"]["structuredContent"]
            assert (reply["payload"], reply["from"]) == ("yes", "Two")
            one.call("send_message", agentId="Two", payload="good", awaitResponse=False)
            assert two.answer_to(waiting)["result"]["structuredContent"]["payload"] == "good"
            assert two.call("list_agents")["structuredContent"]["you"] == "Two"


def test_of_two_clients_that_find_no_daemon_one_starts_it_for_both(tmp_path):
    with short_dir() as folder:
        state = f"{folder}/s"
        try:
            with RawClient(state, cwd=str(tmp_path)) as one, RawClient(state, cwd=str(tmp_path)) as two:
                assert "is being started" in one.initialize()["instructions"]
                two.initialize()
                names = {client.call("list_agents")["structuredContent"]["you"] for client in (one, two)}
                assert len(names) == 2
            # It outlives the sessions that started it.
            with RawClient(state, "--no-start") as three:
                assert own_name(three)
        finally:
            subprocess.run([BASCULE, "down", "--state-dir", state], timeout=PATIENCE, check=True)


def test_a_killed_client_leaves_no_shim_behind(daemon):
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    # The client's end of the pipe closes when it is killed, whatever it had in mind.
    code = (
        "import subprocess, sys, time;"
        f"p = subprocess.Popen([{BASCULE!r}, 'mcp', '--state-dir', {daemon.state!r}], stdin=subprocess.PIPE);"
        "print(p.pid, flush=True); sys.stdin.read()"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    with client:
        shim = int(client.stdout.readline())
        client.send_signal(signal.SIGKILL)
        client.wait(PATIENCE)
        eventually(lambda: not Path(f"/proc/{shim}").exists() or _is_zombie(shim), "the shim has ended")


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
