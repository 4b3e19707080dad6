"""What costs a stranger a request and the daemon much more; and what one agent here could learn of another's elsewhere.

Each attack has its control: with the guard off it works.
"""

import asyncio
import contextlib
import json
import socket
import sys
import urllib.parse

import httpx
import msgspec
import pytest
from a2a.types.a2a_pb2 import Message, SendMessageRequest
from edge_scene import Edge, answered_now, plain, rpc, run
from google.protobuf.json_format import ParseDict
from hostile import result, serving, task
from living import eventually

from bascule.a2a.cards import read_card
from bascule.a2a.machine.client import SdkClient
from bascule.a2a.machine.handler import MAX_PAGE_BYTES
from bascule.a2a.machine.parts import MAX_DATA_DEPTH, parts_of, payload_of
from bascule.a2a.ports import MAX_VALUES, EndUnknown, PeerState
from bascule.a2a.records import Letter, Peer
from patience import PATIENCE

MANY = [0] * (MAX_VALUES + 10)


# -- many values in few bytes --


def calls_of(work):
    count = 0

    def seen(_frame, event, _argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_the_control_the_sdk_works_for_every_value_and_not_for_bytes():
    def parse(part):
        return lambda: ParseDict({"message": {"messageId": "m", "parts": [part]}}, SendMessageRequest())

    assert calls_of(parse({"text": "x" * 1_000_000})) < 200
    assert calls_of(parse({"data": [0] * 5_000})) > 5_000


@pytest.fixture(scope="module")
def token(edge):
    return edge.token()


@pytest.fixture
def agent(edge):
    return edge.agent()


def test_a_request_with_more_values_than_anybody_says_is_refused_unread(edge, agent, token):
    headers = {"authorization": f"Bearer {token}", "a2a-version": "1.0", "content-type": "application/json"}

    def status(body):
        return httpx.post(f"{edge.base}/{agent.handle}", content=body, headers=headers, timeout=PATIENCE).status_code

    request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": answered_now(plain("x"))}
    message = request["params"]["message"]
    for more in ({"parts": [{"data": MANY}]}, {"parts": [{"text": ""}] * len(MANY)}, {"metadata": {"a": MANY}}):
        assert status(json.dumps({**request, "params": {"message": {**message, **more}}})) == 413
    assert status(b"[" * 20_000) == 413
    # A reader that guesses would take it, and see other commas than the guard.
    assert status(json.dumps(request).encode("utf-16")) == 413
    assert agent.inbox() == 0
    # As many commas in a text are a text.
    message["parts"] = [{"text": "1," * len(MANY)}]
    assert status(json.dumps(request)) == 200
    assert agent.inbox() == 1


@pytest.mark.parametrize("number", ["NaN", "1e999", "-Infinity"])
def test_a_number_that_is_none_is_a_wrong_request_and_no_fault_of_the_daemon(edge, agent, token, number):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": plain("x")})
    body = body.replace('{"text": "x"}', f'{{"data": [{number}]}}')
    headers = {"authorization": f"Bearer {token}", "a2a-version": "1.0", "content-type": "application/json"}
    error = httpx.post(f"{edge.base}/{agent.handle}", content=body, headers=headers, timeout=PATIENCE).json()["error"]
    assert (error["code"], error["message"]) == (-32602, "a number of its data is not finite")


def test_what_an_agent_here_says_with_many_values_goes_out_as_text():
    [part] = parts_of(MANY)
    assert (json.loads(part.text), part.media_type) == (MANY, "application/json")
    assert payload_of(parts_of(MANY[:100])) == MANY[:100]


def nested(depth, wrap):
    value = 1
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    "payload",
    [nested(60, lambda value: [value]), nested(34, lambda value: {"a": value}), {"id": 2**53 + 1}, 10**400],
    ids=["lists", "objects", "exact", "huge"],
)
def test_what_an_agent_here_says_and_protobuf_does_not_hold_goes_out_as_text(payload):
    [part] = parts_of(payload)
    assert (part.media_type, json.loads(part.text)) == ("application/json", payload)


