"""Two clients of one real daemon: ask, answer, wait, cancel, look."""

import asyncio
import contextlib
import os
import subprocess
import sys
from datetime import timedelta

import pytest
from acting import answering, echo, first, go

from bascule.client import Client, ReplyTimeout, TicketCancelled
from bascule.foundation import paths
from bascule.foundation.errors import Conflict, Forbidden, InvalidRequest, NotFound, Overloaded, Unauthenticated
from patience import PATIENCE


def pair(daemon, name):
    """Alice who asks and Bob who answers."""

    @contextlib.asynccontextmanager
    async def connected():
        async with (
            Client.connect(daemon.state_dir, name("alice"), register=True) as alice,
            Client.connect(daemon.state_dir, name("bob"), register=True, type="script") as bob,
        ):
            yield alice, bob

    return connected()


def test_an_ask_is_answered_with_the_reply(shared, name):
    async def main():
        async with pair(shared, name) as (alice, bob), answering(bob, echo):
            reply = await alice.ask(name("bob"), {"question": ["why", None, 1.5]}, timeout=PATIENCE)
            assert reply.payload == {"question": ["why", None, 1.5]}
            assert reply.from_ == name("bob")
            assert reply.status == "responded"
            assert reply.latency_ms is not None

    go(main())


def test_a_payload_as_deep_as_the_daemon_takes_comes_back(shared, name):
    # Params and their envelope take two of the daemon's 64 levels.
    payload = "deep"
    for _ in range(62):
        payload = [payload]

    async def main():
        async with pair(shared, name) as (alice, bob), answering(bob, echo):
            assert (await alice.ask(name("bob"), payload, timeout=PATIENCE)).payload == payload

    go(main())


def test_the_receiver_sees_who_sent_what(shared, name):
    async def main():
        async with pair(shared, name) as (alice, bob):
            sent = await alice.send(
                name("bob"), "hi", metadata={"origin": "test"}, timeout=timedelta(minutes=1), conversation_id="c"
            )
            message = await first(bob.messages())
            assert (message.ticket_id, message.from_, message.payload) == (sent.ticket_id, name("alice"), "hi")
            assert message.metadata == {"origin": "test"}
            assert message.expect_reply
            assert not message.timed_out
            assert (message.conversation_id, message.attempts) == ("c", 1)

    go(main())


def test_a_ticket_whose_time_is_over_raises_and_still_takes_a_late_reply(shared, name):
    async def main():
        async with pair(shared, name) as (alice, bob):
            with pytest.raises(ReplyTimeout) as caught:
                await alice.ask(name("bob"), "hurry", timeout=0.05)
            assert caught.value.ticket_status == "timeout"
            message = await first(bob.messages())
            assert message.timed_out
            await message.reply("sorry")
            reply = await alice.wait(caught.value.ticket_id)
            assert (reply.payload, reply.late) == ("sorry", True)

    go(main())


def test_waiting_may_end_before_the_ticket_and_be_taken_up_again(shared, name):
    async def main():
        async with pair(shared, name) as (alice, bob):
            sent = await alice.send(name("bob"), "take your time")
            with pytest.raises(ReplyTimeout) as caught:
                await alice.wait(sent.ticket_id, timeout=0.05)
            assert caught.value.ticket_status is None
            async with answering(bob, echo):
                assert (await alice.wait(sent.ticket_id, timeout=PATIENCE)).payload == "take your time"

    go(main())


def test_a_wait_of_no_time_looks_once(shared, name):
    async def main():
        async with pair(shared, name) as (alice, bob):
            sent = await alice.send(name("bob"), "now")
            with pytest.raises(ReplyTimeout):
                await alice.wait(sent.ticket_id, timeout=0)
            await (await first(bob.messages())).reply("then")
            assert (await alice.wait(sent.ticket_id, timeout=0)).payload == "then"

    go(main())


def test_a_cancelled_ticket_ends_the_wait_with_its_id(shared, name):
    async def main():
        async with pair(shared, name) as (alice, bob), asyncio.TaskGroup() as group:
            sent = await alice.send(name("bob"), "never mind")
            waiting = group.create_task(expect_cancelled(alice, sent.ticket_id))
            view = await alice.cancel(sent.ticket_id, "solved")
            assert (view.status, view.reason) == ("cancelled", "solved")
            assert await waiting == sent.ticket_id
            with pytest.raises(Conflict, match="ticket cancelled"):
                await bob.reply(sent.ticket_id, "too late")

    async def expect_cancelled(client, ticket_id):
        with pytest.raises(TicketCancelled) as caught:
            await client.wait(ticket_id, timeout=PATIENCE)
        return caught.value.ticket_id

    go(main())


