"""The daemon goes away and comes back: what is repeated, what goes on, what is unknown."""

import asyncio
import os
import subprocess
import sys
import tempfile

import pytest
from acting import answering, echo, first, go, until
from scripted import HANG_UP, SILENCE, ScriptedServer, refusal

from bascule.broker.protocol import ReplyView
from bascule.client import Client, NotRunning, OutcomeUnknown, ReplyTimeout
from bascule.foundation.errors import Conflict, NotFound, Overloaded, Unauthenticated
from patience import PATIENCE

SENT = {"result": {"ticketId": "t", "status": "pending", "waitEndpoint": "/", "agentStatus": "online"}}
ANSWERED = {"result": {"ticketId": "t", "status": "responded", "payload": "yes"}}


def test_a_waiting_ask_survives_a_killed_daemon(durable, name):
    async def main():
        async with (
            Client.connect(durable.state_dir, name("alice"), register=True, retry=PATIENCE) as alice,
            Client.connect(durable.state_dir, name("bob"), register=True, retry=PATIENCE) as bob,
            asyncio.TaskGroup() as group,
        ):
            asked = group.create_task(alice.ask(name("bob"), "still there?", timeout=PATIENCE))
            assert (await first(bob.messages())).payload == "still there?"
            await asyncio.to_thread(durable.restart, kill=True)
            async with answering(bob, echo):
                assert (await asked).payload == "still there?"

    go(main())


def test_a_send_waits_for_a_daemon_that_restarts(durable, name):
    async def main():
        async with (
            Client.connect(durable.state_dir, name("alice"), register=True, retry=PATIENCE) as alice,
            asyncio.TaskGroup() as group,
        ):
            await asyncio.to_thread(durable.kill)
            sending = group.create_task(alice.send(name("alice"), "to myself"))
            await asyncio.to_thread(durable.start)
            sent = await sending
            assert (await alice.ticket(sent.ticket_id)).payload == "to myself"

    go(main())


def test_messages_go_on_after_a_restart_and_one_in_hand_is_not_handed_out_again(durable, name):
    async def main():
        async with Client.connect(durable.state_dir, name("bob"), register=True, retry=PATIENCE) as bob:
            await bob.send(name("bob"), "first")
            messages = bob.messages()
            in_hand = await anext(messages)
            await asyncio.to_thread(durable.restart)
            await bob.send(name("bob"), "second")
            assert (await anext(messages)).payload == "second"
            await in_hand.reply("done")
            assert (await bob.ticket(in_hand.ticket_id)).status == "responded"
            await messages.aclose()

    go(main())


def test_an_idle_agent_comes_back_online_by_itself(durable, name):
    async def main():
        async with Client.connect(durable.state_dir, name("bob"), register=True, retry=PATIENCE):
            await asyncio.to_thread(durable.restart, kill=True)
            async with Client.connect(durable.state_dir, name("bob"), retry=PATIENCE) as other:

                async def refused():
                    # Only a live connection of bob's is in the way of an exclusive one.
                    try:
                        await other.call("agents.register", {"agentId": name("bob"), "exclusive": True})
                    except Conflict:
                        return True
                    return False

                await until(refused)

    go(main())


def test_an_agent_that_the_daemon_forgot_registers_again(shared, name):
    async def main():
        async with Client.connect(shared.state_dir, name("bob"), register=True, type="script") as bob:
            await asyncio.to_thread(shared.restart)
            assert (await bob.status()).principal == f"agent:{name('bob')}"
            assert name("bob") in [agent.agent_id for agent in await bob.agents(type="script")]

    go(main())


