"""The two ends of an ask, for every contender: who asks (`asker`) and who answers (`receiver`).

Run as programs by `measure_ask`, one process each, so that no contender's client shares a core with its
own receiver any more than another's does. The payload is 1 KiB of text and comes back as it went out.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import uvloop

from bare_broker import Frame
from bascule import __version__, places
from bascule.protocols.link import MAX_LINK_FRAME_BYTES, PROTOCOL_VERSION
from bascule.transports.framed import FramedConnection
from processes import cpu_seconds

PAYLOAD_BYTES = 1024
PAYLOAD = "x" * PAYLOAD_BYTES
RECEIVER = "Jerry"
# Beside it on the same daemon: the one that Bascule's own Python client serves.
SERVED = "Spock"
# Nothing here takes a second; what does is stuck.
ANSWER_SECONDS = 30.0

Ask = Callable[[], Awaitable[None]]
encode = msgspec.json.Encoder().encode
# What a receiver leaves running; a task that nobody holds may be collected.
_running: list["asyncio.Future[None]"] = []


# -- frames: the bare broker and Bascule's link, by the same small client --


class Envelope(msgspec.Struct):
    id: int | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"")
    body: msgspec.Raw = msgspec.Raw(b"")
    error: Any = None


decode = msgspec.json.Decoder(Envelope).decode


class FrameClient(FramedConnection):
    """One future per request. What nobody waits for goes to `on_other`."""

    def __init__(self) -> None:
        super().__init__(max_body_bytes=MAX_LINK_FRAME_BYTES)
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Envelope]] = {}
        self._last = 0
        self.on_other: Callable[[Envelope], None] | None = None

    @classmethod
    async def connect(cls, path: str) -> "FrameClient":
        _, client = await asyncio.get_running_loop().create_unix_connection(cls, path)
        return client

    def next_id(self) -> int:
        self._last += 1
        return self._last

    def call(self, method: str, params: bytes) -> "asyncio.Future[Envelope]":
        id_ = self.next_id()
        return self.request(
            id_, b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}' % (id_, method.encode(), params)
        )

    def request(self, id_: int, body: bytes) -> "asyncio.Future[Envelope]":
        future = self._waiting[id_] = self._loop.create_future()
        self.send(body)
        return future

    def on_frame(self, body: bytes) -> None:
        envelope = decode(body)
        future = self._waiting.pop(envelope.id, None) if envelope.id is not None else None
        if future is None:
            if self.on_other is not None:
                self.on_other(envelope)
        elif envelope.error is not None:
            future.set_exception(RuntimeError(str(envelope.error)))
        else:
            future.set_result(envelope)


async def bare_asker(address: str, _name: str) -> Ask:
    client = await FrameClient.connect(address)
    body = msgspec.Raw(encode(PAYLOAD))

    async def ask() -> None:
        id_ = client.next_id()
        await client.request(id_, encode(Frame(id_, to=RECEIVER, body=body)))

    return ask


async def bare_receiver(address: str) -> None:
    client = await FrameClient.connect(address)

    def answer(request: Envelope) -> None:
        assert request.id is not None
        client.send(encode(Frame(request.id, body=request.body)))

    id_ = client.next_id()
    await client.request(id_, encode(Frame(id_, name=RECEIVER)))
    # Requests to answer carry the broker's own numbers, so nothing is a response from here on.
    client.on_other = answer


class Ticket(msgspec.Struct):
    ticketId: str  # noqa: N815 - the wire's name
    payload: msgspec.Raw = msgspec.Raw(b"")


class Item(msgspec.Struct):
    item: Ticket


decode_ticket = msgspec.json.Decoder(Ticket).decode
decode_item = msgspec.json.Decoder(Item).decode


async def _link(state: str, name: str) -> FrameClient:
    """A connection that acts as its own agent, as every client of Bascule does."""
    client = await FrameClient.connect(places.link_socket(state))
    hello = {"protocol": PROTOCOL_VERSION, "version": __version__}
    token = _stored_token(state, name)
    if token is None:
        await client.call("hello", encode(hello))
        await client.call("agents.register", encode({"agentId": name}))
        token = _stored_token(state, name)
    await client.call("hello", encode({**hello, "token": token}))
    return client


def _stored_token(state: str, name: str) -> str | None:
    try:
        return places.read_private_file(places.token_file(state, name))
    except FileNotFoundError:
        return None


async def link_asker(address: str, name: str) -> Ask:
    client = await _link(address, name)
    send = encode({"agentId": RECEIVER, "payload": PAYLOAD})

    async def ask() -> None:
        sent = await client.call("messages.send", send)
        ticket_id = decode_ticket(sent.result).ticketId
        reply = await client.call("replies.wait", encode({"ticketId": ticket_id}))
        assert len(decode_ticket(reply.result).payload) > PAYLOAD_BYTES

    return ask


async def link_receiver(address: str) -> None:
    client = await _link(address, RECEIVER)

    def answer(envelope: Envelope) -> None:
        if envelope.method == "inbox.item":
            message = decode_item(envelope.params).item
            id_ = client.next_id()
            reply = encode({"ticketId": message.ticketId, "payload": message.payload})
            client.send(b'{"jsonrpc":"2.0","id":%d,"method":"replies.post","params":%b}' % (id_, reply))

    client.on_other = answer
    await client.call("inbox.stream", encode({"agentId": RECEIVER}))


# -- Bascule's own Python client --


async def client_asker(address: str, name: str) -> Ask:
    from bascule.client import Client

    client = await Client.connect(address, name, register=True)

    async def ask() -> None:
        reply = await client.ask(SERVED, PAYLOAD)
        assert len(reply.payload) == PAYLOAD_BYTES

    return ask


async def client_receiver(address: str) -> None:
    from bascule.client import Client, serve

    @serve(SERVED, concurrency=32)
    async def echo(message) -> str:
        return message.payload

    # Known before the first ask; what is sent before it listens waits in its inbox.
    async with Client.connect(address, SERVED, register=True):
        pass
    _running.append(asyncio.ensure_future(echo.serve(state_dir=address)))


# -- NATS: nats-py on the real server --


async def _nats(address: str):
    import nats

    return await nats.connect(address)


async def nats_asker(address: str, _name: str) -> Ask:
    client = await _nats(address)
    payload = PAYLOAD.encode()

    async def ask() -> None:
        reply = await client.request(RECEIVER, payload, timeout=ANSWER_SECONDS)
        assert len(reply.data) == PAYLOAD_BYTES

    return ask


async def nats_receiver(address: str) -> None:
    client = await _nats(address)

    async def answer(message) -> None:
        await message.respond(message.data)

    await client.subscribe(RECEIVER, cb=answer)
    await client.flush()


# JetStream: message and reply are both on disk, each acknowledged to its sender, before the other side
# sees them. That is what a ticket of Bascule is; two streams and two push consumers are the nearest thing.


async def jetstream_asker(address: str, name: str) -> Ask:
    client = await _nats(address)
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
    client = await _nats(address)
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


ASKERS: dict[str, Callable[[str, str], Awaitable[Ask]]] = {
    "bare": bare_asker,
    "link": link_asker,
    "client": client_asker,
    "nats": nats_asker,
    "jetstream": jetstream_asker,
}
RECEIVERS: dict[str, Callable[[str], Awaitable[None]]] = {
    "bare": bare_receiver,
    "link": link_receiver,
    "client": client_receiver,
    "nats": nats_receiver,
    "jetstream": jetstream_receiver,
}


# -- the programs --


async def run_asker(kind: str, address: str, clients: int, seconds: float, server_pid: int) -> dict[str, float | None]:
    """Every client asks, and asks again when it has its answer, for so long."""
    asks = [await ASKERS[kind](address, f"asker-{number}") for number in range(clients)]
    times: list[float] = []

    async def one(ask: Ask, until: float) -> None:
        now = time.perf_counter()
        while now < until:
            await ask()
            after = time.perf_counter()
            times.append(after - now)
            now = after

    async def everybody(length: float) -> float:
        began = time.perf_counter()
        async with asyncio.timeout(length + ANSWER_SECONDS), asyncio.TaskGroup() as group:
            for ask in asks:
                group.create_task(one(ask, began + length))
        return time.perf_counter() - began

    # Caches, connections and branch predictors of all three processes.
    await everybody(min(0.5, seconds / 4))
    times.clear()
    before = cpu_seconds(server_pid)
    took = await everybody(seconds)
    after = cpu_seconds(server_pid)
    times.sort()
    return {
        "p50_us": times[len(times) // 2] * 1e6,
        "p99_us": times[len(times) * 99 // 100] * 1e6,
        "per_second": len(times) / took,
        "server_us": (after - before) / len(times) * 1e6 if before is not None and after is not None else None,
    }


async def run_receiver(kind: str, address: str, ready: int) -> None:
    await RECEIVERS[kind](address)
    os.write(ready, b"ready\n")
    os.close(ready)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("asker", "receiver"))
    parser.add_argument("kind", choices=tuple(ASKERS))
    parser.add_argument("address")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--server-pid", type=int, default=0)
    parser.add_argument("--ready-fd", type=int, default=0)
    args = parser.parse_args()
    if args.role == "receiver":
        uvloop.run(run_receiver(args.kind, args.address, args.ready_fd))
        return
    figures = uvloop.run(run_asker(args.kind, args.address, args.clients, args.seconds, args.server_pid))
    sys.stdout.write(json.dumps(figures))
    sys.stdout.flush()
    # Without goodbyes: closing 32 connections politely is not part of any ask.
    os._exit(0)


if __name__ == "__main__":
    main()
