"""The store that forgets: durability `memory`, and users' own tests."""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from itertools import islice
from typing import TypeVar, cast

import msgspec

from bascule.kernel.journal_ports import Batch, LedgerReader, LedgerRow

T = TypeVar("T")

# In memory the ledger is a window, not an archive; a hundred thousand records are about 30 MB.
MAX_LEDGER_ROWS = 100_000


class MemoryStore:
    """Writes finish at once. A second journal on the same store sees what the first one wrote, if it `reopens`."""

    durability = "memory"

    def __init__(self, *, max_ledger_rows: int = MAX_LEDGER_ROWS, reopens: bool = True) -> None:
        """Without `reopens` rows are not kept: nobody reads them again in a store that ends with the daemon."""
        self.keeps_rows = reopens
        self._tables: dict[str, dict[str, msgspec.Struct]] = {}
        self._ledger: deque[LedgerRow] = deque()
        self._max_ledger_rows = max_ledger_rows
        self._base: bytes | None = None

    def load(self, table: str, type_: type[T]) -> Iterable[tuple[str, T]]:
        return cast("list[tuple[str, T]]", list(self._tables.get(table, {}).items()))

    def ledger_head(self) -> LedgerRow | None:
        return self._ledger[-1] if self._ledger else None

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        """Nothing is ever in flight here, so `done` is never called."""

    def at_end_of_turn(self, act: Callable[[], None]) -> None:
        act()

    def write(self, batch: Batch) -> bool:
        if self.keeps_rows:
            self._keep(batch)
        ledger = self._ledger
        ledger += batch.ledger
        if batch.forget_before or len(ledger) > self._max_ledger_rows:
            while ledger and (ledger[0].seq < batch.forget_before or len(ledger) > self._max_ledger_rows):
                self._base = ledger.popleft().hash
        return True

    def _keep(self, batch: Batch) -> None:
        for table, key, value in batch.changes:
            rows = self._tables.setdefault(table, {})
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value

    def read_ledger(self, job: Callable[[LedgerReader], T]) -> "Future[T]":
        future: Future[T] = Future()
        try:
            future.set_result(job(_MemoryLedger(self._ledger, self._base)))
        except BaseException as error:  # noqa: BLE001 - raised in the caller, as the other store does
            future.set_exception(error)
        return future

    def back_up(self) -> "Future[str]":
        """Never called: `daemon.backup` refuses where nothing is on disk."""
        raise NotImplementedError

    def size_bytes(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing to finish."""


class _MemoryLedger:
    def __init__(self, rows: deque[LedgerRow], base: bytes | None) -> None:
        self._rows = rows
        self._base = base

    def base(self) -> bytes | None:
        return self._base

    def newest(self, limit: int, before: int | None) -> list[LedgerRow]:
        rows = (row for row in reversed(self._rows) if before is None or row.seq < before)
        return list(islice(rows, limit))

    def span(self, first: int, limit: int) -> list[LedgerRow]:
        if not self._rows:
            return []
        start = max(0, first - self._rows[0].seq)
        return list(islice(self._rows, start, start + limit))

    def bounds(self) -> tuple[int, int]:
        return (self._rows[0].seq, self._rows[-1].seq) if self._rows else (0, 0)
