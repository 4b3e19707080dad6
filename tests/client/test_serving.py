"""Functions as agents, against a real daemon."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest
from acting import go, until

from bascule.client import Client, ReplyTimeout, SyncClient, serve
from bascule.foundation.errors import InvalidRequest
from patience import PATIENCE


@contextlib.asynccontextmanager
async def served(agent, daemon):
    """`agent` serves meanwhile; gives a client to ask it with."""
    async with Client.connect(daemon.state_dir) as client, asyncio.TaskGroup() as group:
        group.create_task(agent.serve(state_dir=daemon.state_dir))

        async def there():
            return [each for each in await client.agents(status="online") if each.agent_id == agent.agent_id]

        await until(there)
        yield client
        agent.stop()


def asked(agent, daemon, *payloads):
    async def main():
        async with served(agent, daemon) as client:
            return [await client.ask(agent.agent_id, payload, timeout=PATIENCE) for payload in payloads]

    return go(main())


def test_a_function_answers_with_what_it_returns(shared, name):
    @serve(name("upper"), type="script", metadata={"does": "upper case"})
    def upper(message):
        return message.payload.upper()

    assert [reply.payload for reply in asked(upper, shared, "one", "two")] == ["ONE", "TWO"]


def test_a_coroutine_function_runs_on_the_event_loop(shared, name):
    @serve(name("loop"))
    async def where(message):
        await asyncio.sleep(0)
        return threading.current_thread() is threading.main_thread()

    assert asked(where, shared, "where?")[0].payload is True


def test_a_decorated_function_can_still_be_called(name):
    @serve(name("double"))
    def double(message):
        return message * 2

    assert double(4) == 8


def test_an_exception_is_answered_as_a_failure_without_its_traceback(shared, name, caplog):
    @serve(name("clumsy"))
    def clumsy(message):
        raise RuntimeError("dropped " + message.payload)

    (reply,) = asked(clumsy, shared, "the vase")
    assert reply.payload == "RuntimeError: dropped the vase"
    assert reply.metadata == {"status": "failed"}
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("value", [object(), "x" * 1_100_000], ids=["no JSON", "too large"])
def test_a_value_that_cannot_be_sent_is_answered_as_a_failure(shared, name, value):
    @serve(name("odd"))
    def odd(message):
        return value

    (reply,) = asked(odd, shared, "go on")
    assert reply.metadata == {"status": "failed"}
    assert reply.payload.startswith(("TypeError: ", "TooLarge: "))


def test_none_acknowledges_and_leaves_the_reply_to_the_function(shared, name):
    @serve(name("own"))
    def own(message):
        if message.payload == "answer":
            message.reply("by myself", {"mood": "proud"})

    async def main():
        async with served(own, shared) as client:
            reply = await client.ask(own.agent_id, "answer", timeout=PATIENCE)
            assert (reply.payload, reply.metadata) == ("by myself", {"mood": "proud"})
            sent = await client.send(own.agent_id, "ignore")

            async def delivered():
                return (await client.ticket(sent.ticket_id)).status == "delivered"

            await until(delivered)

    go(main())


def test_a_message_that_wants_no_reply_is_only_acknowledged(shared, name):
    @serve(name("quiet"))
    async def quiet(message):
        return "nobody asked"

    async def main():
        async with served(quiet, shared) as client:
            sent = await client.send(quiet.agent_id, "fyi", expect_reply=False)
            reply = await client.wait(sent.ticket_id, timeout=PATIENCE)
            assert reply.status == "delivered"
            assert (await client.ticket(sent.ticket_id)).replies == []

    go(main())


def test_one_message_at_a_time_unless_more_are_asked_for(shared, name):
    working = []
    most = []

    async def work(message):
        working.append(message.ticket_id)
        most.append(len(working))
        await asyncio.sleep(0.01)
        working.remove(message.ticket_id)
        return "done"

    async def main(agent):
        most.clear()
        async with served(agent, shared) as client, asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(client.ask(agent.agent_id, number, timeout=PATIENCE))
        return max(most)

    assert go(main(serve(name("single"))(work))) == 1
    assert go(main(serve(name("triple"), concurrency=3)(work))) == 3
    with pytest.raises(InvalidRequest, match="1 to 32"):
        serve(name("many"), concurrency=33)


def test_a_ticket_that_was_cancelled_meanwhile_does_not_stop_the_agent(shared, name):
    begun = asyncio.Event()

    @serve(name("slow"))
    async def slow(message):
        begun.set()
        if message.payload == "cancel me":
            await client_of[0].cancel(message.ticket_id)
        return "done"

    client_of = []

    async def main():
        async with served(slow, shared) as client:
            client_of.append(client)
            await client.send(slow.agent_id, "cancel me")
            await begun.wait()
            assert (await client.ask(slow.agent_id, "next", timeout=PATIENCE)).payload == "done"

    go(main())


def test_a_long_function_has_its_message_acknowledged_before_the_lease_is_over(narrow, name):
    handled = []

    @serve(name("long"))
    async def long(message):
        handled.append(message.ticket_id)
        # Three leases: unacknowledged it would have been offered again by now.
        await asyncio.sleep(0.3)
        return len(handled)

    assert [reply.payload for reply in asked(long, narrow, "take your time")] == [1]


def test_an_agent_serves_on_after_the_daemon_was_killed(durable, name):
    @serve(name("steady"))
    def steady(message):
        return message.payload

    async def main():
        async with served(steady, durable) as client:
            await asyncio.to_thread(durable.restart, kill=True)
            assert (await client.ask(steady.agent_id, "again", timeout=PATIENCE)).payload == "again"

    go(main())


def test_an_agent_is_served_once_at_a_time(shared, name):
    @serve(name("lone"))
    async def lone(message):
        return "here"

    async def main():
        async with served(lone, shared):
            with pytest.raises(InvalidRequest, match="served already"):
                await lone.serve(state_dir=shared.state_dir)

    go(main())


def test_an_agent_can_be_stopped_while_the_daemon_is_away(shared, name):
    @serve(name("patient"))
    async def patient(message):
        return "here"

    async def main():
        async with served(patient, shared) as client:
            # It is listed before it is fully connected; whoever answers is.
            await client.ask(patient.agent_id, "there?", timeout=PATIENCE)
            await asyncio.to_thread(shared.kill)

    try:
        go(main())
    finally:
        shared.start()


def test_an_agent_stopped_before_it_is_connected_does_not_begin(shared, name):
    @serve(name("early"))
    async def early(message):
        return "here"

    async def main():
        serving = asyncio.ensure_future(early.serve(state_dir=shared.state_dir))
        await asyncio.sleep(0)
        early.stop()
        await serving

    go(main())


# -- as a program of its own --

PROGRAM = """
import os, sys, time
from bascule.client import serve

