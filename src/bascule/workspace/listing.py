"""`runs.list`: the newest first, of one space or all, page by page."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice

from bascule.foundation.clock import rfc3339
from bascule.kernel.call import Call
from bascule.workspace.live import Run, is_over
from bascule.workspace.records import AWAITING, RUNNING, RunRecord
from bascule.workspace.run_list import NativeView, RunsListParams, RunView
from bascule.workspace.runbook import RunBook
from bascule.workspace.spaces import Spaces


class Listing:
    def __init__(self, book: RunBook, live: Mapping[str, Run], spaces: Spaces) -> None:
        self._book = book
        self._live = live
        self._spaces = spaces

    def list_runs(self, call: Call, params: RunsListParams) -> list[RunView]:
        if params.space_id is not None:
            self._spaces.record(params.space_id)
        before = self._book.find(params.before) if params.before is not None else None
        if params.status in (RUNNING, AWAITING):
            # What is not over is live, and its record here is newer than the stored one.
            found: Iterable[RunRecord] = self._not_over(params, before)
        else:
            found = self._book.index.newest_first(
                before, space_id=params.space_id, started_by=params.principal, status=params.status
            )
            if before is None:
                found = chain(self._unsaved(params), found)
        return [self._view(record) for record in islice(found, params.limit)]

    def _unsaved(self, params: RunsListParams) -> list[RunRecord]:
        """Runs that could not be stored: the disk is full, and they are kept in memory until it has room."""
        return [
            run.record
            for run in reversed(list(self._live.values()))
            if run.run_id not in self._book.table.rows
            and params.space_id in (None, run.record.space_id)
            and params.principal in (None, run.record.started_by)
            and params.status in (None, run.record.status)
        ]

    def _not_over(self, params: RunsListParams, before: RunRecord | None) -> Iterator[RunRecord]:
        for run in sorted(self._live.values(), key=lambda run: run.record.number, reverse=True):
            record = run.record
            if (
                record.status == params.status
                and params.space_id in (None, record.space_id)
                and params.principal in (None, record.started_by)
                and (before is None or record.number < before.number)
            ):
                yield record

    def _view(self, record: RunRecord) -> RunView:
        run = self._live.get(record.run_id)
        now = run.record if run is not None else record
        undoable = now.left_changes and is_over(now) and not now.undone and (not now.on_copy or now.committed)
        return RunView(
            run_id=now.run_id,
            space_id=now.space_id,
            started_by=now.started_by,
            started_at=rfc3339(now.started_at),
            ended_at=rfc3339(now.ended_at) if now.ended_at is not None else None,
            status=now.status,
            operations=now.operations,
            events=len(run.events) if run is not None else self._book.events_count(now.run_id),
            on_copy=now.on_copy,
            background=now.background,
            native=native_view(now),
            committed=now.committed,
            undoable=undoable,
            undone=now.undone,
            approved_by=list(now.approved_by),
            note=run.left_running or run.note if run is not None else now.note,
            steering=list(now.steering),
        )


def native_view(record: RunRecord) -> NativeView | None:
    call = record.native
    if call is None:
        return None
    return NativeView(client=call.client, session=call.session, tool=call.tool, title=call.title)
