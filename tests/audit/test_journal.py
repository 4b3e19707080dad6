"""Transactions: nothing is answered before it is durable; segments and anchors."""

import asyncio
import contextlib

from journal_setting import Setting, Thing, on_loop

from bascule.kernel import journal as journal_module
from bascule.kernel.call import DAEMON, LOCAL
from bascule.kernel.journal import Transaction
from bascule.kernel.ledger import read_record
from bascule.stores.memory import MemoryStore
from bascule.testing.clock import FakeClock
from bascule.testing.stores import HeldStore

# -- the way to durable --


@on_loop
async def test_a_commit_is_settled_only_when_the_store_says_so():
    s = Setting()
    committed = s.commit()
    await asyncio.sleep(0)
    assert not committed.done()
    assert not s.journal.idle
    s.store.finish()
    assert committed.done()
    assert s.journal.idle


@on_loop
async def test_a_task_that_is_cancelled_while_it_waits_takes_the_answer_from_nobody():
    s = Setting()
    s.commit()
    notified = []
    s.journal.durable().add_done_callback(lambda settled: notified.append(settled.exception()))

    async def waits():
        await s.journal.durable()

    waiting = asyncio.ensure_future(waits())
    await asyncio.sleep(0)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    assert waiting.cancelled()
    assert notified == []
    s.store.finish()
    assert notified == [None]


@on_loop
async def test_a_change_is_seen_at_once_by_the_next_call():
    s = Setting()
    s.commit("k", "x")
    assert s.table.rows == {"k": Thing("x")}
    assert s.index == {"x": ["k"]}


@on_loop
async def test_on_a_store_that_finishes_at_once_nothing_is_waited_for():
    s = Setting(MemoryStore())
    assert s.commit().done()
    assert s.journal.durable() is None


@on_loop
async def test_many_commits_become_two_batches():
    s = Setting()
    settled = [s.commit(f"k{number}") for number in range(100)]
    assert s.written() == [1]
    s.store.finish()
    assert s.written() == [1, 99]
    assert [future.done() for future in settled] == [True] + [False] * 99
    s.store.finish()
    assert all(future.done() for future in settled)
    assert s.faults() == []


@on_loop
async def test_of_a_row_changed_often_while_the_disk_was_busy_the_last_change_is_written():
    s = Setting()
    for text in "abc":
        s.commit("k", text)
    s.commit("l", "gone")
    s.commit("l", None)
    s.store.finish_all()
    assert dict(s.store.load("tickets", Thing)) == {"k": Thing("c")}


@on_loop
async def test_a_reader_of_everything_waits_for_the_newest():
    s = Setting()
    assert s.journal.durable() is None
    flying = s.commit()
    s.commit()
    waiting = s.journal.durable()
    s.store.finish()
    assert flying.done()
    assert not waiting.done()
    s.store.finish()
    assert waiting.done()


@on_loop
async def test_the_record_says_who_what_how_and_when():
    s = Setting()
    tx = Transaction()
    tx.subject, tx.details = "t", {"bytes": 3}
    s.journal.commit(tx, LOCAL, "messages.send", "forbidden", "a rule")
    record = read_record(s.store.batches[0].ledger[0])
    assert (record.principal, record.method, record.outcome, record.rule, record.subject, record.details) == (
        "local",
        "messages.send",
        "forbidden",
        "a rule",
        "t",
        {"bytes": 3},
    )
    assert record.at == FakeClock().wall_ms()


@on_loop
async def test_a_quiet_commit_leaves_no_record_and_is_as_durable():
    s = Setting()
    tx = Transaction()
    tx.put(s.table, "k", Thing("x"))
    settled = s.journal.commit_quietly(tx)
    assert s.written() == [0]
    s.store.finish()
    assert settled.done()
    assert s.journal.chain.seq == 0
    assert dict(s.store.load("tickets", Thing)) == {"k": Thing("x")}


