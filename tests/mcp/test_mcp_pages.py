"""A question opens the console where the client can open pages, over stdio and HTTP; its answer is nobody's word."""

import asyncio
import json
import os

import pytest
from living import Living, eventually, short_dir
from mcp_types import ElicitResult
from raw_client import CLIENT_INFO, RawClient
from speaking import HANDSHAKE, Agent
from wires import LinkWire

from inside import CHEAP_PASSPHRASE
from patience import PATIENCE

PASSPHRASE = {"passphrase": "correct horse battery staple"}
COMMAND = "rm -rf everything"


@pytest.fixture(scope="module")
def place():
    with short_dir() as folder:
        os.mkdir(f"{folder}/project")
        settings = {"mcp": "on", "mcp_toolsets": "agents,workspace", "approval_hold_ms": 2_000, "console_port": 0}
        with Living(f"{folder}/s", constants=CHEAP_PASSPHRASE, **settings) as daemon:
            with LinkWire(daemon.link_socket).hello() as link:
                link.call("person.set", PASSPHRASE)
                daemon.console = link.call("daemon.status")["doors"]["console"]
            daemon.project = f"{folder}/project"
            yield daemon


def asked(daemon, principal):
    with LinkWire(daemon.link_socket).hello() as link:
        return [view for view in link.call("approvals.list") if view["principal"] == principal]


@pytest.mark.parametrize("able", [True, False], ids=["opens pages", "forms only"])
def test_over_stdio_the_client_is_asked_to_open_the_question_and_its_answer_is_dropped(place, able):
    can = {"elicitation": {"form": {}, "url": {}} if able else {}}
    name = "Opens" if able else "Forms"
    with RawClient(place.state, "--no-start", "--agent", name, "--toolset", "workspace", cwd=place.project) as client:
        client.answer_to(client.ask("initialize", protocolVersion=HANDSHAKE, capabilities=can, clientInfo=CLIENT_INFO))
        client.notify("notifications/initialized")
        number = client.ask("tools/call", name="exec", arguments={"command": COMMAND})
        answer = client.answer_to(number)
        pages = [message for message in client.aside if message.get("method") == "elicitation/create"]
        (view,) = asked(place, f"agent:{name}")
        assert len(pages) == able
        if able:
            assert pages[0]["params"]["url"] == f"{place.console}/#/approvals/{view['approvalId']}"
            assert COMMAND not in json.dumps(pages)
            accepted = {"jsonrpc": "2.0", "id": pages[0]["id"], "result": {"action": "accept", "content": {"ok": True}}}
            client.write(json.dumps(accepted).encode() + b"\n")
            # Behind it: what the client said was read.
            client.answer_to(client.ask("ping"))
        assert answer["result"]["structuredContent"]["status"] == "awaiting_approval"
        assert asked(place, f"agent:{name}")[0]["state"] == "pending"


def test_over_http_the_client_is_asked_to_open_the_question_and_accepting_approves_nothing(place):
    ann = Agent(place, "Ann")
    with LinkWire(place.link_socket).hello(ann.token) as link:
        space = link.call("spaces.open", {"path": place.project})["spaceId"]
    shown = []

    async def show(_context, params):
        shown.append(params)
        return ElicitResult(action="accept", content={"approve": "yes"})

    async def story():
        async with ann.official("legacy", elicitation_callback=show) as client:
            result = await client.call_tool("exec", {"command": COMMAND, "space": space})
            assert (result.structured_content or {}).get("status") == "awaiting_approval", result
            while not shown:  # noqa: ASYNC110 - it comes on its own stream
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(story(), PATIENCE))
    (view,) = eventually(lambda: asked(place, f"agent:{ann.handle}"), "it asks")
    assert (shown[0].mode, shown[0].url) == ("url", f"{place.console}/#/approvals/{view['approvalId']}")
    assert view["state"] == "pending"
