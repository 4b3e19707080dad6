"""The two eras on one connection, in every order a client may try them, and many calls at once."""

import itertools
import json

import pytest
from fake_link import HOLD, FakeLink
from raw_client import CLIENT_INFO, RawClient, modern

OPENINGS = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT_INFO},
    "server/discover": {"_meta": modern()},
}
LEGACY: dict[str, object] = {}
MODERN = {"_meta": modern()}
# As many as a model that fans out has ever had open, and then some.
MANY = 200


def answers(value):
    return lambda _peer, _params: value


def works_in_both_eras(client):
    for params in (LEGACY, MODERN, LEGACY):
        result = client.request("tools/call", name="co_workers", **params)["result"]
        assert result["structuredContent"]["you"] == "Jerry"
        assert ("resultType" in result) == bool(params)
        assert client.request("tools/list", **params)["result"]["tools"]


@pytest.mark.parametrize("order", list(itertools.permutations(OPENINGS)), ids=" then ".join)
def test_a_client_may_open_with_either_and_then_the_other(state, order):
    with (
        FakeLink(state, co_workers=answers({"agents": [], "you": "Jerry"})) as daemon,
        RawClient(state, "--agent", "Jerry") as client,
    ):
        for method in order:
            assert "error" not in client.request(method, **OPENINGS[method])
        works_in_both_eras(client)
    # However often it opens, it is one agent.
    assert daemon.methods_called().count("agents.register") == 1


@pytest.mark.parametrize("order", list(itertools.permutations(OPENINGS)), ids=" then ".join)
@pytest.mark.parametrize("in_one_piece", [True, False])
def test_both_openings_before_the_first_reply_are_both_answered(state, order, in_one_piece):
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": OPENINGS[method]}).encode() + b"\n"
        for method in order
    ]
    # The daemon says nothing: both wait for their deadline at the same time.
    with FakeLink(state, hello=answers(HOLD)), RawClient(state, "--agent", "Jerry") as client:
        for line in [b"".join(lines)] if in_one_piece else lines:
            client.write(line)
        replies = {reply["id"]: reply["result"] for reply in (client.next(), client.next())}
    assert set(replies) == set(OPENINGS)
    assert replies["initialize"]["protocolVersion"] == "2025-11-25"
    assert replies["server/discover"]["supportedVersions"] == ["2026-07-28"]
    handshake, modern = (replies[each]["capabilities"] for each in ("initialize", "server/discover"))
    # Each era has tasks in its own place, and else they are the same.
    assert handshake.pop("tasks") == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    assert modern.pop("extensions") == {"io.modelcontextprotocol/tasks": {}}
    assert handshake == modern


def test_the_older_opening_and_then_newer_calls_only(state):
    with (
        FakeLink(state, co_workers=answers({"agents": [], "you": "Jerry"})),
        RawClient(state, "--agent", "Jerry") as client,
    ):
        client.initialize()
        assert client.request("tools/call", name="co_workers", **MODERN)["result"]["resultType"] == "complete"
        assert client.initialize()["serverInfo"]["name"] == "bascule"


def test_a_discovery_without_its_envelope_is_answered_plainly(state):
    with FakeLink(state), RawClient(state) as client:
        found = client.request("server/discover")["result"]
        assert found["supportedVersions"] == ["2026-07-28"]
        assert "resultType" not in found


# -- many at once ---------------------------------------------------------------------------------


def test_two_hundred_calls_are_open_at_once_and_each_gets_its_own_reply(state):
    """Answered in the opposite order, each with the ticket it asked for."""
    waiting = []

    def hold(peer, _params):
        waiting.append((peer.number, peer.request))
        return HOLD

    agents = answers({"agents": [], "you": "Jerry"})
    with FakeLink(state, await_reply=hold, list_agents=agents) as daemon, RawClient(state) as client:
        client.initialize()
        asked = {client.start_call("await_reply", ticketId=f"t-{number}"): f"t-{number}" for number in range(MANY)}
        daemon.wait_for("await_reply", MANY)
        # A quick call does not stand behind the slow ones.
        assert client.call("list_agents")["structuredContent"]["agents"] == []
        peer = daemon.peers[0]
        for number, request in reversed(waiting):
            peer.answer_call(number, request, {"payload": request.params["arguments"]["ticketId"]})
        for number, ticket in asked.items():
            assert client.answer_to(number)["result"]["structuredContent"]["payload"] == ticket
        assert len(daemon.peers) == 1


def test_two_hundred_asks_and_answers_on_one_connection(daemon):
    with RawClient(daemon.state, "--agent", "Asker") as one, RawClient(daemon.state, "--agent", "Answerer") as two:
        one.initialize()
        two.initialize()
        two.call("co_workers")
        asked = {
            one.start_call("send_message", agentId="Answerer", payload=f"question {number}"): number
            for number in range(MANY)
        }
        for _ in range(MANY):
            message = two.call("wait_for_message")["structuredContent"]
            two.start_call("post_reply", ticketId=message["ticketId"], payload=message["payload"].upper())
        for number, question in asked.items():
            assert one.answer_to(number)["result"]["structuredContent"]["payload"] == f"QUESTION {question}"


def test_half_of_many_calls_cancelled_leaves_the_other_half(state):
    waiting = []

    def hold(peer, _params):
        waiting.append((peer.number, peer.request))
        return HOLD

    with FakeLink(state, await_reply=hold) as daemon, RawClient(state) as client:
        client.initialize()
        numbers = [client.start_call("await_reply", ticketId=f"t-{number}") for number in range(40)]
        daemon.wait_for("await_reply", 40)
        for number in numbers[::2]:
            client.notify("notifications/cancelled", requestId=number)
        daemon.wait_for_note("mcp.message", 20)
        for number, request in waiting:
            daemon.peers[0].answer_call(number, request, {"payload": "ok"})
        for number in numbers[1::2]:
            assert client.answer_to(number)["result"]["structuredContent"]["payload"] == "ok"
        assert client.request("ping")["result"] == {}
        assert client.aside == []
