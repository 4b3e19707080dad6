"""`bascule mcp` with BRIDGE_BROKER_URL: the same calls over HTTP, and nothing is started.

The broker there is a daemon of another state directory, without tokens: those of its own files are not for TCP.
"""

import itertools
import json
import os
import socket
import subprocess

import pytest
from bascule.protocols.tools import TOOLS
from bascule.shim.over_http import ROUTES, Exchange, Names, _quoted
from bascule.shim.resources import RECENT_URI
from hypothesis import given
from hypothesis import strategies as st
from living import Living, eventually, free_port, short_dir
from raw_client import COMMAND, RawClient

from bascule.bridges.broker.edge import ROUTES as BROKER_ROUTES
from bascule.bridges.desktop.edge import ROUTES as DESKTOP_ROUTES
from bascule.bridges.game.edge import ROUTES as GAME_ROUTES
from bascule.bridges.house.edge import ROUTES as HOUSE_ROUTES
from bascule.bridges.workspace.edge import ROUTES as WORKSPACE_ROUTES
from bascule.doors.exits import BadAnswer, ConnectionLost
from certificates import certificate_in


@pytest.fixture(scope="module")
def daemon():
    with short_dir() as folder, Living(f"{folder}/s", auth="off") as living:
        yield living


def over_http(daemon, *options, scheme="http", **variables):
    elsewhere = f"{daemon.state}-elsewhere"
    os.makedirs(elsewhere, mode=0o700, exist_ok=True)
    return RawClient(elsewhere, *options, BRIDGE_BROKER_URL=f"{scheme}://127.0.0.1:{daemon.port}", **variables)


def name_of(client):
    """Asked for, because a busy daemon may take longer than the opening of the session waits."""
    client.initialize()
    return client.call("co_workers")["structuredContent"]["you"]


# -- against a living daemon ----------------------------------------------------------------------


def test_an_ask_goes_over_http_and_comes_back(daemon):
    with over_http(daemon, "--agent", "HttpOne") as one, over_http(daemon, "--agent", "HttpTwo") as two:
        assert (name_of(one), name_of(two)) == ("HttpOne", "HttpTwo")
        asking = one.start_call("send_message", agentId="HttpTwo", payload="6 x 7?", conversationId="http-1")
        message = two.call("wait_for_message")["structuredContent"]
        assert (message["from"], message["payload"]) == ("HttpOne", "6 x 7?")
        posted = two.call("post_reply", ticketId=message["ticketId"], payload={"answer": 42})
        assert posted["structuredContent"]["status"] == "responded"
        reply = one.answer_to(asking)["result"]["structuredContent"]
        assert (reply["status"], reply["payload"], reply["from"]) == ("responded", {"answer": 42}, "HttpTwo")
        shown = one.call("show_conversation", conversationId="http-1")["structuredContent"]["tickets"]
        assert shown[0]["replies"] == [{"from": "HttpTwo", "payload": {"answer": 42}}]


def test_every_tool_works_over_http(daemon):
    with over_http(daemon, "--agent", "HttpAll") as client, over_http(daemon, "--agent", "HttpPeer") as peer:
        assert (name_of(client), name_of(peer)) == ("HttpAll", "HttpPeer")
        workers = client.call("co_workers")["structuredContent"]
        assert workers["you"] == "HttpAll"
        assert "HttpPeer" in [each["agentId"] for each in workers["agents"]]
        assert client.call("list_agents", type="none such &=?")["structuredContent"]["agents"] == []
        sent = client.call("broadcast_message", payload="all", agentIds=["HttpPeer"])["structuredContent"]
        ticket = sent["tickets"][0]["ticketId"]
        late = client.call("await_reply", ticketId=ticket, timeoutMs=20)["structuredContent"]
        assert (late["status"], late["ticketStatus"]) == ("timeout", "pending")
        assert peer.call("co_workers")["structuredContent"]["unread"] == 1
        assert client.call("cancel_ticket", ticketId=ticket)["structuredContent"]["status"] == "cancelled"
        listed = client.call("list_tickets", status="cancelled")["structuredContent"]["tickets"]
        assert [each["ticketId"] for each in listed] == [ticket]
        refused = client.call("send_message", agentId="nobody-here", payload="x")
        assert refused["isError"]
        assert refused["content"][0]["text"].startswith("agent not registered\nNext: ")
        became = client.call("register_agent", agentId="HttpRenamed")["structuredContent"]
        assert (became["agentId"], became["you"]) == ("HttpRenamed", "HttpRenamed")
        assert client.call("wait_for_message", waitMs=10)["structuredContent"]["status"] == "empty"


def test_two_sessions_started_alike_get_two_names_and_later_the_same_again(daemon):
    with over_http(daemon, "--agent", "HttpTwin") as one, over_http(daemon, "--agent", "HttpTwin") as two:
        assert {name_of(one), name_of(two)} == {"HttpTwin", "HttpTwin-2"}
    with over_http(daemon, "--agent", "HttpTwin") as again:
        assert name_of(again) == "HttpTwin"


