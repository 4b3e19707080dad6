"""Runs that were under way when the last life of the daemon ended: every operation still gets its one event."""

import msgspec

from bascule.foundation.clock import Clock, rfc3339
from bascule.kernel.call import DAEMON
from bascule.kernel.effects import BegunRow
from bascule.kernel.gate import Gate
from bascule.kernel.journal import Journal, Transaction
from bascule.workspace.protocol import ErrorEvent, Event
from bascule.workspace.records import ERROR, UNKNOWN, RunEvents, RunRecord
from bascule.workspace.runbook import RunBook
from gabp import codec

_MAY_HAVE_RUN = "unknown: may have run; the daemon ended meanwhile"
_NOT_RUN = "not run: the daemon ended"


class Recovery:
    def __init__(self, book: RunBook, gate: Gate, journal: Journal, clock: Clock) -> None:
        self._book = book
        self._gate = gate
        self._journal = journal
        self._clock = clock

    def interrupted(self, record: RunRecord, begun: list[BegunRow]) -> None:
        """Nothing of it is executed again: what had begun may have happened, the rest has not."""
        now = self._clock.wall_ms()
        begun_ids = {row.operation_id for row in begun}
        plan = self._book.plan(record.run_id)
        if record.background and plan is not None:
            # Its start has a record of its own; that it is listed says that it was about to run.
            begun_ids.update(plan.ids)
        events = self._missing_events(record.run_id, begun_ids, rfc3339(now))
        status = UNKNOWN if begun_ids else ERROR
        tx = Transaction()
        tx.subject = record.run_id
        if events:
            size = sum(len(codec.encode(event)) for event in events)
            first = self._book.events_count(record.run_id)
            self._book.put_events(tx, record.run_id, first, RunEvents(events=events, size=size))
        note = "the daemon ended while it was under way"
        self._book.put(tx, msgspec.structs.replace(record, status=status, ended_at=now, question=None, note=note))
        self._book.put_plan(tx, record.run_id, None)
        self._book.put_rest(tx, record.run_id, None)
        self._gate.desk.end_run(tx, record.run_id)
        self._journal.commit(tx, DAEMON, "runs.end", status)

    def _missing_events(self, run_id: str, begun_ids: set[str | None], now: str) -> list[Event]:
        plan = self._book.plan(run_id)
        if plan is None:
            return []
        done = self._book.events_count(run_id)
        return [
            ErrorEvent(
                timestamp=now,
                operation_id=id_,
                category="execution",
                message=_MAY_HAVE_RUN if id_ in begun_ids else _NOT_RUN,
                details={} if kind is None else {"operationType": kind},
            )
            for id_, kind in list(zip(plan.ids, plan.types, strict=True))[done:]
        ]