def test_a_revoked_agent_stays_out(shared, name):
    async def main():
        async with (
            Client.connect(shared.state_dir, name("bob"), register=True) as bob,
            Client.connect(shared.state_dir) as person,
        ):
            messages = bob.messages()
            await bob.send(name("bob"), "one")
            await anext(messages)
            await person.call("person.set", {"passphrase": "a long enough sentence"})
            await person.call("person.unlock", {"passphrase": "a long enough sentence"})
            await person.call("agents.revoke", {"agentId": name("bob")})
            with pytest.raises(Unauthenticated, match="wrong token"):
                await anext(messages)
            with pytest.raises(Unauthenticated, match="wrong token"):
                await bob.status()

    go(main())


def test_events_go_on_after_a_restart_and_say_so(durable, name):
    async def main():
        async with Client.connect(durable.state_dir, name("bob"), register=True, retry=PATIENCE) as bob:
            events = bob.events(after=0, agent_id=name("bob"))
            assert (await anext(events)).agent_id == name("bob")
            await asyncio.to_thread(durable.restart)
            await bob.send(name("bob"), "hello", ticket_id=name("after"))
            seen = [event async for event in until_event(events, "ticket.sent")]
            assert "stream.restarted" in [event.event for event in seen]
            assert seen[-1].ticket_id == name("after")

    async def until_event(events, last):
        async for event in events:
            yield event
            if event.event == last:
                await events.aclose()

    go(main())


def test_nobody_listening_says_how_to_start_the_daemon(tmp_path):
    async def main():
        with pytest.raises(NotRunning, match="bascule up -d"):
            await Client.connect(str(tmp_path))

    go(main())


def test_a_program_may_start_the_daemon():
    async def main(state):
        async with Client.connect(state, start_daemon=True) as client:
            status = await client.status()
            assert status.state_dir == state
        stopped = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bascule.cli.start", "down", "--state-dir", state), stdout=subprocess.DEVNULL
        )
        assert await stopped.wait() == 0

    # pytest's own directories are too long for a unix socket.
    with tempfile.TemporaryDirectory(prefix="bsc") as directory:
        go(main(os.path.join(directory, "s")))


# -- with a server that does what it is told --


def scripted(script, main, **settings):
    async def connected():
        async with (
            ScriptedServer(script).running() as server,
            Client.connect(server.state_dir, **settings) as client,
        ):
            await main(server, client)

    go(connected())


def test_a_send_that_lost_its_answer_is_repeated_word_for_word():
    answers = iter([HANG_UP, HANG_UP, SENT])

    async def main(server, client):
        assert (await client.send("bob", "hello")).ticket_id == "t"
        sends = server.params("messages.send")
        assert len(sends) == 3
        assert sends[0] == sends[1] == sends[2]
        assert sends[0]["ticketId"]

    scripted(lambda _: next(answers), main)


def test_a_reply_that_lost_its_answer_is_repeated_word_for_word():
    answers = iter([HANG_UP, {"result": {"ticketId": "t", "status": "responded", "first": True}}])

    async def main(server, client):
        assert (await client.reply("t", "yes")).first
        replies = server.params("replies.post")
        assert len(replies) == 2
        assert replies[0] == replies[1]

    scripted(lambda _: next(answers), main)


def test_a_send_that_is_never_answered_is_unknown_and_names_its_ticket():
    async def main(server, client):
        with pytest.raises(OutcomeUnknown) as caught:
            await client.send("bob", "hello", ticket_id="t")
        assert caught.value.details == {"method": "messages.send", "ticketId": "t"}
        assert "ticket('t')" in caught.value.hint

    scripted(lambda _: HANG_UP, main, retry=0.2)


def test_a_send_to_a_daemon_that_does_not_answer_is_given_up_in_time():
    async def main(server, client):
        with pytest.raises(OutcomeUnknown):
            await client.send("bob", "hello")

        async def withdrawn():
            return [each["params"] for each in server.requests if each["method"] == "$/cancel"]

        assert await until(withdrawn)

    scripted(lambda _: SILENCE, main, retry=0.1)


