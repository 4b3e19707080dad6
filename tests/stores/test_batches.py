"""How a batch reaches the file: when it begins, its statements, and the pages of its rows."""

import asyncio
import contextlib
import sqlite3

import pytest
from store_scene import Thing, some, write

from bascule.kernel.journal_ports import Batch
from bascule.stores import sqlite
from patience import PATIENCE


def test_the_end_of_a_turn_is_behind_what_the_turn_does(open_store):
    async def story():
        store = open_store()
        store.start(lambda _: None)
        over = asyncio.Event()
        store.at_end_of_turn(over.set)
        assert not over.is_set()
        async with asyncio.timeout(PATIENCE):
            await over.wait()

    asyncio.run(story())


def test_what_is_committed_before_the_start_is_written_when_the_writer_begins(open_store):
    async def story():
        store, landed = open_store(), asyncio.Event()
        store.at_end_of_turn(lambda: store.write(some("early")))
        store.start(lambda _: landed.set())
        async with asyncio.timeout(PATIENCE):
            await landed.wait()
        store.close()

    asyncio.run(story())
    assert len(dict(open_store().load("tickets", Thing))) == 1


@pytest.mark.parametrize("count", [1, 2, 3, 63, 64, 65, 127, 128, 129])
def test_rows_are_all_written_whatever_their_number(open_store, count):
    """A statement has places for a power of two of them, up to 64."""
    keys = [f"k{number:03d}" for number in range(count)]
    store = open_store()
    rows = [("tickets", key, Thing(key)) for key in keys]
    write(store, Batch(rows, []))
    store.close()
    assert dict(open_store().load("tickets", Thing)) == {key: Thing(key) for key in keys}


def test_deleting_many_rows_leaves_the_others(open_store):
    keys = [f"k{number:03d}" for number in range(200)]
    kept = keys[3::7]
    store = open_store()
    gone = [("tickets", key, None) for key in keys if key not in kept]
    write(store, Batch([("tickets", key, Thing(key)) for key in keys], []), Batch(gone, []))
    store.close()
    assert dict(open_store().load("tickets", Thing)) == {key: Thing(key) for key in kept}


def test_a_row_deleted_and_put_again_in_one_batch_is_there(open_store):
    store = open_store()
    write(store, some("first"), Batch([("tickets", "k", None), ("tickets", "k", Thing("again"))], []))
    store.close()
    assert dict(open_store().load("tickets", Thing)) == {"k": Thing("again")}


def test_a_message_of_a_kilobyte_has_no_page_of_its_own(path, open_store):
    assert pages_of_messages(path, open_store(), 100) < 50


def test_with_smaller_pages_a_message_of_a_kilobyte_has_one(path, open_store, monkeypatch):
    """The control."""
    monkeypatch.setattr(sqlite, "PAGE_BYTES", 4_096)
    assert pages_of_messages(path, open_store(), 100) > 100


def pages_of_messages(path, store, count):
    write(store, Batch([("messages", f"k{number:03d}", Thing("x" * 1_100)) for number in range(count)], []))
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
    return pages


def test_a_file_with_smaller_pages_keeps_them_and_goes_on(path, open_store, monkeypatch):
    monkeypatch.setattr(sqlite, "PAGE_BYTES", 4_096)
    before = open_store()
    write(before, some("before"))
    before.close()
    monkeypatch.undo()
    store = open_store()
    assert store._log_pages == 2 * sqlite.WAL_CHECKPOINT_PAGES
    write(store, Batch([("tickets", f"k{number}", Thing("x" * 3_000)) for number in range(100)], []))
    store.close()
    assert len(dict(open_store().load("tickets", Thing))) == 101
    with open(path, "rb") as file:
        assert int.from_bytes(file.read(18)[16:18], "big") == 4_096
