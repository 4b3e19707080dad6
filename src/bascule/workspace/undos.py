"""Undos as they are kept: each is an operation of its project, as a run is."""

from typing import TypeAlias

from bascule.foundation.errors import NotFound
from bascule.kernel.journal import Table, Transaction
from bascule.kernel.journal_ports import JournalStore
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.records import RunRecord, UndoRecord

# What an undo's id begins with.
PREFIX = "undo"

Operation: TypeAlias = RunRecord | UndoRecord


def is_undo_id(operation: str) -> bool:
    return operation.startswith(f"{PREFIX}_")


class Undos:
    def __init__(self, rows: JournalStore, limits: WorkspaceLimits) -> None:
        self._limits = limits
        self.table: Table[UndoRecord] = Table("undos", UndoRecord)
        self.table.rows.update(rows.load("undos", UndoRecord))

    def of_space(self, space_id: str) -> list[UndoRecord]:
        """The oldest first."""
        found = [undo for undo in self.table.rows.values() if undo.space_id == space_id]
        return sorted(found, key=lambda undo: undo.segment.began)

    def newest(self, space_id: str) -> UndoRecord | None:
        return next(reversed(self.of_space(space_id)), None)

    def find(self, undo_id: str, space_id: str | None = None) -> UndoRecord:
        record = self.table.rows.get(undo_id)
        if record is None or space_id not in (None, record.space_id):
            raise NotFound(f"unknown undo {undo_id}", hint="`bascule log` lists those that are kept")
        return record

    def put(self, tx: Transaction, record: UndoRecord) -> None:
        tx.put(self.table, record.undo_id, record)
        kept = self.of_space(record.space_id)
        needed = {record.undo_id}
        for each in reversed(kept):
            if each.undo_id in needed:
                needed.update(each.undoes)
        gone: set[str] = set()
        for number, old in enumerate(kept):
            # What took back one that is gone goes with it: alone it would pass for work of its own.
            goes = number < len(kept) - self._limits.max_kept_undos or gone.intersection(old.undoes)
            if goes and old.undo_id not in needed:
                gone.add(old.undo_id)
                tx.put(self.table, old.undo_id, None)

    def drop(self, tx: Transaction, space_id: str) -> None:
        for undo in self.of_space(space_id):
            tx.put(self.table, undo.undo_id, None)
