"""Waiting over HTTP: whoever leaves has left no waiter behind, and what could not be handed over comes again."""

import asyncio
from functools import partial

import pytest
from living import eventually
from speaking import MODES, Stream

from patience import PATIENCE

ERAS = ["modern", "session"]


def waits(daemon) -> float:
    from wires import Caller

    return Caller(daemon).gauge("bascule_waits")


def held(daemon, number: int) -> None:
    eventually(lambda: waits(daemon) == number, f"{number} waits are held", PATIENCE)


@pytest.fixture(autouse=True)
def _nobody_waits_before_and_after(daemon):
    held(daemon, 0)
    yield
    held(daemon, 0)


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_hangs_up_leaves_no_waiter_behind(daemon, agent, era):
    ann = agent("Ann")
    client = getattr(ann, era)()
    with client.begin_call("wait_for_message"):
        held(daemon, 1)
    held(daemon, 0)
    # What comes now is for the next one who asks, at once.
    ticket = ann.caller.send(ann.handle, "still here")
    assert client.call("wait_for_message", waitMs=0)["structuredContent"]["ticketId"] == ticket


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_hangs_up_while_it_asks_leaves_no_waiter_behind(daemon, agent, era):
    ann = agent("Ann")
    with getattr(ann, era)().begin_call("send_message", agentId=ann.handle, payload="x"):
        held(daemon, 1)
    held(daemon, 0)


def test_a_cancelled_call_of_a_session_leaves_no_waiter_behind(daemon, agent):
    session = agent("Ann").session()
    with session.begin_call("wait_for_message") as wire:
        held(daemon, 1)
        assert session.notify("notifications/cancelled", requestId=session.number).status == 202
        held(daemon, 0)
        with Stream(wire) as stream:
            assert stream.message()["error"]["message"] == "Request cancelled"


@pytest.mark.parametrize("mode", MODES)
def test_a_call_that_the_official_client_gives_up_leaves_no_waiter_behind(daemon, agent, mode):
    ann = agent("Ann")

    async def story():
        async with ann.official(mode) as client:
            call = asyncio.ensure_future(client.call_tool("wait_for_message", {}))
            await asyncio.to_thread(held, daemon, 1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await asyncio.to_thread(held, daemon, 0)

    asyncio.run(asyncio.wait_for(story(), PATIENCE))


@pytest.mark.parametrize("era", ERAS)
def test_a_message_is_delivered_when_the_answer_with_it_was_written(agent, era):
    ann = agent("Ann")
    ticket = ann.caller.send(ann.handle)
    assert ann.ticket(ticket)["status"] == "pending"
    assert getattr(ann, era)().call("wait_for_message")["structuredContent"]["ticketId"] == ticket
    eventually(lambda: ann.ticket(ticket)["status"] == "delivered", "it is acknowledged")


@pytest.mark.parametrize("era", ERAS)
def test_a_message_whose_receiver_left_in_that_moment_is_not_lost(daemon, agent, era):
    """The client hangs up while the message is on its way to it: many times, so that every moment is met."""
    ann = agent("Ann")
    client = getattr(ann, era)()
    for number in range(30):
        wire = client.begin_call("wait_for_message")
        held(daemon, 1)
        ticket = ann.caller.send(ann.handle, number)
        wire.close()
        # Either it was written before the client left, or it is there for the next one: never out of reach.
        eventually(partial(acknowledged_or_there, ann, client, ticket), "acknowledged, or handed over again")


def acknowledged_or_there(ann, client, ticket) -> bool:
    got = client.call("wait_for_message", waitMs=0)["structuredContent"]
    return got.get("ticketId") == ticket or ann.ticket(ticket)["status"] == "delivered"


def test_two_waiting_calls_of_one_session_get_a_message_each(daemon, agent):
    ann = agent("Ann")
    session = ann.session()
    with session.begin_call("wait_for_message") as one, session.begin_call("wait_for_message") as two:
        held(daemon, 2)
        sent = {ann.caller.send(ann.handle, number) for number in range(2)}
        got = {Stream(wire).result()["structuredContent"]["ticketId"] for wire in (one, two)}
    assert got == sent


def test_ending_a_session_ends_its_waits(daemon, agent):
    session = agent("Ann").session()
    with session.begin_call("wait_for_message"):
        held(daemon, 1)
        assert session.end().status == 200
        held(daemon, 0)