def test_a_name_that_a_link_session_holds_is_taken(daemon):
    with RawClient(daemon.state, "--agent", "Held") as linked, over_http(daemon, "--agent", "Held") as client:
        assert (name_of(linked), name_of(client)) == ("Held", "Held-2")


def test_a_cancelled_wait_leaves_the_next_message_to_the_next_wait(daemon):
    with over_http(daemon, "--agent", "HttpGone") as client:
        client.initialize()
        number = client.start_call("wait_for_message")
        # Answered behind it: the wait is under way.
        client.call("co_workers")
        client.notify("notifications/cancelled", requestId=number)
        client.call("send_message", agentId="HttpGone", payload="for later", awaitResponse=False)
        got = client.call("wait_for_message")["structuredContent"]
        assert got["payload"] == "for later"
        assert "attempts" not in got
        assert all(message.get("id") != number for message in client.aside)


def test_many_waits_are_open_at_once(daemon):
    with over_http(daemon, "--agent", "HttpMany") as client:
        client.initialize()
        waits = []
        for _ in range(50):
            sent = client.call("send_message", agentId="HttpMany", payload="x", awaitResponse=False)
            waits.append(client.start_call("await_reply", ticketId=sent["structuredContent"]["ticketId"]))
        for _ in waits:
            ticket = client.call("wait_for_message")["structuredContent"]["ticketId"]
            client.call("post_reply", ticketId=ticket, payload=ticket)
        for number in waits:
            reply = client.answer_to(number)["result"]["structuredContent"]
            assert reply["payload"] == reply["ticketId"]


def test_the_news_come_over_http_too(daemon):
    with over_http(daemon, "--agent", "HttpNews") as client:
        client.initialize()
        assert client.request("resources/subscribe", uri=RECENT_URI)["result"] == {}

        def told_of_a_message():
            # On connections of their own, a message may overtake the stream.
            client.call("send_message", agentId="HttpNews", payload="x", awaitResponse=False)
            return client.aside

        told = eventually(told_of_a_message, "the news")[0]
        assert (told["method"], told["params"]) == ("notifications/resources/updated", {"uri": RECENT_URI})
        text = client.request("resources/read", uri=RECENT_URI)["result"]["contents"][0]["text"]
        assert "ticket.sent" in [event["event"] for event in json.loads(text)]
        assert client.request("resources/unsubscribe", uri=RECENT_URI)["result"] == {}


def test_calls_in_flight_survive_a_restart_of_the_daemon():
    with short_dir() as folder:
        port = free_port()
        with (
            Living(f"{folder}/s", port=port, auth="off") as before,
            over_http(before, "--agent", "One") as one,
            over_http(before, "--agent", "Two") as two,
        ):
            assert (name_of(one), name_of(two)) == ("One", "Two")
            asking = one.start_call("send_message", agentId="Two", payload="still there?")
            ticket = two.call("wait_for_message")["structuredContent"]["ticketId"]
            before.kill()
            with Living(f"{folder}/s", port=port, auth="off"):
                assert not two.call("post_reply", ticketId=ticket, payload="yes")["isError"]
                assert one.answer_to(asking)["result"]["structuredContent"]["payload"] == "yes"


def test_an_ask_goes_over_https_to_a_broker_whose_certificate_is_known(tmp_path):
    certificate, key = certificate_in(tmp_path)
    with (
        short_dir() as folder,
        Living(f"{folder}/s", auth="off", tls_cert=str(certificate), tls_key=str(key)) as broker,
        over_http(broker, "--agent", "One", scheme="https", BRIDGE_BROKER_CA=str(certificate)) as one,
    ):
        assert name_of(one) == "One"
        # Larger than one TLS record, both ways.
        text = "x" * 200_000
        one.call("send_message", agentId="One", payload=text, awaitResponse=False)
        assert one.call("wait_for_message")["structuredContent"]["payload"] == text
        with over_http(broker, "--agent", "Two", scheme="https") as two:
            two.initialize()
            refused = two.call("co_workers")
            assert refused["isError"]
            assert "is not trusted" in refused["content"][0]["text"]


def test_a_daemon_that_is_not_there_is_not_started(state):
    with RawClient(state, BRIDGE_BROKER_URL=f"http://127.0.0.1:{free_port()}") as client:
        assert "no broker answers at" in client.initialize()["instructions"]
        assert client.request("tools/list")["result"]["tools"]
    assert os.listdir(state) == []


def test_the_address_of_our_own_daemon_means_its_socket(state):
    with short_dir() as folder, Living(f"{folder}/s") as own:
        with RawClient(own.state, "--agent", "Wrapped", BRIDGE_BROKER_URL=f"http://127.0.0.1:{own.port}") as client:
            assert name_of(client) == "Wrapped"
        assert '"door":"tcp"' not in own.log().replace(" ", "")
        # Elsewhere it is a broker like any other, and wants a token that is not in our files.
        with RawClient(state, BRIDGE_BROKER_URL=f"http://127.0.0.1:{own.port}") as client:
            client.initialize()
            result = client.call("co_workers")
            assert result["isError"]
            assert "token" in result["content"][0]["text"]


