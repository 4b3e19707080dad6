"""Real daemons that met over real nats-servers: one server or a cluster of three, each node with a creds file of their
operator. Everything may be killed, frozen, wiped, cut off and started again."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from living import Living, eventually, short_dir
from wires import Caller, LinkWire

from inside import CHEAP_PASSPHRASE
from nats_servers import Cluster, Routes, Server
from operator_of_nats import Operator
from patience import PATIENCE

T = TypeVar("T")
PASSPHRASE = "correct horse battery staple"
# Nothing of the user's own settings.
_OWN_SETTINGS = 'import os; os.environ["BASCULE_CONFIG_DIR"] = "/nonexistent"\n'

# All is looked at when all is over, after an hour perhaps: a settled ticket is kept for half of one by default.
_KEEPS_ALL: dict[str, Any] = {"ticket_ttl_ms": 12 * 3_600_000, "max_kept_messages": 1_000_000}


class Refused(Exception):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.data: dict[str, Any] = error.get("data") or {}


class FleetNode:
    """One daemon with one agent, `A-<name>`; it may be killed and started again in the same directory."""

    def __init__(self, folder: str, name: str, *, bug: str = "", constants: dict[str, Any] | None = None) -> None:
        self.name = name
        self.handle = f"A-{name}"
        self.state = os.path.join(folder, name)
        self.bug = _OWN_SETTINGS + bug
        self.constants = {**CHEAP_PASSPHRASE, **(constants or {})}
        self.port: int | None = None
        self.start()
        wire = LinkWire(self.daemon.link_socket).hello()
        wire.call("person.set", {"passphrase": PASSPHRASE})
        wire.close()
        self.agent_token = Caller(self.daemon).register(self.handle).token

    # -- its life --

    def start(self) -> None:
        port = {} if self.port is None else {"port": self.port}
        self.daemon = Living(self.state, bug=self.bug, constants=self.constants, log="off", **_KEEPS_ALL, **port)
        self.port = self.daemon.port

    def kill(self) -> None:
        self.daemon.process.send_signal(signal.SIGCONT)
        self.daemon.kill()

    def restart(self) -> None:
        self.kill()
        self.start()

    def freeze(self) -> None:
        self.daemon.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.daemon.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        if self.daemon.process.poll() is None:
            self.kill()

    # -- its person --

    def call(self, method: str, /, **params: Any) -> Any:
        with LinkWire(self.daemon.link_socket) as wire:
            wire.hello()
            wire.call("person.unlock", {"passphrase": PASSPHRASE})
            answer = wire.answer(wire.request(method, params))
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def status(self) -> dict[str, Any]:
        with LinkWire(self.daemon.link_socket) as wire:
            status: dict[str, Any] = wire.hello().call("mesh.status")
        return status

    def faults(self) -> str:
        """What is wrong and what to do, as `bascule mesh status` shows it."""
        return "\n".join(f"{each['what']} -> {each['remedy']}" for each in self.status().get("faults", []))

    def await_fault(self, *words: str) -> str:
        def look() -> str | None:
            faults = self.faults()
            return faults if all(word in faults for word in words) else None

        found: str = eventually(look, f"{self.name} says {words}: it says {self.faults()!r}")
        return found

    def await_well(self) -> None:
        eventually(
            lambda: (status := self.status()).get("connected") and not status.get("faults"),
            f"{self.name} is connected and well: {self.status()}",
        )

    def accept(self, node: str) -> None:
        def look() -> Any:
            nodes = self.call("mesh.nodes").get("nodes", [])
            return next((each for each in nodes if each["node"] == node and each["standing"] == "waiting"), None)

        self.call("mesh.accept", node=node, words=eventually(look, f"{node} asks")["words"])

    def reaches(self, node: str) -> bool:
        return any(each["node"] == node and each.get("reachable") for each in self.status().get("nodes", []))

    # -- its agent --

    @property
    def agent(self) -> Caller:
        return Caller(self.daemon, self.agent_token)

    def send(self, to: "FleetNode", payload: Any = "hello", **more: Any) -> str:
        return self.agent.send(f"{to.handle}@{to.name}", payload, **more)

    def ticket(self, ticket: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.agent.get(f"/tickets/{ticket}").json
        return shown

    def take(self, wait_ms: int = 0, count: int = 32) -> list[dict[str, Any]]:
        answer = self.agent.get(f"/agents/{self.handle}/inbox?waitMs={wait_ms}&max={count}")
        assert answer.status in (200, 204), answer
        messages: list[dict[str, Any]] = answer.json["messages"] if answer.status == 200 else []
        return messages

    def await_message(self, payload: Any) -> dict[str, Any]:
        found: dict[str, Any] = eventually(
            lambda: next((each for each in self.take(500) if each["payload"] == payload), None),
            f"{self.handle} gets {payload!r}",
        )
        return found

    def reply(self, ticket: str, payload: Any = "yes") -> None:
        answer = self.agent.post("/replies", {"ticketId": ticket, "payload": payload})
        assert answer.status == 204, answer

    def await_status(self, ticket: str, status: str) -> dict[str, Any]:
        found: dict[str, Any] = eventually(
            lambda: (shown := self.ticket(ticket))["status"] == status and shown, f"{ticket} is {status}"
        )
        return found


class Fleet:
    """`count` servers, and nodes that are members of one mesh. The first node holds the mesh key."""

    def __init__(self, folder: str, count: int = 1, *, store: Path | None = None) -> None:
        self.folder = Path(folder)
        self.operator = Operator()
        routes = Routes()
        self.cluster = Cluster(self.folder / "nats", count, store=store, routes=routes)
        # Between the servers; one can be cut off from the others.
        self.routes = RoutesLoop(routes)
        self.nodes: list[FleetNode] = []
        self._write()
        if store is not None:
            # They would measure the disk, and refuse the stream.
            for server in self.servers:
                server.config["jetstream"]["max_file_store"] = 2**31

    def _write(self) -> None:
        for server in self.cluster.servers:
            server.config.pop("authorization", None)
            server.config.update(self.operator.config())

    @property
    def servers(self) -> list[Server]:
        return self.cluster.servers

    def join(self, *names: str, proxies: "Proxies | None" = None, **options: Any) -> list[FleetNode]:
        made = []
        for name in names:
            node = FleetNode(str(self.folder), name, **options)
            self.nodes.append(node)
            made.append(node)
            creds = self.operator.creds(self.folder, name)
            urls = proxies.urls[name] if proxies else list(self.cluster.urls)
            where = {"servers": urls, "credsFile": creds, "node": name}
            if len(self.nodes) == 1:
                self._begin(node, where)
            else:
                asked = node.call("mesh.join", **where)
                node.call("mesh.join", words=asked["joining"]["words"])
                self.nodes[0].accept(name)
        for node in self.nodes:
            eventually(lambda node=node: node.status().get("connected"), f"{node.name} is connected")
        for node in self.nodes:
            for other in self.nodes:
                if other is not node:
                    eventually(lambda a=node, b=other: a.reaches(b.name), f"{node.name} reaches {other.name}")
        return made

    def _begin(self, node: FleetNode, where: dict[str, Any]) -> None:
        """A cluster needs a while to elect who makes the streams."""

        def begun() -> bool:
            try:
                node.call("mesh.init", mesh="team", replicas=len(self.servers), **where)
            except Refused:
                return False
            return True

        eventually(begun, "the mesh begins")

    def revoke_creds(self, node: str) -> None:
        self.operator.revoke(node)
        self._write()
        # Their resolver in memory reads its accounts at the start.
        self.start_again()

    def start_again(self) -> None:
        for server in self.servers:
            server.kill()
            server.start()

    def wipe(self) -> None:
        """All servers lose everything that they stored."""
        for server in self.servers:
            server.kill()
            server.wipe()
        for server in self.servers:
            server.start()

    def end(self) -> None:
        for node in self.nodes:
            node.close()
        self.cluster.end()
        self.routes.close()


# With three a cluster; most days are told in `make test` with one.
SERVERS = [1, pytest.param(3, marks=pytest.mark.long)]


@contextlib.contextmanager
def fleet(count: int = 1, **options: Any) -> Iterator[Fleet]:
    with short_dir() as folder:
        made = Fleet(folder, count, **options)
        try:
            made.cluster.start()
            yield made
        finally:
            made.end()


class Proxies:
    """A proxy of its own between each node and each server, so that one node's way to NATS can be cut."""

    def __init__(self, urls: tuple[str, ...], names: Sequence[str]) -> None:
        self._routes = Routes()
        self._at = {name: number for number, name in enumerate(names)}
        self.urls = {
            name: [f"nats://127.0.0.1:{self._routes.through(number, -1, int(url.rpartition(':')[2]))}" for url in urls]
            for name, number in self._at.items()
        }
        self._loop = RoutesLoop(self._routes)

    def cut(self, name: str) -> None:
        self._loop.cut(self._at[name])

    def heal(self, name: str) -> None:
        self._loop.heal(self._at[name])

    def alter(self, name: str, change: Callable[[bytes], bytes]) -> None:
        """What this node writes is changed like this before it reaches a server."""
        at = self._at[name]
        self._routes.alter = lambda index, piece: change(piece) if index == at else piece

    def close(self) -> None:
        self._loop.close()


class LoopThread:
    """An event loop in a thread of its own, for tests without one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def close(self) -> None:
        self.run(_rest_of_loop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


async def _rest_of_loop() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    if tasks:
        await asyncio.wait(tasks)


class RoutesLoop:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._loop = LoopThread()
        self._loop.run(routes.start())

    def cut(self, index: int) -> None:
        self._loop.run(self._cut(index))

    def heal(self, index: int) -> None:
        self._loop.run(self._heal(index))

    def close(self) -> None:
        self._loop.run(self._routes.close())
        self._loop.close()

    async def _cut(self, index: int) -> None:
        self._routes.cut(index)

    async def _heal(self, index: int) -> None:
        self._routes.heal(index)