def test_a_ticket_that_wants_no_reply_is_settled_by_its_acknowledgement(shared, name):
    async def main():
        async with pair(shared, name) as (alice, bob):
            sent = await alice.send(name("bob"), "fyi", expect_reply=False)
            await (await first(bob.messages())).ack()
            assert (await alice.wait(sent.ticket_id, timeout=PATIENCE)).status == "delivered"

    go(main())


def test_wait_any_gives_the_first_reply_and_withdraws_the_other_waits(narrow, name):
    """With room for three waits, any that stayed behind would be in the way of the next round."""

    async def main():
        async with pair(narrow, name) as (alice, bob):
            tickets = [(await alice.send(name("bob"), number)).ticket_id for number in range(3)]
            for ticket_id in reversed(tickets):
                async with asyncio.TaskGroup() as group:
                    waiting = group.create_task(alice.wait_any(tickets, timeout=PATIENCE))
                    group.create_task(bob.reply(ticket_id, f"to {ticket_id}"))
                answered, reply = waiting.result()
                assert (answered, reply.payload) == (ticket_id, f"to {ticket_id}")
                tickets.remove(ticket_id)
                # The daemon lets go of a withdrawn wait a moment after it has read that.
                await alice.status()

    go(main())


def test_wait_any_needs_a_ticket(shared):
    async def main():
        async with Client.connect(shared.state_dir) as client:
            with pytest.raises(InvalidRequest, match="no tickets"):
                await client.wait_any([])
            with pytest.raises(NotFound, match="unknown ticket"):
                await client.wait_any(["nobody-sent-this"], timeout=PATIENCE)

    go(main())


def test_cancelling_a_wait_releases_the_waiter_in_the_daemon(narrow, name):
    async def main():
        async with pair(narrow, name) as (alice, bob):
            sent = await alice.send(name("bob"), "hello")
            for _ in range(4):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await alice.wait(sent.ticket_id)
                # The daemon lets go of a withdrawn wait a moment after it has read that.
                await alice.status()
            async with answering(bob, echo):
                assert (await alice.wait(sent.ticket_id, timeout=PATIENCE)).payload == "hello"

    go(main())


HOLDS_WAITS = """
import sys
from bascule.client import SyncClient
from bascule.client.steps import Request
client = SyncClient.connect(sys.argv[1], sys.argv[2])
for _ in range(3):
    client._connection._start(Request("replies.wait", {"ticketId": sys.argv[3], "waitMs": 60000}, dict))
client.status()
print("waiting", flush=True)
sys.stdin.read()
"""


def test_a_killed_client_releases_its_waiters(narrow, name):
    async def main():
        async with pair(narrow, name) as (alice, bob):
            sent = await alice.send(name("bob"), "hello")
            command = [sys.executable, "-c", HOLDS_WAITS, narrow.state_dir, name("alice"), sent.ticket_id]
            other = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert await other.stdout.readline() == b"waiting\n"
            with pytest.raises(Overloaded, match="holds 3 waits"):
                await alice._connection.request("replies.wait", {"ticketId": sent.ticket_id}, object)
            other.kill()
            await other.wait()
            async with answering(bob, echo):
                assert (await alice.wait(sent.ticket_id, timeout=PATIENCE)).payload == "hello"

    go(main())


def test_a_message_with_the_same_ticket_id_is_the_same_message(shared, name):
    async def main():
        async with pair(shared, name) as (alice, bob):
            ticket_id = name("ticket")
            for _ in range(3):
                assert (await alice.send(name("bob"), "once", ticket_id=ticket_id)).ticket_id == ticket_id
            assert (await bob.call("inbox.take", {"agentId": name("bob"), "max": 10, "waitMs": 0}))["messages"]
            assert await bob.call("inbox.take", {"agentId": name("bob"), "max": 10, "waitMs": 0}) is None
            with pytest.raises(Conflict, match="stands for another message"):
                await alice.send(name("bob"), "twice", ticket_id=ticket_id)

    go(main())


def test_an_unknown_agent_is_refused_with_who_is_online(shared, name):
    async def main():
        async with Client.connect(shared.state_dir, name("alice"), register=True) as alice:
            with pytest.raises(NotFound, match="agent not registered") as caught:
                await alice.send(name("nobody"), "hello?")
            assert caught.value.details == {"agentId": name("nobody")}
            assert "online now" in caught.value.hint

    go(main())


def test_a_message_to_an_offline_agent_is_queued_unless_it_must_be_online(shared, name):
    async def main():
        async with pair(shared, name) as (alice, bob):
            await bob.close()
            while (await alice.send(name("bob"), "anybody?")).agent_status != "offline":
                pass
            with pytest.raises(NotFound):
                await alice.send(name("bob"), "now!", require_online=True)

    go(main())


def test_a_broadcast_makes_one_ticket_each_and_says_who_failed(shared, name):
    async def main():
        async with pair(shared, name) as (alice, bob), answering(bob, echo):
            result = await alice.broadcast("all hands", agent_ids=[name("bob"), name("nobody")], timeout=PATIENCE)
            (ticket,) = result.tickets
            assert (await alice.wait(ticket.ticket_id)).payload == "all hands"
            assert [failure.agent_id for failure in result.failed] == [name("nobody")]

    go(main())


