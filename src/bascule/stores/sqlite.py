"""One SQLite file, one connection, one writer thread.

A commit is one row of the journal table (`entries`): the whole batch as one blob. The same thread folds these rows into
the tables later, in pieces, each in one transaction with their removal from the journal; a start folds what is left.

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
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

from bascule.foundation.paths import sync_dir
from bascule.kernel.journal_ports import Batch, LedgerReader, LedgerRow
from bascule.stores import entries, wal
from bascule.stores.schema import TABLES, StoreUnusable, check_schema, copy_aside, prepare
from bascule.stores.sqlite_ledger import SqliteLedger
from gabp import codec

T = TypeVar("T")


class _Unfolded(NamedTuple):
    """A row of the journal that is not in the tables yet."""

    number: int
    size: int
    # When it was written, by the monotonic clock.
    at: float
    ledger: list[LedgerRow]
    forget_before: int


_SYNCHRONOUS = {"fsync": "FULL", "relaxed": "NORMAL"}
# 4 KiB pages; a WAL of about 16 MB before it is folded back keeps both reads and restarts quick.
WAL_CHECKPOINT_PAGES = 4_000
# Rows of the journal keep what the tables no longer have, and so does the write-ahead log after them: typed texts,
# expired messages. No row stays longer than this; after so long without a write all of them are folded and the log is
# cut to nothing; under load it overwrites itself.
FOLD_AFTER_SECONDS = 5.0
# Some thousand asks: most bursts end before, and are folded when nobody waits. A start after a crash folds it in 0.2 s.
FOLD_BYTES = 8 * 1024 * 1024
# Folded by one transaction in about 6 ms, for which the next batch may have to wait; smaller pieces write pages of the
# tables more often.
FOLD_PIECE_BYTES = 512 * 1024
# A journal that cannot be folded must not grow for ever: from here on batches are refused, and say why.
MAX_JOURNAL_BYTES = 64 * 1024 * 1024
# A flipped bit in the file's structure can hide rows that are whole in themselves, so the file is walked at every
# start; larger ones, at more than a second, only after an unclean stop.
CHECK_ALWAYS_BYTES = 256 * 1024 * 1024


class SqliteStore:
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
        self._put = {name: _puts(f"INSERT INTO {name} (key, body, crc) VALUES ", _UPSERT) for name in self._tables}  # noqa: S608 - checked above
        self._put["ledger"] = _puts("INSERT INTO ledger (seq, hash, body) VALUES ", "")
        self.durability = durability
        self._path = path
        self._fold_after = FOLD_AFTER_SECONDS if fold_after is None else fold_after
        # Rows of the journal that are not in the tables, oldest first, and what they take.
        self._unfolded: deque[_Unfolded] = deque()
        self._unfolded_bytes = 0
        # The newest row of the journal, and the newest record: each number is written once.
        self._number = 0
        self._last_record = 0
        self._fold_fault: sqlite3.Error | None = None
        # Changes that a start could not fold: (table, key) to body, or to None when it is deleted.
        self._unloaded: dict[tuple[str, str], bytes | None] = {}
        # Something is in the write-ahead log.
        self._logged = False
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
            "or put back a copy from the backups directory beside it",
        )

    def _open(self, *, check: bool) -> None:
        execute = self._connection.execute
        # No second process may open it: a reader's exit would checkpoint beside us. And before the log is opened,
        # because then its index is kept in memory and not in a file, for which a full disk has no room.
        execute("PRAGMA locking_mode = EXCLUSIVE")
        # SQLite stays with the old mode when it cannot change it, and says so only in its answer.
        (mode,) = execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise sqlite3.OperationalError(f"no write-ahead log can be kept there (journal mode {mode})")
        execute(f"PRAGMA synchronous = {_SYNCHRONOUS[self.durability]}")
        # Payloads are overwritten when their ticket expires, not just unlinked.
        execute("PRAGMA secure_delete = ON")
        execute(f"PRAGMA wal_autocheckpoint = {WAL_CHECKPOINT_PAGES}")
        execute("PRAGMA temp_store = MEMORY")
        if check:
            (verdict,) = execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise self._damaged(verdict)
        self.backup = prepare(self._connection, self._path)
        wrong = check_schema(self._connection, self._tables)
        if wrong is not None:
            raise self._damaged(wrong)
        try:
            self._replay()
        except entries.Damaged as error:
            raise self._damaged(str(error)) from error

    def _replay(self) -> None:
        """What the last life did not fold: before anything is loaded, the tables have all of it."""
        folded, found = entries.sizes(self._connection)
        self._number = folded
        piece = entries.read(self._connection, folded + 1, folded + len(found))
        for (number, size), entry in zip(found, piece, strict=True):
            self._remember(_Unfolded(number, size, 0.0, entry.ledger, entry.forget_before))
        while self._unfolded and self._try_to_fold():
            pass
        if self._unfolded:
            # A full disk: what cannot be folded now is read from the journal, and folded when there is room.
            self._unloaded = _last_of_each(piece[-len(self._unfolded) :])
        self._last_record = self._ledger().bounds()[1]

    # -- before start --

    def load(self, table: str, type_: type[T]) -> Iterable[tuple[str, T]]:
        try:
            yield from self._load(table, type_)
        except (sqlite3.DatabaseError, codec.BadJson) as error:
            raise self._damaged(f"{table}: {error}") from error

    def _known(self, table: str) -> str:
        if table not in self._tables:
            raise ValueError(f"no table {table!r}: its bridge does not declare it")
        return table

    def check_rows(self) -> None:
        """Every row of every table has its checksum, or `StoreUnusable` names one that has not."""
        for table in sorted(self._tables):
            for _ in self.load(table, codec.Raw):
                continue

    def _damaged(self, what: str) -> StoreUnusable:
        return StoreUnusable(
            f"{self._path} is damaged: {what}",
            hint="put back a copy from the backups directory beside it, or move it away to start empty",
        )

    def _load(self, table: str, type_: type[T]) -> Iterable[tuple[str, T]]:
        decode = codec.stored(type_)
        crc32 = zlib.crc32
        for key, body, crc in self._connection.execute(f"SELECT key, body, crc FROM {self._known(table)}"):  # noqa: S608 - table names are ours
            # `_checksum` without a call: everything there is passes here before the daemon is ready. A flipped bit may
            # change a value's type, too.
            if type(key) is not str or type(body) is not bytes or crc32(body, crc32(key.encode())) != crc:
                raise self._damaged(f"{table} row {key!r} does not match its checksum")
            if (table, key) not in self._unloaded:
                yield key, decode(body)
        for (owner, key), body in self._unloaded.items():
            if owner == table and body is not None:
                yield key, decode(body)

    def ledger_head(self) -> LedgerRow | None:
        rows = self._read(lambda ledger: ledger.newest(1, None))
        return rows[0] if rows else None

    def _read(self, job: Callable[[LedgerReader], T]) -> T:
        try:
            return job(self._ledger())
        except sqlite3.DatabaseError as error:
            raise self._damaged(f"ledger: {error}") from error

    def _ledger(self) -> SqliteLedger:
        recent = [row for each in self._unfolded for row in each.ledger]
        forget_before = max((each.forget_before for each in self._unfolded), default=0)
        return SqliteLedger(self._connection, recent, forget_before)

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        # Everything is loaded.
        self._unloaded = {}
        self._loop = asyncio.get_running_loop()
        self._done = done
        self._thread = threading.Thread(target=self._work, name="bascule-store", daemon=True)
        self._thread.start()

    # -- on the event loop --

    def write(self, batch: Batch) -> bool:
        self._jobs.put(lambda: self._write(batch))
        return False

    def read_ledger(self, job: Callable[[LedgerReader], T]) -> "Future[T]":
        return self._on_writer(lambda: self._read(job))

    def back_up(self) -> "Future[str]":
        """What the journal still holds is in the copy, too: it is folded where the copy is opened."""
        return self._on_writer(lambda: copy_aside(self._connection, self._path, "copy"))

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
            self._fold_all()
        self._connection.close()

    # -- on the writer thread --

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._fold_after if self._logged or self._unfolded else None)
            except Empty:
                self._rest()
                continue
            if job is None:
                return
            job()
            if self._is_fold_due():
                self._try_to_fold()

    def _rest(self) -> None:
        """Nobody waits: everything into the tables, and nothing in the write-ahead log."""
        self._fold_all()
        if self._jobs.empty():
            self._cut_log()

    def _cut_log(self) -> None:
        self._logged = False
        # A disk without room, or one that fails: the log stays as it is, and the next write says so.
        with contextlib.suppress(sqlite3.DatabaseError):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _fold_all(self) -> None:
        while self._unfolded and self._jobs.empty() and self._try_to_fold():
            pass

    def _is_fold_due(self) -> bool:
        if not self._unfolded:
            return False
        return self._unfolded_bytes >= FOLD_BYTES or time.monotonic() - self._unfolded[0].at >= self._fold_after

    def _try_to_fold(self) -> bool:
        """One piece. What cannot be folded stays in the journal, where it is as durable as in the tables."""
        try:
            self._fold_piece()
        except sqlite3.Error as error:
            self._fold_fault = error
            return False
        self._fold_fault = None
        return True

    def _fold_piece(self) -> None:
        """The oldest rows of the journal into the tables."""
        count = size = 0
        for each in self._unfolded:
            count += 1
            size += each.size
            if size >= FOLD_PIECE_BYTES:
                break
        first, last = self._unfolded[0].number, self._unfolded[count - 1].number
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            piece = entries.read(self._connection, first, last)
            self._put_rows(piece)
            self._put_ledger(piece)
            entries.cut(self._connection, last)
            self._commit_fold()
        except BaseException:
            self._roll_back()
            raise
        for _ in range(count):
            self._unfolded_bytes -= self._unfolded.popleft().size

    def _remember(self, row: _Unfolded) -> None:
        self._number = row.number
        self._unfolded.append(row)
        self._unfolded_bytes += row.size

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

    def _transact(self, batch: Batch) -> None:
        blob = self._blob(batch)
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._put_blob(blob)
            self._commit()
        except BaseException:
            self._roll_back()
            raise
        self._remember(_Unfolded(self._number + 1, len(blob), time.monotonic(), batch.ledger, batch.forget_before))
        if batch.ledger:
            self._last_record = batch.ledger[-1].seq

    def _blob(self, batch: Batch) -> bytes:
        """What could not be folded is refused here, before anybody relies on it."""
        if self._unfolded_bytes >= MAX_JOURNAL_BYTES and self._fold_fault is not None:
            raise self._fold_fault
        for table in {change[0] for change in batch.changes}:
            self._known(table)
        if batch.ledger and batch.ledger[0].seq <= self._last_record:
            raise sqlite3.IntegrityError(f"record {batch.ledger[0].seq} is there already: numbers are UNIQUE")
        return entries.encode(batch)

    def _put_blob(self, blob: bytes) -> None:
        entries.append(self._connection, self._number + 1, blob)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _put_rows(self, piece: list[entries.Entry]) -> None:
        # Later changes of the same row win; only the last is written.
        rows = _last_of_each(piece)
        puts: dict[str, list[tuple[Any, ...]]] = {}
        gone: dict[str, list[tuple[str]]] = {}
        # By key, as they lie in the file.
        for (table, key), body in sorted(rows.items()):
            if body is None:
                gone.setdefault(table, []).append((key,))
            else:
                puts.setdefault(table, []).append((key, body, _checksum(key, body)))
        for table, keys in gone.items():
            self._connection.executemany(f"DELETE FROM {self._known(table)} WHERE key = ?", keys)  # noqa: S608 - table names are ours
        for table, values in puts.items():
            self._put_many(self._known(table), values)

    def _put_ledger(self, piece: list[entries.Entry]) -> None:
        forget_before = max(entry.forget_before for entry in piece)
        rows = [(row.seq, row.hash, row.body) for entry in piece for row in entry.ledger]
        self._put_many("ledger", rows)
        if forget_before:
            self._connection.execute("DELETE FROM ledger WHERE seq < ?", (forget_before,))

    def _put_many(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        """Few statements: each one gives the interpreter away and has to wait for the busy loop to get it back."""
        statements = self._put[table]
        at = 0
        for size in _AT_ONCE:
            while len(rows) - at >= size:
                values = [value for row in rows[at : at + size] for value in row]
                self._connection.execute(statements[size], values)
                at += size

    def _commit(self) -> None:
        """The fsync is in here; now and then the WAL is folded back, too."""
        self._connection.execute("COMMIT")
        self._logged = True

    def _commit_fold(self) -> None:
        self._connection.execute("COMMIT")
        self._logged = True


def _last_of_each(piece: list[entries.Entry]) -> dict[tuple[str, str], bytes | None]:
    return {(table, key): body for entry in piece for table, key, body in entry.changes}


def _hint(error: Exception) -> str:
    """Only a file that is at fault itself is one to be moved away."""
    code = getattr(error, "sqlite_errorcode", None)
    # The last byte is the kind, the rest says more.
    kind = code & 0xFF if isinstance(code, int) else None
    return _HINTS.get(kind, "move it away to start empty, or put back a copy from the backups directory beside it")


_HINTS: dict[int | None, str] = {
    sqlite3.SQLITE_FULL: "free space on the disk that holds it, then start again; nothing is lost",
    sqlite3.SQLITE_IOERR: "the disk does not answer as it should: see the system's log; the file was not changed",
    sqlite3.SQLITE_BUSY: "another program has it open: close that one, then start again",
    sqlite3.SQLITE_READONLY: "make the file and its directory writable for you, then start again",
}


def _checksum(key: str, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(key.encode()))


# Rows written by one statement: as many as there are, in few sizes, for each is prepared once and kept.
_AT_ONCE = (64, 16, 4, 1)
_UPSERT = " ON CONFLICT (key) DO UPDATE SET body = excluded.body, crc = excluded.crc"


def _puts(head: str, tail: str) -> dict[int, str]:
    return {size: head + ", ".join(["(?, ?, ?)"] * size) + tail for size in _AT_ONCE}


_NAME = re.compile("[a-z_]+")
