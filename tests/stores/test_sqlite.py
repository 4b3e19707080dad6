"""The file itself: modes, settings, one owner, versions, damage, and kill -9."""

import asyncio
import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import time
import zlib
from itertools import groupby
from pathlib import Path

import pytest
from store_scene import Thing, some, write

from bascule.kernel.journal_ports import Batch, LedgerRow
from bascule.stores import schema, sqlite
from bascule.stores.schema import KEEP_BACKUPS, SCHEMA_VERSION, StoreUnusable, back_up, prepare
from patience import PATIENCE


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def plainly(path):
    return sqlite3.connect(path, isolation_level=None)


# -- the file --


def test_every_file_of_the_database_is_for_its_owner_only(path, open_store):
    mask = os.umask(0)
    try:
        write(open_store(), some())
        files = [name for name in os.listdir(os.path.dirname(path)) if name.startswith("bascule.db")]
    finally:
        os.umask(mask)
    assert {"bascule.db", "bascule.db-wal"} <= set(files)
    assert {name: mode(os.path.join(os.path.dirname(path), name)) for name in files} == dict.fromkeys(files, 0o600)


def test_a_link_in_the_databases_place_is_not_followed(path, open_store, tmp_path):
    os.symlink(tmp_path / "elsewhere.db", path)
    with pytest.raises(OSError, match="symbolic"):
        open_store()
    assert not (tmp_path / "elsewhere.db").exists()


@pytest.mark.parametrize(("durability", "synchronous"), [("fsync", 2), ("relaxed", 1)])
def test_the_settings_that_durability_rests_on_are_really_set(open_store, durability, synchronous):
    connection = open_store(durability=durability)._connection

    def read(pragma):
        return connection.execute(f"PRAGMA {pragma}").fetchone()[0]

    assert read("journal_mode") == "wal"
    assert read("synchronous") == synchronous
    assert read("secure_delete") == 1
    assert read("locking_mode") == "exclusive"
    assert read("user_version") == SCHEMA_VERSION


