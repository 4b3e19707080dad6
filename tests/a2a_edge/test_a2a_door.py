"""The door for A2A: who may come in, what is served there, and its limits."""

import asyncio
import contextlib
import json
import os
import socket
import ssl

import httpx
import pytest
from a2a.client.errors import A2AClientError
from a2a.types.a2a_pb2 import TaskState
from edge_scene import BINDINGS, VERSIONS, Edge, answered_now, events, plain, rpc, run, sdk_client, text_message
from living import eventually

from certificates import certificate_in
from patience import PATIENCE

SUBMITTED = TaskState.TASK_STATE_SUBMITTED


@pytest.fixture
def agent(edge):
    return edge.agent()


@pytest.fixture
def token(edge):
    return edge.token()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic eA=="}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"host": "evil.test"}, 421),
        ({"host": "127.0.0.1"}, 421),
        ({"origin": "http://127.0.0.1"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
    ],
    ids=str,
)
def test_who_may_not_come_in(edge, agent, token, headers, status):
    if "authorization" not in headers and status != 401:
        headers = {"authorization": f"Bearer {token}", **headers}
    for path in ("", "/message:send", "/tasks"):
        verb = "GET" if path == "/tasks" else "POST"
        answer = httpx.request(
            verb, f"{edge.base}/{agent.handle}{path}", headers=headers, json=plain("x") if verb == "POST" else None
        )
        assert answer.status_code == status, path
        assert "local.token" not in answer.text
    assert agent.inbox() == 0


