"""The mesh behind its method rows: puts the parts together, and has an engine while this node is in a mesh."""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec

from bascule.foundation.errors import Unavailable
from bascule.kernel.bridge import Bridge, Gauge, KernelServices
from bascule.kernel.call import Call
from bascule.kernel.journal import Transaction
from bascule.kernel.ports import RemoteMail, Remotes
from bascule.kernel.retention import GcItem
from bascule.mesh import rows
from bascule.mesh.declared import MeshDeclared
from bascule.mesh.engine import Engine
from bascule.mesh.identity import Identity, identity_of
from bascule.mesh.machine_ports import Machine, NoMachine, PeerFacts
from bascule.mesh.members import make_members
from bascule.mesh.ports import Board, Post
from bascule.mesh.records import Membership, Standing
from bascule.mesh.settings import MeshSettings
from bascule.mesh.state import MeshState

# The key of the one row of the table of memberships.
SELF = "self"
P = TypeVar("P", bound=msgspec.Struct)
Handler: TypeAlias = Callable[[Call, P, Transaction], None]
MakePost = Callable[[Membership, Identity], Post]


class Mesh:
    def __init__(
        self,
        *,
        kernel: KernelServices,
        mail: RemoteMail,
        remotes: Remotes,
        settings: MeshSettings,
        make_post: MakePost,
        machine: Machine | None = None,
    ) -> None:
        """Without a `machine` nobody joins by a command: whoever has this object says `join`."""
        self._kernel = kernel
        self._mail = mail
        self._remotes = remotes
        self._settings = settings
        self._make_post = make_post
        self.state = MeshState(kernel.store)
        # None while this node is in no mesh.
        self.engine: Engine | None = None
        mail.watch_agents(self._agents_changed)
        membership = self.membership
        self._by_command = machine is not None
        self.members = make_members(kernel, self.state.membership, machine or NoMachine(), self)
        if not self._by_command and membership is not None and membership.standing is Standing.MEMBER:
            self._make_engine(membership, None)

    @property
    def membership(self) -> Membership | None:
        return self.state.membership.rows.get(SELF)

    def bridge(self) -> Bridge:
        return Bridge(
            declared=MeshDeclared(),
            service=self,
            methods=[
                rows.OFFER.bind(self._of_engine(lambda engine: engine.copies.offer)),
                rows.CANCEL.bind(self._of_engine(lambda engine: engine.copies.cancel)),
                rows.OVER.bind(self._of_engine(lambda engine: engine.copies.over)),
                rows.ACKED.bind(self._of_engine(lambda engine: engine.home.acked)),
                rows.REPLY.bind(self._of_engine(lambda engine: engine.home.reply)),
                rows.REFUSED.bind(self._of_engine(lambda engine: engine.home.refused)),
                rows.MEET.bind(self._of_engine(lambda engine: engine.meet)),
                *self.members.methods(),
            ],
            gauges=[
                Gauge("bascule_mesh_outbox", "Items not confirmed by other machines.", self._outbox_items),
            ],
            open=self.open,
            sweep=self.sweep,
            close=self.close,
        )

    # -- its life --

    async def open(self) -> None:
        if self._by_command:
            self.members.open()
        elif self.engine is not None:
            await self.engine.open()

    async def join(self, membership: Membership, post: Post | None = None) -> None:
        """This node is a member from now on; of a `post` that is given the caller has hold."""
        engine = self._make_engine(membership, post)
        engine.on_twin = self.members.twin_seen
        engine.on_seen = self.members.node_seen
        # What was known before the board is read: a message is taken for a node that is away since the last start.
        for key, card in self.members.roster.table.rows.items():
            engine.nodes.posted(Board.CARDS, key, card.signed, 0)
        await engine.open()

    def facts(self, node: str) -> PeerFacts:
        if self.engine is None:
            return PeerFacts()
        load, oldest = self.engine.outbox.load(node), self.engine.outbox.oldest_at(node)
        found = self.engine.nodes.get(node)
        if found is None or not found.seen_wall:
            return PeerFacts(outbox_items=load.items, outbox_bytes=load.bytes, oldest_at=oldest)
        return PeerFacts(
            reachable=self.engine.nodes.is_reachable(found),
            since=found.seen_wall,
            version=found.sign.version if found.sign is not None else "",
            outbox_items=load.items,
            outbox_bytes=load.bytes,
            oldest_at=oldest,
        )

    async def leave(self) -> None:
        """It is no longer; what waited for others stays in the store until its time is over."""
        if self.engine is not None:
            self._remotes.add(None)
            engine, self.engine = self.engine, None
            await engine.close()

    async def close(self) -> None:
        await self.members.close()
        if self.engine is not None:
            await self.engine.close()

    def sweep(self, tx: Transaction) -> list[GcItem]:
        items = self.members.sweep(tx)
        if self.engine is None:
            return items
        return [
            *items,
            GcItem(what="copies of other machines' tickets", count=self.engine.sweep(tx), why="their time is over"),
        ]

    def _make_engine(self, membership: Membership, post: Post | None) -> Engine:
        identity = identity_of(membership)
        kernel = self._kernel
        self.engine = Engine(
            identity,
            state=self.state,
            post=post or self._make_post(membership, identity),
            mail=self._mail,
            gate=kernel.gate,
            journal=kernel.journal,
            clock=kernel.clock,
            timers=kernel.timers,
            events=kernel.events,
            log=kernel.log,
            max_items=self._settings.mesh_outbox_items,
            max_bytes=self._settings.mesh_outbox_bytes,
        )
        self._remotes.add(self.engine)
        return self.engine

    # -- inside --

    def _of_engine(self, choose: "Callable[[Engine], Handler[P]]") -> "Handler[P]":
        """A handler of the engine that there is when the call comes."""

        def handle(call: Call, params: P, tx: Transaction) -> None:
            if self.engine is None:
                raise Unavailable("this daemon is in no mesh", hint="`bascule mesh status`")
            choose(self.engine)(call, params, tx)

        return handle

    def _agents_changed(self) -> None:
        if self.engine is not None:
            self.engine.agents_changed()

    def _outbox_items(self) -> float:
        return float(len(self.state.out.rows))
