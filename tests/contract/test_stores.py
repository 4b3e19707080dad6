"""One suite for every store: what the journal may rely on, whichever it is given."""

import asyncio
import hashlib
import os

import msgspec
import pytest

from bascule.kernel.journal_ports import Batch, LedgerRow
from bascule.stores.memory import MemoryStore
from bascule.stores.sqlite import SqliteStore
from patience import PATIENCE


class Thing(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    number: int = 0
    raw: msgspec.Raw = msgspec.Raw(b"null")


class Desk:
    """A store as the journal uses it: loaded, then started, then written to, one batch at a time."""

    def __init__(self, make):
        self._make = make
        self.loop = asyncio.new_event_loop()
        self.results = asyncio.Queue()
        self.store = make(None)
        self.started = False

    def start(self):
        async def start():
            self.store.start(self.results.put_nowait)

        self.loop.run_until_complete(start())
        self.started = True

    def write(self, changes=(), ledger=(), forget_before=0):
        """Write one batch and wait until the store has answered for it; its error, or None."""
        return self.write_all([Batch(list(changes), list(ledger), forget_before)])[0]

    def write_all(self, batches):
        if not self.started:
            self.start()

        async def write():
            expected = [self.store.write(batch) for batch in batches].count(False)
            async with asyncio.timeout(PATIENCE):
                answers = [await self.results.get() for _ in range(expected)]
            return answers + [None] * (len(batches) - expected)

        return self.loop.run_until_complete(write())

    def read(self, job):
        async def read():
            return await asyncio.wrap_future(self.store.read_ledger(job))

        return self.loop.run_until_complete(read())

    def reopen(self):
        """What a restart finds. In memory that is the same object: a second journal on it sees everything."""
        self.store.close()
        self.store = self._make(self.store)
        self.started = False

    def rows(self, table="tickets"):
        """Everything in a table, as a restart reads it."""
        self.reopen()
        return dict(self.store.load(table, Thing))

    def numbers(self):
        return [row.seq for row in self.read(lambda ledger: ledger.span(0, 1_000))]

    def close(self):
        self.store.close()
        self.loop.close()


@pytest.fixture(params=["memory", "fsync", "relaxed"])
def desk(request, tmp_path):
    def make(old):
        if request.param == "memory":
            return old or MemoryStore()
        return SqliteStore(os.fspath(tmp_path / "bascule.db"), durability=request.param)

    desk = Desk(make)
    yield desk
    desk.close()


@pytest.fixture(params=["fsync", "relaxed"])
def full_disk(request, tmp_path):
    """A store whose file may not grow any more."""
    desk = Desk(lambda _: SqliteStore(os.fspath(tmp_path / "bascule.db"), durability=request.param))
    yield desk
    desk.close()


def row(seq, body=b"{}"):
    return LedgerRow(seq, hashlib.sha256(b"%d" % seq).digest(), body)


def put(key, value, table="tickets"):
    return (table, key, value)


# -- tables --


def test_the_store_says_what_it_promises(desk):
    assert desk.store.durability in ("memory", "fsync", "relaxed")


def test_a_new_store_is_empty(desk):
    for table in ("agents", "tickets", "messages", "remembered", "segments", "house"):
        assert list(desk.store.load(table, Thing)) == []
    assert desk.store.ledger_head() is None
    assert desk.read(lambda ledger: (ledger.bounds(), ledger.newest(5, None), ledger.span(0, 5))) == (
        (0, 0),
        [],
        [],
    )


@pytest.mark.parametrize("table", ["agents", "tickets", "messages", "remembered", "segments", "house"])
def test_rows_come_back_as_they_went_in(desk, table):
    things = {
        "plain": Thing("text", 1),
        "empty": Thing(""),
        "unicode": Thing("\u2028 \U0001f600 \x00", 2**63),
        "key/with.all-signs_1": Thing("x" * 100_000),
    }
    assert desk.write([put(key, thing, table) for key, thing in things.items()]) is None
    assert desk.rows(table) == things


def test_raw_json_comes_back_byte_for_byte(desk):
    raw = msgspec.Raw(b'{"b":1,"a":[1.0,1e2,"\\u0000"],"n":123456789012345678901234567890}')
    desk.write([put("k", Thing("t", raw=raw))])
    assert bytes(desk.rows()["k"].raw) == bytes(raw)


def test_tables_are_apart(desk):
    desk.write([put("k", Thing("ticket")), put("k", Thing("message"), "messages")])
    desk.write([put("k", None)])
    assert desk.rows() == {}
    assert desk.rows("messages") == {"k": Thing("message")}


def test_a_change_replaces_the_row(desk):
    desk.write([put("k", Thing("old"))])
    desk.write([put("k", Thing("new"))])
    assert desk.rows() == {"k": Thing("new")}


def test_a_deleted_row_is_gone(desk):
    desk.write([put("k", Thing("x")), put("l", Thing("y"))])
    desk.write([put("k", None)])
    assert desk.rows() == {"l": Thing("y")}


def test_deleting_what_is_not_there_is_no_error(desk):
    assert desk.write([put("k", None)]) is None


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        (["one", "two"], {"k": Thing("two")}),
        (["one", None], {}),
        (["one", None, "three"], {"k": Thing("three")}),
        ([None, "two"], {"k": Thing("two")}),
    ],
)
def test_of_several_changes_to_a_row_in_one_batch_the_last_wins(desk, changes, left):
    desk.write([put("k", Thing(text) if text else None) for text in changes])
    assert desk.rows() == left


