"""The ledger as a job on the writer's thread reads it: the table, and behind it what is not folded yet."""

import sqlite3
from itertools import islice

from bascule.kernel.journal_ports import LedgerRow


class SqliteLedger:
    def __init__(self, connection: sqlite3.Connection, recent: list[LedgerRow], forget_before: int) -> None:
        """`recent`: rows that the table does not have yet. `forget_before`: what it still has and is forgotten."""
        self._connection = connection
        self._recent = [row for row in recent if row.seq >= forget_before]
        self._forget_before = forget_before

    def newest(self, limit: int, before: int | None) -> list[LedgerRow]:
        before = before if before is not None else 2**63 - 1
        rows = list(islice((row for row in reversed(self._recent) if row.seq < before), limit))
        query = "SELECT seq, hash, body FROM ledger WHERE seq < ? AND seq >= ? ORDER BY seq DESC LIMIT ?"
        return rows + self._rows(query, before, self._forget_before, limit - len(rows))

    def span(self, first: int, limit: int) -> list[LedgerRow]:
        query = "SELECT seq, hash, body FROM ledger WHERE seq >= ? ORDER BY seq LIMIT ?"
        rows = self._rows(query, max(first, self._forget_before), limit)
        return rows + list(islice((row for row in self._recent if row.seq >= first), limit - len(rows)))

    def bounds(self) -> tuple[int, int]:
        query = "SELECT min(seq), max(seq) FROM ledger WHERE seq >= ?"
        first, last = self._connection.execute(query, (self._forget_before,)).fetchone()
        if self._recent:
            first, last = first or self._recent[0].seq, self._recent[-1].seq
        return (first or 0, last or 0)

    def base(self) -> bytes | None:
        return None

    def _rows(self, query: str, *values: int) -> list[LedgerRow]:
        rows = [LedgerRow(seq, hash_, body) for seq, hash_, body in self._connection.execute(query, values)]
        for row in rows:
            # A flipped bit may change a value's type, too.
            if type(row.hash) is not bytes or type(row.body) is not bytes:
                raise sqlite3.DatabaseError(f"record {row.seq} cannot be read")
        return rows
