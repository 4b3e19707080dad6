"""Streams and readers that are slower than the world."""

import asyncio

from acting import go

from bascule.client import Client
from bascule.client.feeds import MAX_EVENTS
from bascule.kernel.link_protocol import CREDIT_WINDOW


def test_a_reader_that_does_not_acknowledge_holds_at_most_its_credit(shared, name):
    async def main():
        async with Client.connect(shared.state_dir, name("bob"), register=True) as bob:
            for number in range(CREDIT_WINDOW + 8):
                await bob.send(name("bob"), number)
            messages = bob.messages()
            held = [await anext(messages) for _ in range(CREDIT_WINDOW)]
            assert [message.payload for message in held] == list(range(CREDIT_WINDOW))
            waiting = asyncio.ensure_future(anext(messages))
            # A whole round trip behind the last message: had the daemon sent more, it would be here.
            await bob.status()
            assert not waiting.done()
            await held[0].ack()
            assert (await waiting).payload == CREDIT_WINDOW
            await messages.aclose()

    go(main())


def test_what_a_reader_left_unacknowledged_goes_to_the_next_one_at_once(shared, name):
    async def main():
        async with (
            Client.connect(shared.state_dir, name("bob"), register=True) as bob,
            Client.connect(shared.state_dir, name("bob")) as twin,
        ):
            await bob.send(name("bob"), "hello")
            messages = bob.messages()
            assert (await anext(messages)).attempts == 1
            await messages.aclose()
            again = twin.messages()
            message = await anext(again)
            assert (message.payload, message.attempts) == ("hello", 2)
            await again.aclose()

    go(main())


def test_a_message_is_offered_again_when_its_lease_is_over(narrow, name):
    async def main():
        async with Client.connect(narrow.state_dir, name("bob"), register=True) as bob:
            await bob.send(name("bob"), "hello")
            messages = bob.messages()
            assert [(await anext(messages)).attempts for _ in range(3)] == [1, 2, 3]
            await messages.aclose()

    go(main())


def test_a_reader_of_events_that_does_not_read_is_told_what_it_missed(shared, name):
    async def main():
        async with Client.connect(shared.state_dir, name("bob"), register=True) as bob:
            events = bob.events(agent_id=name("bob"))
            reading = asyncio.ensure_future(anext(events))
            while not reading.done():
                await bob.send(name("bob"), "hello", expect_reply=False)
            # Each is sent and delivered: two events, a few hundred more than are kept.
            for _ in range(MAX_EVENTS // 2 + 100):
                sent = await bob.send(name("bob"), "hello", expect_reply=False)
                await bob.call("inbox.ack", {"agentId": name("bob"), "ticketIds": [sent.ticket_id]})
            seen = 0
            async for event in events:
                if event.event == "stream.overflow":
                    break
                seen += 1
            assert seen <= MAX_EVENTS
            assert "events were left out" in event.detail
            await events.aclose()

    go(main())