@on_loop
async def test_what_is_to_be_forgotten_rides_with_its_batch():
    s = Setting(segment_records=2)
    for number in range(4):
        s.commit(f"k{number}")
    s.store.finish_all()
    tx = Transaction()
    tx.forget_before = 3
    s.journal.commit(tx, DAEMON, "daemon.gc")
    s.commit("later")
    s.store.finish_all()
    assert s.store.read_ledger(lambda ledger: ledger.bounds()).result() == (3, 6)
    assert s.faults() == []


# -- after callbacks --


@on_loop
async def test_what_is_to_happen_after_a_commit_happens_only_when_it_is_durable():
    s = Setting()
    notified = []
    s.commit("a", after=lambda: notified.append("a"))
    s.commit("b", after=lambda: notified.append("b"))
    assert notified == []
    s.store.finish()
    assert notified == ["a"]
    s.store.finish()
    assert notified == ["a", "b"]


@on_loop
async def test_what_happens_after_a_commit_may_commit_again():
    for store in (HeldStore(), MemoryStore()):
        s = Setting(store)
        s.commit("a", after=lambda s=s: s.commit("b", after=lambda: s.commit("c")))
        if isinstance(store, HeldStore):
            store.finish_all()
        assert list(s.table.rows) == ["a", "b", "c"]
        assert s.journal.durable() is None
        assert s.faults() == []


@on_loop
async def test_a_waiter_is_told_after_what_happens_after_its_commit():
    s = Setting()
    notified = []
    s.commit(after=lambda: notified.append("after")).add_done_callback(lambda _: notified.append("answer"))
    s.store.finish()
    await asyncio.sleep(0)
    assert notified == ["after", "answer"]


@on_loop
async def test_a_callback_that_fails_harms_nobody_but_itself():
    s = Setting()
    notified = []

    def fails():
        raise ZeroDivisionError

    s.commit("first")
    s.commit("a", after=fails)
    waiting = s.commit("b", after=lambda: notified.append("b"))
    s.store.finish()
    s.commit("c")
    with contextlib.suppress(ZeroDivisionError):
        s.store.finish()
    assert waiting.done()
    assert notified == ["b"]
    # What arrived meanwhile does not wait for somebody's next commit.
    assert [len(batch.ledger) for batch in s.store.waiting] == [1]


@on_loop
async def test_a_waiter_that_went_away_keeps_nobody_else_from_being_told():
    s = Setting()
    s.commit().cancel()
    waiting = s.journal.durable()
    s.journal.durable().cancel()
    s.store.finish()
    assert waiting.result() is None
    assert s.table.rows, "the change stays, whoever waited for it"
    assert not s.commit().done()


# -- segments and anchors --


@on_loop
async def test_segments_are_closed_by_count_and_chained():
    s = Setting(segment_records=4)
    for number in range(10):
        s.commit(f"k{number}")
    s.store.finish_all()
    first, second = s.journal.segments.rows.values()
    assert [(each.first, each.last) for each in (first, second)] == [(1, 4), (5, 8)]
    assert (first.before, second.before) == (bytes(32).hex(), first.head)
    assert [key for key, _ in s.store.load("segments", type(first))] == ["000000000001", "000000000005"]


@on_loop
async def test_a_segment_whose_last_record_was_lost_is_closed_again():
    s = Setting(segment_records=4)
    for number in range(3):
        s.commit(f"k{number}")
    s.store.finish_all()
    s.commit("lost")
    assert len(s.journal.segments.rows) == 1
    s.store.fail()
    assert s.journal.segments.rows == {}
    for number in range(5):
        s.commit(f"again{number}")
    s.store.finish_all()
    first, second = s.journal.segments.rows.values()
    assert (second.before, second.last) == (first.head, 8)
    assert s.faults() == []


@on_loop
async def test_segments_go_on_over_a_restart():
    s = Setting(segment_records=4)
    for number in range(6):
        s.commit(f"k{number}")
    s.store.finish_all()
    again = Setting(s.store, segment_records=4)
    for number in range(2):
        again.commit(f"l{number}")
    again.store.finish_all()
    first, second = again.journal.segments.rows.values()
    assert (second.first, second.last, second.before) == (5, 8, first.head)
    assert again.faults() == []


