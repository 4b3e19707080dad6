"""Effects outside the store: their beginning is on disk, they happen, their end is on disk.

The grant for an effect is spent in the transaction that records its beginning. What has begun and not ended has a row
in the table `begun`; after a crash the next life records it as `unknown`. At most once, and never silently: nothing is
ever executed again because of such a row.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from bascule.foundation.clock import Clock
from bascule.foundation.ids import new_id
from bascule.kernel.call import Principal
from bascule.kernel.consent.desk import Desk
from bascule.kernel.consent.states import ApprovalState
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.kernel.journal_ports import JournalStore
from bascule.kernel.ledger import BEGUN
from bascule.kernel.resolution import PLAIN, Resolution

# Outcome of a record: nobody knows how it ended.
UNKNOWN = "unknown"

Changes = Callable[[Transaction], None]


class BegunRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An effect that is under way, as the table `begun` keeps it."""

    principal: Principal
    method: str
    at: int
    subject: str | None = None
    rule: str | None = None
    # The grant that was spent for it.
    approval_id: str | None = None
    run_id: str | None = None
    operation_id: str | None = None
    details: dict[str, Any] | None = None


# Called at start with what may have happened when the last life ended; adds its own changes to the same transaction.
OnUnknown = Callable[[Transaction, BegunRow], None]


class RecordedEffect:
    """An effect whose beginning is recorded. Its handler adds to the record of its end."""

    __slots__ = ("begun_id", "changes", "details", "resolution", "row", "started", "timed_rule", "unknown")

    def __init__(
        self, begun_id: str, row: BegunRow, started: Transaction, resolution: Resolution, timed_rule: str | None
    ) -> None:
        self.begun_id = begun_id
        self.row = row
        # Nothing may happen before this is settled without an error.
        self.started = started
        # What the bridge found out and the gate judged: the handler acts on exactly that.
        self.resolution = resolution
        # The name of the timed rule that allowed it, if one did.
        self.timed_rule = timed_rule
        self.details: dict[str, Any] = {}
        # Changes of the bridge's own tables, in the transaction that records the end.
        self.changes: list[Changes] = []
        # Set by a handler that fails without knowing how far it came: recorded as `unknown`, whatever is answered.
        self.unknown = False

    @property
    def approval_id(self) -> str | None:
        """The grant it rests on, if it needed one."""
        return self.row.approval_id


class Effects:
    def __init__(self, *, store: JournalStore, journal: Journal, clock: Clock, desk: Desk) -> None:
        self._journal = journal
        self._clock = clock
        self._desk = desk
        self.table: Table[BegunRow] = Table("begun", BegunRow)
        self.table.rows.update(store.load("begun", BegunRow))

    def begin(
        self,
        principal: Principal,
        method: str,
        *,
        subject: str | None,
        rule: str | None,
        details: dict[str, Any] | None = None,
        approval_id: str | None = None,
        run_id: str | None = None,
        operation_id: str | None = None,
        changes: Changes | None = None,
        resolution: Resolution = PLAIN,
        timed_rule: str | None = None,
    ) -> RecordedEffect:
        """One transaction: the record `begun`, and the grant is spent. `Conflict` when it cannot be used any more."""
        row = BegunRow(
            principal=principal,
            method=method,
            at=self._clock.wall_ms(),
            subject=subject,
            rule=rule,
            approval_id=approval_id,
            run_id=run_id,
            operation_id=operation_id,
            details=details,
        )
        begun_id = new_id("bgn")
        with Transaction() as tx:
            self.spend(tx, approval_id)
            tx.put(self.table, begun_id, row)
            tx.details = {"begun": begun_id, **(details or {})}
            _describe(tx, row)
            if changes is not None:
                changes(tx)
        started = self._journal.commit(tx, principal, method, BEGUN, rule)
        return RecordedEffect(begun_id, row, started, resolution, timed_rule)

    def spend(self, tx: Transaction, approval_id: str | None) -> None:
        """Use the grant up in the transaction that records what it is used for."""
        if approval_id is not None:
            self._desk.spend(tx, approval_id)

    def approver(self, effect: RecordedEffect) -> str:
        return self._desk.approver(rule=effect.row.rule, timed_rule=effect.timed_rule, approval_id=effect.approval_id)

    def finish(self, effect: RecordedEffect, outcome: str) -> Transaction:
        """How it ended, in one transaction with the handler's changes; settled when that is on disk."""
        with Transaction() as tx:
            self._end(
                tx, effect.begun_id, effect.row, ApprovalState.UNKNOWN if outcome == UNKNOWN else ApprovalState.DONE
            )
            tx.details = {**(tx.details or {}), **effect.details}
            for change in effect.changes:
                change(tx)
        return self._journal.commit(tx, effect.row.principal, effect.row.method, outcome, effect.row.rule)

    def recover(self, listeners: Iterable[OnUnknown] = ()) -> list[BegunRow]:
        """Once, at start: what had begun when the last life ended is recorded as `unknown`."""
        informed = list(listeners)
        rows = []
        for begun_id, row in list(self.table.rows.items()):
            tx = Transaction()
            self._end(tx, begun_id, row, ApprovalState.UNKNOWN)
            tx.details = {**(tx.details or {}), "note": "may have run: the daemon ended before it did"}
            for listener in informed:
                listener(tx, row)
            self._journal.commit(tx, row.principal, row.method, UNKNOWN, row.rule)
            rows.append(row)
        return rows

    def _end(self, tx: Transaction, begun_id: str, row: BegunRow, state: ApprovalState) -> None:
        tx.put(self.table, begun_id, None)
        # Pairs the record of the end with the one of the beginning.
        tx.details = {"begun": begun_id}
        _describe(tx, row)
        if row.approval_id is not None:
            self._desk.settle(tx, row.approval_id, state)


def _describe(tx: Transaction, row: BegunRow) -> None:
    tx.subject = row.subject
    if row.approval_id is not None:
        tx.details = {**(tx.details or {}), "approval": row.approval_id}
