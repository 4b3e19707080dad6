"""What goes over the post once this node is a member: the engine, and its methods while there is one."""

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Unavailable
from bascule.kernel.bridge import KernelServices
from bascule.kernel.call import Call
from bascule.kernel.journal import Transaction
from bascule.kernel.ports import RemoteMail, Remotes
from bascule.kernel.retention import GcItem
from bascule.kernel.rows import Bound, Nothing
from bascule.mesh import rows
from bascule.mesh.cards import Card
from bascule.mesh.engine import Engine
from bascule.mesh.identity import identity_of
from bascule.mesh.leaving import end_all
from bascule.mesh.machine_ports import PeerFacts
from bascule.mesh.membership_protocol import MeshNodeParams
from bascule.mesh.nodes import Cards
from bascule.mesh.ports import Post, Reader
from bascule.mesh.records import Membership
from bascule.mesh.settings import MeshSettings
from bascule.mesh.state import MeshState
from bascule.mesh.witnesses import Witnesses

P = TypeVar("P", bound=msgspec.Struct)
Handler: TypeAlias = Callable[[Call, P, Transaction], None]


class MeshTraffic:
    """See `machine_ports.Traffic`. `member` and `not_member` say when there is an engine; the post may come later."""

    def __init__(
        self,
        *,
        kernel: KernelServices,
        mail: RemoteMail,
        remotes: Remotes,
        settings: MeshSettings,
    ) -> None:
        self._kernel = kernel
        self._mail = mail
        self._remotes = remotes
        self._settings = settings
        # Set before there is a member: who keeps the cards, and what to do when another daemon lives with our keys.
        self.cards: Cards | None = None
        self.on_halt: Callable[[str], None] = lambda _why: None
        # Called with a node that is reachable again.
        self.on_seen: Callable[[str], None] = lambda _node: None
        # Called with a list of revoked cards that another node has sent.
        self.on_revocations: Callable[[bytes], None] = lambda _signed: None
        self.state = MeshState(kernel.store)
        # None while this node is in no mesh.
        self.engine: Engine | None = None
        self._witnesses: Witnesses | None = None
        mail.watch_agents(self._agents_changed)

    # -- a member or not --

    def member(self, own: Membership) -> Engine:
        """From now on messages to other nodes are taken, though there may be no post yet."""
        identity = identity_of(own)
        if self.engine is None or not self.engine.identity.is_same(identity):
            self.not_member()
            assert self.cards is not None, "set by whoever keeps them"
            kernel = self._kernel
            self.engine = Engine(
                identity,
                state=self.state,
                cards=self.cards,
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
            self.engine.on_halt = self.on_halt
            self.engine.on_seen = self.on_seen
            self.engine.on_revocations = self.on_revocations
            self._witnesses = Witnesses(self.engine, kernel.timers)
            self._remotes.add(self.engine)
        return self.engine

    def not_member(self) -> None:
        """What waited for others stays in the store until its time is over, or until this node leaves the mesh."""
        if self.engine is not None:
            self._remotes.add(None)
            self.engine.close()
            self.engine = self._witnesses = None

    def left(self, tx: Transaction) -> None:
        end_all(tx, self.state, self._mail)

    def card_changed(self, node: str) -> None:
        if self.engine is not None:
            self.engine.card_changed(node)

    def revoked(self, card: Card) -> None:
        if self.engine is not None:
            self.engine.revoked(card)

    # -- the post --

    def begin(self, post: Post, own: Membership) -> Reader:
        engine = self.member(own)
        engine.attach(post)
        return engine

    def end(self) -> None:
        if self.engine is not None:
            self.engine.detach()

    def facts(self, node: str) -> PeerFacts:
        found = self.engine.nodes.get(node) if self.engine is not None else None
        if self.engine is None or found is None:
            return PeerFacts()
        load = self.engine.outbox.load(node)
        return PeerFacts(
            reachable=self.engine.nodes.is_reachable(found) if found.seen_wall else None,
            since=found.seen_wall,
            version=found.life_sign.version if found.life_sign is not None else "",
            outbox_items=load.items,
            outbox_bytes=load.bytes,
            oldest_at=self.engine.outbox.oldest_at(node),
        )

    # -- for the bridge --

    def methods(self) -> Sequence[Bound]:
        return [
            rows.OFFER.bind(self._of_engine(lambda engine: engine.copies.offer)),
            rows.CANCEL.bind(self._of_engine(lambda engine: engine.copies.cancel)),
            rows.OVER.bind(self._of_engine(lambda engine: engine.copies.over)),
            rows.ACKED.bind(self._of_engine(lambda engine: engine.home.acked)),
            rows.REPLY.bind(self._of_engine(lambda engine: engine.home.reply)),
            rows.REFUSED.bind(self._of_engine(lambda engine: engine.home.refused)),
            rows.MEET.bind(self._of_engine(lambda engine: engine.meetings.meet)),
            rows.MESH_MET.bind(lambda _call, _params: [] if self.engine is None else self.engine.meetings.met()),
            rows.MESH_FORGET.bind(self._forget),
            rows.MESH_ANCHORS.bind(self._anchors),
        ]

    def sweep(self, tx: Transaction) -> list[GcItem]:
        if self.engine is None:
            return []
        return [GcItem(what="copies of other machines' tickets", count=self.engine.sweep(tx), why="their time is over")]

    def _anchors(self, call: Call, params: Nothing) -> Deferred[rows.PeerAnchors] | rows.PeerAnchors:
        return rows.PeerAnchors(anchors=[]) if self._witnesses is None else self._witnesses.ask()

    def _forget(self, call: Call, params: MeshNodeParams, tx: Transaction) -> rows.MetNode:
        return self._there().meetings.forget(call, params, tx)

    def _there(self) -> Engine:
        if self.engine is None:
            raise Unavailable("this daemon is in no mesh", hint="`bascule mesh status`")
        return self.engine

    def _of_engine(self, choose: "Callable[[Engine], Handler[P]]") -> "Handler[P]":
        """A handler of the engine that there is when the call comes."""

        def handle(call: Call, params: P, tx: Transaction) -> None:
            choose(self._there())(call, params, tx)

        return handle

    def _agents_changed(self) -> None:
        if self.engine is not None:
            self.engine.agents_changed()