def test_agents_tickets_and_conversations_are_shown_as_their_types(shared, name):
    async def main():
        async with pair(shared, name) as (alice, bob):
            conversation = name("talk")
            sent = await alice.send(name("bob"), "hi", conversation_id=conversation)
            assert name("bob") in [agent.agent_id for agent in await alice.agents(type="script", status="online")]
            (listed,) = await alice.tickets(status="pending", agent_id=name("bob"), limit=5)
            assert listed.ticket_id == sent.ticket_id
            assert (await alice.ticket(sent.ticket_id)).payload == "hi"
            shown = await bob.conversation(conversation)
            assert [ticket.ticket_id for ticket in shown.tickets] == [sent.ticket_id]
            assert (await alice.status()).principal == f"agent:{name('alice')}"
            with pytest.raises(InvalidRequest, match="not one of pending"):
                await alice.tickets(status="done")

    go(main())


def test_any_method_can_be_called_by_name(shared):
    async def main():
        async with Client.connect(shared.state_dir) as client:
            assert (await client.call("daemon.status"))["pid"] == shared.pid
            with pytest.raises(NotFound, match=r"no method 'daemon\.dance'"):
                await client.call("daemon.dance", {})
            with pytest.raises(InvalidRequest, match="stream"):
                await client.call("events.stream", {})
            with pytest.raises(InvalidRequest):
                await client.call("tickets.list", {"limit": 0})

    go(main())


def test_a_handle_is_used_by_its_stored_token(shared, name):
    async def main():
        async with Client.connect(shared.state_dir, name("jerry"), register=True):
            pass
        async with Client.connect(shared.state_dir, name("jerry")) as jerry:
            assert jerry.principal == f"agent:{name('jerry')}"
            assert jerry.agent_id == name("jerry")

    go(main())


def test_a_handle_without_a_stored_token_says_how_to_get_one(shared, name):
    async def main():
        with pytest.raises(Unauthenticated, match="there is no token") as caught:
            await Client.connect(shared.state_dir, name("jerry"))
        assert "register=True" in caught.value.hint
        with pytest.raises(InvalidRequest, match="not a handle"):
            await Client.connect(shared.state_dir, "../../etc/passwd")
        with pytest.raises(InvalidRequest, match="needs the handle"):
            await Client.connect(shared.state_dir, register=True)

    go(main())


def test_a_token_that_others_can_read_is_not_used(shared, name):
    async def main():
        async with Client.connect(shared.state_dir, name("jerry"), register=True):
            pass
        os.chmod(paths.token_file(shared.state_dir, name("jerry")), 0o644)
        with pytest.raises(Unauthenticated, match="chmod go="):
            await Client.connect(shared.state_dir, name("jerry"))

    go(main())


def test_a_wrong_token_is_refused_and_never_a_lesser_identity(shared, name):
    async def main():
        with pytest.raises(Unauthenticated, match="wrong token"):
            await Client.connect(shared.state_dir, token="nobody's")
        with pytest.raises(Unauthenticated, match="wrong token"):
            await Client.connect(shared.state_dir, name("jerry"), token="nobody's", register=True)

    go(main())


def test_a_connected_client_can_become_an_agent(shared, name):
    async def main():
        async with Client.connect(shared.state_dir) as client:
            assert (client.principal, client.agent_id) == ("local", None)
            with pytest.raises(InvalidRequest, match="only an agent has an inbox"):
                client.inbox()
            result = await client.register(name("jerry"), type="script", metadata={"cwd": "/"}, heartbeat=30)
            assert not result.reconnected
            assert client.agent_id == name("jerry")
            assert (await client.register(name("jerry"))).reconnected

    go(main())


def test_a_refused_registration_leaves_the_client_who_it_was(shared, name):
    async def main():
        async with pair(shared, name) as (alice, _):
            with pytest.raises(Conflict, match="another live connection"):
                await alice.register(name("bob"), exclusive=True)
            assert alice.agent_id == name("alice")
            assert (await alice.status()).principal == f"agent:{name('alice')}"
            with pytest.raises(Forbidden):
                await alice.call("inbox.take", {"agentId": name("bob"), "waitMs": 0})

    go(main())


def test_a_closed_client_ends_its_iterations_and_says_that_it_is_closed(shared, name):
    async def main():
        async with pair(shared, name) as (alice, _), asyncio.TaskGroup() as group:
            reading = group.create_task(all_of(alice.messages()))
            await alice.status()
            await alice.close()
            assert await reading == []
            with pytest.raises(InvalidRequest, match="closed"):
                await alice.status()

    async def all_of(messages):
        return [message async for message in messages]

    go(main())