@serve(sys.argv[2])
def agent(message):
    print("working", flush=True)
    if message.payload == "crash" and message.attempts == 1:
        os._exit(1)
    sys.stdin.readline()
    return f"{message.payload} by {message.attempts}"

agent.run(state_dir=sys.argv[1])
"""


@contextlib.contextmanager
def program(daemon, handle):
    command = [sys.executable, "-c", PROGRAM, daemon.state_dir, handle]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        try:
            yield running
        finally:
            running.kill()


def send_once_there(client, handle, payload):
    while not any(agent.agent_id == handle for agent in client.agents(status="online")):
        pass
    return client.send(handle, payload).ticket_id


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_message_in_work_be_finished(shared, name, number):
    with SyncClient.connect(shared.state_dir) as client, program(shared, name("worker")) as running:
        ticket_id = send_once_there(client, name("worker"), "work")
        assert running.stdout.readline() == b"working\n"
        behind = client.send(name("worker"), "behind it").ticket_id
        running.send_signal(number)
        # It has the signal once it takes no more; only its end shows that from outside.
        with pytest.raises(ReplyTimeout):
            client.wait(ticket_id, timeout=0.1)
        os.write(running.stdin.fileno(), b"go on\n")
        assert client.wait(ticket_id, timeout=PATIENCE).payload == "work by 1"
        assert running.wait(PATIENCE) == 0
        assert client.ticket(behind).status == "pending"


def test_a_crash_has_the_message_offered_again_at_once(shared, name):
    with SyncClient.connect(shared.state_dir) as client:
        with program(shared, name("worker")) as running:
            ticket_id = send_once_there(client, name("worker"), "crash")
            assert running.wait(PATIENCE) == 1
        with program(shared, name("worker")) as running:
            os.write(running.stdin.fileno(), b"go on\n")
            assert client.wait(ticket_id, timeout=PATIENCE).payload == "crash by 2"


@pytest.mark.parametrize("kind", ["half a surrogate pair", "a list within itself", "too deep"])
def test_an_answer_that_cannot_be_sent_is_a_failure_told_and_the_agent_lives_on(shared, name, kind):
    endless: list[object] = []
    endless.append(endless)
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]
    answers = {"half a surrogate pair": "\udc80x", "a list within itself": endless, "too deep": deep}

    @serve(name("odd"))
    def odd(message):
        return answers.get(message.payload, "fine")

    bad, good = asked(odd, shared, kind, "anything else")
    assert (bad.metadata, good.payload) == ({"status": "failed"}, "fine")
