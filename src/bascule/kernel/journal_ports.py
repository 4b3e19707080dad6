"""What journal and ledger need from the outside."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import msgspec

T = TypeVar("T")


class LedgerRow(msgspec.Struct, frozen=True, gc=False):
    """One link of the chain as stored: `body` is the exact bytes that were hashed."""

    seq: int
    hash: bytes
    body: bytes


class Batch(msgspec.Struct, frozen=True, gc=False):
    """What one commit writes: all of it or nothing."""

    # (table, key, value or None to delete), later changes win.
    changes: list[tuple[str, str, msgspec.Struct | None]]
    ledger: list[LedgerRow]
    # Drop ledger rows with a smaller number: retention.
    forget_before: int = 0


class JournalStore(Protocol):
    """Durable tables of Structs and one ledger. One writer; batches in order, one at a time."""

    durability: str
    # False where a store ends with the daemon, so that nobody loads a row again: it gets no changes of tables.
    keeps_rows: bool

    def load(self, table: str, type_: type[T]) -> Iterable[tuple[str, T]]:
        """Every row of a table; before `start` only."""

    def ledger_head(self) -> LedgerRow | None:
        """The newest row; before `start` only."""

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        """`done` is called on the event loop after each batch that `write` did not finish at once."""

    def at_end_of_turn(self, act: Callable[[], None]) -> None:
        """Call `act` once the loop has handled what it has read already; at once where writes finish at once."""

    def write(self, batch: Batch) -> bool:
        """True: it is as durable as this store makes it. False: `done` will say."""

    def read_ledger(self, job: Callable[["LedgerReader"], T]) -> "Future[T]":
        """Run `job` beside the writer, off the event loop, on a consistent view."""

    def back_up(self) -> "Future[str]":
        """Make a consistent copy beside the store, and say where it is."""

    def size_bytes(self) -> int:
        """What the store takes on disk, or 0."""

    def close(self) -> None:
        """Finish what was written; safe to call twice."""


class LedgerReader(Protocol):
    def newest(self, limit: int, before: int | None) -> list[LedgerRow]:
        """Newest first."""

    def span(self, first: int, limit: int) -> list[LedgerRow]:
        """From record `first` on, in order."""

    def bounds(self) -> tuple[int, int]:
        """First and last record number; (0, 0) when empty."""

    def base(self) -> bytes | None:
        """The hash before the first row, where the store itself keeps only a window; else None."""


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Base of the lines that are written for every call: as a Struct they cost a tenth of a dict.

    A subclass names its event by a field or by `tag_field="event"`.
    """


class Log(Protocol):
    """Structured log lines; never payloads."""

    def __call__(self, event: str | LogLine, /, *, level: str = "info", **fields: Any) -> None: ...
