"""Both ends of an ask in frames: the bare broker, Bascule's link, and Bascule's own Python client."""

import asyncio
from collections.abc import Callable
from typing import Any, Self

import msgspec
import uvloop

from bare_broker import Frame
from bascule import __version__
from bascule.foundation import paths
from bascule.foundation.agreement import MAX_LINK_FRAME_BYTES, PROTOCOL_VERSION
from bascule.transports.framed import FramedConnection
from scene import ANSWER_SECONDS, FAR, PAYLOAD, PAYLOAD_BYTES, RECEIVER, Ask, Asker, Receiver

# Beside `RECEIVER` on the same daemon: the one that Bascule's own Python client serves.
SERVED = "Spock"
# And on the same bare broker: the one that messages are forwarded to without a ticket.
FORWARDED = "Tom"

encode = msgspec.json.Encoder().encode
# What a receiver leaves running; a task that nobody holds may be collected.
_running: list["asyncio.Future[None]"] = []


class Envelope(msgspec.Struct):
    id: int | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"")
    ticket: int | None = None
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
    async def connect(cls, path: str) -> Self:
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
        elif future.done():
            # Nobody waits any more.
            return
        elif envelope.error is not None:
            future.set_exception(RuntimeError(str(envelope.error)))
        else:
            future.set_result(envelope)


# -- the bare broker: with tickets, as Bascule asks, and as a plain forwarder --


async def bare_asker(address: str, _name: str) -> Ask:
    client = await FrameClient.connect(address)
    body = msgspec.Raw(encode(PAYLOAD))

    async def ask() -> None:
        id_ = client.next_id()
        answer = await client.request(id_, encode(Frame(id_, "ask", to=RECEIVER, body=body)))
        assert len(answer.body) > PAYLOAD_BYTES

    return ask


async def bare_receiver(address: str) -> None:
    client = await FrameClient.connect(address)

    def answer(message: Envelope) -> None:
        if message.method == "item":
            id_ = client.next_id()
            client.send(encode(Frame(id_, "reply", ticket=message.ticket, body=message.body)))

    client.on_other = answer
    id_ = client.next_id()
    await client.request(id_, encode(Frame(id_, "receive", to=RECEIVER)))


async def forward_asker(address: str, _name: str) -> Ask:
    client = await FrameClient.connect(address)
    body = msgspec.Raw(encode(PAYLOAD))

    async def ask() -> None:
        id_ = client.next_id()
        answer = await client.request(id_, encode(Frame(id_, to=FORWARDED, body=body)))
        assert len(answer.body) > PAYLOAD_BYTES

    return ask


async def forward_receiver(address: str) -> None:
    client = await FrameClient.connect(address)

    def answer(request: Envelope) -> None:
        client.send(encode(Frame(request.id, body=request.body)))

    id_ = client.next_id()
    await client.request(id_, encode(Frame(id_, "receive", to=FORWARDED)))
    # Requests to answer carry the broker's own numbers, so nothing is a response from here on.
    client.on_other = answer


# -- Bascule's link --


class Ticket(msgspec.Struct):
    ticketId: str  # noqa: N815 - the wire's name
    payload: msgspec.Raw = msgspec.Raw(b"")


class Item(msgspec.Struct):
    item: Ticket


class Answered(msgspec.Struct):
    reply: Ticket


decode_answered = msgspec.json.Decoder(Answered).decode
decode_item = msgspec.json.Decoder(Item).decode


async def link(state: str, name: str | None = None) -> FrameClient:
    """A connection that acts as its own agent, as every client of Bascule does; without a name, as the user."""
    client = await FrameClient.connect(paths.link_socket(state))
    hello = {"protocol": PROTOCOL_VERSION, "version": __version__}
    if name is None:
        await client.call("hello", encode(hello))
        return client
    token = _stored_token(state, name)
    if token is None:
        await client.call("hello", encode(hello))
        await client.call("agents.register", encode({"agentId": name}))
        token = _stored_token(state, name)
    await client.call("hello", encode({**hello, "token": token}))
    return client


def _stored_token(state: str, name: str) -> str | None:
    try:
        return paths.read_private_file(paths.token_file(state, name))
    except FileNotFoundError:
        return None


async def link_asker(address: str, name: str, target: str = RECEIVER) -> Ask:
    client = await link(address, name)
    send = encode({"agentId": target, "payload": PAYLOAD, "waitMs": int(ANSWER_SECONDS * 1000)})

    async def ask() -> None:
        answer = await client.call("messages.send", send)
        assert len(decode_answered(answer.result).reply.payload) > PAYLOAD_BYTES

    return ask


async def remote_asker(address: str, name: str) -> Ask:
    """Of an agent of another machine; that one's receiver is `link_receiver`, at its own daemon."""
    return await link_asker(address, name, f"{RECEIVER}@{FAR}")


async def link_receiver(address: str) -> None:
    client = await link(address, RECEIVER)

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


ASKERS: dict[str, Asker] = {
    "bare": bare_asker,
    "forward": forward_asker,
    "link": link_asker,
    "client": client_asker,
    "remote": remote_asker,
}
RECEIVERS: dict[str, Receiver] = {
    "bare": bare_receiver,
    "forward": forward_receiver,
    "link": link_receiver,
    "client": client_receiver,
}


def as_user(state: str, work: Callable[[FrameClient], Any]) -> Any:
    """Do something over a link connection of the user and hand back what it returns."""

    async def inside() -> Any:
        return await work(await link(state))

    return uvloop.run(inside())