def test_batches_take_effect_in_order(desk):
    answers = desk.write_all([Batch([put("k", Thing(str(number)))], [row(number)]) for number in range(1, 51)])
    assert answers == [None] * 50
    assert desk.numbers() == list(range(1, 51))
    assert desk.rows() == {"k": Thing("50")}


def test_what_is_there_after_a_reopen_can_be_written_on(desk):
    desk.write([put("k", Thing("one"))], [row(1)])
    desk.reopen()
    desk.write([put("l", Thing("two"))], [row(2)])
    assert desk.rows() == {"k": Thing("one"), "l": Thing("two")}
    assert desk.numbers() == [1, 2]


def test_closing_twice_is_safe(desk):
    desk.write([put("k", Thing("x"))])
    desk.store.close()
    desk.store.close()


def test_the_size_is_a_number_of_bytes(desk):
    desk.write([put("k", Thing("x" * 10_000))])
    size = desk.store.size_bytes()
    assert size == 0 if desk.store.durability == "memory" else size > 10_000


# -- the ledger --


def test_ledger_rows_come_back_byte_for_byte_and_in_order(desk):
    rows = [row(seq, b'{"seq":%d,"x":"\xf0\x9f\x98\x80"}' % seq) for seq in range(1, 8)]
    desk.write(ledger=rows[:3])
    desk.write(ledger=rows[3:])
    assert desk.read(lambda ledger: ledger.span(1, 100)) == rows
    desk.reopen()
    assert desk.read(lambda ledger: ledger.span(1, 100)) == rows


def test_the_head_is_the_newest_row(desk):
    desk.write(ledger=[row(1), row(2)])
    desk.write(ledger=[row(3)])
    desk.reopen()
    assert desk.store.ledger_head() == row(3)


@pytest.fixture
def ten(desk):
    desk.write(ledger=[row(seq) for seq in range(1, 11)])
    return lambda job: [each.seq for each in desk.read(job)]


def test_a_span_starts_where_it_is_asked_to_and_ends_at_its_limit(ten):
    assert ten(lambda ledger: ledger.span(4, 3)) == [4, 5, 6]
    assert ten(lambda ledger: ledger.span(0, 2)) == [1, 2]
    assert ten(lambda ledger: ledger.span(9, 100)) == [9, 10]
    assert ten(lambda ledger: ledger.span(11, 100)) == []
    assert ten(lambda ledger: ledger.span(4, 0)) == []


def test_the_newest_rows_come_newest_first(ten):
    assert ten(lambda ledger: ledger.newest(3, None)) == [10, 9, 8]
    assert ten(lambda ledger: ledger.newest(3, 5)) == [4, 3, 2]
    assert ten(lambda ledger: ledger.newest(100, 3)) == [2, 1]
    assert ten(lambda ledger: ledger.newest(3, 1)) == []
    assert ten(lambda ledger: ledger.newest(2, 100)) == [10, 9]


def test_the_bounds_are_the_first_and_the_last_number(desk, ten):
    assert desk.read(lambda ledger: ledger.bounds()) == (1, 10)


