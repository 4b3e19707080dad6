"""The blocking client: the same verbs without an event loop."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading

import pytest
from acting import go
from scripted import ScriptedServer

from bascule.admin.protocol import StatusResult
from bascule.client import ConnectionLost, NotRunning, ReplyTimeout, SyncClient, TicketCancelled, starting
from bascule.client.blocking import BlockingConnection
from bascule.client.door import link_path
from bascule.foundation.errors import Conflict, Forbidden, InvalidRequest, NotFound
from patience import PATIENCE


@pytest.fixture
def alice(shared, name):
    with SyncClient.connect(shared.state_dir, name("alice"), register=True) as client:
        yield client


@pytest.fixture
def bob(shared, name):
    with SyncClient.connect(shared.state_dir, name("bob"), register=True, type="script") as client:
        yield client


@pytest.fixture
def short_dir():
    with tempfile.TemporaryDirectory(prefix="bsc") as path:
        yield path


def first(messages):
    return next(iter(messages))


def test_a_message_is_sent_received_answered_and_waited_for(alice, bob, name):
    sent = alice.send(name("bob"), {"n": 1}, metadata={"origin": "test"}, timeout=PATIENCE)
    message = first(bob.messages())
    assert (message.payload, message.from_, message.metadata) == ({"n": 1}, name("alice"), {"origin": "test"})
    assert message.reply("yes").first
    assert alice.wait(sent.ticket_id, timeout=PATIENCE).payload == "yes"


def test_an_ask_waits_for_an_answer_from_another_thread(alice, bob, name):
    def answer():
        for message in bob.messages():
            message.reply(message.payload * 2)
            return

    thread = threading.Thread(target=answer)
    thread.start()
    assert alice.ask(name("bob"), 21, timeout=PATIENCE).payload == 42
    thread.join()


def test_wait_any_gives_the_first_reply(alice, bob, name):
    tickets = [alice.send(name("bob"), number).ticket_id for number in range(3)]
    bob.reply(tickets[1], "the middle one")
    ticket_id, reply = alice.wait_any(tickets, timeout=PATIENCE)
    assert (ticket_id, reply.payload) == (tickets[1], "the middle one")
    with pytest.raises(ReplyTimeout) as caught:
        alice.wait_any([tickets[0], tickets[2]], timeout=0.02)
    assert caught.value.ticket_ids == (tickets[0], tickets[2])


def test_timeouts_and_cancelled_tickets_are_raised_with_their_ids(alice, bob, name):
    with pytest.raises(ReplyTimeout) as caught:
        alice.ask(name("bob"), "hurry", timeout=0.02)
    assert caught.value.ticket_status == "timeout"
    sent = alice.send(name("bob"), "never mind")
    alice.cancel(sent.ticket_id)
    with pytest.raises(TicketCancelled) as caught:
        alice.wait(sent.ticket_id)
    assert caught.value.ticket_id == sent.ticket_id


def test_the_other_verbs_answer_as_their_types(alice, bob, name):
    (ticket,) = alice.broadcast("all", agent_ids=[name("bob")], conversation_id=name("c")).tickets
    assert alice.ticket(ticket.ticket_id).payload == "all"
    assert [each.ticket_id for each in alice.tickets(agent_id=name("bob"))] == [ticket.ticket_id]
    assert [each.ticket_id for each in bob.conversation(name("c")).tickets] == [ticket.ticket_id]
    assert name("bob") in [agent.agent_id for agent in alice.agents(type="script")]
    assert alice.status().principal == alice.principal == f"agent:{name('alice')}"
    first(bob.messages()).ack()
    assert alice.ticket(ticket.ticket_id).status == "delivered"


def test_a_call_answers_plain_values_or_the_type_asked_for(shared):
    with SyncClient.connect(shared.state_dir) as client:
        assert client.call("daemon.status", {})["pid"] == shared.pid
        assert client.call("daemon.status", {}, StatusResult).pid == shared.pid
        assert client.call("ledger.tail", {"limit": 1})[0]["seq"]
        with pytest.raises(NotFound, match="no method"):
            client.call("daemon.dance")


def test_a_client_can_become_an_agent_and_stays_who_it_is_when_refused(shared, bob, name):
    with SyncClient.connect(shared.state_dir) as client:
        with pytest.raises(InvalidRequest, match="only an agent"):
            client.messages()
        client.register(name("carol"))
        assert client.agent_id == name("carol")
        with pytest.raises(Conflict, match="another live connection"):
            client.register(name("bob"), exclusive=True)
        assert client.status().principal == f"agent:{name('carol')}"
        with pytest.raises(InvalidRequest, match="needs the handle"):
            SyncClient.connect(shared.state_dir, register=True)


def test_events_are_iterated_while_other_calls_go_on(alice, bob, name):
    events = alice.events(after=0, agent_id=name("bob"))
    assert next(events).agent_id == name("bob")
    ticket_ids = [alice.send(name("bob"), number).ticket_id for number in range(3)]
    sent = (event.ticket_id for event in events if event.event == "ticket.sent")
    assert list(itertools.islice(sent, 3)) == ticket_ids
    events.close()
    assert alice.status()


def test_a_closed_client_says_so(shared):
    client = SyncClient.connect(shared.state_dir)
    client.close()
    with pytest.raises(InvalidRequest, match="closed"):
        client.status()
    assert list(client.events()) == []


def test_a_restarted_daemon_is_found_again(durable, name):
    with SyncClient.connect(durable.state_dir, name("bob"), register=True, retry=PATIENCE) as bob:
        messages = bob.messages()
        sent = bob.send(name("bob"), "before")
        in_hand = next(messages)
        durable.restart(kill=True)
        bob.send(name("bob"), "after")
        assert next(messages).payload == "after"
        in_hand.reply("done")
        assert bob.wait(sent.ticket_id, timeout=PATIENCE).payload == "done"


def test_a_daemon_that_stays_away_is_reported(shared, name):
    with SyncClient.connect(shared.state_dir, name("me"), register=True, retry=0.2) as client:
        sent = client.send(name("me"), "hello")
        shared.kill()
        try:
            with pytest.raises(NotRunning, match="bascule up -d"):
                client.status()
            with pytest.raises(ReplyTimeout):
                client.wait(sent.ticket_id, timeout=0.1)
            with pytest.raises(NotRunning):
                client.send(name("me"), "again")
            with pytest.raises(NotRunning):
                SyncClient.connect(shared.state_dir)
        finally:
            shared.start()


def test_a_daemon_that_does_not_answer_is_given_up_in_time(shared):
    with SyncClient.connect(shared.state_dir) as client:
        connection = BlockingConnection(link_path(shared.state_dir))
        os.kill(shared.pid, signal.SIGSTOP)
        try:
            with pytest.raises(ConnectionLost, match="did not answer in time"):
                connection.request("hello", {"protocol": 1, "version": "0"}, dict, within=0.05)
        finally:
            os.kill(shared.pid, signal.SIGCONT)
            connection.close()
        assert client.status()


def test_an_interrupted_wait_leaves_a_client_that_works(shared, alice, bob, name):
    sent = alice.send(name("bob"), "slow")

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            alice.wait(sent.ticket_id)
    finally:
        signal.signal(signal.SIGALRM, before)
    bob.reply(sent.ticket_id, "at last")
    assert alice.wait(sent.ticket_id, timeout=PATIENCE).payload == "at last"


@pytest.mark.parametrize("bytes_", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"Content-Length: 3\r\n\r\n[1]"])
def test_what_is_no_frame_ends_the_connection(bytes_):
    def ask(state):
        bare = BlockingConnection(link_path(state))
        with pytest.raises(ConnectionLost, match="cannot read") as caught:
            bare.request("any", {}, dict)
        assert caught.value.sent
        with pytest.raises(ConnectionLost) as caught:
            bare.request("any", {}, dict)
        assert not caught.value.sent

    async def main():
        async with ScriptedServer(lambda _: bytes_).running() as server:
            await asyncio.to_thread(ask, server.state_dir)

    go(main())


def test_a_daemon_that_cannot_be_started_says_why(monkeypatch, short_dir):
    monkeypatch.setattr(starting, "JOIN_SECONDS", 0.05)
    os.chmod(short_dir, 0o755)
    with pytest.raises(NotRunning) as caught:
        SyncClient.connect(short_dir, start_daemon=True)
    assert "it could not be started" in caught.value.hint
    assert "open to other users" in caught.value.hint


def test_another_agents_inbox_stays_closed(alice, bob, name):
    with pytest.raises(Forbidden):
        alice.call("inbox.take", {"agentId": name("bob")})


def test_the_blocking_client_starts_without_an_event_loop():
    """`bascule status` imports this and asks one question."""
    program = (
        "import sys; from bascule.client import SyncClient; import bascule.client.sync;"
        "sys.exit(str([name for name in ('asyncio', 'uvloop', 'ssl', 'subprocess') if name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.stderr.strip() == "[]"


def test_the_package_knows_its_names_and_no_others():
    import bascule.client

    assert all(getattr(bascule.client, name) for name in bascule.client.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Broker'"):
        bascule.client.Broker  # noqa: B018 - the access itself is under test
