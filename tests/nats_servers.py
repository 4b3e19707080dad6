"""Real nats-servers on loopback ports for a test: one, or a cluster, to be killed, frozen, wiped and cut apart."""

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bascule.mesh.cards import Keys
from bascule.mesh.machine import hub_config
from bascule.mesh.machine.login import Login
from bascule.mesh.machine.set_up import set_up
from bascule.mesh.ports import Board
from patience import PATIENCE
from ports import free_port

SERVER = Path(sys.executable).with_name("nats-server")
AUTHORITY = "hub"
RELOADED = b"Reloaded server configuration"


class Server:
    """One process, or none while it is dead."""

    def __init__(self, folder: Path, config: dict[str, Any], port: int) -> None:
        self.folder = folder
        self.port = port
        self.url = f"nats://127.0.0.1:{port}"
        self.config = config
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "log"

    def start(self) -> None:
        assert self.process is None
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "conf").write_text(json.dumps(self.config))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [SERVER, "-c", self.folder / "conf"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.wait()

    def wait(self) -> None:
        """Until it listens."""
        end = time.monotonic() + PATIENCE
        while True:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.02)

    def reload(self) -> None:
        """In force when it returns. Who logs in while the server reloads is refused, whatever its key."""
        (self.folder / "conf").write_text(json.dumps(self.config))
        before = self.log.read_bytes().count(RELOADED)
        self.signal(signal.SIGHUP)
        end = time.monotonic() + PATIENCE
        while self.log.read_bytes().count(RELOADED) == before:
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.005)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def wipe(self) -> None:
        """Everything that it stored; it must be dead."""
        assert self.process is None
        shutil.rmtree(self.config["jetstream"]["store_dir"], ignore_errors=True)


