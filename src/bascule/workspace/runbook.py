"""The runs as they are kept: rows in parts, their events put together again, old ones making room."""

from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec

from bascule.foundation.errors import NotFound
from bascule.kernel.journal import Table, Transaction
from bascule.kernel.journal_ports import JournalStore
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.live import Run
from bascule.workspace.protocol import Event
from bascule.workspace.records import (
    AWAITING,
    RUN_ROW,
    RUNNING,
    RunEvents,
    RunPlan,
    RunRecord,
    RunRest,
    RunRow,
    events_key,
    plan_key,
    rest_key,
)
from bascule.workspace.run_index import RunIndex
from gabp import codec

# Rows of one ended run; a row costs more than the event in it.
MAX_EVENT_ROWS = 8


class RunBook:
    def __init__(self, store: JournalStore, limits: WorkspaceLimits) -> None:
        self._limits = limits
        self.table: Table[RunRow] = Table("runs", RUN_ROW, self._changed)
        self.index = RunIndex()
        # Runs that are not over, and those that a full disk did not take.
        self.live: Mapping[str, Run] = {}
        # Keys of events by run.
        self._event_keys: dict[str, dict[str, None]] = {}
        self.event_bytes = 0
        self.paused_bytes = 0
        self.number = 0
        loaded = list(store.load("runs", RUN_ROW))
        records = [row for _, row in loaded if isinstance(row, RunRecord)]
        for record in sorted(records, key=lambda record: record.number):
            self.table.apply(record.run_id, record)
        for key, row in loaded:
            if not isinstance(row, RunRecord):
                self.table.apply(key, row)

    # -- looking --

    def find(self, run_id: str, space_id: str | None = None) -> RunRecord:
        record = self.table.rows.get(run_id)
        if record is None and run_id in self.live:
            record = self.live[run_id].record
        if not isinstance(record, RunRecord) or (space_id is not None and record.space_id != space_id):
            raise NotFound(f"unknown run {run_id}", hint="runs.list shows those that are kept; old ones make room")
        return record

    def all(self) -> list[RunRecord]:
        return list(self.index.oldest_first())

    def of_space(self, space_id: str) -> list[RunRecord]:
        return list(self.index.oldest_first(space_id))

    def newest(self, limit: int, space_id: str | None = None) -> list[RunRecord]:
        """The last ones to start, the newest first."""
        return list(islice(self.index.newest_first(space_id=space_id), limit))

    def count(self, space_id: str) -> int:
        return self.index.count(space_id)

    def events(self, run_id: str) -> list[Event]:
        rows = (self.table.rows[key] for key in sorted(self._event_keys.get(run_id, ())))
        return [event for row in rows if isinstance(row, RunEvents) for event in row.events]

    def events_size(self, run_id: str) -> int:
        rows = (self.table.rows[key] for key in self._event_keys.get(run_id, ()))
        return sum(row.size for row in rows if isinstance(row, RunEvents))

    def events_count(self, run_id: str) -> int:
        rows = (self.table.rows[key] for key in self._event_keys.get(run_id, ()))
        return sum(len(row.events) for row in rows if isinstance(row, RunEvents))

    def plan(self, run_id: str) -> RunPlan | None:
        row = self.table.rows.get(plan_key(run_id))
        return row if isinstance(row, RunPlan) else None

    def rest(self, run_id: str) -> RunRest | None:
        row = self.table.rows.get(rest_key(run_id))
        return row if isinstance(row, RunRest) else None

    # -- changing --

    def save(self, run: Run, tx: Transaction) -> None:
        """Its events so far, in this transaction; followers get them when it is durable."""
        fresh = run.events[run.saved :]
        if not fresh:
            return
        sizes = [len(codec.encode(event)) for event in fresh]
        self.put_events(tx, run.run_id, run.saved, RunEvents(events=fresh, size=sum(sizes)))
        run.saved = len(run.events)

        def publish() -> None:
            for event, size in zip(fresh, sizes, strict=True):
                run.feed.event(event, size)

        tx.after.append(publish)

    def coalesce(self, run: Run, tx: Transaction) -> None:
        """A run that is over has its events in one row: a thousand of them would be kept as long as it is."""
        if len(self._event_keys.get(run.run_id, ())) > MAX_EVENT_ROWS:
            self.drop_events(tx, run.run_id)
            self.put_events(tx, run.run_id, 0, RunEvents(events=list(run.events), size=run.event_bytes))

    def put(self, tx: Transaction, record: RunRecord) -> None:
        tx.put(self.table, record.run_id, record)

    def put_plan(self, tx: Transaction, run_id: str, plan: RunPlan | None) -> None:
        if plan is not None or plan_key(run_id) in self.table.rows:
            tx.put(self.table, plan_key(run_id), plan)

    def put_rest(self, tx: Transaction, run_id: str, rest: RunRest | None) -> None:
        if rest is not None or rest_key(run_id) in self.table.rows:
            tx.put(self.table, rest_key(run_id), rest)

    def put_events(self, tx: Transaction, run_id: str, first: int, events: RunEvents) -> None:
        tx.put(self.table, events_key(run_id, first), events)

    def drop(self, tx: Transaction, run_id: str) -> None:
        self.drop_events(tx, run_id)
        self.put_plan(tx, run_id, None)
        self.put_rest(tx, run_id, None)
        if run_id in self.table.rows:
            tx.put(self.table, run_id, None)

    def make_room(self, tx: Transaction, space_id: str) -> None:
        """Older runs than are kept go; of the rest the oldest lose their events when all together are too large."""
        over = self.count(space_id) - self._limits.max_kept_runs
        if over > 0:
            ended = (each for each in self.index.oldest_first(space_id) if each.status not in (RUNNING, AWAITING))
            dropped = list(islice(ended, over))
            for record in dropped:
                self.drop(tx, record.run_id)
            self._outlive(tx, dropped, space_id)
        if self.event_bytes <= self._limits.max_kept_event_bytes:
            return
        for record in self.all():
            if record.status in (RUNNING, AWAITING):
                continue
            if self.event_bytes <= self._limits.max_kept_event_bytes:
                return
            if record.run_id in self._event_keys:
                self.drop_events(tx, record.run_id)
                self.put(tx, msgspec.structs.replace(record, events_dropped=True))

    def _outlive(self, tx: Transaction, dropped: Sequence[RunRecord], space_id: str) -> None:
        """Those that are still at work since before one of these ended."""
        for run in self.live.values():
            began = run.segments[0].began if run.segments and run.record.space_id == space_id else 0
            if began and any(each.segments and each.segments[-1].ended > began for each in dropped):
                run.record = msgspec.structs.replace(run.record, outlived=True)
                self.put(tx, run.record)

    def drop_events(self, tx: Transaction, run_id: str) -> None:
        for key in list(self._event_keys.get(run_id, ())):
            tx.put(self.table, key, None)

    def _changed(self, key: str, old: RunRow | None, new: RunRow | None) -> None:
        """Indexes follow the table, also when a change is undone."""
        self._count(old, -1)
        self._count(new, 1)
        row = new or old
        if isinstance(row, RunRecord):
            assert old is None or isinstance(old, RunRecord)
            assert new is None or isinstance(new, RunRecord)
            self.index.changed(old, new)
            self.number = max(self.number, row.number)
        elif isinstance(row, RunEvents):
            run_id = key.partition("/")[0]
            keys = self._event_keys.setdefault(run_id, {})
            if new is None:
                keys.pop(key, None)
                if not keys:
                    del self._event_keys[run_id]
            else:
                keys[key] = None

    def _count(self, row: RunRow | None, times: int) -> None:
        if isinstance(row, RunEvents):
            self.event_bytes += times * row.size
        elif isinstance(row, RunRest):
            self.paused_bytes += times * row.size
