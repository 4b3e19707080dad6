"""A polled inbox, as claude-peers and its kin have it: everybody asks the broker once a second what is new."""

import asyncio
import json
import random
from urllib.parse import urlsplit

from scene import PAYLOAD, PAYLOAD_BYTES, RECEIVER, Ask, Asker, Receiver

POLL_SECONDS = 1.0
_running: list["asyncio.Future[None]"] = []


class Door:
    """One keep-alive connection; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, address: str) -> "Door":
        place = urlsplit(address)
        return cls(*await asyncio.open_connection(place.hostname, place.port))

    async def __call__(self, path: str, body: dict[str, object]) -> list[dict[str, str]]:
        content = json.dumps(body).encode()
        self._writer.write(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(content)))
        self._writer.write(content)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        return json.loads(await self._reader.readexactly(length))


async def poll_asker(address: str, name: str) -> Ask:
    door = await Door.to(address)

    async def ask() -> None:
        # A question comes at any moment between two polls of its asker, not always right behind one.
        until_poll = random.random() * POLL_SECONDS
        await door("/send", {"from": name, "to": RECEIVER, "text": PAYLOAD})
        answers: list[dict[str, str]] = []
        while not answers:
            await asyncio.sleep(until_poll)
            until_poll = POLL_SECONDS
            answers = await door("/poll", {"id": name})
        assert len(answers[0]["text"]) == PAYLOAD_BYTES

    return ask


async def poll_receiver(address: str) -> None:
    door = await Door.to(address)

    async def serve() -> None:
        while True:
            for message in await door("/poll", {"id": RECEIVER}):
                await door("/send", {"from": RECEIVER, "to": message["from"], "text": message["text"]})
            await asyncio.sleep(POLL_SECONDS)

    _running.append(asyncio.ensure_future(serve()))


ASKERS: dict[str, Asker] = {"poll": poll_asker}
RECEIVERS: dict[str, Receiver] = {"poll": poll_receiver}
