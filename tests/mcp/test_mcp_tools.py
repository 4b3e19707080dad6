"""The tools over HTTP: the same list as over stdio, and what they do, by the official client in both of its modes."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from raw_client import CLIENT_INFO, RawClient
from speaking import HANDSHAKE, META, MODES, RECENT, Stream

from patience import PATIENCE

# How often a call that waits reports progress, to clients that want it.
PROGRESS_MS = 5_000

BIN = Path(sys.executable).parent


def run(story):
    asyncio.run(asyncio.wait_for(story, PATIENCE))


def test_both_surfaces_list_the_same_tools_in_both_eras(daemon, agent):
    ann = agent("Ann")
    with RawClient(daemon.state, "--no-start") as stdio:
        stdio.initialize()
        old = stdio.answer_to(stdio.ask("tools/list"))["result"]
        new = stdio.answer_to(stdio.ask("tools/list", _meta=META))["result"]
    assert old["tools"]
    assert ann.session().ask("tools/list") == old
    assert ann.modern().ask("tools/list") == new


def test_both_surfaces_have_the_same_resource(daemon, agent):
    ann = agent("Ann")
    with RawClient(daemon.state, "--no-start") as stdio:
        stdio.initialize()
        for method in ("resources/list", "resources/templates/list"):
            assert ann.session().ask(method) == stdio.answer_to(stdio.ask(method))["result"]
            assert ann.modern().ask(method) == stdio.answer_to(stdio.ask(method, _meta=META))["result"]


def test_both_surfaces_greet_alike(daemon, agent):
    ann = agent("Ann")
    with RawClient(daemon.state, "--no-start") as stdio:
        greeted = stdio.answer_to(
            stdio.ask("initialize", protocolVersion=HANDSHAKE, capabilities={}, clientInfo=CLIENT_INFO)
        )["result"]
        found = stdio.answer_to(stdio.ask("server/discover", _meta=META))["result"]
    name = greeted["instructions"].split("`")[1]
    for theirs, ours in ((greeted, ann.session().greeting), (found, ann.modern().ask("server/discover"))):
        assert ours.pop("instructions") == theirs.pop("instructions").replace(name, ann.handle)
        # What stdio lists is fixed; what /mcp lists is the policy's.
        assert ours["capabilities"]["tools"].pop("listChanged")
        assert not theirs["capabilities"]["tools"].pop("listChanged")
        assert ours == theirs


@pytest.mark.parametrize("mode", MODES)
def test_an_ask_is_answered_by_the_reply_helper(daemon, agent, mode):
    ann, bob = agent("Ann"), agent("Bob")

    def answer():
        state = ("--state-dir", daemon.state)
        got = subprocess.run(
            [BIN / "bridge-recv", *state, "--agent", bob.handle, "--wait", "20"],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        assert "6 x 7" in got.stdout
        ticket = bob.caller.get("/tickets?limit=1").json[0]["ticketId"]
        subprocess.run([BIN / "bridge-reply", *state, ticket, "42"], check=True, timeout=PATIENCE)

    async def story():
        async with ann.official(mode) as client, asyncio.TaskGroup() as both:
            both.create_task(asyncio.to_thread(answer))
            asked = await client.call_tool("send_message", {"agentId": bob.handle, "payload": "What is 6 x 7?"})
            reply = asked.structured_content
            assert (reply["status"], reply["payload"], reply["from"]) == ("responded", "42", bob.handle)
            assert "not from your user" in reply["note"]

    run(story())


@pytest.mark.parametrize("mode", MODES)
def test_two_agents_ask_and_answer_over_http(agent, mode):
    ann, bob = agent("Ann"), agent("Bob")

    async def story():
        async with ann.official(mode) as one, bob.official(mode) as two:
            assert f"`{ann.handle}`" in one.instructions

            async def answer():
                message = (await two.call_tool("wait_for_message", {})).structured_content
                assert (message["from"], message["payload"]) == (ann.handle, "Ready?")
                done = await two.call_tool("post_reply", {"ticketId": message["ticketId"], "payload": {"yes": True}})
                assert done.structured_content["first"]

            async with asyncio.TaskGroup() as both:
                both.create_task(answer())
                asked = await one.call_tool("send_message", {"agentId": bob.handle, "payload": "Ready?"})
            assert asked.structured_content["payload"] == {"yes": True}
            recent = (await one.read_resource(RECENT)).contents[0].text
            assert asked.structured_content["ticketId"] in recent
            assert "Ready?" not in recent

    run(story())


@pytest.mark.parametrize("mode", MODES)
def test_results_carry_the_number_of_unread_messages(agent, mode):
    ann = agent("Ann")

    async def story():
        async with ann.official(mode) as client:
            note = {"agentId": ann.handle, "payload": "note to self", "awaitResponse": False}
            assert (await client.call_tool("send_message", note)).structured_content["unread"] == 1
            assert (await client.call_tool("co_workers", {})).structured_content["unread"] == 1
            # The client checks structured content against the output schema by itself.
            assert (await client.call_tool("wait_for_message", {})).structured_content["payload"] == "note to self"
            assert "unread" not in (await client.call_tool("co_workers", {})).structured_content

    run(story())


@pytest.mark.parametrize("mode", MODES)
def test_what_was_refused_says_what_to_do_next(agent, mode):
    ann = agent("Ann")

    async def story():
        async with ann.official(mode) as client:
            unknown = await client.call_tool("send_message", {"agentId": "nobody-here", "payload": "x"})
            assert unknown.is_error
            assert "agent not registered" in unknown.content[0].text
            assert "Next: " in unknown.content[0].text
            missing = await client.call_tool("await_reply", {})
            assert missing.is_error
            assert missing.content[0].text == "await_reply: missing required field `ticketId`"

    run(story())


def test_progress_is_reported_while_a_call_waits(agent):
    ann = agent("Ann")
    waits = {"meta": {"progressToken": "p-1"}, "waitMs": PROGRESS_MS + 700}
    wires = [client.begin_call("wait_for_message", **waits) for client in (ann.modern(), ann.session())]
    for wire in wires:
        with Stream(wire) as stream:
            first = stream.message()
            assert first["method"] == "notifications/progress"
            assert first["params"]["progressToken"] == "p-1"
            assert 0 < first["params"]["progress"] < first["params"]["total"] == 45
            assert stream.result()["structuredContent"]["status"] == "empty"


def test_progress_is_not_reported_without_a_progress_token(agent):
    arguments = {"waitMs": PROGRESS_MS + 500}
    with agent("Ann").modern().open("tools/call", name="wait_for_message", arguments=arguments) as stream:
        assert stream.headers["content-type"] == "application/json"
        assert stream.result()["structuredContent"]["status"] == "empty"


@pytest.mark.parametrize("mode", MODES)
def test_many_calls_of_one_client_run_side_by_side(agent, mode):
    ann, bob = agent("Ann"), agent("Bob")

    async def story():
        async with ann.official(mode) as client:
            asks = [client.call_tool("send_message", {"agentId": bob.handle, "payload": str(n)}) for n in range(20)]

            def answer():
                for _ in asks:
                    message = bob.caller.get(f"/agents/{bob.handle}/inbox?waitMs=20000").json["messages"][0]
                    bob.caller.post("/replies", {"ticketId": message["ticketId"], "payload": message["payload"]})

            answering = asyncio.ensure_future(asyncio.to_thread(answer))
            replies = await asyncio.gather(*asks)
            await answering
            assert [reply.structured_content["payload"] for reply in replies] == [str(n) for n in range(20)]

    run(story())


def test_an_agent_does_not_see_a_tool_that_the_policy_denies_it():
    from living import Living, short_dir
    from speaking import Agent

    with short_dir() as folder, Living(f"{folder}/s", mcp="on", policy="restrictive") as house:
        seen = {tool["name"] for tool in Agent(house, "Asker").modern().ask("tools/list")["tools"]}
    assert "send_message" in seen
    assert "broadcast_message" not in seen
