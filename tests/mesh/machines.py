"""Several machines in one process: real brokers, gates and ledgers, one clock, and a post that misbehaves."""

import copy
import random
from collections.abc import Callable
from typing import Any, Self

from fake_post import Bus, FakePost

from bascule.mesh.cards import DAY_MS, Card, Keys, text_of
from bascule.mesh.records import Membership, Standing
from bascule.mesh.traffic import MeshTraffic
from bascule.stores.memory import MemoryStore
from bascule.testing.clock import FakeClock
from bascule.testing.house import House

MESH = "home"


class Machine:
    """One daemon of the mesh, with its agents."""

    def __init__(self, machines: "Machines", name: str, owner: str) -> None:
        self.machines = machines
        self.name = name
        self.keys = Keys.new()
        self.card = machines.new_card(name, self.keys, owner)
        self.membership = Membership(
            mesh=MESH,
            node=name,
            standing=Standing.MEMBER,
            mesh_key=machines.mesh_public,
            keys=tuple(map(text_of, self.keys.seeds)),  # type: ignore[arg-type] # three of them
            owner=owner,
        )
        self.house = House(clock=machines.clock, store=machines.new_store(), join=self._join)
        self.open()

    def _join(self, mesh: MeshTraffic) -> None:
        """In each life: the cards are kept by the machine, and there is no post yet."""
        mesh.cards = self.machines
        mesh.member(self.membership)
        self.machines.on_life(self.name, mesh)

    def open(self) -> None:
        """The post is there."""
        post = FakePost(self.machines.bus, self.name)
        self.house.run(lambda: post.open_now(self.mesh.begin(post, self.membership)))
        # Asked again at every start: the one before may have died on the way.
        for name in self.machines.revoked:
            self.machines.apply_revocation(self, name)

    @property
    def mesh(self) -> MeshTraffic:
        assert self.house.mesh is not None
        return self.house.mesh

    @property
    def engine(self) -> Any:
        assert self.mesh.engine is not None
        return self.mesh.engine

    @property
    def post(self) -> FakePost:
        post = self.engine.post
        assert isinstance(post, FakePost)
        return post

    def call(self, principal: str, method: str, params: dict[str, Any] | None = None) -> Any:
        return self.house.call(principal, method, params)

    def send(self, sender: str, target: str, payload: Any = "hello", **params: Any) -> str:
        sent = self.call(f"agent:{sender}", "messages.send", {"agentId": target, "payload": payload, **params})
        ticket_id: str = sent["ticketId"]
        return ticket_id

    def take(self, agent: str, *, count: int = 32) -> list[dict[str, Any]]:
        taken = self.call(f"agent:{agent}", "inbox.take", {"agentId": agent, "waitMs": 0, "max": count})
        return taken["messages"] if taken else []

    def reply(self, agent: str, ticket_id: str, payload: Any = "yes") -> Any:
        return self.call(f"agent:{agent}", "replies.post", {"ticketId": ticket_id, "payload": payload})

    def show(self, ticket_id: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.call("person", "tickets.show", {"ticketId": ticket_id})
        return shown

    def crash(self) -> None:
        """kill -9, and up again."""
        self.machines.bus.posts.pop(self.name, None)
        self.house.restart(clean=False, down_seconds=0.01)
        self.open()

    def snapshot(self) -> MemoryStore:
        return copy.deepcopy(self.house.store)  # type: ignore[return-value] # a memory store is one

    def restore(self, snapshot: MemoryStore) -> None:
        """From a backup: everything since is gone here, and only here."""
        self.machines.bus.posts.pop(self.name, None)
        self.house._store_of_life.die()
        self.house.store = copy.deepcopy(snapshot)
        self.house.restart(clean=False, down_seconds=0.01)
        self.open()


class Machines:
    def __init__(
        self,
        *names: str,
        seed: int | None = None,
        owners: dict[str, str] | None = None,
        new_store: Callable[[], MemoryStore] = MemoryStore,
    ) -> None:
        self.new_store = new_store
        self.random = random.Random(seed) if seed is not None else None
        self.clock = FakeClock()
        self.bus = Bus(self.random)
        mesh = Keys.new()
        self.mesh_key = mesh.sign
        self.mesh_public = mesh.public[0]
        self.revoked: set[str] = set()
        # Of members that are no machine here: what they say is the test's to make.
        self.other_cards: dict[str, Card] = {}
        # Called in each life of a machine, before anything came to it.
        self.on_life: Callable[[str, MeshTraffic], None] = lambda _name, _mesh: None
        self.machines: dict[str, Machine] = {}
        for name in names:
            self.machines[name] = Machine(self, name, (owners or {}).get(name, "me"))
        for machine in self.machines.values():
            machine.open()
        self.settle()

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    # -- the cards, as every machine keeps them --

    def new_card(self, name: str, keys: Keys, owner: str) -> Card:
        sign, box, bus = keys.public
        return Card(
            mesh=MESH,
            node=name,
            sign=sign,
            box=box,
            bus=bus,
            owner=owner,
            owner_name=owner,
            not_after=self.clock.wall_ms() + 90 * DAY_MS,
        )

    def card(self, node: str) -> Card | None:
        return self._card(node) if node not in self.revoked else None

    def _card(self, node: str) -> Card | None:
        machine = self.machines.get(node)
        return machine.card if machine is not None else self.other_cards.get(node)

    def all(self) -> list[Card]:
        return [*(machine.card for machine in self.machines.values()), *self.other_cards.values()]

    def revocations(self) -> tuple[int, bytes]:
        return 0, b""

    def revoke(self, name: str) -> None:
        self.revoked.add(name)
        for machine in self.machines.values():
            self.apply_revocation(machine, name)

    def apply_revocation(self, machine: Machine, name: str) -> None:
        card = self._card(name)
        assert card is not None
        machine.house.run(lambda: machine.mesh.revoked(card))

    # -- time and letters --

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for machine in self.machines.values():
            machine.house.advance(0)

    def deliver_one(self) -> bool:
        moving = self.bus.moving
        if not moving or self.bus.down:
            return False
        at = self.random.randrange(len(moving)) if self.random is not None else 0
        name, bring = moving.pop(at)
        machine = self.machines.get(name)
        if machine is not None and machine.post.state.open:
            machine.house.run(bring)
            machine.house.advance(0)
        return True

    def settle(self, *, seconds: float = 0.2, rounds: int = 2_000) -> None:
        """Everything that moves arrives, and what follows from it."""
        quiet = 0
        for _ in range(rounds):
            if self.deliver_one():
                quiet = 0
                continue
            self.advance(seconds)
            quiet += 1
            # Twice: what was held for a moment is confirmed a moment after it was written.
            if quiet > 1 and not self.bus.moving:
                return
        raise AssertionError("the machines do not come to rest")

    def close(self) -> None:
        for machine in self.machines.values():
            machine.house.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
