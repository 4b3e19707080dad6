"""Transactions: changes to the tables and the record of who made them, one and the same commit.

The tables live in memory and are the truth within one life; the store is their durable journal. A
change is applied at once, so the next call sees it, and undone if its commit fails: nothing is
answered, handed over or shown before the transaction it rests on is durable (`settled`), and
`after` callbacks run only then. One batch is in flight at a time; what arrives meanwhile rides in the
next one, which is the group commit.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Generic, Self, TypeVar

import msgspec

from bascule.audit.ledger import ANCHOR_EVERY, SEGMENT_RECORDS, Anchor, Chain, Segment
from bascule.audit.ports import Batch, JournalStore, LedgerRow
from bascule.call import Principal
from bascule.clock import Clock
from bascule.errors import StorageFull
from bascule.later import Later

V = TypeVar("V", bound=msgspec.Struct)


class Table(Generic[V]):
    """Rows by key, and whoever keeps an index over them."""

    __slots__ = ("name", "on_change", "rows", "type")

    def __init__(
        self, name: str, type_: type[V], on_change: Callable[[str, V | None, V | None], None] | None = None
    ) -> None:
        self.name = name
        self.type = type_
        self.rows: dict[str, V] = {}
        self.on_change = on_change

    def apply(self, key: str, value: V | None) -> V | None:
        old = self.rows.get(key)
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = value
        if self.on_change is not None:
            self.on_change(key, old, value)
        return old


class Transaction:
    """Changes of one call. Applied as they are made; `Journal.commit` makes them last."""

    __slots__ = (
        *("_undo", "after", "changes", "details", "forget_before"),
        *("head", "record", "seq", "subject", "then"),
    )

    def __init__(self) -> None:
        self.changes: list[tuple[str, str, msgspec.Struct | None]] = []
        self._undo: list[tuple[Table[Any], str, Any]] = []
        self.after: list[Callable[[], None]] = []
        # Makes of the handler's answer what the caller waits for: called once the commit is on its way.
        self.then: Callable[[Any], Any] | None = None
        # What the handler adds to the record that dispatch writes.
        self.subject: str | None = None
        self.details: dict[str, Any] | None = None
        self.record: LedgerRow | None = None
        self.head: tuple[int, bytes] = (0, b"")
        self.seq = 0
        self.forget_before = 0

    def put(self, table: Table[V], key: str, value: V | None) -> None:
        self._undo.append((table, key, table.apply(key, value)))
        self.changes.append((table.name, key, value))

    def undo(self) -> None:
        for table, key, old in reversed(self._undo):
            table.apply(key, old)
        self._undo.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """A change that could not be made whole is not made at all."""
        if kind is not None:
            self.undo()


class Landing(Later[None]):
    """When a batch is durable. Many wait for the same one, so nobody can withdraw it: a task that is cancelled while it
    waits must not take the answer away from the others."""

    __slots__ = ()

    def cancel(self) -> bool:
        return False


class Journal:
    """The way from a transaction to the store."""

    def __init__(
        self,
        store: JournalStore,
        clock: Clock,
        *,
        on_anchor: Callable[[Anchor], None],
        segment_records: int = SEGMENT_RECORDS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._on_anchor = on_anchor
        self._segment_records = segment_records
        self.segments: Table[Segment] = Table("segments", Segment)
        for key, segment in store.load("segments", Segment):
            self.segments.rows[key] = segment
        self.chain = Chain(store.ledger_head())
        self._durable_head = (self.chain.seq, self.chain.head)
        self._segment_head = self._last_segment_head()
        self._seq = 0
        self._durable = 0
        self._pending: list[Transaction] = []
        self._flight: list[Transaction] = []
        self._together = 0
        self._pending_done: Later[None] | None = None
        self._flight_done: Later[None] | None = None
        # The first failure after a good write, and None again once a write succeeds: for health and logs.
        self.fault: str | None = None
        self.on_fault: Callable[[str | None], None] | None = None

    def start(self) -> None:
        """Everything is loaded: from here on the store belongs to its writer."""
        self._store.start(self._done)

    def _last_segment_head(self) -> str:
        last = max(self.segments.rows.values(), key=lambda segment: segment.last, default=None)
        return last.head if last else bytes(32).hex()

    def commit(
        self,
        tx: Transaction,
        principal: Principal,
        method: str,
        outcome: str = "ok",
        rule: str | None = None,
    ) -> int:
        """Queue the transaction with its record; the number to wait for with `settled`."""
        chain = self.chain
        tx.head = (chain.seq, chain.head)
        at = self._clock.wall_ms()
        tx.record = chain.append(
            at=at,
            principal=principal,
            method=method,
            outcome=outcome,
            subject=tx.subject,
            rule=rule,
            details=tx.details,
        )
        if chain.seq % self._segment_records == 0:
            self._close_segment(tx, at)
        return self._queue(tx)

    def commit_quietly(self, tx: Transaction) -> int:
        """For soft state that is no effect of anybody's (presence): no ledger record."""
        tx.head = (self.chain.seq, self.chain.head)
        return self._queue(tx)

    def _queue(self, tx: Transaction) -> int:
        self._seq += 1
        tx.seq = self._seq
        self._pending.append(tx)
        if not self._flight and not self._together:
            self._launch()
        return tx.seq

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What is committed inside is written as one batch: the end of one effect with the beginning of the next.

        Never across an `await`: whoever commits meanwhile would wait, too.
        """
        self._together += 1
        try:
            yield
        finally:
            self._together -= 1
            if not self._together and not self._flight:
                self._launch()

    def settled(self, seq: int) -> Later[None] | None:
        """None when `seq` is durable, else what ends with it (or fails with it)."""
        if seq <= self._durable:
            return None
        if self._flight and seq <= self._flight[-1].seq:
            if self._flight_done is None:
                self._flight_done = Landing()
            return self._flight_done
        if self._pending and seq <= self._pending[-1].seq:
            if self._pending_done is None:
                self._pending_done = Landing()
            return self._pending_done
        # Undone: what this number stood for never happened.
        return None

    @property
    def idle(self) -> bool:
        """Everything is durable that was ever committed."""
        return not self._flight and not self._pending

    def newest(self) -> int:
        """The number of the newest transaction, durable or not: what a reader of everything waits for."""
        if self._pending:
            return self._pending[-1].seq
        return self._flight[-1].seq if self._flight else self._durable

    def anchor(self, why: str) -> Anchor:
        """Fix the durable end of the chain outside the database; what could still be undone is not the end."""
        seq, head = self._durable_head
        anchor = Anchor(seq=seq, head=head.hex(), at=self._clock.wall_ms(), why=why)
        self._on_anchor(anchor)
        return anchor

    def _close_segment(self, tx: Transaction, at: int) -> None:
        last = self.chain.seq
        segment = Segment(
            first=last - self._segment_records + 1,
            last=last,
            before=self._segment_head,
            head=self.chain.head.hex(),
            closed_at=at,
        )
        self._segment_head = segment.head
        tx.put(self.segments, f"{segment.first:012d}", segment)

    def _launch(self) -> None:
        # A loop, because the memory store finishes at once and `after` callbacks may commit again.
        while self._pending and not self._flight:
            flight = self._flight = self._pending
            self._pending = []
            self._flight_done, self._pending_done = self._pending_done, None
            if not self._store.write(_batch(flight)):
                return
            self._land()

    def _done(self, error: BaseException | None) -> None:
        """The store's answer for the batch in flight, on the event loop."""
        try:
            if error is None:
                self._land()
            else:
                self._fail(error)
        finally:
            self._launch()

    def _land(self) -> None:
        flight, self._flight = self._flight, []
        done, self._flight_done = self._flight_done, None
        self._durable = flight[-1].seq
        if self.fault is not None:
            self._set_fault(None)
        fault: Exception | None = None
        for tx in flight:
            for callback in tx.after:
                try:
                    callback()
                except Exception as error:  # noqa: BLE001 - raised below, when nobody else can be harmed by it
                    fault = fault or error
        if done is not None and not done.done():
            done.set_result(None)
        for tx in flight:
            row = tx.record
            if row is None:
                continue
            self._durable_head = (row.seq, row.hash)
            if row.seq % ANCHOR_EVERY == 0:
                self._on_anchor(Anchor(seq=row.seq, head=row.hash.hex(), at=self._clock.wall_ms(), why="count"))
        if fault is not None:
            raise fault

    def _fail(self, error: BaseException) -> None:
        """Undo everything that is not durable, newest first: later changes may rest on earlier ones."""
        lost = self._flight + self._pending
        flight_done, pending_done = self._flight_done, self._pending_done
        self._flight, self._pending = [], []
        self._flight_done = self._pending_done = None
        for tx in reversed(lost):
            tx.undo()
        self.chain.rewind(*lost[0].head)
        self._segment_head = self._last_segment_head()
        self._set_fault(str(error))
        answer = StorageFull(
            f"nothing was stored: {error}",
            hint="free space on the disk that holds the state directory, then try again; reads go on meanwhile",
            retry_after=1.0,
        )
        for waiting in (flight_done, pending_done):
            if waiting is not None and not waiting.done():
                waiting.set_exception(answer)

    def _set_fault(self, fault: str | None) -> None:
        self.fault = fault
        if self.on_fault is not None:
            self.on_fault(fault)


def _batch(flight: list[Transaction]) -> Batch:
    if len(flight) == 1:
        # The common case of a quiet broker, and every case of the memory store.
        tx = flight[0]
        return Batch(tx.changes, [tx.record] if tx.record is not None else [], tx.forget_before)
    return Batch(
        [change for tx in flight for change in tx.changes],
        [tx.record for tx in flight if tx.record is not None],
        max(tx.forget_before for tx in flight),
    )
