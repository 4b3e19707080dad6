"""Stories on the loop that the daemon uses, with posts that are open and closed again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import uvloop

from bascule.mesh.machine.nats_post import NatsPost
from nats_servers import Cluster, Recorder
from patience import PATIENCE


def run(story: Callable[[], Awaitable[None]], seconds: float = 1.8 * PATIENCE) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await story()

    uvloop.run(bounded())


@contextlib.asynccontextmanager
async def posts(servers: Cluster, *names: str) -> AsyncIterator[list[tuple[NatsPost, Recorder]]]:
    """Open ones, each with its reader."""
    made = [(NatsPost(name, servers.node(name), servers.urls), Recorder()) for name in names]
    servers.reload()
    try:
        for post, reader in made:
            await post.open(reader)
        for _, reader in made:
            await reader.until(lambda reader=reader: reader.is_open)
        yield made
    finally:
        for post, _ in made:
            await post.close()