def test_a_second_process_cannot_open_it(path, open_store):
    write(open_store(), some())
    intruder = f"import sqlite3; sqlite3.connect({path!r}, timeout=0).execute('SELECT * FROM tickets').fetchall()"
    done = subprocess.run(
        [sys.executable, "-c", intruder], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert "database is locked" in done.stderr


def test_a_store_that_was_only_opened_is_held_too(path, open_store):
    open_store()
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        sqlite3.connect(path, timeout=0).execute("SELECT * FROM tickets").fetchall()


def test_a_payload_that_was_deleted_is_not_left_in_the_file(path, open_store):
    store = open_store()
    write(store, some("a very secret sentence"), Batch([("tickets", "k", None)], []))
    store.close()
    with open(path, "rb") as file:
        assert b"a very secret sentence" not in file.read()


def test_what_was_deleted_is_in_no_file_once_the_store_has_rested(path, open_store):
    secret = "correct-horse-battery"
    store = open_store(fold_after=0.05)
    write(store, some(secret), Batch([("tickets", "k", None)], []))

    def left():
        return [name for name in (path, f"{path}-wal") if secret.encode() in Path(name).read_bytes()]

    deadline = time.monotonic() + PATIENCE
    while left():
        assert time.monotonic() < deadline, f"still in {left()}"
        time.sleep(0.01)
    # And what stays is still there.
    store.close()
    assert open_store().ledger_head().seq == 1


def test_the_write_ahead_log_keeps_deleted_text_until_it_is_folded(path, open_store):
    """The control: without the fold the text stays, and the test above would see it."""
    store = open_store(fold_after=3_600)
    write(store, some("correct-horse-battery"), Batch([("tickets", "k", None)], []))
    assert b"correct-horse-battery" in Path(f"{path}-wal").read_bytes()


# What a commit may have to fold before the one behind it begins: 500 pages, and the pages of the last commit.
LOG_BYTES = 6 * 1024 * 1024


def test_large_rows_are_folded_a_few_at_a_time(path, open_store):
    assert log_after_large_rows(path, open_store()) < LOG_BYTES


def test_a_log_of_four_times_the_pages_keeps_more_large_rows(path, open_store, monkeypatch):
    """The control: it is the limit that folds them."""
    monkeypatch.setattr(sqlite, "WAL_CHECKPOINT_PAGES", 4_000)
    assert log_after_large_rows(path, open_store()) > 2 * LOG_BYTES


def log_after_large_rows(path, store):
    """How long the log has become: it keeps its length while it is overwritten."""
    write(store, *(some("x" * 1024 * 1024, f"k{seq}", seq) for seq in range(1, 25)))
    return os.stat(f"{path}-wal").st_size


class _Answers:
    """The loop of a store: what is to be called there is noted."""

    def __init__(self, steps):
        self._steps = steps

    def call_soon_threadsafe(self, _done, error):
        self._steps.append("answer" if error is None else "failure")


def test_a_long_log_is_folded_behind_the_answer_to_the_commit_that_made_it_long(open_store, monkeypatch):
    monkeypatch.setattr(sqlite, "WAL_CHECKPOINT_PAGES", 20)
    steps, store = [], open_store()
    store._loop, store._done = _Answers(steps), steps.append
    store._connection.set_trace_callback(steps.append)
    counts = []
    for seq in range(1, 41):
        steps.clear()
        store._write(some("x" * 6_000, f"k{seq}", seq))
        assert steps[steps.index("COMMIT") + 1] == "answer"
        counts.append(steps.count("PRAGMA wal_checkpoint(PASSIVE)"))
        assert steps[-1] == ("PRAGMA wal_checkpoint(PASSIVE)" if counts[-1] else "answer")
    # Again and again, and not with each commit: the next one begins at the start of the log.
    assert 3 <= sum(counts) <= 20, counts
    assert max(len(list(run)) for folds, run in groupby(counts) if folds) == 1
    store._connection.set_trace_callback(None)


def test_closing_folds_the_wal_back(path, open_store):
    store = open_store()
    write(store, some())
    store.close()
    assert not os.path.exists(path + "-wal")


def test_closing_finishes_what_was_handed_in(path, open_store):
    store = open_store()

    async def story():
        store.start(lambda _: None)
        for number in range(1, 101):
            store.write(some(str(number), f"k{number}", number))
        store.close()

    asyncio.run(story())
    assert len(list(open_store().load("tickets", Thing))) == 100


# -- versions --


def test_a_database_of_a_newer_version_is_refused_with_what_to_do(path, open_store):
    open_store().close()
    with plainly(path) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(StoreUnusable) as refused:
        open_store()
    assert refused.value.message == f"{path} was written by a newer Bascule (schema 7; this one knows {SCHEMA_VERSION})"
    assert "backups" in refused.value.hint


@pytest.fixture
def old(path, open_store):
    """A connection to a database of the present version that has a row."""
    store = open_store()
    write(store, some("before"))
    store.close()
    connection = plainly(path)
    yield connection
    connection.close()


def rename_text(connection):
    connection.execute("UPDATE tickets SET body = replace(body, 'before', 'after')")


# The one after the present version, whichever that is.
NEXT_VERSION = SCHEMA_VERSION + 1


def test_a_migration_changes_the_rows_and_leaves_a_copy_from_before(path, old):
    copy = prepare(old, path, version=NEXT_VERSION, migrations={SCHEMA_VERSION: rename_text})
    assert old.execute("PRAGMA user_version").fetchone() == (NEXT_VERSION,)
    assert old.execute("SELECT body FROM tickets").fetchone() == ('{"text":"after"}',)
    assert os.path.dirname(copy) == os.path.join(os.path.dirname(path), "backups")
    assert re.fullmatch(rf"bascule-schema{SCHEMA_VERSION}-\d{{8}}T\d{{6}}Z.*\.db", os.path.basename(copy))
    assert (mode(copy), mode(os.path.dirname(copy))) == (0o600, 0o700)
    before = plainly(copy)
    assert before.execute("SELECT body FROM tickets").fetchone() == (b'{"text":"before"}',)
    assert before.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    before.close()


def test_the_copy_is_a_database_that_can_be_put_back(path, old, open_store):
    copy = prepare(old, path, version=NEXT_VERSION, migrations={SCHEMA_VERSION: rename_text})
    old.close()
    os.replace(copy, path)
    assert dict(open_store().load("tickets", Thing)) == {"k": Thing("before")}


def test_migrations_run_one_after_the_other(path, old):
    steps = []
    numbers = [SCHEMA_VERSION + each for each in range(3)]
    migrations = {number: lambda _, number=number: steps.append(number) for number in numbers}
    prepare(old, path, version=numbers[-1] + 1, migrations=migrations)
    assert steps == numbers
    assert old.execute("PRAGMA user_version").fetchone() == (numbers[-1] + 1,)


def test_a_migration_that_fails_changes_nothing(path, old):
    def fails(connection):
        rename_text(connection)
        connection.execute("DROP TABLE agents")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        prepare(old, path, version=NEXT_VERSION, migrations={SCHEMA_VERSION: fails})
    assert old.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert old.execute("SELECT body FROM tickets").fetchone() == (b'{"text":"before"}',)
    assert old.execute("SELECT count(*) FROM agents").fetchone() == (0,)


def test_a_failed_migration_can_be_tried_again_at_once(path, old):
    def fails(_):
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            prepare(old, path, version=NEXT_VERSION, migrations={SCHEMA_VERSION: fails})
    prepare(old, path, version=NEXT_VERSION, migrations={SCHEMA_VERSION: rename_text})
    assert old.execute("PRAGMA user_version").fetchone() == (NEXT_VERSION,)


def test_the_present_version_needs_no_copy(path, open_store):
    assert open_store().backup is None
    assert not os.path.exists(os.path.join(os.path.dirname(path), "backups"))


@pytest.mark.parametrize("version", [1, 9, 10])
def test_only_the_newest_copies_are_kept(path, old, version):
    directory = os.path.join(os.path.dirname(path), "backups")
    os.mkdir(directory, 0o700)
    earlier = [f"bascule-schema{max(1, version - 1)}-2020010{day}T000000Z.db" for day in range(1, 6)]
    for name in earlier:
        open(os.path.join(directory, name), "wb").close()
    copy = back_up(old, path, version)
    assert sorted(os.listdir(directory)) == sorted([*earlier[1 - KEEP_BACKUPS :], os.path.basename(copy)])


# What version 0.1 made, word for word: kept here so that no later edit of `schema` can change what is migrated from.
SCHEMA_1 = (
    *(
        f"CREATE TABLE {name} (key TEXT PRIMARY KEY, body BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID"
        for name in ("agents", "tickets", "messages", "remembered", "segments", "house")
    ),
    "CREATE TABLE ledger (seq INTEGER PRIMARY KEY, hash BLOB NOT NULL, body BLOB NOT NULL)",
    "PRAGMA user_version = 1",
)


@pytest.fixture
def made_by_schema_1(path):
    body = b'{"text":"before"}'
    connection = plainly(path)
    for statement in SCHEMA_1:
        connection.execute(statement)
    connection.execute("INSERT INTO tickets VALUES ('k', ?, ?)", (body, zlib.crc32(body, zlib.crc32(b"k"))))
    connection.execute("INSERT INTO ledger VALUES (1, ?, ?)", (bytes(32), b"{}"))
    connection.close()
    return path


def test_a_database_made_by_schema_1_is_opened_with_its_rows_and_can_keep_what_came_since(made_by_schema_1, open_store):
    store = open_store()
    assert os.path.basename(store.backup).startswith("bascule-schema1-")
    assert dict(store.load("tickets", Thing)) == {"k": Thing("before")}
    assert store.ledger_head().seq == 1
    new = ("approvals", "rules", "begun", "spaces", "runs", "pins", "desktop", "desktop_apps")
    write(store, Batch([(table, "k", Thing(table)) for table in new], [LedgerRow(2, bytes(32), b"{}")]))
    store.close()
    again = open_store()
    assert again.backup is None
    assert {table: dict(again.load(table, Thing)) for table in new} == {table: {"k": Thing(table)} for table in new}


def test_the_copy_of_a_migrated_database_is_what_schema_1_had(made_by_schema_1, open_store):
    copy = plainly(open_store().backup)
    assert copy.execute("PRAGMA user_version").fetchone() == (1,)
    tables = {name for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"agents", "tickets", "messages", "remembered", "segments", "house", "ledger"}
    copy.close()


def test_a_migration_that_is_cut_off_leaves_a_database_of_schema_1(made_by_schema_1, open_store):
    def fails(connection):
        schema._add_version_2(connection)
        raise ZeroDivisionError

    connection = plainly(made_by_schema_1)
    with pytest.raises(ZeroDivisionError):
        prepare(connection, made_by_schema_1, migrations={1: fails})
    connection.close()
    assert dict(open_store().load("tickets", Thing)) == {"k": Thing("before")}


def test_every_released_migration_leads_to_the_present_version():
    assert sorted(schema.MIGRATIONS) == list(range(1, SCHEMA_VERSION))


# -- damage --


def test_a_file_that_is_no_database_is_refused_with_what_to_do(path, open_store):
    with open(path, "wb") as file:
        file.write(b"not a database at all" * 500)
    with pytest.raises(StoreUnusable, match="cannot be used: file is not a database") as refused:
        open_store()
    assert "move it away" in refused.value.hint
    with open(path, "rb") as file:
        assert file.read().startswith(b"not a database")


def test_a_flipped_bit_in_a_row_is_refused_with_the_row_named(path, old, open_store):
    old.execute("UPDATE tickets SET body = ?", (b'{"text":"beforf"}',))
    old.close()
    store = open_store()
    with pytest.raises(StoreUnusable, match="tickets row 'k' does not match its checksum") as refused:
        list(store.load("tickets", Thing))
    assert "backups" in refused.value.hint


def test_a_flipped_bit_in_a_key_is_refused_too(old, open_store):
    old.execute("UPDATE tickets SET key = 'j'")
    old.close()
    with pytest.raises(StoreUnusable):
        list(open_store().load("tickets", Thing))


def test_any_flipped_byte_of_a_row_on_the_disk_is_found(path, open_store):
    store = open_store()
    text = "a sentence that is easy to find"
    write(store, some(text))
    store.close()
    with open(path, "rb") as file:
        good = file.read()
    at = good.index(text.encode())
    for offset in range(len(text)):
        bad = bytearray(good)
        bad[at + offset] ^= 0x01
        with open(path, "wb") as file:
            file.write(bad)
        damaged = open_store()
        with pytest.raises(StoreUnusable, match="does not match its checksum"):
            list(damaged.load("tickets", Thing))
        damaged.close()


def test_a_damaged_page_is_found_by_the_check_after_an_unclean_stop(path, open_store):
    store = open_store()
    write(store, *(some("x" * 500, f"k{number:04d}", number) for number in range(1, 400)))
    store.close()
    with open(path, "r+b") as file:
        file.seek(20 * 4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(StoreUnusable):
        open_store(check=True)


def test_the_check_passes_on_a_sound_file(path, open_store):
    store = open_store()
    write(store, some())
    store.close()
    assert dict(open_store(check=True).load("tickets", Thing)) == {"k": Thing("text")}


# -- kill -9 --

WRITER = """
    import asyncio, sys
    import msgspec
    from bascule.kernel.journal_ports import Batch, LedgerRow
    from bascule.stores.sqlite import SqliteStore

    class Thing(msgspec.Struct, frozen=True):
        text: str

    async def main():
        store = SqliteStore(sys.argv[1], durability=sys.argv[2])
        number = 0

        def acknowledged(error):
            assert error is None, error
            print(number, flush=True)
            following()

        def following():
            nonlocal number
            number += 1
            store.write(Batch([("tickets", f"k{number}", Thing(str(number)))], [LedgerRow(number, bytes(32), b"{}")]))

        store.start(acknowledged)
        following()
        await asyncio.Event().wait()

    asyncio.run(main())
"""


@pytest.mark.parametrize("durability", ["fsync", "relaxed"])
def test_what_was_acknowledged_survives_kill_9(path, open_store, durability):
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), path, durability], stdout=subprocess.PIPE, text=True
    ) as writer:
        for line in writer.stdout:
            if int(line) == 50:
                break
        writer.send_signal(signal.SIGKILL)
        acknowledged = max([50, *(int(line) for line in writer.stdout.read().splitlines())])
    store = open_store(check=True)
    rows = dict(store.load("tickets", Thing))
    head = store.ledger_head().seq
    # One more may have been on the disk before it could be said.
    assert acknowledged <= head <= acknowledged + 1
    assert rows == {f"k{number}": Thing(str(number)) for number in range(1, head + 1)}
    assert [row.seq for row in store.read_ledger(lambda ledger: ledger.span(1, 10_000)).result()] == list(
        range(1, head + 1)
    )
