"""Server-sent events and long polls: one end each, nothing eaten by the dead, nothing held for the gone."""

import json
import socket
import struct
import threading

import pytest
from living import Living, eventually, short_dir
from wires import Caller, LinkWire, Wire, request

from bascule.kernel.link_protocol import CREDIT_WINDOW


@pytest.fixture(scope="module")
def local(daemon) -> Caller:
    return Caller(daemon)


@pytest.fixture
def agent(local, request) -> tuple[str, Caller]:
    """An agent of this test alone: its handle, and whoever acts as it."""
    handle = f"agent-{abs(hash(request.node.nodeid)) % 10**9}"
    return handle, local.register(handle)


@pytest.fixture(autouse=True)
def _nobody_waits(local):
    """What the test before left open has been let go."""
    eventually(lambda: waits(local) == 0, "nobody waits")


def later(act, *arguments) -> threading.Thread:
    thread = threading.Thread(target=act, args=arguments)
    thread.start()
    return thread


def waits(caller: Caller) -> float:
    return caller.gauge("bascule_waits")


# -- the reply stream -----------------------------------------------------------------------------


def test_a_reply_stream_sends_one_reply_event_and_ends(local, agent):
    handle, bot = agent
    ticket = local.send(handle)
    with local.open(f"/replies/{ticket}/stream") as events:
        thread = later(bot.post, "/replies", {"ticketId": ticket, "payload": {"answer": 42}, "metadata": {"k": "v"}})
        event = events.event()
        thread.join()
        assert event["event"] == "reply"
        view = event["data"]
        assert (view["ticketId"], view["status"], view["payload"]) == (ticket, "responded", {"answer": 42})
        assert (view["metadata"], view["from"]) == ({"k": "v"}, handle)
        assert view["latencyMs"] >= 0
        assert events.event() is None


def test_a_reply_stream_of_a_ticket_that_times_out_sends_one_timeout_event_and_ends(local, agent):
    ticket = local.send(agent[0], timeoutMs=100)
    with local.open(f"/replies/{ticket}/stream") as events:
        event = events.event()
        assert (event["event"], event["data"]) == ("timeout", {"ticketId": ticket, "status": "timeout"})
        assert events.event() is None


def test_a_reply_stream_of_a_cancelled_ticket_sends_one_cancelled_event_and_ends(local, agent):
    ticket = local.send(agent[0])
    with local.open(f"/replies/{ticket}/stream") as events:
        local.post(f"/tickets/{ticket}/cancel", {"reason": "no longer needed"})
        event = events.event()
        assert (event["event"], event["data"]["status"]) == ("cancelled", "cancelled")
        assert events.event() is None


def test_a_settled_ticket_answers_its_stream_at_once(local, agent):
    handle, bot = agent
    ticket = local.send(handle)
    assert bot.post("/replies", {"ticketId": ticket, "payload": "done"}).status == 204
    for _ in range(2):
        with local.open(f"/replies/{ticket}/stream") as events:
            assert events.event()["data"]["payload"] == "done"
            assert events.event() is None


def test_every_reader_of_a_ticket_gets_the_event(local, agent):
    handle, bot = agent
    ticket = local.send(handle)
    streams = [local.open(f"/replies/{ticket}/stream") for _ in range(5)]
    try:
        bot.post("/replies", {"ticketId": ticket, "payload": "done"})
        assert [stream.event()["data"]["payload"] for stream in streams] == ["done"] * 5
    finally:
        for stream in streams:
            stream.wire.close()


def test_lines_in_a_payload_stay_one_event(local, agent):
    handle, bot = agent
    ticket = local.send(handle)
    text = "one\ntwo\r\n\nevent: reply\ndata: {}\n\n\u2028\x85"
    bot.post("/replies", {"ticketId": ticket, "payload": text})
    with local.open(f"/replies/{ticket}/stream") as events:
        assert events.event()["data"]["payload"] == text
        assert events.event() is None


def test_somebody_elses_ticket_is_not_streamed(local, agent):
    ticket = local.send(agent[0])
    stranger = local.register(f"{agent[0]}-stranger")
    assert stranger.get(f"/replies/{ticket}/stream").status == 403


# -- events ---------------------------------------------------------------------------------------


def test_events_come_numbered_and_are_replayed_after_a_number(local, agent):
    handle, bot = agent
    ticket = local.send(handle)
    bot.post("/replies", {"ticketId": ticket, "payload": "done"})
    with local.open(f"/events?after=0&agentId={handle}") as events:
        seen = [events.event() for _ in range(4)]
    assert [event["event"] for event in seen] == [
        "agent.online", "agent.registered", "ticket.sent", "ticket.responded",
    ]  # fmt: skip
    numbers = [int(event["id"]) for event in seen]
    assert numbers == sorted(set(numbers)) == [event["data"]["id"] for event in seen]
    with local.open(f"/events?after={numbers[1]}&agentId={handle}") as events:
        assert [events.event()["id"] for _ in range(2)] == [event["id"] for event in seen[2:]]