@pytest.mark.parametrize("url", ["http://10.0.0.1:5050", "https://10.0.0.1:5050", "http://evil.example", "x"])
def test_only_loopback_is_spoken_to(state, url):
    done = subprocess.run(
        [*COMMAND, "--state-dir", state],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "BRIDGE_BROKER_URL": url},
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert b"are accepted, because tokens are sent there" in done.stderr


# -- the pieces -----------------------------------------------------------------------------------


def test_the_routes_are_those_of_the_daemon():
    bridges = (BROKER_ROUTES, HOUSE_ROUTES, WORKSPACE_ROUTES, GAME_ROUTES, DESKTOP_ROUTES)
    served = {route.method: (route.verb, route.path) for bridge in bridges for route in bridge}
    assert ROUTES.pop("hello") == served["daemon.status"]
    try:
        assert {method: served.get(method) for method in ROUTES} == ROUTES
    finally:
        ROUTES["hello"] = ("GET", "/status")


def test_every_method_that_a_tool_uses_has_a_route():
    """Without one a tool works on the socket and is an internal error behind BRIDGE_BROKER_URL."""
    assert {method for tool in TOOLS for method in tool.uses} - set(ROUTES) == set()


def chunked(*pieces, end=b"0\r\n\r\n"):
    chunks = [b"%x;x=y\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(chunks) + end


CHUNKED = chunked(b'{"a":', b" 1}")
PLAIN = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}'
REFUSED = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\nContent-Length: 46\r\n\r\n"
    b'{"error":{"code":"overloaded","message":"no"}}'
)
NOTHING = b"HTTP/1.1 204 No Content\r\n\r\n"
EVENTS = chunked(b": ping\n\nid: 1\nda", b'ta: {"id":1}', b"\n", b'\nid: 2\ndata: {"id":2}\n\n', b"id: 3\n", end=b"")


def fed(data, cuts, method="agents.list"):
    exchange = Exchange(socket.socket(), 3, method, {"ticketId": "t"})
    exchange.sock.close()
    places = sorted({0, *(cut % len(data) for cut in cuts), len(data)})
    messages = []
    for start, end in itertools.pairwise(places):
        if not exchange.done:
            messages += exchange.feed(data[start:end])
    return exchange, messages


@given(st.lists(st.integers(min_value=0), max_size=5))
def test_an_answer_is_the_same_however_the_stream_is_cut(cuts):
    for data, value in ((CHUNKED, {"a": 1}), (PLAIN, {"a": 1}), (NOTHING, None)):
        assert fed(data, cuts)[1] == [{"jsonrpc": "2.0", "id": 3, "result": value}]
    _, (refused,) = fed(REFUSED, cuts)
    assert refused["error"]["data"] == {"code": "overloaded", "message": "no", "retryAfterMs": 2000}
    _, (opened, *items) = fed(EVENTS, cuts, "events.stream")
    assert opened["result"] == {}
    assert [item["params"] for item in items] == [{"stream": 3, "item": {"id": 1}}, {"stream": 3, "item": {"id": 2}}]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", ConnectionLost),
        (PLAIN[:-1], ConnectionLost),
        (CHUNKED[:-3], ConnectionLost),
        (b"SSH-2.0-x\r\n\r\n", BadAnswer),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", BadAnswer),
        (b"x" * 20_000, BadAnswer),
        (CHUNKED.replace(b"5;", b"?;", 1), BadAnswer),
        (CHUNKED.replace(b"5;", b"5;" + b"x" * 300, 1), BadAnswer),
    ],
)
def test_what_is_not_an_answer_is_an_error_with_a_name(data, fault):
    def whole():
        exchange, _ = fed(data, []) if data else (fed(b" ", [])[0], None)
        exchange.feed(b"")

    with pytest.raises(fault):
        whole()


def test_a_refusal_without_words_still_says_its_number():
    _, (refused,) = fed(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\noops", [])
    assert refused["error"]["message"] == "the daemon answered 502"


def test_values_are_quoted_for_a_path_and_a_query():
    assert _quoted("a b/é&=") == "a%20b%2F%C3%A9%26%3D"
    assert _quoted(12) == "12"


def test_a_handle_is_held_by_one_session_at_a_time(state):
    one, two = Names(state), Names(state)
    assert one.take("Jerry")
    assert one.take("Jerry")
    assert not two.take("Jerry")
    # Case matters in handles, whatever the file system thinks.
    assert two.take("jerry")
    two.keep("jerry", granted=False)
    assert one.take("Tom")
    one.keep("Tom", granted=True)
    assert two.take("Jerry")
    one.release()
    assert two.take("Tom")
    two.release()


def test_without_a_state_directory_nothing_is_held():
    assert Names("/nonexistent/x").take("Jerry")


def test_an_agent_that_came_over_http_is_listed_online(daemon):
    with over_http(daemon, "--agent", "HttpSeen") as client, RawClient(daemon.state, "--agent", "Looker") as other:
        client.initialize()
        other.initialize()

        def seen():
            agents = other.call("co_workers")["structuredContent"]["agents"]
            return [each["status"] for each in agents if each["agentId"] == "HttpSeen"]

        assert eventually(seen, "it is listed") == ["online"]
