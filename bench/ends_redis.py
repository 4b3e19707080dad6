"""Redis streams, met with redis-py and its C parser: an inbox is a stream with a consumer group.

The asker adds to the receiver's stream and reads its own with BLOCK. The receiver takes what is there in one
XREADGROUP and answers all of it in one pipeline (XADD and XACK each), which is how such a worker is written.
"""

import asyncio
import os

from redis import asyncio as redis
from redis.exceptions import ResponseError

from scene import PAYLOAD, PAYLOAD_BYTES, RECEIVER, Ask, Asker, Receiver

INBOX = f"inbox:{RECEIVER}"
GROUP = "receivers"
# Below redis-py's own socket timeout of 5 s.
BLOCK_MS = 2_000
AT_ONCE = 64
# Streams forget the old, or a long bench would measure memory.
KEPT = 10_000
_running: list["asyncio.Future[None]"] = []


def _client(address: str) -> "redis.Redis":
    return redis.Redis(unix_socket_path=address)


async def redis_asker(address: str, name: str) -> Ask:
    client = _client(address)
    # A run of its own: what an earlier one left unread is not ours.
    mine = f"replies:{name}:{os.getpid()}"
    last = b"0"

    async def ask() -> None:
        nonlocal last
        await client.xadd(INBOX, {"to": mine, "body": PAYLOAD}, maxlen=KEPT, approximate=True)
        found = None
        while not found:
            found = await client.xread({mine: last}, count=1, block=BLOCK_MS)
        [(_, [(last, fields)])] = found.items() if isinstance(found, dict) else found
        assert len(fields[b"body"]) == PAYLOAD_BYTES

    return ask


async def redis_receiver(address: str) -> None:
    client = _client(address)
    try:
        await client.xgroup_create(INBOX, GROUP, id="$", mkstream=True)
    except ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise

    async def serve() -> None:
        while True:
            found = await client.xreadgroup(GROUP, "one", {INBOX: ">"}, count=AT_ONCE, block=BLOCK_MS)
            if not found:
                continue
            [(_, messages)] = found.items() if isinstance(found, dict) else found
            pipeline = client.pipeline(transaction=False)
            for number, fields in messages:
                pipeline.xadd(fields[b"to"], {"body": fields[b"body"]}, maxlen=KEPT, approximate=True)
                pipeline.xack(INBOX, GROUP, number)
            await pipeline.execute()

    _running.append(asyncio.ensure_future(serve()))


ASKERS: dict[str, Asker] = {"redis": redis_asker}
RECEIVERS: dict[str, Receiver] = {"redis": redis_receiver}