def test_without_a_number_only_what_happens_from_now_on_comes(local, agent):
    handle, _ = agent
    local.send(handle)
    with local.open(f"/events?agentId={handle}") as events:
        assert events.block() == ": open"
        ticket = local.send(handle)
        event = events.event()
    assert (event["event"], event["data"]["ticketId"]) == ("ticket.sent", ticket)


def test_a_filter_lets_only_one_agents_events_through(local, agent):
    handle, bot = agent
    other = local.register(f"{handle}-other")
    with local.open(f"/events?agentId={handle}") as events:
        events.block()
        local.send(f"{handle}-other")
        mine = local.send(handle)
        # What it sends is its own too.
        sent = bot.send(f"{handle}-other")
        assert [events.event()["data"]["ticketId"] for _ in range(2)] == [mine, sent]
    assert other.token


def test_events_hold_no_payload(local, agent):
    handle, bot = agent
    secret = "the launch code is 0000"
    with local.open(f"/events?agentId={handle}") as events:
        events.block()
        ticket = local.send(handle, secret, metadata={"note": secret})
        bot.post("/replies", {"ticketId": ticket, "payload": secret})
        assert secret not in json.dumps([events.event(), events.event()])


# -- the inbox stream -----------------------------------------------------------------------------


def test_an_inbox_stream_brings_what_waits_and_what_comes(local, agent):
    handle, bot = agent
    first = local.send(handle, "first")
    with bot.open(f"/agents/{handle}/inbox/stream") as events:
        event = events.event()
        assert (event["event"], event["id"], event["data"]["payload"]) == ("message", first, "first")
        second = local.send(handle, "second")
        assert events.event()["data"]["ticketId"] == second


def test_an_inbox_stream_stops_at_its_credit_and_goes_on_with_each_acknowledgement(local, agent):
    handle, bot = agent
    tickets = [local.send(handle, number) for number in range(CREDIT_WINDOW + 3)]
    with bot.open(f"/agents/{handle}/inbox/stream") as events:
        got = [events.event()["data"]["ticketId"] for _ in range(CREDIT_WINDOW)]
        assert got == tickets[:CREDIT_WINDOW]
        # The three behind them are ready, and stay so until there is credit.
        assert local.get("/tickets/" + tickets[-1]).json.get("attempts", 0) == 0
        assert bot.post(f"/agents/{handle}/inbox/ack", {"ticketIds": got[:2]}).json["acked"] == got[:2]
        assert [events.event()["data"]["ticketId"] for _ in range(2)] == tickets[CREDIT_WINDOW : CREDIT_WINDOW + 2]
        # A reply acknowledges too.
        bot.post("/replies", {"ticketId": got[2], "payload": "done"})
        assert events.event()["data"]["ticketId"] == tickets[-1]


def test_what_a_closed_inbox_stream_did_not_acknowledge_goes_to_the_next_reader_at_once(local, agent):
    handle, bot = agent
    tickets = [local.send(handle, number) for number in range(3)]
    with bot.open(f"/agents/{handle}/inbox/stream") as events:
        assert [events.event()["data"]["ticketId"] for _ in range(3)] == tickets
        bot.post(f"/agents/{handle}/inbox/ack", {"ticketIds": tickets[:1]})
    answer = bot.get(f"/agents/{handle}/inbox?waitMs=5000&max=5").json
    assert [(message["ticketId"], message["attempts"]) for message in answer["messages"]] == [
        (tickets[1], 2), (tickets[2], 2),
    ]  # fmt: skip


def test_only_the_agent_itself_may_follow_its_inbox(local, agent):
    handle, _ = agent
    stranger = local.register(f"{handle}-stranger")
    assert local.get(f"/agents/{handle}/inbox/stream").status == 403
    assert stranger.get(f"/agents/{handle}/inbox/stream").status == 403


# -- the gone -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/replies/{ticket}/stream", "/agents/{handle}/inbox/stream"])
def test_a_reader_that_goes_away_is_let_go(local, agent, path):
    handle, bot = agent
    ticket = bot.send(handle, "to myself")
    before = waits(local)
    with bot.open(path.format(handle=handle, ticket=ticket)):
        assert waits(local) == before + 1
    assert eventually(lambda: waits(local) == before, "the waiter is released")


@pytest.mark.parametrize("path", ["/replies/{ticket}?waitMs=30000", "/agents/{handle}-silent/inbox?waitMs=30000"])
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_a_long_poll_that_goes_away_is_let_go(local, agent, path, how):
    handle, _bot = agent
    ticket = local.send(handle)
    silent = local.register(f"{handle}-silent")
    caller = silent if "silent" in path else local
    before = waits(local)
    with Wire(local.daemon.tcp) as wire:
        wire.send(request("GET", path.format(handle=handle, ticket=ticket), caller.headers))
        eventually(lambda: waits(local) == before + 1, "the poll waits")
        if how == "reset":
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert eventually(lambda: waits(local) == before, "the waiter is released")


