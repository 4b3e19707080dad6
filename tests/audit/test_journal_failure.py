"""A write that fails: what was not durable never was, and the next one works."""

import pytest
from journal_setting import Setting, Thing, on_loop

from bascule.foundation.errors import StorageFull
from bascule.kernel.journal import Transaction


@on_loop
async def test_a_failure_undoes_everything_that_is_not_durable():
    s = Setting()
    s.commit("kept", "before")
    s.store.finish()
    head = (s.journal.chain.seq, s.journal.chain.head)
    s.commit("kept", "after")
    s.commit("new", "x")
    s.commit("kept", None)
    s.commit("new", "y")
    s.store.fail()
    assert s.table.rows == {"kept": Thing("before")}
    assert {text: keys for text, keys in s.index.items() if keys} == {"before": ["kept"]}
    assert (s.journal.chain.seq, s.journal.chain.head) == head


@on_loop
async def test_changes_are_undone_newest_first():
    s = Setting()
    undone = []
    for number in range(4):
        s.commit("k", str(number))
    s.table.on_change = lambda _, old, new: undone.append((old.text, new.text if new else None))
    s.store.fail()
    assert undone == [("3", "2"), ("2", "1"), ("1", "0"), ("0", None)]


@on_loop
async def test_within_a_transaction_changes_are_undone_newest_first_too():
    s = Setting()
    tx = Transaction()
    for text in "abc":
        tx.put(s.table, "k", Thing(text))
    tx.put(s.table, "k", None)
    tx.undo()
    assert s.table.rows == {}
    tx.undo()
    assert s.table.rows == {}


@on_loop
async def test_everyone_who_waits_hears_that_nothing_was_stored():
    s = Setting()
    waiting = [s.commit(f"k{number}") for number in range(3)]
    s.store.fail(OSError(28, "No space left on device"))
    for future in waiting:
        with pytest.raises(StorageFull, match=r"nothing was stored: .*No space left on device") as refused:
            await future
        assert refused.value.retry_after == 1.0
        assert "free space" in refused.value.hint


@on_loop
async def test_nothing_happens_after_a_commit_that_failed():
    s = Setting()
    notified = []
    s.commit(after=lambda: notified.append("flight"))
    s.commit(after=lambda: notified.append("pending"))
    s.store.fail()
    s.commit(after=lambda: notified.append("next"))
    s.store.finish_all()
    assert notified == ["next"]


@on_loop
async def test_the_next_commit_works_and_the_chain_verifies():
    s = Setting()
    for _ in range(3):
        s.commit("good")
        s.store.finish()
        s.commit("lost")
        s.commit("lost too")
        s.store.fail()
    last = s.commit("last")
    s.store.finish()
    assert last.result() is None
    assert [row.seq for row in s.store.read_ledger(lambda ledger: ledger.span(0, 10)).result()] == [1, 2, 3, 4]
    assert s.faults() == []


@on_loop
async def test_a_failure_is_reported_once_and_so_is_its_end():
    s = Setting()
    notified = []
    s.journal.on_fault = notified.append
    s.commit()
    s.store.fail(OSError(28, "No space left on device"))
    assert s.journal.fault is not None
    s.commit()
    s.store.finish()
    s.commit()
    s.store.finish()
    assert s.journal.fault is None
    assert notified == ["[Errno 28] No space left on device", None]


@on_loop
async def test_a_failure_that_nobody_waits_for_is_no_warning():
    s = Setting()
    s.journal.durable()
    s.commit()
    s.store.fail()
    del s


@on_loop
async def test_a_commit_that_was_undone_stays_undone_whatever_is_committed_next():
    s = Setting()
    lost = s.commit("lost")
    s.store.fail()
    following = s.commit("next")
    assert not following.done()
    s.store.finish()
    assert following.exception() is None
    assert isinstance(lost.exception(), StorageFull)
