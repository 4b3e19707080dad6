"""Letters that came: opened, read, and each item of them made a call of the mesh's own rows.

What another node says counts only when its envelope opens with its card, and then only as one of the mesh's rows: each
item that changes something passes the gate, as a principal that no door of this machine gives. Receipts and hellos are
facts about the post, not calls.
"""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from bascule.foundation.clock import Clock
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import (
    BasculeError,
    Conflict,
    Forbidden,
    NotFound,
    Overloaded,
    PolicyDenied,
    TooLarge,
)
from bascule.foundation.timers import Timers
from bascule.kernel.call import Call, Principal, agent_principal, node_principal
from bascule.kernel.event_ring import Fact
from bascule.kernel.gate import Gate
from bascule.kernel.journal import Journal, Transaction
from bascule.kernel.journal_ports import Log
from bascule.kernel.ports import RemoteMail, TicketCancelled
from bascule.mesh import rows
from bascule.mesh.copies import Copies, principal_of
from bascule.mesh.courier import Courier
from bascule.mesh.envelope import BadEnvelope
from bascule.mesh.home import Home
from bascule.mesh.nodes import Node, Nodes
from bascule.mesh.outbox import Outbox
from bascule.mesh.protocol import (
    BODY,
    MAX_LIVES,
    VERSION,
    Acked,
    Anchor,
    AnyItem,
    Cancel,
    Hello,
    Offer,
    Over,
    Receipt,
    Reply,
    Taken,
)
from bascule.mesh.receipts import Receipts
from bascule.mesh.state import MeshState
from gabp import codec

_replace = msgspec.structs.replace
# Of one node per second, each a call with a record in the ledger that keeps the loop for 0.1 ms: twice what 32 askers
# reach at once on two cores, and less than half of the loop. What is beyond it gets no receipt, and comes again later.
MAX_ITEMS_PER_SECOND = 4_000
# A receipt costs a tenth of what it is about; one that does not count comes again with the item.
RECEIPTS_PER_ITEM = 4
# What its sender has on disk waits this long for a commit to ride with, the agent's reply to it or the next question:
# that is one sync for both. Longer than programs take to answer; receipts, which wait for it, are in no hurry.
HOLD_MS = 5


