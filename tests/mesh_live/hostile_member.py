"""A member of the mesh that means ill, and whoever runs its servers: both speak to NATS themselves, with real keys."""

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from fleet import Fleet, FleetNode, LoopThread
from living import eventually

from bascule.foundation import paths
from bascule.mesh.cards import Card, Keys, read_card
from bascule.mesh.envelope import Pair
from bascule.mesh.identity import Identity, identity_of
from bascule.mesh.machine import layout
from bascule.mesh.machine.bus import Bus
from bascule.mesh.machine.layout import Permissions
from bascule.mesh.machine.login import Login
from bascule.mesh.membership_records import KnownCard
from bascule.mesh.protocol import VERSION, Anchor, Body, Item, Offer
from bascule.mesh.records import Membership
from gabp import codec

# Between two looks whether the server has read what was published.
_AT_ONCE = 50


class Hand:
    """One connection to NATS as nobody's daemon makes it, on a loop of its own."""

    def __init__(self, ships: Fleet, name: str, may: Permissions | None = None) -> None:
        self.name = name
        # What came on subjects that it listens to.
        self.received: list[tuple[str, bytes]] = []
        self._loop = LoopThread()
        creds = ships.operator.creds(ships.folder, name, may)
        self._login = Login(name, Keys.new().bus, ships.cluster.urls, creds_file=creds)
        self.bus: Bus = self._loop.run(self._connect())

    async def _connect(self) -> Bus:
        return await Bus.connect(self._login, self._login.servers[0], lambda _what, _error: None)

    def publish(
        self, subject: str, *letters: bytes, reply: str = "", headers: dict[str, str] | None = None, times: int = 1
    ) -> None:
        """All of them, in this order; the server has read them when this returns."""
        self._loop.run(self._publish(subject, letters * times, reply, headers))

    async def _publish(
        self, subject: str, letters: tuple[bytes, ...], reply: str, headers: dict[str, str] | None
    ) -> None:
        for at in range(0, len(letters), _AT_ONCE):
            for letter in letters[at : at + _AT_ONCE]:
                assert self.bus.publish(subject, letter, reply, headers)
            assert await self.bus.answers()

    def ask(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> Any:
        """What the server answers; `BusFault` if it does not let us. Once it is stored, of what is stored."""
        return json.loads(self._loop.run(self._ask(subject, data, headers)))

    async def _ask(self, subject: str, data: bytes, headers: dict[str, str] | None) -> bytes:
        if headers is None:
            return await self.bus.request(subject, data)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        inbox = f"{self.bus.inbox}.{time.monotonic_ns()}"
        self.bus.subscribe(inbox, lambda message: answer.done() or answer.set_result(message.data))
        assert self.bus.publish(subject, data, inbox, headers)
        return await answer

    def api(self, name: str, body: Any = None) -> Any:
        return self.ask(f"{layout.API}.{name}", b"" if body is None else codec.encode(body))

    def listen(self, subject: str) -> None:
        async def listen() -> None:
            self.bus.subscribe(subject, lambda message: self.received.append((message.subject, message.data)))
            assert await self.bus.answers()

        self._loop.run(listen())

    def close(self) -> None:
        async def close() -> None:
            self.bus.close()

        self._loop.run(close())
        self._loop.close()


class Operator(Hand):
    """May do everything at the servers, and has no key of a node."""

    def in_mailbox(self, dest: str, src: str) -> int:
        subject = layout.mail(dest, src)
        info = self.api(f"STREAM.INFO.{layout.STREAM}", {"subjects_filter": subject})
        count: int = (info["state"].get("subjects") or {}).get(subject, 0)
        return count

    def update_mail(self, servers: int, **more: Any) -> None:
        """Of the stream of letters; without more as the mesh wants it."""
        config = layout.streams(servers, layout.DEFAULT_MAX_BYTES)[0]
        assert "error" not in self.api(f"STREAM.UPDATE.{layout.STREAM}", {**config, **more})


class EvilMember(Hand):
    """Has what a stopped daemon has on its disk: keys that everybody believes, and what every node may do at NATS."""

    def __init__(self, ships: Fleet, node: FleetNode, database: str | None = None) -> None:
        """`database`: a copy of it, and not the one of the node itself."""
        node.daemon.stop()
        super().__init__(ships, node.name, layout.node_permissions(node.name))
        own, known = membership_in(database or paths.database_file(node.state))
        self._identity: Identity = identity_of(own)
        self.cards: dict[str, Card] = {
            name: read_card(own.mesh_key, own.mesh, row.signed) for name, row in known.items() if name[0] != "_"
        }
        # As its daemon said it last: with an earlier one its letters would say that it was restored from a backup.
        self._started = int(time.time() * 1_000)
        self._pairs: dict[str, Pair] = {}

    def letter(self, to: str, *items: Item) -> bytes:
        if to not in self._pairs:
            self._pairs[to] = self._identity.pair_with(self.cards[to])
        body = Body(v=VERSION, started=self._started, anchor=Anchor(1, "0" * 64), items=list(items))  # type: ignore[arg-type] # any of them
        return self._pairs[to].seal(codec.encode(body))

    def offer(self, to: FleetNode, ticket: str, payload: Any = "evil", **more: Any) -> Offer:
        given: dict[str, Any] = {
            "id": f"i-{ticket}",
            "ticket": ticket,
            "sender": "Mallory",
            "target": to.handle,
            "payload": msgspec.Raw(codec.encode(payload)),
            "left_ms": 3_600_000,
            "use_by": int(time.time() * 1_000) + 3_600_000,
            **more,
        }
        return Offer(**given)

    def say(self, to: FleetNode, *items: Item, mail: bool = False) -> None:
        subject = (layout.mail if mail else layout.live)(to.name, self.name)
        self.publish(subject, self.letter(to.name, *items))

    def have_delivered(self, subject: str) -> None:
        """All that is in its mailbox, there, by the server itself: it brings what is pulled to any subject."""
        own = f"{layout.STREAM}.{self.name}"
        self.api(f"CONSUMER.DELETE.{own}")
        wanted = layout.consumer(layout.STREAM, self.name, layout.mail(self.name, "*"), 1)
        assert "error" not in self.api(f"CONSUMER.CREATE.{own}.{layout.mail(self.name, '*')}", wanted)
        self.publish(
            f"{layout.API}.CONSUMER.MSG.NEXT.{own}", codec.encode({"batch": 10_000, "no_wait": True}), reply=subject
        )


def membership_in(database: str) -> tuple[Membership, dict[str, KnownCard]]:
    """The place of a node in its mesh with all its keys, and the cards that it knows."""
    with contextlib.closing(sqlite3.connect(database)) as store:
        return _rows(store, "mesh_membership", Membership)["self"], _rows(store, "mesh_cards", KnownCard)


def _rows(store: sqlite3.Connection, table: str, type_: type[Any]) -> dict[str, Any]:
    decode = codec.stored(type_)
    return {key: decode(body) for key, body in store.execute(f"SELECT key, body FROM {table}")}


# -- what is seen at an honest node --


def refused(node: FleetNode, src: str) -> int:
    """Letters under this name that came and did not count, by its log."""
    lines = (json.loads(line) for line in node.daemon.log().splitlines() if "mesh_letter_refused" in line)
    return sum(line["node"] == src for line in lines)


def takes(node: FleetNode, *payloads: Any, meanwhile: Callable[[], object] = lambda: None) -> list[dict[str, Any]]:
    """Everything that its agent is handed until it has all of these; acknowledged, or it came again after a restart."""
    got: list[dict[str, Any]] = []

    def look() -> bool:
        meanwhile()
        got.extend(taken := node.take(200))
        if taken:
            ids = [each["ticketId"] for each in taken]
            acked = node.agent.post(f"/agents/{node.handle}/inbox/ack", {"ticketIds": ids})
            assert acked.status in (200, 204), acked
        return set(payloads) <= {each["payload"] for each in got}

    eventually(look, f"{node.handle} gets {payloads}")
    return got


def taken(node: FleetNode, payload: Any) -> str:
    """Its ticket there."""
    ticket: str = next(each["ticketId"] for each in takes(node, payload) if each["payload"] == payload)
    return ticket


@contextlib.contextmanager
def guard_off(node: FleetNode, bug: str) -> Iterator[None]:
    """For a control: its daemon without one of its guards."""
    right = node.bug
    _begin_again(node, right + bug)
    try:
        eventually(lambda: node.status().get("connected"), f"{node.name} is there")
        yield
    finally:
        _begin_again(node, right)


def _begin_again(node: FleetNode, bug: str) -> None:
    """Stopped in order: after a kill letters are read again, which another daemon may take for others."""
    if node.daemon.process.poll() is None:
        node.daemon.stop()
    node.bug = bug
    node.start()
