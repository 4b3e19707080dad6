"""One SQLite file, one connection, one writer thread.

WAL with `synchronous=FULL`: an acknowledged commit survives a power cut. The standard library's SQLite
may be inside the range of the WAL-reset bug (3.7.0 to 3.51.2), which needs two connections that write or
checkpoint at once: there is only this one, it belongs to the writer thread, and reads of the ledger run
there too. Structs are encoded on that thread, off the event loop.
"""

import asyncio
import contextlib
import os
import re
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import msgspec

from bascule.foundation.errors import StorageFull
from bascule.foundation.paths import sync_dir
from bascule.kernel.journal_ports import Batch, LedgerReader, LedgerRow
from bascule.stores import wal
from bascule.stores.schema import (
    PUT_BACK,
    SCHEMA_VERSION,
    TABLES,
    StoreUnusable,
    check_schema,
    copy_out,
    copy_to,
    prepare,
)
from gabp import codec

T = TypeVar("T")

_SYNCHRONOUS = {"fsync": "FULL", "relaxed": "NORMAL"}
# Of a new file; one that is there keeps its own. SQLite gives a row of more than a quarter of a page a page to itself:
# with 4 KiB each message of 1 KB wrote a whole one, a fifth fewer asks per second. 16 KiB are no faster.
PAGE_BYTES = 8_192
# 4 MB, in smaller pages as many more. Folding them back keeps whoever commits next waiting for milliseconds; 16 MB kept
# it for 40 to 65 ms. A smaller log is folded so often that its syncs count.
WAL_CHECKPOINT_PAGES = 500
# Overwritten rows are gone from the file, and still in the log that overwrote them: typed texts, expired messages.
# After so long without a write the log is folded back and blanked; under load it overwrites itself.
FOLD_AFTER_SECONDS = 5.0
# A flipped bit in the file's structure can hide rows that are whole in themselves, so the file is walked at every
# start; larger ones, at more than a second, only after an unclean stop.
CHECK_ALWAYS_BYTES = 256 * 1024 * 1024


