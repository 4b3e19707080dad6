"""The write-ahead log of a store at rest: nothing of its past is in it, its length stays, and no crash makes it lie."""

import asyncio
import errno
import os
import shutil
import sqlite3
import time
from pathlib import Path

import msgspec
import pytest

from bascule.kernel.journal_ports import Batch, LedgerRow
from bascule.stores import sqlite, wal
from bascule.stores.sqlite import SqliteStore
from bascule.stores.wal import FRAME_HEADER_BYTES, HEADER_BYTES, Log, find_break
from patience import PATIENCE

PAGE_BYTES = 4096
STEP = FRAME_HEADER_BYTES + PAGE_BYTES
SECRET = "correct-horse-battery"
KEEP = 50


class Thing(msgspec.Struct, frozen=True):
    text: str


@pytest.fixture
def path(tmp_path):
    return os.fspath(tmp_path / "x.db")


@pytest.fixture
def connection(path):
    """As the store has it."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (
        "PRAGMA locking_mode = EXCLUSIVE",
        "PRAGMA journal_mode = WAL",
        "PRAGMA secure_delete = ON",
        "CREATE TABLE t (key INTEGER PRIMARY KEY, body TEXT)",
    ):
        connection.execute(statement)
    yield connection
    connection.close()


def put(connection, *texts):
    for text in texts:
        connection.execute("INSERT INTO t (body) VALUES (?)", (text,))


def fold(connection):
    assert connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0


def begin_round(connection):
    connection.execute("PRAGMA user_version = 1")


def log_of(path):
    return Path(path + "-wal").read_bytes()


def bodies(path, database, log):
    """What SQLite finds in these two files, which it takes for what a crash left."""
    Path(path + ".copy").write_bytes(database)
    Path(path + ".copy-wal").write_bytes(log)
    copy = sqlite3.connect(path + ".copy")
    try:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [body for (body,) in copy.execute("SELECT body FROM t ORDER BY key")]
    finally:
        copy.close()
        for end in ("", "-wal", "-shm"):
            Path(path + ".copy" + end).unlink(missing_ok=True)


TEXTS = [f"text {number} {SECRET * 200}" for number in range(20)]


@pytest.fixture
def rested(path, connection):
    """Everything is folded, and a new round has begun over an old one."""
    put(connection, *TEXTS)
    fold(connection)
    begin_round(connection)
    return Log(path + "-wal")


def test_nothing_but_the_first_page_is_left_and_the_length_is_as_asked(path, rested):
    assert SECRET.encode() in log_of(path)
    rested.blank(None, keep=KEEP)
    log = log_of(path)
    assert len(log) == HEADER_BYTES + KEEP * STEP
    assert not any(log[HEADER_BYTES + STEP :])
    assert find_break(path + "-wal") is None


def test_blanking_stops_between_two_pieces_for_a_commit_and_the_next_rest_finishes_it(
    path, connection, rested, monkeypatch
):
    monkeypatch.setattr(wal, "_FILL_BYTES", STEP)
    pieces = iter([True, True, False])
    assert not rested.blank(None, keep=KEEP, goes_on=lambda: next(pieces))
    log = log_of(path)
    assert not any(log[HEADER_BYTES + STEP : HEADER_BYTES + 3 * STEP])
    assert SECRET.encode() in log[HEADER_BYTES + 3 * STEP :]
    # What comes is committed over it, and nothing of it is taken for known.
    put(connection, "one")
    assert bodies(path, Path(path).read_bytes(), log_of(path)) == [*TEXTS, "one"]
    assert not rested.is_known()
    fold(connection)
    begin_round(connection)
    assert rested.blank(None, keep=KEEP)
    assert SECRET.encode() not in log_of(path)


def test_a_log_longer_than_asked_is_cut(path, rested):
    assert len(log_of(path)) > HEADER_BYTES + 5 * STEP
    rested.blank(None, keep=5)
    assert len(log_of(path)) == HEADER_BYTES + 5 * STEP


def test_commits_afterwards_are_there_after_a_crash_and_the_log_does_not_grow(path, connection, rested):
    rested.blank(None, keep=KEEP)
    put(connection, "one", "two")
    assert len(log_of(path)) == HEADER_BYTES + KEEP * STEP
    assert bodies(path, Path(path).read_bytes(), log_of(path)) == [*TEXTS, "one", "two"]


def test_a_crash_at_any_byte_of_it_loses_nothing(path, rested):
    database, before = Path(path).read_bytes(), log_of(path)
    for at in (*range(HEADER_BYTES + STEP, len(before), 3_001), len(before)):
        blanks = bytes(at - HEADER_BYTES - STEP)
        # From the front, as it is written, and from the back, as a disk may store it.
        for log in (
            before[: HEADER_BYTES + STEP] + blanks + before[at:],
            before[: len(before) - len(blanks)] + blanks,
        ):
            assert bodies(path, database, log) == TEXTS
            Path(path + ".log").write_bytes(log)
            assert find_break(path + ".log") is None


def test_without_a_new_round_the_same_would_bring_back_what_was(path, connection):
    """The control: SQLite believes the beginning of an old round."""
    put(connection, *TEXTS)
    fold(connection)
    log = log_of(path)
    cut = HEADER_BYTES + len(log) // STEP // 2 * STEP
    try:
        found = bodies(path, Path(path).read_bytes(), log[:cut] + bytes(len(log) - cut))
    except (AssertionError, sqlite3.DatabaseError):
        found = None
    assert found != TEXTS


def test_the_new_round_is_on_disk_before_anything_goes(monkeypatch, path, rested):
    """Without syncs at each commit it might not be, and then a power cut is the control above."""
    steps = []
    for name in ("fdatasync", "ftruncate", "pwrite"):
        real = getattr(os, name)
        monkeypatch.setattr(wal.os, name, lambda *args, name=name, real=real: (steps.append(name), real(*args))[1])
    rested.blank(None, keep=5)
    assert steps[:4] == ["fdatasync", "ftruncate", "fdatasync", "pwrite"]
    assert steps[-1] == "fdatasync"


def test_a_log_of_more_than_one_page_is_not_touched(path, connection):
    put(connection, *TEXTS)
    log = log_of(path)
    Log(path + "-wal").blank(None, keep=KEEP)
    assert log_of(path) == log


def test_only_what_was_used_is_written_again(path, connection, rested):
    rested.blank(None, keep=KEEP)
    put(connection, SECRET)
    (_, pages, _) = connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    assert rested.is_known()
    begin_round(connection)
    # Nobody writes there; so that what is overwritten shows.
    with open(path + "-wal", "r+b") as file:
        file.seek(-10, os.SEEK_END)
        file.write(b"a mark")
    rested.blank(pages, keep=KEEP)
    assert SECRET.encode() not in log_of(path)
    assert log_of(path).endswith(b"a mark\0\0\0\0")


def test_what_another_round_wrote_is_not_known(path, connection, rested):
    rested.blank(None, keep=KEEP)
    put(connection, *TEXTS)
    fold(connection)
    # The second round of a burst is shorter than the first.
    put(connection, "one")
    assert not rested.is_known()


def test_a_disk_without_room_gets_its_room_back(monkeypatch, path, rested):
    length = len(log_of(path))
    pwrite = os.pwrite

    def full(descriptor, data, offset):
        if offset >= length:
            pwrite(descriptor, data[:100], offset)
            raise OSError(errno.ENOSPC, "no space")
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(wal.os, "pwrite", full)
    with pytest.raises(OSError, match="no space"):
        rested.blank(None, keep=1_000)
    assert len(log_of(path)) == length
    assert SECRET.encode() not in log_of(path)
    assert not rested.is_known()


# -- in the store --


def batch(seq, text):
    return Batch([("tickets", "k", text and Thing(text))], [LedgerRow(seq, bytes(32), b"{}")])


@pytest.fixture
def opened():
    stores = []
    yield stores
    for store in stores:
        store.close()


def write(store, *batches):
    """The errors, one for each batch."""

    async def story():
        results = asyncio.Queue()
        store.start(results.put_nowait)
        for each in batches:
            store.write(each)
        async with asyncio.timeout(PATIENCE):
            return [await results.get() for _ in batches]

    return asyncio.run(story())


def wait_until_blank(store):
    deadline = time.monotonic() + PATIENCE
    # Not asked on the writer's thread: a job ends its rest.
    while not store._log.is_known():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def left(path):
    return [name for name in (path, path + "-wal") if SECRET.encode() in Path(name).read_bytes()]


@pytest.fixture(params=[PAGE_BYTES, sqlite.PAGE_BYTES])
def page_bytes(request, monkeypatch):
    """Of a file that was made before, and of a new one."""
    monkeypatch.setattr(sqlite, "PAGE_BYTES", request.param)
    return request.param


@pytest.fixture(params=[2, 4_000], ids=["many rounds", "one round"])
def pages(request, monkeypatch):
    monkeypatch.setattr(sqlite, "WAL_CHECKPOINT_PAGES", request.param)
    return request.param


@pytest.mark.parametrize("durability", ["fsync", "relaxed"])
def test_a_store_at_rest_has_a_blank_log_and_all_that_was_written(path, opened, durability, pages, page_bytes):
    opened.append(SqliteStore(path, durability=durability, fold_after=0.05))
    texts = [SECRET * 300, SECRET, None]
    assert write(opened[0], *(batch(seq, text) for seq, text in enumerate(texts, 1))) == [None] * 3
    wait_until_blank(opened[0])
    assert left(path) == []
    assert len(log_of(path)) == HEADER_BYTES + pages * (FRAME_HEADER_BYTES + page_bytes)
    # As a kill leaves it.
    for end in ("", "-wal"):
        shutil.copy(path + end, path + ".killed" + end)
    opened.append(SqliteStore(path + ".killed"))
    assert opened[1].ledger_head().seq == 3


def test_what_a_failed_write_left_behind_the_end_of_the_log_goes_too(monkeypatch, path, opened):
    store = SqliteStore(path, fold_after=3_600)
    opened.append(store)

    def fail(self):
        # Its pages are in the log, and then the disk fails.
        with open(path + "-wal", "r+b") as file:
            file.seek(HEADER_BYTES + 100 * STEP)
            file.write(SECRET.encode())
        raise sqlite3.OperationalError("disk I/O error")

    assert write(store, batch(1, "a"), batch(2, "b")) == [None, None]
    store._on_writer(store._fold).result(PATIENCE)
    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "_commit", fail)
        assert [type(each) for each in again(store, batch(3, "c"))] == [sqlite3.OperationalError]
    assert again(store, batch(3, "d")) == [None]
    assert left(path) == [path + "-wal"]
    store._on_writer(store._fold).result(PATIENCE)
    assert left(path) == []


def again(store, *batches):
    """Write to a store whose thread runs already."""

    async def story():
        results = asyncio.Queue()
        store._loop, store._done = asyncio.get_running_loop(), results.put_nowait
        for each in batches:
            store.write(each)
        async with asyncio.timeout(PATIENCE):
            return [await results.get() for _ in batches]

    return asyncio.run(story())
