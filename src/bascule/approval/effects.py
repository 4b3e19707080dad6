"""Effects outside the store: begun on disk, then carried out, then finished on disk.

The grant for an effect is spent in the transaction that says it begins. A crash in between leaves a row that the next
life records as `unknown`: at most once, and never silently.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from bascule.approval.desk import Desk
from bascule.approval.states import State
from bascule.audit.begun import BEGUN, UNKNOWN, BegunBook, BegunRow
from bascule.audit.journal import Journal, Transaction
from bascule.call import Principal
from bascule.clock import Clock
from bascule.later import Later

Changes = Callable[[Transaction], None]
# Told at start of what may have happened when the last life ended; adds its own changes to the same transaction.
OnUnknown = Callable[[Transaction, BegunRow], None]


class Begun(NamedTuple):
    """An effect whose beginning is recorded."""

    begun_id: str
    principal: Principal
    method: str
    rule: str | None
    approval_id: str | None
    # Nothing may happen before this is settled without an error; None: it is on disk.
    durable: Later[None] | None


class Effects:
    def __init__(self, *, journal: Journal, clock: Clock, desk: Desk, begun: BegunBook) -> None:
        self._journal = journal
        self._clock = clock
        self._desk = desk
        self._begun = begun

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
    ) -> Begun:
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
        with Transaction() as tx:
            if approval_id is not None:
                self._desk.spend(tx, approval_id)
            begun_id = self._begun.begin(tx, row)
            if changes is not None:
                changes(tx)
        seq = self._journal.commit(tx, principal, method, BEGUN, rule)
        return Begun(begun_id, principal, method, rule, approval_id, self._journal.settled(seq))

    def finish(
        self, begun: Begun, outcome: str, details: dict[str, Any] | None = None, changes: Changes | None = None
    ) -> Later[None] | None:
        with Transaction() as tx:
            self._begun.finish(tx, begun.begun_id)
            if begun.approval_id is not None:
                self._desk.settle(tx, begun.approval_id, State.UNKNOWN if outcome == UNKNOWN else State.DONE)
            tx.details = {**(tx.details or {}), **(details or {})}
            if changes is not None:
                changes(tx)
        return self._journal.settled(self._journal.commit(tx, begun.principal, begun.method, outcome, begun.rule))

    def recover(self, listeners: Iterable[OnUnknown] = ()) -> list[BegunRow]:
        """What had begun when the last life ended: recorded as `unknown`, never carried out again by itself."""
        heard = list(listeners)
        rows = []
        for begun_id, row in self._begun.left():
            tx = Transaction()
            self._begun.finish(tx, begun_id)
            if row.approval_id is not None:
                self._desk.settle(tx, row.approval_id, State.UNKNOWN)
            tx.details = {**(tx.details or {}), "note": "may have run: the daemon ended before it did"}
            for listener in heard:
                listener(tx, row)
            self._journal.commit(tx, row.principal, row.method, UNKNOWN, row.rule)
            rows.append(row)
        return rows
