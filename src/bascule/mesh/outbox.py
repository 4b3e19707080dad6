"""What was said to other nodes and is not confirmed: kept in the store, sent until a receipt comes.

Live first, mail second: an item goes directly to a node that is there, and into its mailbox when no receipt comes
within a second, or when it is away. Without a receipt it goes again after 3 s, then twice as long each time, up to an
hour; at once when the node is heard of again.
"""

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from bascule.foundation.clock import Clock
from bascule.foundation.errors import Overloaded
from bascule.foundation.ids import new_ticket_id
from bascule.foundation.timers import Deadline, Timers
from bascule.kernel.journal import Table, Transaction
from bascule.mesh.protocol import Confirmed
from bascule.mesh.records import OutItem
from gabp import codec

# A receipt takes milliseconds where both are awake.
RECEIPT_MS = 1_000
# Then less and less often: a machine may be off for days, and is heard of when it is back.
FIRST_RETRY_MS = 3_000
LONGEST_RETRY_MS = 3_600_000
# How a ticket ended. For one node the newest word of it is enough, however often that node has to be told.
_ENDS = frozenset({"cancel", "over"})


class _Waiting:
    """One item in this life of the daemon."""

    __slots__ = ("attempts", "deadline", "mailed_at")

    def __init__(self) -> None:
        self.attempts = 0
        self.deadline: Deadline | None = None
        self.mailed_at: int | None = None


class Load(msgspec.Struct, frozen=True, gc=False):
    items: int
    bytes: int