@pytest.mark.parametrize(
    "payload", [nested(MAX_DATA_DEPTH, lambda value: {"a": value}), {"id": 2**53}], ids=["objects", "exact"]
)
def test_the_control_what_protobuf_holds_goes_out_as_data(payload):
    [part] = parts_of(payload)
    read = Message.FromString(Message(message_id="m", parts=[part]).SerializeToString())
    assert payload_of(read.parts) == payload


def test_a_list_of_tasks_is_cut_where_it_gets_large(edge, agent, token):
    for number in range(6):
        sent = rpc(edge, agent.handle, token, "SendMessage", answered_now(plain("x" * 1_000_000, f"big{number}")))
        assert "result" in sent
    seen, after = [], ""
    while True:
        page = rpc(edge, agent.handle, token, "ListTasks", {"pageSize": 100, "historyLength": 1, "pageToken": after})
        page = page["result"]
        assert len(json.dumps(page)) < MAX_PAGE_BYTES + 1_100_000
        seen += [each["id"] for each in page["tasks"]]
        if not (after := page["nextPageToken"]):
            break
    assert len(set(seen)) == len(seen) == 6
    # Without the words they are small, and one page.
    assert len(rpc(edge, agent.handle, token, "ListTasks")["result"]["tasks"]) == 6


