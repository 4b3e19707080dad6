"""What has begun and not ended: written before an effect outside the store, removed with the record of its end.

After a crash the rows that are left say what may have happened. They become records with the outcome `unknown`;
nothing is ever carried out again because of them.
"""

from typing import Any

import msgspec

from bascule.audit.journal import Table, Transaction
from bascule.audit.ports import JournalStore
from bascule.call import Principal
from bascule.ids import new_id

# Outcomes of records: it starts, and nobody knows how it ended.
BEGUN = "begun"
UNKNOWN = "unknown"


class BegunRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An effect that is on its way."""

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


class BegunBook:
    def __init__(self, store: JournalStore) -> None:
        self.table: Table[BegunRow] = Table("begun", BegunRow)
        self.table.rows.update(store.load("begun", BegunRow))

    def begin(self, tx: Transaction, row: BegunRow) -> str:
        begun_id = new_id("bgn")
        tx.put(self.table, begun_id, row)
        tx.subject = row.subject
        # Pairs the record of the end with the one of the beginning.
        tx.details = {"begun": begun_id, **(row.details or {})}
        if row.approval_id is not None:
            tx.details["approval"] = row.approval_id
        return begun_id

    def finish(self, tx: Transaction, begun_id: str) -> BegunRow:
        row = self.table.rows[begun_id]
        tx.put(self.table, begun_id, None)
        tx.subject = row.subject
        tx.details = {"begun": begun_id}
        if row.approval_id is not None:
            tx.details["approval"] = row.approval_id
        return row

    def left(self) -> list[tuple[str, BegunRow]]:
        """Of the last life, before anything begins in this one."""
        return list(self.table.rows.items())
