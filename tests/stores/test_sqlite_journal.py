"""Batches that are not in the tables yet: nobody misses them, and damage to them is named."""

import asyncio
import os
import shutil
import sqlite3
import time
from pathlib import Path

import msgspec
import pytest

from bascule.kernel.journal_ports import Batch, LedgerRow
from bascule.stores import entries, sqlite
from bascule.stores.schema import StoreUnusable
from bascule.stores.sqlite import SqliteStore
from patience import PATIENCE

# Nothing is folded before somebody closes the store.
NEVER = 3_600.0


class Thing(msgspec.Struct, frozen=True):
    text: str


def row(seq, body=b"{}"):
    return LedgerRow(seq, bytes(32), body)


def batch(seq, text=None, *, key=None):
    return Batch([("tickets", key or f"k{seq}", Thing(text or str(seq)))], [row(seq)])


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


@pytest.fixture
def path(tmp_path):
    return os.fspath(tmp_path / "bascule.db")


@pytest.fixture
def open_store(path):
    opened = []

    def open_it(at=path, **settings):
        opened.append(SqliteStore(at, **{"fold_after": NEVER, **settings}))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


def killed(path):
    """The files as a kill leaves them."""
    for suffix in ("", "-wal"):
        shutil.copy(path + suffix, f"{path}.killed{suffix}")
    return f"{path}.killed"


@pytest.fixture
def crashed(path, open_store):
    """Five batches, none of them folded."""
    assert write(open_store(), *(batch(seq) for seq in range(1, 6))) == [None] * 5
    copy = killed(path)
    with sqlite3.connect(copy) as connection:
        assert connection.execute("SELECT count(*) FROM tickets").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM journal").fetchone() == (5,)
    connection.close()
    return copy


ALL = {f"k{seq}": Thing(str(seq)) for seq in range(1, 6)}


def content(store):
    ledger = store.read_ledger(lambda ledger: ledger.span(1, 1_000)).result()
    return dict(store.load("tickets", Thing)), [each.seq for each in ledger]


# -- a start --


def test_a_start_has_what_the_last_life_did_not_fold(crashed, open_store):
    store = open_store(crashed)
    assert content(store) == (ALL, [1, 2, 3, 4, 5])
    assert store.ledger_head().seq == 5


@pytest.mark.parametrize("piece_bytes", [1, 200, 10_000])
def test_pieces_of_any_size_lead_to_the_same_tables(crashed, open_store, monkeypatch, piece_bytes):
    monkeypatch.setattr(sqlite, "FOLD_PIECE_BYTES", piece_bytes)
    assert content(open_store(crashed)) == (ALL, [1, 2, 3, 4, 5])


STEPS = [
    (entries, "read"),
    (SqliteStore, "_put_rows"),
    (SqliteStore, "_put_ledger"),
    (entries, "cut"),
    (SqliteStore, "_commit_fold"),
]


@pytest.mark.parametrize("passing", [1, 3, 5])
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("step", STEPS, ids=[name for _, name in STEPS])
def test_a_start_that_ends_in_the_middle_of_the_journal_loses_nothing(
    crashed, open_store, monkeypatch, step, side, passing
):
    owner, name = step
    function = getattr(owner, name)
    left = [passing]

    def dies(*args):
        left[0] -= 1
        if left[0] or side == "after":
            answer = function(*args)
        if not left[0]:
            raise KeyboardInterrupt
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "FOLD_PIECE_BYTES", 1)
        patch.setattr(owner, name, dies)
        with pytest.raises(KeyboardInterrupt):
            open_store(crashed)
    store = open_store(crashed)
    assert content(store) == (ALL, [1, 2, 3, 4, 5])
    assert write(store, batch(6)) == [None]


def test_what_was_folded_is_not_folded_again(path, open_store):
    """A second fold of an old batch would bring back a row that was deleted since."""
    store = open_store()
    write(store, batch(1, key="k"))
    store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT number, body FROM journal").fetchall() == [(1, b"")]
    connection.close()
    store = open_store()
    write(store, Batch([("tickets", "k", None)], [row(2)]))
    store.close()
    assert content(open_store()) == ({}, [1, 2])


def test_later_changes_win_over_earlier_ones_in_and_between_pieces(path, open_store, monkeypatch):
    monkeypatch.setattr(sqlite, "FOLD_PIECE_BYTES", 150)
    store = open_store()
    texts = ["a", None, "b", "c", None, "d"]
    changes = [[("tickets", "k", text and Thing(text)), ("messages", text or "x", Thing("m"))] for text in texts]
    write(store, *(Batch(each, [row(seq)]) for seq, each in enumerate(changes, 1)))
    store.close()
    store = open_store()
    assert dict(store.load("tickets", Thing)) == {"k": Thing("d")}
    assert set(dict(store.load("messages", Thing))) == {"a", "b", "c", "d", "x"}