def test_another_effect_that_lost_its_answer_is_not_repeated():
    async def main(server, client):
        with pytest.raises(OutcomeUnknown, match=r"tickets\.cancel"):
            await client.cancel("t")
        with pytest.raises(OutcomeUnknown, match=r"daemon\.gc"):
            await client.call("daemon.gc", {})
        assert len(server.params("tickets.cancel")) == len(server.params("daemon.gc")) == 1

    scripted(lambda _: HANG_UP, main)


def test_an_effect_on_a_connection_known_to_be_gone_is_done_on_the_next_one():
    async def main(server, client):
        await client._connection.closed()
        assert not client._connection.open
        assert await client.call("daemon.gc", {}) == {"done": 1}
        assert len(server.params("daemon.gc")) == 1

    scripted(lambda _: {"result": {"done": 1}}, main)


def test_a_read_that_lost_its_answer_is_repeated():
    answers = iter([HANG_UP, {"result": []}])

    async def main(server, client):
        assert await client.tickets() == []

    scripted(lambda _: next(answers), main)


def test_a_busy_daemon_is_asked_again_when_it_says_so():
    answers = iter([refusal("overloaded", "busy", retryAfterMs=20), refusal("unavailable", "stopping"), SENT])

    async def main(server, client):
        began = asyncio.get_running_loop().time()
        await client.send("bob", "hello")
        assert asyncio.get_running_loop().time() - began >= 0.02

    scripted(lambda _: next(answers), main)


def test_a_daemon_that_stays_busy_is_reported_as_that():
    async def main(server, client):
        with pytest.raises(Overloaded, match="inbox is full") as caught:
            await client.send("bob", "hello")
        assert caught.value.retry_after == 5.0

    scripted(lambda _: refusal("overloaded", "inbox is full", retryAfterMs=5000), main, retry=1)


def test_a_refusal_is_not_repeated():
    async def main(server, client):
        with pytest.raises(NotFound):
            await client.send("bob", "hello")
        assert len(server.params("messages.send")) == 1

    scripted(lambda _: refusal("not_found", "agent not registered"), main)


def test_a_stopping_daemon_that_ends_waits_at_once_is_not_hammered():
    async def main(server, client):
        with pytest.raises(ReplyTimeout):
            await client.wait("t", timeout=2)
        # 20, 40, 80, 160 ms and so on, a quarter more or less; a machine that is slow asks less often.
        assert 2 <= len(server.params("replies.wait")) <= 12

    scripted(lambda _: {"result": None}, main)


def test_a_wait_goes_on_while_others_hold_all_places():
    answers = iter([refusal("overloaded", "too many waits", retryAfterMs=10), HANG_UP, ANSWERED])

    async def main(server, client):
        reply = await client.wait("t", timeout=PATIENCE)
        assert isinstance(reply, ReplyView)
        assert reply.payload == "yes"

    scripted(lambda _: next(answers), main)


def test_a_daemon_that_stays_away_ends_a_wait_at_its_own_time():
    async def main():
        async with ScriptedServer(lambda _: SILENCE).running() as server:
            client = await Client.connect(server.state_dir, retry=0.1)
            client._connection.close()
        with pytest.raises(ReplyTimeout):
            await client.wait("t", timeout=0.2)
        with pytest.raises(NotRunning):
            await client.status()
        await client.close()

    go(main())


def test_a_registration_that_lost_its_answer_is_unknown_and_leaves_the_client_who_it_was():
    async def main(server, client):
        before = client.principal
        with pytest.raises(OutcomeUnknown, match="while jerry was being registered"):
            await client.register("jerry")
        assert client.principal == before

    scripted(lambda _: HANG_UP, main)


def test_a_reply_under_which_the_client_was_closed_is_unknown():
    async def main(server, client):
        async def asked():
            return server.params("replies.post")

        replying = asyncio.ensure_future(client.reply("t", "yes"))
        await until(asked)
        await client.close()
        with pytest.raises(OutcomeUnknown):
            await replying

    scripted(lambda _: SILENCE, main)
