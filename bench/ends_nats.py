"""NATS, met with nats-py on the real server: core request and reply, and JetStream for what must not be lost."""

import asyncio
import os

import nats

from scene import ANSWER_SECONDS, PAYLOAD, PAYLOAD_BYTES, RECEIVER, Ask, Asker, Receiver


async def nats_asker(address: str, _name: str) -> Ask:
    client = await nats.connect(address)
    payload = PAYLOAD.encode()

    async def ask() -> None:
        reply = await client.request(RECEIVER, payload, timeout=ANSWER_SECONDS)
        assert len(reply.data) == PAYLOAD_BYTES

    return ask


async def nats_receiver(address: str) -> None:
    client = await nats.connect(address)

    async def answer(message) -> None:
        await message.respond(message.data)

    await client.subscribe(RECEIVER, cb=answer)
    await client.flush()


# JetStream: message and reply are both on disk, each acknowledged to its sender, before the other side
# sees them. That is what a ticket of Bascule is; two streams and two push consumers are the nearest thing.


async def jetstream_asker(address: str, name: str) -> Ask:
    client = await nats.connect(address)
    stream = client.jetstream()
    payload = PAYLOAD.encode()
    waiting: dict[str, asyncio.Future[bytes]] = {}
    loop = asyncio.get_running_loop()
    # Streams outlive a run: numbers must not come again.
    run = f"{os.getpid()}"
    numbers = iter(range(1 << 62))

    async def replied(message) -> None:
        future = waiting.pop(message.subject.rpartition(".")[2], None)
        if future is not None:
            future.set_result(message.data)
        await message.ack()

    await stream.subscribe(f"replies.{name}.{run}.*", cb=replied, manual_ack=True)

    async def ask() -> None:
        number = str(next(numbers))
        future = waiting[number] = loop.create_future()
        await stream.publish(f"asks.{name}.{run}.{number}", payload, timeout=ANSWER_SECONDS)
        assert len(await future) == PAYLOAD_BYTES

    return ask


async def jetstream_receiver(address: str) -> None:
    client = await nats.connect(address)
    stream = client.jetstream()
    for name in ("asks", "replies"):
        await stream.add_stream(name=name, subjects=[f"{name}.>"])

    tasks: set[asyncio.Future[None]] = set()

    async def reply(message) -> None:
        await stream.publish("replies" + message.subject.removeprefix("asks"), message.data, timeout=ANSWER_SECONDS)
        await message.ack()

    async def answer(message) -> None:
        # Without waiting for the one before, as Bascule's receiver does.
        task = asyncio.ensure_future(reply(message))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    await stream.subscribe("asks.>", cb=answer, manual_ack=True)
    await client.flush()


ASKERS: dict[str, Asker] = {"nats": nats_asker, "jetstream": jetstream_asker}
RECEIVERS: dict[str, Receiver] = {"nats": nats_receiver, "jetstream": jetstream_receiver}