def test_tokens_of_this_machine_open_nothing_there_and_theirs_nothing_here(edge, agent, token):
    """The two kinds of tokens are known by different doors."""
    own = edge.user.call("agents.register", {"agentId": "Own"})["agentToken"]
    for theirs in (edge.token_of_user(), own):
        answer = httpx.get(f"{edge.base}/{agent.handle}/tasks", headers={"authorization": f"Bearer {theirs}"})
        assert answer.status_code in (401, 429)
    answer = httpx.get(f"http://{edge.host}/agents", headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == 401


def test_nothing_of_the_daemons_own_is_served_at_this_door(edge, agent, token):
    headers = {"authorization": f"Bearer {token}", "a2a-version": "1.0"}
    paths = ("/", "/agents", "/tickets", "/healthz", "/metrics", "/openapi.json", "/mcp", "/v1/spaces", "/events")
    for path in (*paths, f"/{agent.handle}/agents", f"/{agent.handle}/mcp", f"/{agent.handle}/%2e%2e/agents"):
        assert httpx.get(edge.base + path, headers=headers).status_code in (404, 405), path
    for method in ("agents.list", "messages.send", "daemon.status", "tickets.list", "nothing", ""):
        assert rpc(edge, agent.handle, token, method)["error"]["code"] in (-32601, -32600), method


def test_a_card_is_read_without_a_token_and_only_of_who_is_published(edge, agent):
    hidden = edge.agent(published=False)
    card = httpx.get(f"{edge.base}/{agent.handle}/.well-known/agent-card.json").json()
    assert card["name"] == agent.handle
    assert {(each["protocolVersion"], each["protocolBinding"]) for each in card["supportedInterfaces"]} == {
        (version, binding) for version in VERSIONS for binding in BINDINGS
    }
    assert card["capabilities"] == {
        "streaming": True,
        **{key: value for key, value in card["capabilities"].items() if key != "streaming"},
    }
    assert card["protocolVersion"].startswith("0.3")
    assert card["url"] == f"{edge.base}/{agent.handle}"
    unknown = [
        httpx.get(f"{edge.base}/{handle}/.well-known/agent-card.json") for handle in (hidden.handle, "nobody", "person")
    ]
    assert {each.status_code for each in unknown} == {404}
    assert len({each.text for each in unknown}) == 1
    edge.user.call("a2a.unpublish", {"agentId": agent.handle})
    assert httpx.get(f"{edge.base}/{agent.handle}/.well-known/agent-card.json").status_code == 404


def test_a_revoked_token_ends_what_its_client_has_open(edge, agent):
    token = edge.token("Carl")

    async def ask():
        async with sdk_client(edge.base, agent.handle, token, streaming=True) as client:
            stream = client.send_message(text_message("rain?"))
            assert (await anext(stream)).task.status.state == SUBMITTED
            await asyncio.to_thread(edge.user.call, "a2a.revokeToken", {"name": "Carl"})
            with contextlib.suppress(A2AClientError):
                assert await events(stream) == []

    run(ask())
    assert (
        httpx.get(f"{edge.base}/{agent.handle}/tasks", headers={"authorization": f"Bearer {token}"}).status_code == 401
    )


def test_who_is_published_no_more_answers_nobody_who_waits(edge, token):
    agents = edge.agent(), edge.agent()

    async def ask():
        headers = {"authorization": f"Bearer {token}", "a2a-version": "1.0"}
        async with httpx.AsyncClient(headers=headers, timeout=PATIENCE) as http:
            waiting = [
                asyncio.ensure_future(http.post(f"{edge.base}/{each.handle}/message:send", json=plain("x")))
                for each in agents
            ]
            await asyncio.to_thread(eventually, lambda: all(each.inbox() == 1 for each in agents), "both wait")
            await asyncio.to_thread(edge.user.call, "a2a.unpublish", {"agentId": agents[0].handle})
            for each in agents:
                await asyncio.to_thread(each.answer, "secret")
            first, second = await asyncio.gather(*waiting, return_exceptions=True)
            assert isinstance(first, httpx.HTTPError) or "secret" not in first.text
            # The control: the other one is still published.
            assert "secret" in second.text

    run(ask())


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"[]", -32600),
        (b"[" * 9_000, (-32700, -32603)),
        (b'{"jsonrpc":"2.0","id":1,"method":"SendMessage"}', -32602),
        (b'{"jsonrpc":"1.0","id":1,"method":"GetTask","params":{"id":"x"}}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"GetTask","params":{"id":"x"}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":7}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[1]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"parts":[]}}}', -32602),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER"}}}',
            -32602,
        ),
        (b"\xff\xfe", (-32700, -32603)),
        (
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": plain("x", "m" * 257)}).encode(),
            -32602,
        ),
    ],
    ids=lambda value: value[:60] if isinstance(value, bytes) else "",
)
def test_what_is_not_a_request_gets_an_error_of_the_protocol_and_no_more(edge, agent, token, body, code):
    headers = {"authorization": f"Bearer {token}", "a2a-version": "1.0", "content-type": "application/json"}
    answer = httpx.post(f"{edge.base}/{agent.handle}", content=body, headers=headers, timeout=PATIENCE)
    assert answer.status_code == 200
    error = answer.json()["error"]
    assert error["code"] in (code if isinstance(code, tuple) else (code,))
    assert "Traceback" not in answer.text
    assert "/bascule/" not in answer.text
    assert agent.inbox() == 0


def test_a_version_that_is_not_spoken_is_refused(edge, agent, token):
    assert rpc(edge, agent.handle, token, "SendMessage", plain("x"), version="9.9")["error"]["code"] == -32009
    assert rpc(edge, agent.handle, token, "SendMessage", plain("x"), version="")["error"]["code"] == -32009
    assert agent.inbox() == 0


def test_a_body_that_is_too_large_is_refused_before_it_is_read(edge, agent, token):
    headers = {"authorization": f"Bearer {token}", "a2a-version": "1.0", "content-type": "application/json"}
    answer = httpx.post(f"{edge.base}/{agent.handle}", content=b"x" * (2 * 1024 * 1024 + 1), headers=headers)
    assert answer.status_code == 413
    # One that the door takes and no agent may say.
    big = rpc(edge, agent.handle, token, "SendMessage", answered_now(plain("x" * (1024 * 1024 + 1))))
    assert big["error"]["code"] == -32602
    assert agent.inbox() == 0


