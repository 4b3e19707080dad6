"""Who is behind a request to /mcp: the agent whose token it carries, and nobody else."""

import json

import pytest
from living import Living, short_dir
from speaking import ACCEPT, HANDSHAKE, RECENT, Agent, Modern
from wires import Caller, LinkWire, Wire

from inside import max_mcp_sessions

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}


def post(address, headers, message=INITIALIZE):
    kind = [("Content-Type", "application/json"), ACCEPT]
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    with Wire(address) as wire:
        return wire.ask("POST", "/mcp", [*headers, *kind], body)


def asked_to_register(answer) -> bool:
    error = answer.error
    return answer.status == 403 and "agentToken" in error["message"] and "bridge-register --agent" in error["hint"]


def test_the_local_token_is_told_to_register_first(daemon):
    answer = post(daemon.tcp, Caller(daemon).headers)
    assert asked_to_register(answer)
    assert "never from a project file" in answer.error["hint"]


def test_without_a_token_the_unix_socket_is_told_to_register_first(daemon):
    assert asked_to_register(post(daemon.http_socket, []))


def test_with_auth_off_an_unnamed_client_is_told_to_register_first():
    with short_dir() as folder, Living(f"{folder}/s", mcp="on", auth="off") as daemon:
        assert asked_to_register(post(daemon.tcp, [("Host", daemon.host)]))
        assert Agent(daemon, "Ann").modern().call("co_workers")["structuredContent"]["you"] == "Ann"


def test_an_agents_token_works_at_the_unix_socket_too(daemon, agent):
    ann = agent("Ann")
    answer = post(daemon.http_socket, [("Authorization", f"Bearer {ann.token}")])
    assert answer.status == 200
    assert f"`{ann.handle}`".encode() in answer.body


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Host", "evil.test:PORT")], 421),
        ([("Host", "127.0.0.1:PORT"), ("Origin", "http://evil.test")], 403),
        ([("Host", "127.0.0.1:PORT"), ("Origin", "null")], 403),
        ([("Host", "127.0.0.1:PORT"), ("Sec-Fetch-Site", "cross-site")], 403),
    ],
    ids=["a rebound name", "a page of another site", "an opaque page", "a form"],
)
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
def test_a_web_page_gets_nothing_even_with_a_token_and_a_session(daemon, agent, verb, headers, status):
    ann = agent("Ann")
    known = [
        ("Authorization", f"Bearer {ann.token}"),
        ("Mcp-Session-Id", ann.session().session_id),
        ("Content-Type", "application/json"),
        ACCEPT,
    ]
    filled = [(name, value.replace("PORT", str(daemon.port))) for name, value in headers]
    with Wire(daemon.tcp) as wire:
        answer = wire.ask(verb, "/mcp", [*filled, *known], None if verb == "GET" else json.dumps(INITIALIZE).encode())
    assert answer.status == status
    assert answer.error


def test_a_session_belongs_to_the_agent_that_opened_it(daemon, agent):
    ann, eve = agent("Ann"), agent("Eve")
    session = ann.session()
    stolen = [
        *eve.caller.headers,
        ("Mcp-Session-Id", session.session_id),
        ("MCP-Protocol-Version", HANDSHAKE),
        ("Content-Type", "application/json"),
        ACCEPT,
    ]
    call = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "co_workers", "arguments": {}}}
    for verb, body in (("POST", json.dumps(call).encode()), ("GET", None), ("DELETE", b"")):
        with Wire(daemon.tcp) as wire:
            answer = wire.ask(verb, "/mcp", stolen, body)
        assert answer.status == 404
        assert answer.json["error"]["message"] == "Session not found"
    assert session.call("co_workers")["structuredContent"]["you"] == ann.handle


def test_an_ended_session_is_unknown(agent):
    session = agent("Ann").session()
    assert session.end().status == 200
    with session.open("tools/list") as stream:
        assert stream.status == 404