def test_a_killed_long_poll_eats_no_message(local, agent):
    handle, bot = agent
    before = waits(local)
    polls = [Wire(local.daemon.tcp) for _ in range(3)]
    try:
        for number, wire in enumerate(polls):
            wire.send(request("GET", f"/agents/{handle}/inbox?waitMs=30000", bot.headers))
            eventually(lambda number=number: waits(local) == before + number + 1, "the poll waits")
        for wire in polls[:2]:
            wire.close()
        eventually(lambda: waits(local) == before + 1, "the dead are let go")
        ticket = local.send(handle, "for the living")
        (message,) = polls[2].answer().json["messages"]
        assert (message["ticketId"], message["attempts"]) == (ticket, 1)
    finally:
        for wire in polls:
            wire.close()


def test_a_poll_killed_the_moment_its_message_comes_loses_nothing(local, agent):
    for number in range(10):
        handle = f"{agent[0]}-{number}"
        bot = local.register(handle)
        before = waits(local)
        with Wire(local.daemon.tcp) as wire:
            wire.send(request("GET", f"/agents/{handle}/inbox?waitMs=30000", bot.headers))
            eventually(lambda before=before: waits(local) == before + 1, "the poll waits")
            thread = later(local.send, handle, "now")
        thread.join()
        # Waiting again, or out under a lease into a socket nobody reads: then the lease brings it back.
        assert bot.post(f"/agents/{handle}/heartbeat").json["unread"] == 1


def test_messages_reach_waiting_polls_in_the_order_of_their_coming(local, agent):
    handle, bot = agent
    before = waits(local)
    polls = [Wire(local.daemon.tcp) for _ in range(4)]
    try:
        for number, wire in enumerate(polls):
            wire.send(request("GET", f"/agents/{handle}/inbox?waitMs=30000", bot.headers))
            eventually(lambda number=number: waits(local) == before + number + 1, "the poll waits")
        tickets = [local.send(handle, number) for number in range(4)]
        assert [wire.answer().json["messages"][0]["ticketId"] for wire in polls] == tickets
    finally:
        for wire in polls:
            wire.close()


def test_a_long_poll_ends_with_204_when_its_time_is_over(local, agent):
    handle, bot = agent
    ticket = local.send(handle)
    bot.get(f"/agents/{handle}/inbox?waitMs=0")
    assert bot.get(f"/agents/{handle}/inbox?waitMs=50").status == 204
    answer = local.get(f"/replies/{ticket}?waitMs=50")
    assert (answer.status, answer.body) == (204, b"")


# -- limits and ends ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def narrow():
    """Two waits per principal, and a ping every fifth of a second."""
    constants = {"bascule.surfaces.http.streams.SSE_PING_SECONDS": 0.2}
    with short_dir() as folder, Living(f"{folder}/s", constants=constants, max_waits=2) as living:
        yield living


def test_a_quiet_stream_is_pinged(narrow):
    with Caller(narrow).open("/events") as events:
        assert events.block() == ": open"
        assert [events.block().startswith(":") for _ in range(2)] == [True, True]


@pytest.mark.parametrize(
    ("handle", "path"),
    [
        ("of-replies", "/replies/{ticket}/stream"),
        ("of-messages", "/agents/{handle}/inbox/stream"),
        ("of-events", "/events"),
    ],
)
def test_streams_count_against_what_one_principal_may_hold_open(narrow, handle, path):
    # bridges.broker.limits: "Long polls and streams one principal may hold open."
    local = Caller(narrow)
    bot = local.register(handle)
    ticket = bot.send(handle)
    path = path.format(handle=handle, ticket=ticket)
    with bot.open(path), bot.open(path), Wire(narrow.tcp) as third:
        third.send(request("GET", path, bot.headers))
        status, headers = third.head()
        assert status == 429
        assert int(headers["retry-after"]) >= 1


def test_a_revoked_agents_streams_and_polls_end(local, agent):
    handle, bot = agent
    with (
        LinkWire(local.daemon.link_socket) as link,
        bot.open(f"/agents/{handle}/inbox/stream") as stream,
    ):
        link.hello()
        unlock(link)
        link.call("agents.revoke", {"agentId": handle})
        local.send(handle, "not for the revoked")
        assert stream.event() is None


def test_after_a_takeover_the_old_holder_receives_nothing_more(local, agent):
    handle, bot = agent
    with (
        LinkWire(local.daemon.link_socket) as link,
        bot.open(f"/agents/{handle}/inbox/stream") as stream,
        Wire(local.daemon.tcp) as poll,
    ):
        poll.send(request("GET", f"/agents/{handle}/inbox?waitMs=3000", bot.headers))
        link.hello()
        unlock(link)
        fresh = link.call("agents.register", {"agentId": handle})["agentToken"]
        ticket = local.send(handle, "for the new holder")
        taken = Caller(local.daemon, fresh).get(f"/agents/{handle}/inbox?waitMs=1000")
        assert taken.status == 200
        assert taken.json["messages"][0]["ticketId"] == ticket
        assert stream.event() is None
        assert poll.head()[0] in (204, 401, 403)


def unlock(link: LinkWire) -> None:
    passphrase = {"passphrase": "correct horse battery"}
    if not link.call("person.status")["set"]:
        link.call("person.set", passphrase)
    link.call("person.unlock", passphrase)
