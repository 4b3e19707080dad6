"""What other nodes have confirmed: taken out of the outbox, a moment later and many together.

Nobody waits for it. If this daemon dies before, the items go again and get the same receipts.
"""

from collections.abc import Callable
from functools import partial

from bascule.foundation.timers import Deadline, Timers
from bascule.kernel.call import DAEMON, Principal, node_principal
from bascule.kernel.event_ring import Fact, Kind
from bascule.kernel.journal import Journal, Transaction
from bascule.mesh import rows
from bascule.mesh.copies import Copies
from bascule.mesh.home import Home
from bascule.mesh.outbox import Outbox
from bascule.mesh.protocol import FINAL, MAX_ITEMS, PASSING, Anchor, Receipt, Taken
from bascule.mesh.records import OutItem
from bascule.mesh.state import MeshState

# One commit for the receipts of so long: one of their own would have the next message wait for its sync.
TAKE_OUT_MS = 50
# Or for so many, so that one commit does not hold up the loop.
MAX_TOGETHER = 4 * MAX_ITEMS


class Receipts:
    def __init__(
        self,
        *,
        state: MeshState,
        outbox: Outbox,
        home: Home,
        copies: Copies,
        journal: Journal,
        timers: Timers,
        publish: Callable[[Fact], None],
        refuse: Callable[[Principal, rows.RefusedParams], None],
    ) -> None:
        """`refuse`: called with a principal and params when a node will never take an offer."""
        self._state = state
        self._outbox = outbox
        self._home = home
        self._copies = copies
        self._journal = journal
        self._timers = timers
        self._publish = publish
        self._refuse = refuse
        # By node, in the order they came.
        self._waiting: dict[str, list[tuple[Taken, rows.Envelope]]] = {}
        self._count = 0
        self._due: Deadline | None = None

    def add(self, name: str, receipt: Receipt, envelope: rows.Envelope) -> None:
        waiting = self._waiting.setdefault(name, [])
        waiting += [(taken, envelope) for taken in receipt.taken]
        self._count += len(receipt.taken)
        # Who was refused is not to wait longer than it must.
        if self._count >= MAX_TOGETHER or any(taken.refused is not None for taken in receipt.taken):
            self.take_out()
        elif self._due is None:
            self._due = self._timers.after_ms(TAKE_OUT_MS, lambda _now: self.take_out())

    def take_out(self) -> None:
        """All of them now: also before anything that asks what a node has confirmed."""
        if self._due is not None:
            self._timers.call_off(self._due)
            self._due = None
        waiting, self._waiting, self._count = self._waiting, {}, 0
        with self._journal.together():
            for name, taken in waiting.items():
                self._take_out(name, taken)

    def give_up(self, tx: Transaction, items: list[tuple[str, OutItem]], why: str) -> None:
        """Nobody will confirm them any more; whoever replied hears that it came to nothing."""
        # Also of nodes whose cards do not count any more.
        ids = {(copy.node, copy.home): id_ for id_, copy in self._state.copies.rows.items()} if items else {}
        for item_id, item in items:
            self._outbox.remove(tx, item_id)
            if item.kind == "reply" and (id_ := ids.get((item.node, item.ticket))) is not None:
                tx.after.append(partial(self._publish_refused, id_, why))

    def _take_out(self, name: str, waiting: list[tuple[Taken, rows.Envelope]]) -> None:
        tx = Transaction()
        changed: Anchor | None = None
        for taken, envelope in waiting:
            item = self._state.out.rows.get(taken.id)
            if item is None or item.node != name or item.ticket != taken.ticket:
                continue
            if item.kind == "offer":
                self._offer_taken(tx, taken, item, envelope)
                continue
            self._outbox.remove(tx, taken.id)
            if item.kind in ("cancel", "over"):
                self._home.arrived(tx, item, envelope)
            elif self._word_taken(tx, taken, item, envelope):
                changed = envelope.anchor
        if changed is not None:
            tx.subject, tx.details = name, {"peer": str(changed)}
            self._journal.commit(tx, DAEMON, "mesh.receipt")
        elif tx.puts:
            self._journal.commit_quietly(tx)

    def _word_taken(self, tx: Transaction, taken: Taken, item: OutItem, envelope: rows.Envelope) -> bool:
        """Home has what a copy here said. True if that changed something."""
        changed = self._copies.confirmed(tx, item, taken, envelope)
        if item.kind == "reply" and taken.refused is not None:
            id_ = self._copies.id_of(item.node, item.ticket)
            tx.after.append(partial(self._publish_refused, id_, taken.refused))
        return changed

    def _publish_refused(self, id_: str, why: str) -> None:
        self._publish(Fact(kind=Kind.NODE, event="reply.refused", id=id_, text=why))

    def _offer_taken(self, tx: Transaction, taken: Taken, item: OutItem, envelope: rows.Envelope) -> None:
        name = item.node
        if taken.refused is None:
            self._home.arrived(tx, item, envelope)
            self._outbox.remove(tx, taken.id)
        elif taken.refused in PASSING:
            if taken.refused == "busy" and self._home.ask_around(tx, item):
                self._outbox.remove(tx, taken.id)
            else:
                self._outbox.later(name, taken.id)
        else:
            self._outbox.remove(tx, taken.id)
            if not self._home.pass_on(tx, item):
                why = taken.refused if taken.refused in FINAL else "policy"
                self._refuse(node_principal(name), rows.RefusedParams(ticket=item.ticket, why=why, text=taken.text))