class Arrivals:
    def __init__(
        self,
        *,
        state: MeshState,
        clock: Clock,
        mail: RemoteMail,
        nodes: Nodes,
        outbox: Outbox,
        courier: Courier,
        home: Home,
        copies: Copies,
        gate: Gate,
        journal: Journal,
        log: Log,
        publish: Callable[[Fact], None],
        on_hello: Callable[[Node, Hello], None],
        on_lost_life: Callable[[Node], None],
        on_stranger: Callable[[Node], str | None],
        timers: Timers,
        max_items: int = MAX_ITEMS_PER_SECOND,
    ) -> None:
        """`on_lost_life`: a letter of a life that its node has forgotten, because it was restored from a backup.
        `on_stranger`: a node of another person offers something, and nobody was asked about it yet; it says
        why that is refused, if it is."""
        self._state = state
        self._clock = clock
        self._mail = mail
        self._nodes = nodes
        self._courier = courier
        self._home = home
        self._copies = copies
        self._gate = gate
        self._journal = journal
        self._log = log
        self._on_hello = on_hello
        self._on_lost_life = on_lost_life
        self._on_stranger = on_stranger
        self._max_items = max_items
        self.receipts = Receipts(
            state=state,
            outbox=outbox,
            home=home,
            copies=copies,
            journal=journal,
            timers=timers,
            publish=publish,
            refuse=lambda principal, params: self.call(principal, rows.REFUSED.name, params, _try_again),
        )
        # Nodes whose newest anchor is not on disk yet.
        self.newly_held: set[str] = set()
        # By node: the second, and the items in it that were not known before.
        self._counts: dict[str, tuple[int, int]] = {}
        # The same of what it says it has taken.
        self._receipts: dict[str, tuple[int, int]] = {}
        self._timers = timers
        self._held = False

    def receive(self, src: str, data: bytes, *, mailed: bool = False) -> Node | None:
        """The node whose letter it is; None when it does not count. `src` only says whose card to try."""
        node = self._nodes.get(src)
        if node is None:
            return None
        try:
            opened = node.pair.open(data)
            body = BODY.decode(opened.body)
        except (BadEnvelope, codec.BadJson) as error:
            self._log("mesh_letter_refused", level="warning", node=src, error=str(error))
            return None
        if body.v != VERSION:
            self._log("mesh_version", level="warning", node=src, version=body.v)
            return None
        if opened.signed:
            node.pair.learn(body.started, body.half, body.held)
        digest = hashlib.sha256(data).hexdigest()
        envelope = rows.Envelope(digest=digest, anchor=body.anchor, mailed=mailed, started=body.started)
        self._hold_anchor(node, body.started, body.anchor)
        # One commit for one letter: a receipt that rides with an offer would have it wait for a sync of its own.
        with self._journal.together():
            for item in body.items:
                self._item(node, item, envelope)
        if not self._held and not self._journal.idle:
            self._held = True
            self._timers.after_ms(HOLD_MS, self._write_held)
        if self._state.peer(src).has_lost(body.started, body.anchor.seq):
            # Its letters still come after it was rolled back: it is told what it said, once that is on our disk.
            self._after_commits(partial(self._on_lost_life, node))
        return node

    def _write_held(self, _now: float) -> None:
        self._held = False
        self._journal.write_rest()

    def _after_commits(self, act: Callable[[], None]) -> None:
        durable = self._journal.durable()
        if durable is None:
            act()
        else:
            durable.add_done_callback(lambda _: act())

    def _item(self, node: Node, item: AnyItem, envelope: rows.Envelope) -> None:
        name = node.card.node
        match item:
            case Offer():
                self._offer(node, item, envelope)
            case Cancel() | Over():
                self._from_home(name, item, envelope)
            case Acked() | Reply():
                self._from_copy(name, item, envelope)
            case Receipt():
                if not self._too_many(name, self._receipts, len(item.taken), RECEIPTS_PER_ITEM * self._max_items):
                    self.receipts.add(name, item, envelope)
            case Hello():
                if not self._too_many(name):
                    self._on_hello(node, item)

    def call(self, principal: Principal, method: str, params: Any, failed: Callable[[BasculeError], None]) -> None:
        """Through the gate; only rows of the mesh are called from here."""
        assert method.startswith("mesh."), method
        try:
            answer = self._gate.call(Call(principal, method, params, door="mesh"))
        except BasculeError as error:
            failed(error)
            return
        if isinstance(answer, Deferred):
            answer.add_done_callback(partial(_settled, failed))

    # -- at the copy --

    def _offer(self, node: Node, item: Offer, envelope: rows.Envelope) -> None:
        name = node.card.node
        known = self._state.copies.rows.get(self._copies.id_of(name, item.ticket))
        taken = Taken(id=item.id, ticket=item.ticket)
        if known is not None:
            # A duplicate gets the same answer as the first.
            self._confirm(name, _replace(taken, refused=known.refused, text=known.text))
            return
        if self._too_many(name):
            return
        peer = self._state.peer(name)
        if item.use_by <= max(self._clock.wall_ms(), peer.floor):
            self._confirm(name, _replace(taken, refused="late"))
        elif not node.own and (peer.met is None or peer.met_key != node.card.sign):
            # It comes again; by then a person may have answered.
            if (why := self._on_stranger(node)) is not None:
                self._refuse(name, item, "policy", why)
        elif not node.own and peer.met is False:
            self._refuse(name, item, "policy", "its person does not take messages of this machine")
        elif item.any and not self._mail.has_free_member(item.target):
            self._confirm(name, _replace(taken, refused="busy"))
        else:
            params = rows.OfferParams(item=item, envelope=envelope)
            self.call(principal_of(item, name), rows.OFFER.name, params, partial(self._offer_failed, name, item))

    def _offer_failed(self, name: str, item: Offer, error: BasculeError) -> None:
        match error:
            case NotFound():
                self._refuse(name, item, "unknown", f"{error.message}: {item.target}")
            case PolicyDenied() | Forbidden():
                self._refuse(name, item, "policy", error.message)
            case TooLarge():
                self._refuse(name, item, "too_large", error.message)
            case Overloaded():
                self._confirm(name, Taken(id=item.id, ticket=item.ticket, refused="full", text=error.message[:500]))
            case _:
                # Not decided (stopped, no room on our disk): it comes again.
                return

    def _refuse(self, name: str, item: Offer, why: str, text: str) -> None:
        tx = Transaction()
        self._copies.refuse(tx, name, item, why, text[:500])
        self._journal.commit_quietly(tx)

    def _too_many(
        self, name: str, counts: dict[str, tuple[int, int]] | None = None, items: int = 1, most: int | None = None
    ) -> bool:
        counts = self._counts if counts is None else counts
        second = int(self._clock.monotonic())
        at, count = counts.get(name, (second, 0))
        count = count + items if at == second else items
        counts[name] = (second, count)
        return count > (self._max_items if most is None else most)

    def _from_home(self, name: str, item: Cancel | Over, envelope: rows.Envelope) -> None:
        known = self._state.copies.rows.get(self._copies.id_of(name, item.ticket))
        if known is not None and (known.refused is not None or item.rank <= known.rank):
            # An older status never replaces a newer one.
            self._confirm(name, Taken(id=item.id, ticket=item.ticket))
            return
        if self._too_many(name):
            return
        if isinstance(item, Cancel):
            params: Any = rows.CancelParams(item=item, envelope=envelope)
            method = rows.CANCEL.name
        elif known is None and not item.alone:
            # Before its offer, which is on its way; this comes again. Of a group of any node there may be none: home
            # says it again if an offer is taken after all.
            if item.any:
                self._confirm(name, Taken(id=item.id, ticket=item.ticket))
            return
        else:
            params, method = rows.OverParams(item=item, envelope=envelope), rows.OVER.name
        self.call(node_principal(name), method, params, _try_again)

    # -- at home --

    def _from_copy(self, name: str, item: Acked | Reply, envelope: rows.Envelope) -> None:
        ticket, known = self._state.home.rows.get(item.ticket), self._mail.known(item.ticket)
        if ticket is None or known is None or name not in ticket.nodes:
            self._confirm(name, Taken(id=item.id, ticket=item.ticket, refused="unknown"))
            return
        if self._too_many(name):
            return
        if isinstance(item, Acked):
            params: Any = rows.AckedParams(item=item, envelope=envelope)
            self.call(node_principal(name), rows.ACKED.name, params, _try_again)
            return
        # Of a group of any node two may answer, and each counts from one.
        replies = ticket.replies.get(name, 0) if ticket.any else known.replies
        if item.number <= replies:
            self._confirm(name, self._home.taken(item))
        elif item.number == replies + 1:
            # Replies count in their order: one that is ahead of its turn comes again.
            params = rows.ReplyParams(item=item, envelope=envelope)
            sender = agent_principal(f"{item.sender}@{name}")
            self.call(sender, rows.REPLY.name, params, partial(self._reply_failed, name, item))

    def _reply_failed(self, name: str, item: Reply, error: BasculeError) -> None:
        match error:
            case TicketCancelled():
                self._confirm(name, self._home.taken(item, "cancelled"))
            case Conflict() | PolicyDenied() | Forbidden():
                self._confirm(name, self._home.taken(item, "full" if isinstance(error, Conflict) else "policy"))
            case NotFound():
                self._confirm(name, self._home.taken(item, "unknown"))
            case TooLarge():
                self._confirm(name, self._home.taken(item, "too_large"))
            case _:
                return

    # -- receipts --

    def _confirm(self, name: str, taken: Taken) -> None:
        """What a receipt says must be on disk; what is under way is waited for."""
        durable = self._journal.durable()
        if durable is None:
            self._courier.confirm(name, taken)
        else:
            durable.add_done_callback(partial(self._confirm_if_durable, name, taken))

    def _confirm_if_durable(self, name: str, taken: Taken, durable: Deferred[None]) -> None:
        if not durable.cancelled() and durable.exception() is None:
            self._courier.confirm(name, taken)

    def _hold_anchor(self, node: Node, started: int, anchor: Anchor) -> None:
        """In memory with each letter; the next sweep writes it down. `started`: the life of the node that says it."""
        name = node.card.node
        peer = self._state.peer(name)
        if peer.anchor_key != node.card.sign:
            peer = _replace(peer, seq=0, head="", anchor_life=0, anchor_key=node.card.sign, ends=[])
        if started > peer.anchor_life:
            # It may have less than before now. What it said then must still be in its ledger.
            ends = [*peer.ends, Anchor(peer.seq, peer.head)][-MAX_LIVES:] if peer.seq else peer.ends
            peer = _replace(peer, seq=0, anchor_life=started, ends=ends)
        if started == peer.anchor_life and anchor.seq > peer.seq:
            self._state.peers.rows[name] = _replace(peer, seq=anchor.seq, head=anchor.head)
            self.newly_held.add(name)


def _try_again(_error: BasculeError) -> None:
    """No receipt: the other side says it again."""


def _settled(failed: Callable[[BasculeError], None], answer: Deferred[Any]) -> None:
    if not answer.cancelled() and isinstance(error := answer.exception(), BasculeError):
        failed(error)