@on_loop
async def test_every_hundredth_record_is_anchored_once_it_is_durable():
    s = Setting()
    for number in range(201):
        s.commit(f"k{number}")
    assert s.anchors == []
    s.store.finish_all()
    assert [(each.seq, each.why) for each in s.anchors] == [(100, "count"), (200, "count")]
    assert journal_module.ANCHOR_EVERY == 100
    assert s.faults() == []


@on_loop
async def test_an_end_is_anchored_once_however_often_it_is_asked_for():
    s = Setting()
    s.commit()
    s.journal.anchor_growth("time")
    assert s.anchors == [], "it could still be undone"
    s.store.finish_all()
    for _ in range(2):
        s.journal.anchor_growth("time")
    s.commit()
    s.store.finish_all()
    s.journal.anchor_growth("time")
    assert [(each.seq, each.why) for each in s.anchors] == [(1, "time"), (2, "time")]


@on_loop
async def test_an_anchor_fixes_the_end_of_the_chain():
    s = Setting()
    s.commit()
    s.store.finish()
    fixed = s.journal.anchor("stop")
    assert s.anchors == [fixed]
    assert (fixed.seq, fixed.head, fixed.why) == (1, s.journal.chain.head.hex(), "stop")


@on_loop
async def test_an_anchor_never_names_a_record_that_is_not_durable():
    s = Setting()
    s.commit("kept")
    s.store.finish()
    s.commit("lost")
    s.journal.anchor("start")
    s.store.fail()
    assert s.faults() == []


# -- what can wait for company --


def _commit_that_can_wait(s):
    tx = Transaction()
    tx.can_wait = True
    tx.put(s.table, "patient", Thing("1"))
    return s.journal.commit(tx, LOCAL, "test.patient")


@on_loop
async def test_what_can_wait_is_written_with_the_next_commit():
    s = Setting()
    patient = _commit_that_can_wait(s)
    assert not s.store.waiting
    other = s.commit()
    (batch,) = s.store.waiting
    assert len(batch.ledger) == 2
    s.store.finish()
    assert patient.done()
    assert other.done()


@on_loop
async def test_what_can_wait_is_written_as_soon_as_somebody_waits_for_it():
    s = Setting()
    patient = _commit_that_can_wait(s)
    durable = s.journal.durable()
    assert len(s.store.waiting) == 1
    s.store.finish()
    assert durable.done()
    assert patient.done()


@on_loop
async def test_what_can_wait_is_written_when_it_has_waited_long_enough():
    s = Setting()
    with s.journal.together():
        _commit_that_can_wait(s)
    assert not s.store.waiting
    s.journal.write_rest()
    assert len(s.store.waiting) == 1
    s.journal.write_rest()
    assert len(s.store.waiting) == 1


@on_loop
async def test_what_can_wait_is_written_behind_what_is_committed_together_with_it():
    s = Setting()
    with s.journal.together():
        _commit_that_can_wait(s)
        s.journal.write_rest()
        assert not s.store.waiting
    assert len(s.store.waiting) == 1


@on_loop
async def test_what_can_wait_has_no_write_of_its_own_behind_one_under_way():
    """Whoever commits next would have to wait for it."""
    s = Setting()
    s.commit()
    patient = _commit_that_can_wait(s)
    s.store.finish()
    assert not s.store.waiting
    other = s.commit()
    (batch,) = s.store.waiting
    assert len(batch.ledger) == 2
    s.store.finish()
    assert patient.done()
    assert other.done()


@on_loop
async def test_what_can_wait_is_written_behind_one_under_way_when_somebody_waits_for_it():
    s = Setting()
    s.commit()
    patient = _commit_that_can_wait(s)
    durable = s.journal.durable()
    s.store.finish()
    assert not durable.done()
    s.store.finish()
    assert durable.done()
    assert patient.done()


@on_loop
async def test_after_a_failed_write_what_can_wait_waits_again():
    s = Setting()
    s.commit()
    _commit_that_can_wait(s)
    s.journal.write_rest()
    s.store.fail()
    _commit_that_can_wait(s)
    assert not s.store.waiting
