"""Transactions: changes to the tables and the record of who made them, one and the same commit.

The tables live in memory and are the truth within one life; the store is their durable journal. A
change is applied at once, so the next call sees it, and undone if its commit fails: nothing is
answered, handed over or shown before the transaction it rests on is durable (`AfterCommit`), and
`after` callbacks run only then. What another machine has on its disk may be shown before
(`can_wait`). One batch is in flight at a time; what arrives meanwhile rides in the next one, which is
the group commit. The first one begins when the loop has handled what it had read: of twenty calls in
one read, one would else be written alone, and nineteen after it.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Self, TypeVar

import msgspec

from bascule.foundation.clock import Clock
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import StorageFull
from bascule.kernel.call import Principal
from bascule.kernel.journal_ports import Batch, JournalStore, LedgerRow
from bascule.kernel.ledger import ANCHOR_EVERY, SEGMENT_RECORDS, Anchor, Chain, Segment

T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)


class Table(Generic[V]):
    """Rows by key, and the indexes over them."""

    __slots__ = ("name", "on_change", "rows", "type")

    def __init__(
        self, name: str, type_: type[V], on_change: Callable[[str, V | None, V | None], None] | None = None
    ) -> None:
        self.name = name
        self.type = type_
        self.rows: dict[str, V] = {}
        self.on_change = on_change

    def apply(self, key: str, value: V | None) -> V | None:
        rows = self.rows
        old = rows.get(key)
        if value is not None:
            rows[key] = value
        elif old is not None:
            del rows[key]
        if self.on_change is not None:
            self.on_change(key, old, value)
        return old


class AfterCommit(Deferred[T]):
    """An answer that waits until everything committed before it is durable.

    The one way in which anything waits for the disk: a transaction is one, `Journal.durable` gives one for whatever
    is under way. Nobody shares it, so that cancelling it takes nothing from anybody else.
    """

    def __init__(self, answer: Any = None) -> None:
        # A value, an exception, or another answer that is still to come.
        self.answer = answer

    def landed(self) -> None:
        if self.done():
            return
        answer = self.answer
        if isinstance(answer, Deferred):
            answer.add_done_callback(self.take_over)
        elif isinstance(answer, BaseException):
            self.set_exception(answer)
        else:
            self.set_result(answer)

    def undone(self, error: BaseException) -> None:
        """What it rests on could not be stored."""
        if not self.done():
            self.set_exception(error)


class Reading(AfterCommit[Any]):
    """What a read saw while commits were under way. If these are undone it looks once more."""

    def __init__(
        self, answer: Any, again: Callable[[], Any], translate: Callable[[BaseException], BaseException]
    ) -> None:
        super().__init__(answer)
        self._again = again
        self._translate = translate

    def undone(self, error: BaseException) -> None:  # noqa: ARG002 - the writer's own
        if self.done():
            return
        try:
            answer = self.answer = self._again()
        except Exception as fault:  # noqa: BLE001 - I4: the caller gets an id, not silence
            self.set_exception(self._translate(fault))
            return
        if isinstance(answer, Deferred):
            self.add_done_callback(lambda _: answer.cancel())
        self.landed()


class Transaction(AfterCommit[Any]):
    """Changes of one call, and the answer to it. Applied as they are made; `Journal.commit` makes them last."""

    answer: Any = None
    # Makes of the handler's answer what the caller waits for: called once the commit is on its way.
    then: Callable[[Any], Any] | None = None
    # What the handler adds to the record that the gate writes; `at` where it has read the wall clock.
    subject: str | None = None
    details: dict[str, Any] | None = None
    at: int | None = None
    record: LedgerRow | None = None
    head: tuple[int, bytes] = (0, b"")
    forget_before = 0
    # It is on another machine's disk, which says it again until it is on ours: it is written with the next batch that
    # somebody waits for, or with `Journal.write_rest`, which whoever sets this has called soon.
    can_wait = False

    def __init__(self) -> None:
        # Table, key, what was there, what is there now.
        self.puts: list[tuple[Table[Any], str, Any, Any]] = []
        self.after: list[Callable[[], None]] = []

    def put(self, table: Table[V], key: str, value: V | None) -> None:
        self.puts.append((table, key, table.apply(key, value), value))

    @property
    def changes(self) -> list[tuple[str, str, msgspec.Struct | None]]:
        """As a store writes them."""
        return [(table.name, key, value) for table, key, _, value in self.puts]

    def undo(self) -> None:
        for table, key, old, _ in reversed(self.puts):
            table.apply(key, old)
        self.puts.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """A change that could not be made whole is not made at all."""
        if kind is not None:
            self.undo()


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
        # The newest record that was anchored in this life.
        self._anchored = 0
        self._segment_records = segment_records
        self.segments: Table[Segment] = Table("segments", Segment)
        for key, segment in store.load("segments", Segment):
            self.segments.rows[key] = segment
        self.chain = Chain(store.ledger_head())
        self._durable_head = (self.chain.seq, self.chain.head)
        self._segment_head = self._last_segment_head()
        self._pending: list[Transaction] = []
        self._flight: list[Transaction] = []
        self._together = 0
        # Of what is pending something is waited for; else all of it can wait for the next batch.
        self._is_due = False
        # The next batch begins when the loop has handled what it has read.
        self._begins_soon = False
        # Transactions and other waiters of each batch, in the order they came.
        self._pending_answers: list[AfterCommit[Any]] = []
        self._flight_answers: list[AfterCommit[Any]] = []
        # The first failure after a good write, and None again once a write succeeds: for health and logs.
        self.fault: str | None = None
        self.on_fault: Callable[[str | None], None] | None = None
        # While the callbacks of a batch run; and what they want to be called once, behind all of them and before its
        # answers, which make nothing that travels further: one letter for all that it made.
        self.landing = False
        self.on_landed: list[Callable[[], None]] = []

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
    ) -> Transaction:
        """Queue the transaction with its record; it is settled with its answer once it is durable."""
        chain = self.chain
        tx.head = (chain.seq, chain.head)
        at = tx.at if tx.at is not None else self._clock.wall_ms()
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

    def commit_quietly(self, tx: Transaction) -> Transaction:
        """For soft state such as presence, which is not an effect: no ledger record."""
        tx.head = (self.chain.seq, self.chain.head)
        return self._queue(tx)

    def _queue(self, tx: Transaction) -> Transaction:
        self._pending.append(tx)
        self._pending_answers.append(tx)
        if not tx.can_wait:
            self.write_rest()
        return tx

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What is committed inside is written as one batch: the end of one effect with the beginning of the next.

        Never across an `await`: other commits would wait, too.
        """
        self._together += 1
        try:
            yield
        finally:
            self._together -= 1
            self._launch_soon()

    def write_rest(self) -> None:
        """Have all that is pending written, also what can wait; behind the batch in flight, if there is one."""
        self._is_due = bool(self._pending)
        self._launch_soon()

    def write_now(self) -> None:
        """Before the loop has handled what else it has read: an effect begins before its record is on disk."""
        self._is_due = bool(self._pending)
        if not self._together:
            self._launch()

    @property
    def idle(self) -> bool:
        """Everything is durable that was ever committed."""
        return not self._flight and not self._pending

    def durable(self) -> AfterCommit[None] | None:
        """None when everything committed is durable, else what ends (or fails) when that is decided."""
        if self.idle:
            return None
        waiting: AfterCommit[None] = AfterCommit()
        self.answer_after(waiting)
        return waiting

    @property
    def durable_head(self) -> tuple[int, bytes]:
        """Number and hash of the newest record that is on disk."""
        return self._durable_head

    def answer_after(self, waiting: AfterCommit[Any]) -> None:
        """Settle it when the newest transaction is durable; not to be asked while `idle`."""
        (self._pending_answers if self._pending else self._flight_answers).append(waiting)
        self.write_rest()

    def anchor(self, why: str) -> Anchor:
        """Fix the durable end of the chain outside the database; what could still be undone is not the end."""
        return self._anchor_at(*self._durable_head, why)

    def anchor_growth(self, why: str) -> None:
        """The durable end, if it has grown since it was anchored."""
        if self._durable_head[0] > self._anchored:
            self.anchor(why)

    def _anchor_at(self, seq: int, head: bytes, why: str) -> Anchor:
        self._anchored = seq
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

    def _launch_soon(self) -> None:
        if self._is_due and not (self._flight or self._together or self._begins_soon):
            self._begins_soon = True
            self._store.at_end_of_turn(self._turn_is_over)

    def _turn_is_over(self) -> None:
        self._begins_soon = False
        self._launch()

    def _launch(self) -> None:
        # A loop, because the memory store finishes at once and `after` callbacks may commit again.
        while self._is_due and not self._flight:
            flight = self._flight = self._pending
            self._is_due = False
            self._pending = []
            self._flight_answers, self._pending_answers = self._pending_answers, []
            if not self._store.write(_batch(flight, keeps_rows=self._store.keeps_rows)):
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
        answers, self._flight_answers = self._flight_answers, []
        if self.fault is not None:
            self._set_fault(None)
        rows = [tx.record for tx in flight if tx.record is not None]
        if rows:
            # Before all callbacks: what these commit may be durable at once, and is the newer end then.
            self._durable_head = (rows[-1].seq, rows[-1].hash)
        self.landing = True
        fault = _call_all(callback for tx in flight for callback in tx.after)
        self.landing = False
        if self.on_landed:
            behind, self.on_landed = self.on_landed, []
            fault = _call_all(behind) or fault
        for waiting in answers:
            waiting.landed()
        for row in rows:
            if row.seq % ANCHOR_EVERY == 0:
                self._anchor_at(row.seq, row.hash, "count")
        if fault is not None:
            raise fault

    def _fail(self, error: BaseException) -> None:
        """Undo everything that is not durable, newest first: later changes may rest on earlier ones."""
        lost = self._flight + self._pending
        answers = self._flight_answers + self._pending_answers
        self._flight, self._pending, self._is_due = [], [], False
        self._flight_answers, self._pending_answers = [], []
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
        for waiting in answers:
            waiting.undone(answer)

    def _set_fault(self, fault: str | None) -> None:
        self.fault = fault
        if self.on_fault is not None:
            self.on_fault(fault)


def _call_all(callbacks: Iterable[Callable[[], None]]) -> Exception | None:
    """The first fault of any: raised when nobody else can be harmed by it."""
    fault: Exception | None = None
    for callback in callbacks:
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - the caller raises it
            fault = fault or error
    return fault


def _batch(flight: list[Transaction], *, keeps_rows: bool) -> Batch:
    changes: list[tuple[str, str, msgspec.Struct | None]] = []
    records: list[LedgerRow] = []
    forget_before = 0
    for tx in flight:
        if keeps_rows:
            changes += tx.changes
        if tx.record is not None:
            records.append(tx.record)
        forget_before = max(forget_before, tx.forget_before)
    return Batch(changes, records, forget_before)