def test_forgetting_drops_older_rows_and_nothing_else(desk, ten):
    desk.write([put("k", Thing("x"))], forget_before=4)
    assert desk.numbers() == list(range(4, 11))
    assert desk.read(lambda ledger: ledger.bounds()) == (4, 10)
    assert desk.read(lambda ledger: ledger.span(1, 2)) == [row(4), row(5)]
    assert desk.rows() == {"k": Thing("x")}


def test_forgetting_and_writing_are_one_batch(desk, ten):
    desk.write(ledger=[row(11)], forget_before=11)
    assert desk.numbers() == [11]
    desk.reopen()
    assert desk.store.ledger_head() == row(11)


def test_forgetting_more_than_there_is_leaves_nothing(desk, ten):
    desk.write(forget_before=100)
    assert desk.numbers() == []
    desk.reopen()
    assert desk.store.ledger_head() is None


def test_the_ledger_is_read_beside_writes_on_a_consistent_view(desk):
    if not desk.started:
        desk.start()

    async def both():
        reads = []
        for number in range(1, 41):
            desk.store.write(Batch([], [row(2 * number - 1), row(2 * number)]))
            reads.append(asyncio.wrap_future(desk.store.read_ledger(lambda ledger: ledger.span(1, 1_000))))
        return await asyncio.wait_for(asyncio.gather(*reads), PATIENCE)

    for number, rows in enumerate(desk.loop.run_until_complete(both()), 1):
        # All or nothing of a batch, in order, without a hole.
        assert [each.seq for each in rows] == list(range(1, 2 * number + 1))


def test_the_ledger_can_be_read_before_the_store_is_started(desk):
    desk.write(ledger=[row(1)])
    desk.reopen()
    assert desk.numbers() == [1]


def test_a_failing_job_raises_for_its_caller_and_the_store_goes_on(desk):
    desk.write(ledger=[row(1)])

    def job(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        desk.read(job)
    assert desk.write(ledger=[row(2)]) is None
    assert desk.numbers() == [1, 2]


def test_a_failing_job_is_reported_through_its_future(desk):
    desk.start()

    def job(_):
        raise ZeroDivisionError

    assert isinstance(desk.store.read_ledger(job).exception(PATIENCE), ZeroDivisionError)


# -- a batch that fails --


def test_a_batch_that_does_not_fit_on_the_disk_changes_nothing(full_disk):
    full_disk.write([put("a", Thing("old")), put("b", Thing("stays"))], [row(1)])
    connection = full_disk.store._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    error = full_disk.write(
        [put("a", Thing("new")), put("b", None), put("big", Thing("x" * 1_000_000))], [row(2)], forget_before=2
    )
    assert "full" in str(error)
    assert full_disk.numbers() == [1]
    connection.execute("PRAGMA max_page_count = 1000000")
    assert full_disk.write([put("c", Thing("after"))], [row(2)]) is None
    assert full_disk.rows() == {"a": Thing("old"), "b": Thing("stays"), "c": Thing("after")}
    assert full_disk.numbers() == [1, 2]


def test_a_batch_with_a_value_that_cannot_be_written_changes_nothing(full_disk):
    full_disk.write([put("a", Thing("old"))])
    error = full_disk.write([put("a", Thing("new")), put("b", Thing(object()))], [row(1)])
    assert isinstance(error, TypeError)
    assert full_disk.rows() == {"a": Thing("old")}
    assert full_disk.numbers() == []


def test_a_record_number_is_never_written_twice(full_disk):
    full_disk.write(ledger=[row(1)])
    error = full_disk.write([put("a", Thing("x"))], [row(1, b"another")])
    assert "UNIQUE" in str(error)
    assert full_disk.rows() == {}
    assert full_disk.read(lambda ledger: ledger.span(1, 5)) == [row(1)]


def test_after_a_failure_the_batches_behind_it_are_judged_on_their_own(full_disk):
    answers = full_disk.write_all(
        [
            Batch([put("a", Thing("one"))], [row(1)]),
            Batch([put("a", Thing("two"))], [row(1)]),
            Batch([put("b", Thing("three"))], [row(2)]),
        ]
    )
    assert [answer is None for answer in answers] == [True, False, True]
    assert full_disk.rows() == {"a": Thing("one"), "b": Thing("three")}


def test_a_table_that_does_not_exist_is_refused(full_disk):
    with pytest.raises(ValueError, match="no table 'sqlite_master'"):
        list(full_disk.store.load("sqlite_master", Thing))