class Outbox:
    def __init__(
        self,
        table: Table[OutItem],
        clock: Clock,
        timers: Timers,
        *,
        max_items: int,
        max_bytes: int,
    ) -> None:
        """`max_items`, `max_bytes`: for one node that confirms nothing."""
        self._table = table
        self._clock = clock
        self._timers = timers
        self._max_items = max_items
        self._max_bytes = max_bytes
        table.on_change = self._changed
        self._loads: dict[str, Load] = {}
        # Durable and not confirmed, by node, the oldest first.
        self._waiting: dict[str, dict[str, _Waiting]] = {}
        # By node and ticket: the item that says how it ended.
        self._ends: dict[tuple[str, str], str] = {}
        # Called with a node and the items that are to be sent to it now; `mail` for its mailbox.
        self.on_due: Callable[[str, Iterable[str], bool], None] = lambda _node, _items, _mail: None
        for item_id, item in sorted(table.rows.items()):
            self._count(item.node, 1, len(item.data))
            self._note_end(item_id, item)
            self._waiting.setdefault(item.node, {})[item_id] = _Waiting()

    def check_room(self, node: str, size: int) -> None:
        load = self.load(node)
        if load.items >= self._max_items or load.bytes + size > self._max_bytes:
            raise Overloaded(
                f"{load.items} messages ({load.bytes} bytes) wait for the machine {node} already",
                hint=f"it confirms none of them: `bascule mesh status` says since when; the limits are the settings "
                f"mesh_outbox_items ({self._max_items}) and mesh_outbox_bytes ({self._max_bytes})",
                retry_after=60.0,
            )

    def new_id(self) -> str:
        return new_ticket_id(self._clock.wall_ms())

    def add(self, tx: Transaction, node: str, item: Confirmed, use_by: int, data: bytes | None = None) -> None:
        """`data`: the item encoded, where that was needed before."""
        row = OutItem(
            node=node,
            ticket=item.ticket,
            kind=type(item).__name__.lower(),
            data=codec.encode(item) if data is None else data,
            at=self._clock.wall_ms(),
            use_by=use_by,
        )
        if row.kind in _ENDS and (older := self._ends.get((node, row.ticket))) is not None:
            self.remove(tx, older)
        tx.put(self._table, item.id, row)
        tx.after.append(partial(self._durable, item.id, node))

    def remove(self, tx: Transaction, item_id: str) -> None:
        tx.put(self._table, item_id, None)

    def load(self, node: str) -> Load:
        return self._loads.get(node, _EMPTY)

    def oldest_at(self, node: str) -> int | None:
        """Wall time since when the oldest item waits."""
        return next(
            (self._table.rows[each].at for each in self._waiting.get(node, ()) if each in self._table.rows), None
        )

    def mailed_at(self, item_id: str, node: str) -> int | None:
        waiting = self._waiting.get(node, {}).get(item_id)
        return waiting.mailed_at if waiting is not None else None

    def was_mailed(self, node: str, item_ids: Iterable[str]) -> None:
        for item_id in item_ids:
            waiting = self._waiting.get(node, {}).get(item_id)
            if waiting is not None:
                waiting.mailed_at = self._clock.wall_ms()

    def reconcile(self) -> None:
        """Items that are back because the transaction that removed them could not be stored are waited for again."""
        for item_id, item in self._table.rows.items():
            waiting = self._waiting.setdefault(item.node, {})
            if item_id not in waiting:
                waiting[item_id] = _Waiting()
                self._watch(item.node, item_id, waiting[item_id], FIRST_RETRY_MS)

    def close(self) -> None:
        """Nothing is sent any more; what waits stays in the store, for the next one."""
        for items in self._waiting.values():
            for waiting in items.values():
                if waiting.deadline is not None:
                    self._timers.call_off(waiting.deadline)
        self._waiting.clear()

    # -- when to send --

    def _durable(self, item_id: str, node: str) -> None:
        if item_id in self._table.rows:
            # `reconcile` may have found it before it was durable.
            waiting = self._waiting.setdefault(node, {}).setdefault(item_id, _Waiting())
            self._watch(node, item_id, waiting, RECEIPT_MS)
            self.on_due(node, (item_id,), False)

    def again(self, node: str) -> None:
        """It was heard of again: everything goes at once, and the pauses begin anew."""
        items = self._waiting.get(node)
        if not items:
            return
        for item_id, waiting in items.items():
            waiting.attempts = 0
            self._watch(node, item_id, waiting, RECEIPT_MS)
        self.on_due(node, list(items), False)

    def later(self, node: str, item_id: str) -> None:
        """It was not taken this time: after a pause, once more."""
        waiting = self._waiting.get(node, {}).get(item_id)
        if waiting is not None:
            self._watch(node, item_id, waiting, self._pause_ms(waiting))

    def _watch(self, node: str, item_id: str, waiting: _Waiting, ms: float) -> None:
        if waiting.deadline is not None:
            self._timers.call_off(waiting.deadline)
        waiting.deadline = self._timers.after_ms(ms, partial(self._due, node, item_id))

    def _due(self, node: str, item_id: str, _now: float) -> None:
        waiting = self._waiting.get(node, {}).get(item_id)
        if waiting is None:
            return
        self._watch(node, item_id, waiting, self._pause_ms(waiting))
        self.on_due(node, (item_id,), True)

    def _pause_ms(self, waiting: _Waiting) -> int:
        waiting.attempts += 1
        # Bounded before it is shifted: attempts of weeks.
        return int(min(FIRST_RETRY_MS << min(waiting.attempts - 1, 16), LONGEST_RETRY_MS))

    # -- the table --

    def _changed(self, item_id: str, old: OutItem | None, new: OutItem | None) -> None:
        """Keeps loads and ends; symmetric, so that it undoes itself."""
        if old is not None:
            self._count(old.node, -1, -len(old.data))
            if self._ends.get((old.node, old.ticket)) == item_id:
                del self._ends[old.node, old.ticket]
        if new is not None:
            self._count(new.node, 1, len(new.data))
            self._note_end(item_id, new)
            return
        assert old is not None
        items = self._waiting.get(old.node, {})
        waiting = items.pop(item_id, None)
        if waiting is not None and waiting.deadline is not None:
            self._timers.call_off(waiting.deadline)

    def _note_end(self, item_id: str, item: OutItem) -> None:
        if item.kind in _ENDS:
            self._ends[item.node, item.ticket] = item_id

    def _count(self, node: str, items: int, size: int) -> None:
        load = self._loads.get(node, _EMPTY)
        if load.items + items:
            self._loads[node] = Load(load.items + items, load.bytes + size)
        else:
            self._loads.pop(node, None)


_EMPTY = Load(0, 0)