class Cluster:
    """`count` servers that are one, and nodes that may log in there."""

    def __init__(
        self, folder: Path, count: int = 1, *, store: Path | None = None, routes: "Routes | None" = None
    ) -> None:
        self.keys: dict[str, Keys] = {}
        self.invited: list[str] = []
        ports = [free_port() for _ in range(count)]
        route_ports = [free_port() for _ in range(count)]
        self.servers = []
        for index, port in enumerate(ports):
            place = folder / f"server{index}"
            config: dict[str, Any] = {
                "host": "127.0.0.1",
                "port": port,
                "server_name": f"server{index}",
                "max_payload": hub_config.MAX_PAYLOAD,
                "jetstream": {"store_dir": str((store / place.name if store else place) / "jetstream")},
            }
            if count > 1:
                config["cluster"] = {
                    "name": "test",
                    "host": "127.0.0.1",
                    "port": route_ports[index],
                    "routes": [
                        f"nats://127.0.0.1:{routes.through(index, other, each) if routes else each}"
                        for other, each in enumerate(route_ports)
                        if other != index
                    ],
                    # One connection between two servers, so that cutting it cuts everything.
                    "pool_size": -1,
                    "no_advertise": True,
                }
            self.servers.append(Server(place, config, port))
        self.node(AUTHORITY)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(server.url for server in self.servers)

    def node(self, name: str) -> Keys:
        """May log in, from the next start or reload on."""
        if name not in self.keys:
            self.keys[name] = Keys.new()
            self._write()
        return self.keys[name]

    def revoke(self, name: str) -> None:
        del self.keys[name]
        self.reload()

    def reload(self) -> None:
        self._write()
        for server in self.servers:
            if server.process is not None:
                server.reload()

    def _write(self) -> None:
        users = hub_config.users(AUTHORITY, {name: keys.public[2] for name, keys in self.keys.items()}, self.invited)
        for server in self.servers:
            server.config["authorization"] = {"users": users}

    def login(self, name: str) -> Login:
        return Login(name, self.keys[name].bus, self.urls)

    def start(self) -> None:
        for server in self.servers:
            server.start()

    async def set_up(self, **options: Any) -> None:
        """Streams and boards; a cluster needs a while to elect who makes them."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return await set_up(self.login(AUTHORITY), replicas=len(self.servers), **options)
            except Exception:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.2)

    def end(self) -> None:
        for server in self.servers:
            server.kill()


@contextlib.contextmanager
def cluster(folder: Path, count: int = 1, **options: Any) -> Iterator[Cluster]:
    made = Cluster(folder, count, **options)
    try:
        made.start()
        yield made
    finally:
        made.end()


class Routes:
    """Stands between the servers of a cluster, and can cut one of them off from the others."""

    def __init__(self) -> None:
        self._cut: set[int] = set()
        self._open: dict[tuple[int, int], set[asyncio.StreamWriter]] = {}
        self._wanted: list[tuple[int, int, int, int]] = []
        self._servers: list[asyncio.Server] = []
        self._is_closed = False
        # Of what `index` says to `other`; whoever stands in between can change it.
        self.alter: Callable[[int, bytes], bytes] = lambda _index, piece: piece

    def through(self, index: int, other: int, port: int) -> int:
        """The port by which server `index` reaches `other`."""
        ours = free_port()
        self._wanted.append((index, other, ours, port))
        return ours

    async def start(self) -> None:
        for index, other, ours, port in self._wanted:
            self._servers.append(await asyncio.start_server(self._link(index, other, port), "127.0.0.1", ours))

    def cut(self, index: int) -> None:
        self._cut.add(index)
        for ends, writers in self._open.items():
            if index in ends:
                for writer in list(writers):
                    writer.transport.abort()

    def heal(self, index: int) -> None:
        self._cut.discard(index)

    async def close(self) -> None:
        self._is_closed = True
        for server in self._servers:
            server.close()
        for writers in self._open.values():
            for writer in list(writers):
                writer.transport.abort()

    def _link(self, index: int, other: int, port: int) -> Any:
        writers = self._open.setdefault((index, other), set())

        async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, changing: bool = False) -> None:
            with contextlib.suppress(OSError):
                while piece := await reader.read(65_536):
                    writer.write(self.alter(index, piece) if changing else piece)
                    await writer.drain()
            writer.close()

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self._cut & {index, other}:
                writer.transport.abort()
                return
            try:
                there = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                writer.transport.abort()
                return
            both = {writer, there[1]}
            writers.update(both)
            if self._is_closed:
                # Meanwhile: nobody would end it any more.
                for each in both:
                    each.transport.abort()
            try:
                await asyncio.gather(copy(reader, there[1], changing=True), copy(there[0], writer))
            finally:
                writers.difference_update(both)
                for each in both:
                    each.transport.abort()

        return accepted


class Recorder:
    """A `Reader` that keeps what it gets; its cursor is the last letter that it read."""

    def __init__(self) -> None:
        self.mailbox = ""
        self.is_open = False
        self.openings = 0
        self.cursors: dict[str, int] = {}
        self.live_letters: list[tuple[str, bytes]] = []
        self.mail: list[tuple[str, bytes, int]] = []
        self.boards: dict[tuple[Board, str], tuple[bytes | None, int]] = {}
        self._changed = asyncio.Event()

    def opened(self, mailbox: str) -> int:
        self.mailbox, self.is_open = mailbox, True
        self.openings += 1
        self._changed.set()
        return self.cursors.get(mailbox, 0)

    def closed(self) -> None:
        self.is_open = False
        self._changed.set()

    def live(self, src: str, data: bytes) -> None:
        self.live_letters.append((src, data))
        self._changed.set()

    def mailed(self, src: str, data: bytes, number: int) -> None:
        self.mail.append((src, data, number))
        self.cursors[self.mailbox] = number
        self._changed.set()

    def posted(self, board: Board, key: str, value: bytes | None, age_ms: int) -> None:
        self.boards[board, key] = (value, age_ms)
        self._changed.set()

    async def until(self, true: Callable[[], object]) -> None:
        """Until that is so; it is asked whenever something came."""
        async with asyncio.timeout(PATIENCE):
            while not true():
                self._changed.clear()
                # What is asked may also be the state of the post, which changes without a word.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await self._changed.wait()