def unread(edge, agent, token, held, count):
    """What the first words were of so many large answers, none of which is read on."""
    for number in range(4):
        rpc(edge, agent.handle, token, "SendMessage", answered_now(plain("x" * 1_000_000, f"big{number}")))
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"historyLength": 1}})
    request = (
        f"POST /{agent.handle} HTTP/1.1\r\nhost: 127.0.0.1:{edge.a2a_port}\r\nauthorization: Bearer {token}\r\n"
        f"a2a-version: 1.0\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    )
    first = []
    for _ in range(count):
        client = held.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", edge.a2a_port))
        client.sendall(request.encode())
        first.append(client.recv(15)[9:12])
    return first


def test_who_does_not_read_its_answers_has_few_of_them_in_the_daemons_memory(edge):
    with contextlib.ExitStack() as held:
        assert b"429" in unread(edge, edge.agent(), edge.token(), held, 40)


def test_the_control_a_request_that_is_over_when_its_answer_waits_makes_room_for_the_next(state):
    bug = """
import bascule.surfaces.http.mounts as mounts
async def at_once(self): return self._connection
mounts.MountExchange._when_writable = at_once
"""
    with Edge(state, bug=bug) as edge, contextlib.ExitStack() as held:
        assert set(unread(edge, edge.agent(), edge.token(), held, 40)) == {b"200"}


def test_an_answer_that_nobody_reads_is_dropped_after_a_while(state):
    bug = "import bascule.surfaces.http.mounts as mounts; mounts.UNREAD_SECONDS = 1.0"
    with Edge(state, bug=bug) as edge, contextlib.ExitStack() as held:
        agent, token = edge.agent(), edge.token()
        unread(edge, agent, token, held, 32)
        headers = {"authorization": f"Bearer {edge.token_of_user()}"}
        eventually(
            lambda: "bascule_a2a_requests 0" in httpx.get(f"http://{edge.host}/metrics", headers=headers).text,
            "nothing is open",
        )


# -- agents elsewhere --


def peer_of(server, binding="JSONRPC"):
    card = json.dumps(
        {
            **server.card(),
            "supportedInterfaces": [{"url": f"{server.url}/a", "protocolBinding": binding, "protocolVersion": "1.0"}],
        }
    ).encode()
    chosen = read_card(card, server.url)
    return Peer(
        url=server.url,
        card=chosen.text,
        digest=chosen.digest,
        title="",
        description="",
        skills=[],
        endpoint=chosen.endpoint,
        protocol=chosen.protocol,
        binding=chosen.binding,
        once=False,
        token_file=None,
        at=0,
    )


LETTER = Letter(
    peer="Hostile", message_id="m", payload=msgspec.Raw(b'"x"'), conversation_id=None, expect_reply=True, at=0
)


def asked(server, binding="JSONRPC", **limits):
    async def ask():
        client = SdkClient(**limits)
        try:
            return await client.send(peer_of(server, binding), None, LETTER, task_id="", context_id="")
        finally:
            await client.close()

    return run(ask())


def test_an_answer_with_more_values_than_anybody_says_is_not_made_objects_of():
    answer = result({"message": {"messageId": "r", "role": "ROLE_AGENT", "parts": [{"data": MANY}]}})
    with serving(lambda *_: answer) as server:
        with pytest.raises(EndUnknown, match="values"):
            asked(server)
        assert asked(server, max_values=10**9).payload == MANY


def test_an_answer_of_single_bytes_is_left_before_it_costs_much():
    whole = result({"message": {"messageId": "r", "role": "ROLE_AGENT", "parts": [{"text": "x" * 1_000}]}})[2]

    def crumbs(handler, _path, _body):
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        with contextlib.suppress(OSError):
            handler.wfile.write(b"".join(b"1\r\n%c\r\n" % byte for byte in whole) + b"0\r\n\r\n")

    with serving(crumbs) as server:
        with pytest.raises(EndUnknown, match="pieces"):
            asked(server, max_pieces=500)
        assert asked(server).payload == "x" * 1_000


@pytest.mark.parametrize("task_id", ["../../b/tasks/1", "..", "1?x=y", "1#", "a/b", "%2e%2e/x"])
def test_the_id_of_a_task_leads_to_no_other_address_of_its_server(task_id, monkeypatch):
    seen = []

    def answer(_handler, path, _body):
        seen.append(urllib.parse.urlsplit(path).path)
        return 200, {}, json.dumps({"task": task("WORKING", task_id)} if path.endswith(":send") else {}).encode()

    async def look(server):
        client = SdkClient()
        try:
            with contextlib.suppress(EndUnknown):
                await client.look(peer_of(server, "HTTP+JSON"), "token", task_id)
        finally:
            await client.close()

    with serving(answer) as server:
        with pytest.raises(EndUnknown, match="address"):
            asked(server, "HTTP+JSON")
        assert seen == ["/a/message:send"]
        # As JSON-RPC has it, it is a word like any other.
        monkeypatch.setattr(server, "answer", lambda *_: result({"task": task("WORKING", task_id)}))
        assert asked(server).state is PeerState.WORKING
        # The control: who asked all the same would ask elsewhere.
        monkeypatch.setattr(server, "answer", answer)
        asyncio.run(look(server))
        assert f"/a/tasks/{urllib.parse.quote(task_id, safe='')}" not in seen[1:]
        assert len(seen) == 2


def test_a_conversation_with_an_agent_elsewhere_is_continued_by_nobody_else(edge):
    """Anybody here may name any conversation; the agent there would think that it talks to the first one."""

    def answer(_handler, _path, body):
        message = body["params"]["message"]
        ids = message.get("contextId", "new"), message.get("taskId", "new")
        status = {"state": "TASK_STATE_INPUT_REQUIRED", "message": {"parts": [{"text": " ".join(ids)}]}}
        return result({"task": {"id": "secret-task", "contextId": "secret-context", "status": status}})

    def ask(who):
        params = {"agentId": "Keeper@a2a", "payload": "go on", "waitMs": 30_000, "conversationId": "plans"}
        sent = who.link.call("messages.send", params)
        return who.link.call("tickets.show", {"ticketId": sent["ticketId"]})["response"]

    ada, eve = edge.agent(published=False), edge.agent(published=False)
    with serving(answer) as server:
        edge.person.call("a2a.addAgent", {"name": "Keeper", "url": server.url})
        assert ask(ada) == "new new"
        # The control: whose conversation it is continues it.
        assert ask(ada) == "secret-context secret-task"
        assert ask(eve) == "new new"
        edge.person.call("a2a.removeAgent", {"name": "Keeper"})
