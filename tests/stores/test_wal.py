"""Where a write-ahead log breaks off, and whether a crash or damage did that; logs written by SQLite itself."""

import os
import shutil
import sqlite3

import pytest

from bascule.stores.wal import FRAME_HEADER_BYTES, HEADER_BYTES, find_break

PAGE_BYTES = 4096
STEP = FRAME_HEADER_BYTES + PAGE_BYTES
COMMITS = 6


@pytest.fixture
def path(tmp_path):
    return f"{tmp_path}/x.db"


def write(path, *sizes, fold=False):
    """A commit for each size; the log stays, as after a kill."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS t (key INTEGER PRIMARY KEY, body BLOB)")
    for size in sizes:
        connection.execute("INSERT INTO t (body) VALUES (?)", (os.urandom(size),))
        if fold:
            connection.execute("PRAGMA wal_checkpoint(RESTART)")
    with open(path + "-wal", "rb") as file:
        log = file.read()
    shutil.copy(path, path + ".before")
    connection.close()
    shutil.move(path + ".before", path)
    put(path, log)
    return log


def put(path, log):
    with open(path + "-wal", "wb") as file:
        file.write(log)


def rows_sqlite_reads(path, log):
    put(path, log)
    shutil.copy(path, path + ".copy")
    shutil.copy(path + "-wal", path + ".copy-wal")
    connection = sqlite3.connect(path + ".copy")
    try:
        return connection.execute("SELECT count(*) FROM t").fetchone()[0]
    finally:
        connection.close()


def flipped(log, at):
    return log[:at] + bytes([log[at] ^ 1]) + log[at + 1 :]


def commit_ends(log):
    return [
        offset + STEP
        for offset in range(HEADER_BYTES, len(log), STEP)
        if int.from_bytes(log[offset + 4 : offset + 8], "big")
    ]


def test_no_log_and_an_empty_one_break_nowhere(path):
    assert find_break(path + "-wal") is None
    put(path, b"")
    assert find_break(path + "-wal") is None


def test_a_whole_log_breaks_nowhere(path):
    write(path, 100, 5_000, 20_000)
    assert find_break(path + "-wal") is None


def test_what_an_earlier_round_left_behind_is_not_looked_at(path):
    write(path, 50_000, 200, fold=True)
    log = write(path, 300, 300)
    assert len(log) > HEADER_BYTES + 10 * STEP
    assert find_break(path + "-wal") is None


def test_a_log_that_just_ends_early_is_no_damage(path):
    log = write(path, 100, 5_000, 20_000)
    for size in range(0, len(log), 997):
        put(path, log[:size])
        found = find_break(path + "-wal")
        assert found is None or not found.damage, size


def test_a_commit_that_was_being_written_is_no_damage(path):
    log = write(path, *[9_000] * COMMITS)
    ends = commit_ends(log)
    # Any one page of it did not reach the disk, or half of it did.
    for start in range(ends[-2], ends[-1], STEP):
        for lost in (slice(start, start + STEP), slice(start + 100, start + STEP)):
            torn = bytearray(log)
            torn[lost] = bytes(lost.stop - lost.start)
            put(path, bytes(torn))
            found = find_break(path + "-wal")
            # The last page gone altogether is an end like any other.
            assert found is None or (found.offset, found.damage) == (start, False)


@pytest.mark.parametrize(
    "within",
    [0, 3, 5, 8, 11, 12, 15, 16, 19, 20, 23, 24, 24 + 2_000, STEP - 1],
    ids=lambda at: f"byte {at} of a frame",
)
def test_a_flipped_bit_with_a_commit_behind_it_is_damage(path, within):
    log = write(path, *[9_000] * COMMITS)
    for start in range(HEADER_BYTES, commit_ends(log)[-2], STEP):
        bad = flipped(log, start + within)
        # The control: SQLite itself reads less than there was, and says nothing.
        if start == HEADER_BYTES + STEP * 8:
            assert rows_sqlite_reads(path, bad) < COMMITS
        put(path, bad)
        found = find_break(path + "-wal")
        assert found is not None, start
        assert (found.offset, found.damage) == (start, True), start


def test_a_flipped_bit_in_the_last_commit_is_seen(path):
    log = write(path, *[9_000] * COMMITS)
    for start in range(commit_ends(log)[-2], len(log), STEP):
        for within in (0, 3, 5, 8, 11, 12, 15, 16, 19, 20, 23, 24, STEP - 1):
            put(path, flipped(log, start + within))
            assert find_break(path + "-wal") is not None


def test_a_flipped_bit_in_the_header_is_damage(path):
    log = write(path, 100, 100)
    for at in range(HEADER_BYTES):
        put(path, flipped(log, at))
        found = find_break(path + "-wal")
        assert found is not None, at
        assert (found.offset, found.damage) == (0, True)


def test_what_commits_left_that_could_not_be_synced_is_no_damage(path):
    """Two commits fail after all of their pages were written, then a smaller one succeeds on top of theirs."""
    base = write(path, 100)
    attempts = []
    for size in (40_000, 20_000, 100):
        shutil.copy(path, path + ".try")
        put(path + ".try", base)
        connection = sqlite3.connect(path + ".try", isolation_level=None)
        connection.execute("INSERT INTO t (body) VALUES (?)", (os.urandom(size),))
        with open(path + ".try-wal", "rb") as file:
            attempts.append(file.read())
        connection.close()
    large, middle, small = attempts
    assert len(base) < len(small) < len(middle) < len(large)
    assert small[: len(base)] == base
    put(path, small + middle[len(small) :] + large[len(middle) :])
    found = find_break(path + "-wal")
    assert found is not None
    assert (found.offset, found.damage) == (len(small), False)
    assert rows_sqlite_reads(path, small + middle[len(small) :] + large[len(middle) :]) == 2