def test_a_client_holds_some_requests_open_and_the_next_is_refused(edge, agent, token):
    async def fill():
        headers = {"authorization": f"Bearer {token}", "a2a-version": "1.0"}
        limits = httpx.Limits(max_connections=64)
        async with httpx.AsyncClient(headers=headers, timeout=PATIENCE, limits=limits) as http:
            url = f"{edge.base}/{agent.handle}/message:send"
            waiting = [asyncio.ensure_future(http.post(url, json=plain("x", f"w{number}"))) for number in range(32)]
            await asyncio.to_thread(eventually, lambda: agent.inbox() == 32, "all of them wait")
            refused = await http.get(f"{edge.base}/{agent.handle}/tasks")
            assert refused.status_code == 429
            assert refused.headers["retry-after"]
            # Another client is not concerned.
            other = {"authorization": f"Bearer {edge.token()}"}
            assert (await http.get(f"{edge.base}/{agent.handle}/tasks", headers=other)).status_code == 200
            for each in waiting:
                each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    run(fill())
    # Who left has left: nothing of it stays open, and the messages are there.
    headers = {"authorization": f"Bearer {edge.token_of_user()}"}
    eventually(
        lambda: "bascule_a2a_requests 0" in httpx.get(f"http://{edge.host}/metrics", headers=headers).text,
        "nothing is open",
    )
    assert agent.inbox() == 32


# -- behind a proxy, and with TLS --


def test_behind_a_proxy_cards_and_the_host_are_what_others_call_it(state):
    with Edge(state, a2a_url="https://agents.example.org/a2a") as edge:
        edge.agent("Jerry")
        url = f"{edge.base}/Jerry/.well-known/agent-card.json"
        card = httpx.get(url, headers={"host": "agents.example.org"}).json()
        assert card["url"] == "https://agents.example.org/a2a/Jerry"
        assert httpx.get(url, headers={"host": "agents.example.com"}).status_code == 421


def test_with_a_certificate_it_is_served_by_tls_alone(state, tmp_path):
    certificate, key = map(str, certificate_in(tmp_path))
    with Edge(state, a2a_tls_cert=certificate, a2a_tls_key=key) as edge:
        edge.agent("Jerry")
        path = f"127.0.0.1:{edge.a2a_port}/Jerry"
        trusted = ssl.create_default_context(cafile=certificate)
        card = httpx.get(f"https://{path}/.well-known/agent-card.json", verify=trusted).json()
        assert card["url"] == f"https://{path}"
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://{path}/.well-known/agent-card.json")


@pytest.mark.parametrize(
    ("bug", "most"),
    [
        ("", 64),
        ("import bascule.surfaces.http.tls_accept as t; t.TlsServer.__init__.__kwdefaults__['most'] = 10**6", 300),
    ],
    ids=["guarded", "control"],
)
def test_strangers_who_say_nothing_take_few_of_the_daemons_files(state, tmp_path, bug, most):
    """Before its handshake a connection counts for no other limit, and is one of the files that all doors share."""
    certificate, key = map(str, certificate_in(tmp_path))
    with Edge(state, a2a_tls_cert=certificate, a2a_tls_key=key, bug=bug) as edge, contextlib.ExitStack() as held:
        edge.agent("Jerry")
        pid = edge.user.call("daemon.status")["pid"]
        before = len(os.listdir(f"/proc/{pid}/fd"))
        for _ in range(300):
            held.enter_context(socket.create_connection(("127.0.0.1", edge.a2a_port), PATIENCE))

        def files():
            return len(os.listdir(f"/proc/{pid}/fd")) - before

        eventually(lambda: files() >= most, "as many as may come in have")
        assert edge.user.call("agents.list")
        assert files() <= most + 2
        held.close()
        trusted = ssl.create_default_context(cafile=certificate)
        url = f"https://127.0.0.1:{edge.a2a_port}/Jerry/.well-known/agent-card.json"

        def served():
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(url, verify=trusted, timeout=PATIENCE).status_code == 200

        eventually(served, "there is room again")