def test_what_the_journal_and_the_tables_keep_of_a_value_is_the_same(path, open_store):
    class Odd(msgspec.Struct, frozen=True):
        raw: msgspec.Raw
        text: str

    odd = Odd(
        msgspec.Raw(b'{"b":1,"a":[1.0,1e2,"\\u0000"],"n":123456789012345678901234567890}'), "\u2028 \U0001f600 \x00"
    )
    write(open_store(), Batch([("tickets", "\u00e4 key", odd)], [row(1, "\u00e4 {}".encode())]))
    store = open_store(killed(path))
    ((key, value),) = store.load("tickets", Odd)
    assert (key, value.text, bytes(value.raw)) == ("\u00e4 key", odd.text, bytes(odd.raw))
    assert store.ledger_head().body == "\u00e4 {}".encode()


# -- damage --


def change(path, statement, *values):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


DAMAGE = {
    "the first row is gone": ("DELETE FROM journal WHERE number = 1", "journal row 1 is missing"),
    "one in the middle is gone": ("DELETE FROM journal WHERE number = 3", "journal row 3 is missing"),
    "a byte changed": (
        "UPDATE journal SET body = CAST(replace(body, '\"3\"', '\"4\"') AS BLOB) WHERE number = 3",
        "journal row 3 does not match its checksum",
    ),
    "the last one changed": (
        "UPDATE journal SET body = CAST(replace(body, '\"5\"', '\"4\"') AS BLOB) WHERE number = 5",
        "journal row 5 does not match its checksum",
    ),
    "one is empty": ("UPDATE journal SET body = x'' WHERE number = 2", "journal row 2 does not match its checksum"),
    "one has another type": (
        "UPDATE journal SET body = 'text' WHERE number = 2",
        "journal row 2 does not match its checksum",
    ),
    "a number changed": ("UPDATE journal SET number = 9 WHERE number = 5", "journal row 5 is missing"),
    "two are swapped": (
        "UPDATE journal SET body = (SELECT body FROM journal WHERE number = 4), "
        "crc = (SELECT crc FROM journal WHERE number = 4) WHERE number = 2",
        "journal row 2 does not match its checksum",
    ),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_row_of_the_journal_is_refused_and_named(crashed, open_store, how):
    statement, words = DAMAGE[how]
    change(crashed, statement)
    for _ in range(2):
        # Again and again: a refusal changes nothing.
        with pytest.raises(StoreUnusable, match=words) as refused:
            open_store(crashed)
        assert "backups" in refused.value.hint


def test_a_journal_whose_beginning_is_gone_after_a_fold_is_refused(path, open_store):
    store = open_store()
    write(store, batch(1))
    store.close()
    store = open_store()
    write(store, batch(2), batch(3))
    copy = killed(path)
    change(copy, "DELETE FROM journal WHERE number <= 2")
    with pytest.raises(StoreUnusable, match="journal row 1 is missing"):
        open_store(copy)


# -- reads beside it --


def test_the_ledger_is_read_over_what_is_folded_and_what_is_not(path, open_store):
    store = open_store()
    write(store, *(batch(seq) for seq in (1, 2, 3)))
    store.close()
    store = open_store()
    write(store, batch(4), batch(5))

    def numbers(job):
        return [each.seq for each in store.read_ledger(job).result(PATIENCE)]

    assert numbers(lambda ledger: ledger.span(1, 10)) == [1, 2, 3, 4, 5]
    assert numbers(lambda ledger: ledger.span(3, 2)) == [3, 4]
    assert numbers(lambda ledger: ledger.span(5, 2)) == [5]
    assert numbers(lambda ledger: ledger.newest(3, None)) == [5, 4, 3]
    assert numbers(lambda ledger: ledger.newest(3, 5)) == [4, 3, 2]
    assert numbers(lambda ledger: ledger.newest(1, 3)) == [2]
    assert store.read_ledger(lambda ledger: ledger.bounds()).result(PATIENCE) == (1, 5)


def test_records_that_retention_dropped_are_gone_before_the_fold(path, open_store):
    store = open_store()
    write(store, *(batch(seq) for seq in (1, 2, 3)))
    store.close()
    store = open_store()
    write(store, batch(4), Batch([], [row(5)], forget_before=3), batch(6))
    assert [row.seq for row in store.read_ledger(lambda ledger: ledger.span(1, 10)).result(PATIENCE)] == [3, 4, 5, 6]
    assert store.read_ledger(lambda ledger: ledger.bounds()).result(PATIENCE) == (3, 6)
    assert [row.seq for row in store.read_ledger(lambda ledger: ledger.newest(9, None)).result(PATIENCE)] == [
        6,
        5,
        4,
        3,
    ]
    store.close()
    assert content(open_store())[1] == [3, 4, 5, 6]


def test_a_record_number_is_refused_before_and_after_the_fold(path, open_store):
    store = open_store()
    assert [str(error) for error in write(store, batch(1), batch(1, "other"))] == [
        "None",
        "record 1 is there already: numbers are UNIQUE",
    ]
    store.close()
    store = open_store()
    assert "UNIQUE" in str(write(store, batch(1, "other"))[0])
    store.close()
    assert content(open_store()) == ({"k1": Thing("1")}, [1])


# -- when it is folded --


def eventually(holds):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def tickets(path):
    copy = killed(path)
    connection = sqlite3.connect(copy)
    try:
        return connection.execute("SELECT count(*) FROM tickets").fetchone()[0]
    finally:
        connection.close()


def test_a_journal_over_its_limit_is_folded_while_batches_come(path, open_store, monkeypatch):
    monkeypatch.setattr(sqlite, "FOLD_BYTES", 2_000)
    monkeypatch.setattr(sqlite, "FOLD_PIECE_BYTES", 500)
    store = open_store()
    assert write(store, *(batch(seq) for seq in range(1, 101))) == [None] * 100
    eventually(lambda: tickets(path) > 50)
    assert store._unfolded_bytes < 2_500


def test_a_row_is_folded_after_its_time_though_batches_keep_coming(path, open_store):
    """A store that never rests: each batch comes before the writer would fold for want of anything else."""
    store = open_store(fold_after=0.2)

    async def story():
        results = asyncio.Queue()
        store.start(results.put_nowait)
        seq = 0
        async with asyncio.timeout(PATIENCE):
            while not store._unfolded or store._unfolded[0].number == 1:
                seq += 1
                store.write(batch(seq))
                assert await results.get() is None
        return seq

    assert asyncio.run(story()) > 1


def test_an_expired_payload_is_in_no_file_though_it_was_never_in_a_table(path, open_store):
    secret = "correct-horse-battery"
    store = open_store(fold_after=0.05)
    write(store, batch(1, secret, key="k"), Batch([("tickets", "k", None)], []))

    def left():
        return [name for name in (path, f"{path}-wal") if secret.encode() in Path(name).read_bytes()]

    eventually(lambda: not left())


def test_the_journal_keeps_it_until_then(path, open_store):
    """The control for the test above."""
    write(open_store(), batch(1, "correct-horse-battery", key="k"), Batch([("tickets", "k", None)], []))
    connection = sqlite3.connect(killed(path))
    assert connection.execute("SELECT count(*) FROM journal WHERE instr(body, 'correct-horse')").fetchone() == (1,)
    connection.close()


# -- a fold that fails --


@pytest.fixture
def unfoldable(monkeypatch):
    def fails(*_):
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "FOLD_BYTES", 500)
        patch.setattr(SqliteStore, "_put_rows", fails)
        yield patch


def test_batches_are_taken_and_read_though_the_fold_fails(path, open_store, unfoldable):
    store = open_store()
    assert write(store, *(batch(seq) for seq in range(1, 21))) == [None] * 20
    assert len(store.read_ledger(lambda ledger: ledger.span(1, 100)).result(PATIENCE)) == 20
    store.close()
    unfoldable.undo()
    assert content(open_store())[1] == list(range(1, 21))


def test_a_journal_that_cannot_be_folded_does_not_grow_for_ever(path, open_store, unfoldable):
    unfoldable.setattr(sqlite, "MAX_JOURNAL_BYTES", 1_000)
    store = open_store()
    errors = write(store, *(batch(seq) for seq in range(1, 31)))
    taken = errors.index(next(error for error in errors if error))
    assert errors[:taken] == [None] * taken
    assert {str(error) for error in errors[taken:]} == {"disk I/O error"}
    store.close()
    unfoldable.undo()
    store = open_store()
    assert content(store)[1] == list(range(1, taken + 1))
    assert write(store, batch(taken + 1)) == [None]
