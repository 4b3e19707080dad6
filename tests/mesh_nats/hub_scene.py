"""A hub with its node, and posts to it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from bascule.mesh.cards import Keys
from bascule.mesh.machine.hub import NatsHub
from bascule.mesh.machine.login import Login
from bascule.mesh.machine.nats_post import NatsPost
from bascule.mesh.machine.set_up import set_up
from nats_servers import Recorder
from patience import PATIENCE
from ports import free_port


class Home:
    """A hub, its node and its files."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.port = port or free_port()
        self.keys = Keys.new()
        self.folder = folder / "hub"
        self.faults: list[tuple[str, BaseException]] = []
        self.hub = self.made()

    def made(self) -> NatsHub:
        return NatsHub(
            str(self.folder),
            node="home",
            bus_key=self.keys.public[2],
            listen=f"127.0.0.1:{self.port}",
            report=lambda what, error: self.faults.append((what, error)),
        )

    @property
    def servers(self) -> tuple[str, ...]:
        return (f"tls://{self.hub.own_address}",)

    def login(self, user: str, keys: Keys) -> Login:
        return Login(user, keys.bus, self.servers, self.hub.certificate_pem)

    def post(self, node: str, keys: Keys) -> NatsPost:
        return NatsPost(node, keys, self.servers, certificate=self.hub.certificate_pem)

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())


@contextlib.asynccontextmanager
async def started(folder: Path) -> AsyncIterator[Home]:
    home = Home(folder)
    try:
        await home.hub.start()
        await set_up(home.login("home", home.keys), max_bytes=home.hub.mail_bytes)
        yield home
    finally:
        await home.hub.close()
    assert home.faults == []


@contextlib.asynccontextmanager
async def opened(post: NatsPost) -> AsyncIterator[Recorder]:
    reader = Recorder()
    await post.open(reader)
    try:
        await reader.until(lambda: reader.is_open)
        yield reader
    finally:
        await post.close()


async def until(true) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 - another process sets no event
            await asyncio.sleep(0.02)