def test_an_agent_keeps_the_sessions_it_used_last(agent):
    ann, bob = agent("Ann"), agent("Bob")
    others, first = bob.session(), ann.session()
    second, *rest = [ann.session() for _ in range(max_mcp_sessions() - 1)]
    first.call("co_workers")
    rest.append(ann.session())
    with second.open("tools/list") as stream:
        assert stream.status == 404
    for session in (first, *rest):
        assert session.call("co_workers")["structuredContent"]["you"] == ann.handle
    assert others.call("co_workers")["structuredContent"]["you"] == bob.handle


def test_register_agent_renews_the_callers_own_record(agent):
    ann = agent("Ann")
    done = ann.modern().call("register_agent", agentId=ann.handle, metadata={"cwd": "/home/user/project-a"})
    content = done["structuredContent"]
    assert content.pop("expiresAt")
    assert content == {"agentId": ann.handle, "status": "registered", "you": ann.handle}
    listed = ann.modern().call("list_agents")["structuredContent"]["agents"]
    mine = next(each for each in listed if each["agentId"] == ann.handle)
    assert (mine["type"], mine["metadata"]) == ("agent", {"cwd": "/home/user/project-a"})
    ann.modern().call("register_agent", agentId=ann.handle, type="codex", heartbeatIntervalMs=60_000)
    listed = ann.modern().call("list_agents", type="codex")["structuredContent"]["agents"]
    assert next(each for each in listed if each["agentId"] == ann.handle)["metadata"] == {"cwd": "/home/user/project-a"}
    # The token is still the same one.
    assert ann.session().call("co_workers")["structuredContent"]["you"] == ann.handle


def test_register_agent_cannot_take_another_handle(agent):
    ann = agent("Ann")
    refused = ann.modern().call("register_agent", agentId="Somebody-else")
    assert refused["isError"]
    text = refused["content"][0]["text"]
    assert f"you are {ann.handle}, by the token of this connection" in text
    assert "bridge-register --agent Somebody-else" in text


def test_after_a_takeover_the_old_token_has_nothing_and_the_new_one_no_old_session(daemon, agent):
    ann = agent("Ann")
    session = ann.session()
    notifications = {"resourceSubscriptions": [RECENT]}
    with (
        LinkWire(daemon.link_socket) as link,
        ann.modern().open("subscriptions/listen", notifications=notifications) as listening,
        session.begin_call("wait_for_message") as waiting,
    ):
        assert listening.message()["method"] == "notifications/subscriptions/acknowledged"
        link.hello()
        passphrase = {"passphrase": "correct horse battery"}
        link.call("person.set", passphrase)
        link.call("person.unlock", passphrase)
        fresh = link.call("agents.register", {"agentId": ann.handle})["agentToken"]
        ticket = Caller(daemon).send(ann.handle, "for the new holder")
        new = Modern(daemon, fresh)
        assert new.call("wait_for_message")["structuredContent"]["ticketId"] == ticket
        assert ticket.encode() not in waiting.answer().body
        while (message := listening.message()) is not None and "result" not in message:
            assert message["method"] == "notifications/resources/updated"
    stolen = [*Caller(daemon, fresh).headers, ("Mcp-Session-Id", session.session_id)]
    assert post(daemon.tcp, stolen).status == 404
    assert post(daemon.tcp, ann.caller.headers).status == 401


def test_no_token_and_no_payload_reaches_log_or_terminal():
    with short_dir() as folder, Living(f"{folder}/s", mcp="on", log_level="debug") as house:
        ann = Agent(house, "Ann")
        session = ann.session()
        for client in (session, ann.modern()):
            client.call("send_message", agentId="Ann", payload="words of the message", awaitResponse=False)
            client.call("wait_for_message")
            client.call("send_message", agentId="nobody", payload="words of the message")
        post(house.tcp, ann.caller.headers, b'{"words of the message')
        assert house.stop() == 0
        written = house.log() + house.terminal()
    assert '"door":"mcp"' in written.replace(" ", "")
    assert [secret for secret in ("words of the", ann.token, session.session_id) if secret in written] == []
