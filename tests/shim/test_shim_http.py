"""`bascule mcp` with BRIDGE_BROKER_URL: another Bascule at its /mcp, any broker by section 5; nothing is started.

The other Bascule is a daemon of another state directory, without tokens: those of its own files are not for TCP.
"""

import json
import os
import subprocess

import pytest
from living import Living, eventually, free_port, short_dir
from raw_client import COMMAND, RawClient
from section_five_broker import SectionFiveBroker
from wires import Caller

from bascule.programs.mcp_stdio.held_names import HeldNames
from bascule.surfaces.mcp.recent import RECENT_URI
from certificates import certificate_in
from patience import PATIENCE


@pytest.fixture(scope="module")
def daemon():
    with short_dir() as folder, Living(f"{folder}/s", auth="off", mcp="on") as living:
        yield living


def over_http(daemon, *options, scheme="http", **variables):
    elsewhere = f"{daemon.state}-elsewhere"
    os.makedirs(elsewhere, mode=0o700, exist_ok=True)
    return RawClient(elsewhere, *options, BRIDGE_BROKER_URL=f"{scheme}://127.0.0.1:{daemon.port}", **variables)


def name_of(client):
    """Asked for, because a busy daemon may take longer than the opening of the session waits."""
    client.initialize()
    called = client.call("co_workers")
    assert not called["isError"], called
    return called["structuredContent"]["you"]


def waits(daemon):
    (line,) = [
        each for each in Caller(daemon).get("/metrics").body.decode().splitlines() if each.startswith("bascule_waits ")
    ]
    return line.split()[1]


# -- another Bascule ------------------------------------------------------------------------------


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
        assert became["expiresAt"]
        assert client.call("co_workers")["structuredContent"]["you"] == "HttpRenamed"
        assert client.call("wait_for_message", waitMs=10)["structuredContent"]["status"] == "empty"


def test_two_sessions_started_alike_get_two_names_and_later_the_same_again(daemon):
    with over_http(daemon, "--agent", "HttpTwin") as one, over_http(daemon, "--agent", "HttpTwin") as two:
        assert {name_of(one), name_of(two)} == {"HttpTwin", "HttpTwin-2"}
    with over_http(daemon, "--agent", "HttpTwin") as again:
        assert name_of(again) == "HttpTwin"


def test_a_name_that_a_link_session_holds_is_taken(daemon):
    with RawClient(daemon.state, "--agent", "Held") as linked, over_http(daemon, "--agent", "Held") as client:
        assert (name_of(linked), name_of(client)) == ("Held", "Held-2")
        # The client was greeted as Held, or as Held-2: a result says which, if it was the other.
        assert client.call("list_tickets")["structuredContent"].get("you") in (None, "Held-2")


def test_a_cancelled_wait_leaves_the_next_message_to_the_next_wait(daemon):
    with over_http(daemon, "--agent", "HttpGone") as client, RawClient(daemon.state, "--agent", "Looks") as other:
        assert (name_of(client), name_of(other)) == ("HttpGone", "Looks")
        number = client.start_call("wait_for_message")
        # Each call is a connection of its own: the wait is under way when the daemon says so.
        eventually(lambda: waits(daemon) == "1", "it waits")
        client.notify("notifications/cancelled", requestId=number)
        eventually(lambda: waits(daemon) == "0", "it waits no more")
        other.call("send_message", agentId="HttpGone", payload="for later", awaitResponse=False)
        got = client.call("wait_for_message")["structuredContent"]
        assert got["payload"] == "for later"
        assert all(message.get("id") != number for message in client.aside)


def test_many_waits_are_open_at_once(daemon):
    with over_http(daemon, "--agent", "HttpMany") as client:
        client.initialize()
        waits = []
        for _ in range(20):
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

        def message_news():
            # On connections of their own, a message may overtake the stream.
            client.call("send_message", agentId="HttpNews", payload="x", awaitResponse=False)
            return client.aside

        news = eventually(message_news, "the news")[0]
        assert (news["method"], news["params"]) == ("notifications/resources/updated", {"uri": RECENT_URI})
        text = client.request("resources/read", uri=RECENT_URI)["result"]["contents"][0]["text"]
        assert "ticket.sent" in [event["event"] for event in json.loads(text)]
        assert client.request("resources/unsubscribe", uri=RECENT_URI)["result"] == {}


def test_calls_in_flight_survive_a_restart_of_the_daemon():
    with short_dir() as folder:
        port = free_port()
        with (
            Living(f"{folder}/s", port=port, auth="off", mcp="on") as before,
            over_http(before, "--agent", "One") as one,
            over_http(before, "--agent", "Two") as two,
        ):
            assert (name_of(one), name_of(two)) == ("One", "Two")
            asking = one.start_call("send_message", agentId="Two", payload="still there?")
            ticket = two.call("wait_for_message")["structuredContent"]["ticketId"]
            before.kill()
            with Living(f"{folder}/s", port=port, auth="off", mcp="on"):
                assert not two.call("post_reply", ticketId=ticket, payload="yes")["isError"]
                reply = one.answer_to(asking)["result"]["structuredContent"]
                # Under the same ticket: the message was not sent a second time.
                assert (reply["payload"], reply["ticketId"]) == ("yes", ticket)