class SqliteStore:
    keeps_rows = True

    def __init__(
        self,
        path: str,
        *,
        durability: str = "fsync",
        check: bool = False,
        fold_after: float | None = None,
        tables: Iterable[str] = (),
    ) -> None:
        """`check` walks the whole file first, however large: after an unclean stop. `tables`: of the bridges."""
        self._tables = frozenset((*TABLES, *tables))
        if odd := [name for name in self._tables if not _NAME.fullmatch(name)]:
            raise ValueError(f"{odd[0]!r} cannot be the name of a table: use a-z and _")
        self._put = {name: _puts(f"INSERT INTO {name} (key, body, crc)", _UPSERT) for name in self._tables}
        self._put["ledger"] = _puts("INSERT INTO ledger (seq, hash, body)", "")
        self._delete = {name: _deletes(name) for name in self._tables}
        self.durability = durability
        self._path = path
        self._fold_after = FOLD_AFTER_SECONDS if fold_after is None else fold_after
        # Something was written since the log was last folded.
        self._unfolded = False
        self._log_pages = 0
        self._log = wal.Log(path + "-wal")
        self._prepare_file()
        # Before SQLite sees it: closing the database would delete a log that it could not read to the end.
        self.broken_end = self._look_at_wal()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: Callable[[BaseException | None], None] | None = None
        self.backup: str | None = None
        try:
            self._open(check=check or os.stat(path).st_size <= CHECK_ALWAYS_BYTES)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            # The second: SQLite quotes names from the file in its messages, flipped bits and all.
            self._connection.close()
            raise StoreUnusable(f"{path} cannot be used: {error}", hint=_hint(error)) from error
        except BaseException:
            self._connection.close()
            raise

    def _prepare_file(self) -> None:
        is_new = not os.path.lexists(self._path)
        # Before SQLite creates it with the umask's mode.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        if is_new:
            # SQLite syncs the directory for files that it makes itself.
            sync_dir(os.path.dirname(self._path))

    def _look_at_wal(self) -> wal.Break | None:
        """What a crash cut off, if anything; damage is refused while the log is still there to be looked at."""
        broken = wal.find_break(self._path + "-wal")
        # Without syncs a power cut may leave any part of the log.
        if broken is None or not broken.damage or self.durability != "fsync":
            return broken
        log = self._path + "-wal"
        raise StoreUnusable(
            f"{log} is damaged at byte {broken.offset}: {broken.pages} pages of what was stored last cannot be read",
            hint=f"copy both files away first; then `truncate -s {broken.offset} '{log}'` goes on without those pages, "
            "or put back a copy with `bascule restore FILE`",
        )

    def _open(self, *, check: bool) -> None:
        execute = self._connection.execute
        # No second process may open it: a reader's exit would checkpoint beside us. And before the log is opened,
        # because then its index is kept in memory and not in a file, for which a full disk has no room.
        execute("PRAGMA locking_mode = EXCLUSIVE")
        execute(f"PRAGMA page_size = {PAGE_BYTES}")
        # SQLite stays with the old mode when it cannot change it, and says so only in its answer.
        (mode,) = execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise sqlite3.OperationalError(f"no write-ahead log can be kept there (journal mode {mode})")
        execute(f"PRAGMA synchronous = {_SYNCHRONOUS[self.durability]}")
        # Payloads are overwritten when their ticket expires, not just unlinked.
        execute("PRAGMA secure_delete = ON")
        (page_bytes,) = execute("PRAGMA page_size").fetchone()
        self._log_pages = WAL_CHECKPOINT_PAGES * PAGE_BYTES // page_bytes
        execute(f"PRAGMA wal_autocheckpoint = {2 * self._log_pages}")
        execute("PRAGMA temp_store = MEMORY")
        if check:
            (verdict,) = execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise self._damaged(verdict)
        self.backup = prepare(self._connection, self._path)
        wrong = check_schema(self._connection, self._tables)
        if wrong is not None:
            raise self._damaged(wrong)

    # -- before start --

    def load(self, table: str, type_: type[T]) -> Iterable[tuple[str, T]]:
        try:
            yield from self._load(table, type_)
        except sqlite3.DatabaseError as error:
            raise self._damaged(f"{table}: {error}") from error

    def _known(self, table: str) -> str:
        if table not in self._tables:
            raise ValueError(f"no table {table!r}: its bridge does not declare it")
        return table

    def copy_to(self, path: str) -> None:
        """A copy of all that is there, on disk when this returns."""
        try:
            copy_to(self._connection, path)
        except (sqlite3.Error, OSError) as error:
            raise StorageFull(str(error), hint=_COPY_HINT) from error

    def write_now(self, batch: Batch) -> None:
        """On disk when this returns, however durable other writes are."""
        try:
            self._connection.execute("PRAGMA synchronous = FULL")
            self._transact(batch)
            self._connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[self.durability]}")
        except sqlite3.Error as error:
            raise StorageFull(str(error), hint="free space on the disk that holds the state directory") from error

    def check_rows(self) -> None:
        """Every row of every table has its checksum, or `StoreUnusable` names one that has not."""
        for table in sorted(self._tables):
            for _ in self.load(table, codec.Raw):
                continue

    def _damaged(self, what: str) -> StoreUnusable:
        return StoreUnusable(f"{self._path} is damaged: {what}", hint=PUT_BACK)

    def _load(self, table: str, type_: type[T]) -> Iterable[tuple[str, T]]:
        decode = codec.stored(type_)
        crc32 = zlib.crc32
        for key, body, crc in self._connection.execute(f"SELECT key, body, crc FROM {self._known(table)}"):  # noqa: S608 - table names are ours
            # `_checksum` without a call: everything there is passes here before the daemon is ready. A flipped bit may
            # change a value's type, too.
            if type(key) is not str or type(body) is not bytes or crc32(body, crc32(key.encode())) != crc:
                raise self._damaged(f"{table} row {key!r} does not match its checksum")
            try:
                row = decode(body)
            except (msgspec.MsgspecError, ValueError) as error:
                # Whole, and not as this version writes it.
                raise StoreUnusable(
                    f"{self._path}: {table} row {key!r} cannot be read: {error}",
                    hint="start the version of Bascule that wrote it, or " + PUT_BACK,
                ) from error
            yield key, row

    def ledger_head(self) -> LedgerRow | None:
        rows = self._read(lambda ledger: ledger.newest(1, None))
        return rows[0] if rows else None

    def _read(self, job: Callable[[LedgerReader], T]) -> T:
        try:
            return job(_SqliteLedger(self._connection))
        except sqlite3.DatabaseError as error:
            raise self._damaged(f"ledger: {error}") from error

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = done
        self._thread = threading.Thread(target=self._work, name="bascule-store", daemon=True)
        self._thread.start()

    # -- on the event loop --

    def at_end_of_turn(self, act: Callable[[], None]) -> None:
        if self._loop is None:
            # Before `start`: the writer finds it when it begins.
            act()
            return
        # Behind the next one too: who was over its share in this turn goes on in that one.
        self._loop.call_soon(self._loop.call_soon, act)

    def write(self, batch: Batch) -> bool:
        self._jobs.put(lambda: self._write(batch))
        return False

    def read_ledger(self, job: Callable[[LedgerReader], T]) -> "Future[T]":
        return self._on_writer(lambda: self._read(job))

    def back_up(self) -> "Future[str]":
        return self._on_writer(self._copy_out)

    def _copy_out(self) -> str:
        try:
            return copy_out(self._connection, self._path)
        except (sqlite3.Error, OSError) as error:
            raise StorageFull(f"no copy was made: {error}", hint=_COPY_HINT) from error

    def _on_writer(self, job: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()

        def run() -> None:
            # The caller may have left meanwhile; a cancelled future takes no result.
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(job())
            except BaseException as error:  # noqa: BLE001 - raised in the caller
                future.set_exception(error)

        if self._thread is None:
            run()
        else:
            self._jobs.put(run)
        return future

    def size_bytes(self) -> int:
        total = 0
        for suffix in ("", "-wal"):
            try:
                total += os.stat(self._path + suffix).st_size
            except FileNotFoundError:
                continue
        return total

    def close(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        self._connection.close()

    # -- on the writer thread --

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._fold_after if self._unfolded else None)
            except Empty:
                self._fold()
                continue
            if job is None:
                return
            job()

    def _fold(self) -> None:
        """Everything into the database file, and nothing of it left in the log.

        The log keeps its length, for one that was cut grows again: each commit would have to sync the new length, too.
        """
        self._unfolded = False
        # A disk without room, or one that fails: the log stays as it is, and the next write says so.
        with contextlib.suppress(sqlite3.DatabaseError, OSError):
            busy, pages, folded = self._connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
            if busy or pages != folded:
                return
            known = self._log.is_known()
            self._begin_round()
            blanked = self._log.blank(pages if known else None, keep=self._log_pages, goes_on=self._jobs.empty)
            # Somebody came meanwhile and does not wait for the rest: it goes at the next pause.
            self._unfolded = not blanked

    def _begin_round(self) -> None:
        """A commit that changes nothing, over the first page of the log: no page behind it counts any more."""
        self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _write(self, batch: Batch) -> None:
        error: BaseException | None = None
        try:
            self._transact(batch)
        except BaseException as caught:  # noqa: BLE001 - the journal undoes and answers; the thread lives on
            error = caught
        assert self._loop is not None
        assert self._done is not None
        try:
            self._loop.call_soon_threadsafe(self._done, error)
        except RuntimeError:
            # The loop is closed: nobody is left to be told, and what was committed is committed.
            return
        if error is None:
            self._fold_long_log()

    def _fold_long_log(self) -> None:
        """Behind the answer, so that nobody waits for it but who commits next."""
        # As in `_fold`: the next write says what is wrong.
        with contextlib.suppress(sqlite3.DatabaseError, OSError):
            if self._log.has_page(self._log_pages):
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _transact(self, batch: Batch) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._put_rows(batch)
            self._put_ledger(batch)
            self._commit()
        except BaseException:
            # Its pages may lie behind the end of the log.
            self._log.forget()
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _put_rows(self, batch: Batch) -> None:
        # Later changes of the same row win; only the last is written.
        rows: dict[tuple[str, str], Any] = {(table, key): value for table, key, value in batch.changes}
        puts: dict[str, list[tuple[Any, ...]]] = {}
        deletes: dict[str, list[tuple[Any, ...]]] = {}
        for (table, key), value in rows.items():
            if value is None:
                deletes.setdefault(table, []).append((key,))
            else:
                body = codec.encode(value)
                puts.setdefault(table, []).append((key, body, _checksum(key, body)))
        for table, keys in deletes.items():
            self._execute_many(self._delete[self._known(table)], keys)
        for table, values in puts.items():
            self._execute_many(self._put[table], values)

    def _put_ledger(self, batch: Batch) -> None:
        self._execute_many(self._put["ledger"], [(row.seq, row.hash, row.body) for row in batch.ledger])
        if batch.forget_before:
            self._connection.execute("DELETE FROM ledger WHERE seq < ?", (batch.forget_before,))

    def _execute_many(self, statements: dict[int, str], rows: list[tuple[Any, ...]]) -> None:
        """Few statements: each one gives the interpreter away and has to wait for the busy loop to get it back."""
        for at in range(0, len(rows), _MOST_AT_ONCE):
            part = rows[at : at + _MOST_AT_ONCE]
            size = 1 << (len(part) - 1).bit_length()
            values = [value for row in part for value in row]
            values += [None] * (size * len(part[0]) - len(values))
            self._connection.execute(statements[size], values)

    def _commit(self) -> None:
        """The fsync is in here; the WAL is folded back only if that has failed behind earlier ones."""
        self._connection.execute("COMMIT")
        self._unfolded = True


class _SqliteLedger:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def newest(self, limit: int, before: int | None) -> list[LedgerRow]:
        query = "SELECT seq, hash, body FROM ledger WHERE seq < ? ORDER BY seq DESC LIMIT ?"
        return self._rows(query, before if before is not None else 2**63 - 1, limit)

    def span(self, first: int, limit: int) -> list[LedgerRow]:
        return self._rows("SELECT seq, hash, body FROM ledger WHERE seq >= ? ORDER BY seq LIMIT ?", first, limit)

    def bounds(self) -> tuple[int, int]:
        first, last = self._connection.execute("SELECT min(seq), max(seq) FROM ledger").fetchone()
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


def _hint(error: Exception) -> str:
    """Only a file that is at fault itself is one to be moved away."""
    code = getattr(error, "sqlite_errorcode", None)
    # The last byte is the kind, the rest says more.
    kind = code & 0xFF if isinstance(code, int) else None
    return _HINTS.get(kind, PUT_BACK)


_HINTS: dict[int | None, str] = {
    sqlite3.SQLITE_FULL: "free space on the disk that holds it, then start again; nothing is lost",
    sqlite3.SQLITE_IOERR: "the disk does not answer as it should: see the system's log; the file was not changed",
    sqlite3.SQLITE_BUSY: "another program has it open: close that one, then start again",
    sqlite3.SQLITE_READONLY: "make the file and its directory writable for you, then start again",
}


# Once in the state directory and once in its place.
_COPY_HINT = "it needs as much room as the database has, on that disk and where the file shall be"


def _checksum(key: str, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(key.encode()))


# Rows written or deleted by one statement. It has places for a power of two of them, so that few are prepared and kept;
# a place that is not needed is NULL, which puts and deletes nothing.
_MOST_AT_ONCE = 64
_SIZES = (1, 2, 4, 8, 16, 32, _MOST_AT_ONCE)
_UPSERT = " ON CONFLICT (key) DO UPDATE SET body = excluded.body, crc = excluded.crc"


def _puts(head: str, tail: str) -> dict[int, str]:
    rows = {size: "VALUES " + ", ".join(["(?, ?, ?)"] * size) for size in _SIZES}
    # One row has no place to spare, and is the ask of somebody who asks alone: the shorter statement takes 1 us less.
    return (
        {1: f"{head} {rows[1]}{tail}"}
        | {
            size: f"{head} SELECT * FROM ({rows[size]}) WHERE column1 IS NOT NULL{tail}"  # noqa: S608 - `head` and `tail` are ours
            for size in _SIZES[1:]
        }
    )


def _deletes(table: str) -> dict[int, str]:
    return {size: f"DELETE FROM {table} WHERE key IN ({', '.join('?' * size)})" for size in _SIZES}  # noqa: S608 - checked where the tables are named


_NAME = re.compile("[a-z_]+")