def test_an_ask_goes_over_https_to_a_broker_whose_certificate_is_known(tmp_path):
    certificate, key = certificate_in(tmp_path)
    with (
        short_dir() as folder,
        Living(f"{folder}/s", auth="off", mcp="on", tls_cert=str(certificate), tls_key=str(key)) as broker,
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


def test_an_agent_is_online_while_its_session_runs_and_gone_when_it_ends(daemon):
    with RawClient(daemon.state, "--agent", "Looker") as other:
        other.initialize()

        def status():
            agents = other.call("co_workers")["structuredContent"]["agents"]
            return next((each["status"] for each in agents if each["agentId"] == "HttpSeen"), None)

        with over_http(daemon, "--agent", "HttpSeen") as client:
            assert name_of(client) == "HttpSeen"
            assert status() == "online"
        assert eventually(lambda: status() == "offline", "it is offline")


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


# -- any broker of section 5 ----------------------------------------------------------------------


@pytest.fixture
def broker():
    with SectionFiveBroker() as running:
        yield running


def at(broker, state, *options):
    return RawClient(state, *options, BRIDGE_BROKER_URL=f"http://127.0.0.1:{broker.port}")


def test_the_tools_of_section_six_work_with_a_broker_that_has_section_five_and_nothing_else(broker, state):
    with at(broker, state, "--agent", "Jerry") as jerry, at(broker, state, "--agent", "Tom") as tom:
        assert (name_of(jerry), name_of(tom)) == ("Jerry", "Tom")
        assert [each["agentId"] for each in tom.call("list_agents")["structuredContent"]["agents"]] == ["Jerry", "Tom"]
        asking = jerry.start_call("send_message", agentId="Tom", payload="6 x 7?")
        ticket = eventually(lambda: broker.tickets, "it was sent")[0]
        assert broker.sent[ticket]["payload"] == "6 x 7?"
        posted = tom.call("post_reply", ticketId=ticket, payload={"answer": 42})["structuredContent"]
        assert posted == {"ticketId": ticket, "status": "responded"}
        reply = jerry.answer_to(asking)["result"]["structuredContent"]
        assert (reply["status"], reply["payload"]) == ("responded", {"answer": 42})
        assert "not verified" in reply["note"]
        later = jerry.call("send_message", agentId="Tom", payload="x", awaitResponse=False)["structuredContent"]
        late = jerry.call("await_reply", ticketId=later["ticketId"], timeoutMs=20)["structuredContent"]
        assert late["status"] == "timeout"
        became = jerry.call("register_agent", agentId="Spike")["structuredContent"]
        assert (became["agentId"], became["you"], became["expiresAt"]) == ("Spike", "Spike", broker.EXPIRES_AT)
        missing = jerry.call("wait_for_message")
        assert missing["isError"]
        assert "needs Bascule" in missing["content"][0]["text"]
    # Nothing was asked that section 5 does not have, but for one look whether it is a Bascule.
    assert {path for path in broker.unknown if path != "/mcp"} == set()


def test_a_broker_that_answers_oddly_leaves_no_call_open(broker, state):
    with at(broker, state, "--agent", "Jerry") as jerry:
        assert name_of(jerry) == "Jerry"
        for odd in (7, "x", [7], {"a": 1}):
            broker.odd = odd
            for tool, arguments in (
                ("co_workers", {}),
                ("list_agents", {}),
                ("send_message", {"agentId": "Tom", "payload": "x", "timeoutMs": 1}),
                ("await_reply", {"ticketId": "t", "timeoutMs": 1}),
                ("post_reply", {"ticketId": "t", "payload": 1}),
                ("register_agent", {"agentId": "Jerry"}),
            ):
                jerry.call(tool, **arguments)


def test_an_agent_of_such_a_broker_ends_by_its_silence(broker, state):
    with at(broker, state, "--agent", "Jerry") as jerry:
        assert name_of(jerry) == "Jerry"
    assert broker.agents["Jerry"]["heartbeatIntervalMs"] == 30_000


def test_a_daemon_that_is_not_there_is_not_started(state):
    with RawClient(state, BRIDGE_BROKER_URL=f"http://127.0.0.1:{free_port()}") as client:
        assert "no broker answers at" in client.initialize()["instructions"]
        assert client.request("tools/list")["result"]["tools"]
    assert os.listdir(state) == []


@pytest.mark.parametrize("url", ["http://10.0.0.1:5050", "https://10.0.0.1:5050", "http://evil.example", "x"])
def test_only_loopback_is_spoken_to(state, url):
    done = subprocess.run(
        [*COMMAND, "--state-dir", state],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "BRIDGE_BROKER_URL": url},
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    assert b"are accepted, because tokens are sent there" in done.stderr


# -- the pieces -----------------------------------------------------------------------------------


def test_a_handle_is_held_by_one_session_at_a_time(state):
    one, two = HeldNames(state), HeldNames(state)
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
    assert HeldNames("/nonexistent/x").take("Jerry")
