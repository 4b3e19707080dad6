"""What is committed together is one write, and what was committed alone is not held up by it."""

import pytest

from bascule.kernel.call import DAEMON
from bascule.kernel.journal import Journal, Transaction
from bascule.testing.clock import FakeClock
from bascule.testing.stores import HeldStore


@pytest.fixture
def store():
    return HeldStore(hold=False)


@pytest.fixture
def journal(store):
    journal = Journal(store, FakeClock(), on_anchor=lambda _anchor: None)
    journal.start()
    return journal


def test_commits_made_together_are_one_batch_in_their_order(journal, store):
    with journal.together():
        first = journal.commit(Transaction(), DAEMON, "one")
        second = journal.commit(Transaction(), DAEMON, "two")
        assert store.batches == []
    assert [len(batch.ledger) for batch in store.batches] == [2]
    (batch,) = store.batches
    assert [first.record, second.record] == batch.ledger
    assert journal.idle


def test_the_control_commits_made_apart_are_two_batches(journal, store):
    journal.commit(Transaction(), DAEMON, "one")
    journal.commit(Transaction(), DAEMON, "two")
    assert [len(batch.ledger) for batch in store.batches] == [1, 1]


def test_what_is_in_flight_is_not_waited_for_twice(journal, store):
    store.hold = True
    journal.commit(Transaction(), DAEMON, "before")
    with journal.together():
        journal.commit(Transaction(), DAEMON, "one")
        journal.commit(Transaction(), DAEMON, "two")
    assert len(store.batches) == 1
    store.finish_all()
    assert [len(batch.ledger) for batch in store.batches] == [1, 2]


def test_a_fault_inside_still_writes_what_was_committed(journal, store):
    def fail():
        with journal.together():
            journal.commit(Transaction(), DAEMON, "one")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [len(batch.ledger) for batch in store.batches] == [1]


def test_nested_it_is_one_batch_still(journal, store):
    with journal.together():
        with journal.together():
            journal.commit(Transaction(), DAEMON, "one")
        journal.commit(Transaction(), DAEMON, "two")
    assert [len(batch.ledger) for batch in store.batches] == [2]


def test_what_a_callback_of_a_batch_commits_is_the_end_that_an_anchor_names(journal):
    first = Transaction()
    first.after.append(lambda: journal.commit(Transaction(), DAEMON, "three"))
    with journal.together():
        journal.commit(first, DAEMON, "one")
        journal.commit(Transaction(), DAEMON, "two")
    anchor = journal.anchor("stop")
    assert (anchor.seq, anchor.head) == (3, journal.chain.head.hex())


def test_a_fault_in_what_is_sent_behind_a_batch_leaves_nobody_without_an_answer(journal, store):
    def send():
        raise RuntimeError("no letter can be made")

    journal.on_landed.append(send)
    store.hold = True
    waiting = journal.commit(Transaction(), DAEMON, "one")
    with pytest.raises(RuntimeError, match="no letter"):
        store.finish()
    assert waiting.done()


class _Turns(HeldStore):
    """A store as the daemon's: a batch begins when the turn of the loop ends, which the test says."""

    def __init__(self):
        super().__init__()
        self.at_end = []

    def at_end_of_turn(self, act):
        self.at_end.append(act)

    def end_turn(self):
        acts, self.at_end = self.at_end, []
        for act in acts:
            act()


@pytest.fixture
def turns():
    return _Turns()


def _with(store):
    journal = Journal(store, FakeClock(), on_anchor=lambda _anchor: None)
    journal.start()
    return journal


def _sizes(store):
    return [len(batch.ledger) for batch in store.batches]


def test_commits_of_one_turn_are_one_batch(turns):
    journal = _with(turns)
    for _ in range(20):
        journal.commit(Transaction(), DAEMON, "one")
    assert turns.batches == []
    assert len(turns.at_end) == 1
    turns.end_turn()
    assert _sizes(turns) == [20]


def test_what_comes_while_a_batch_is_in_flight_follows_it_without_waiting_for_a_turn(turns):
    journal = _with(turns)
    journal.commit(Transaction(), DAEMON, "one")
    turns.end_turn()
    journal.commit(Transaction(), DAEMON, "two")
    assert turns.at_end == []
    turns.finish()
    assert _sizes(turns) == [1, 1]


def test_a_turn_that_ends_while_a_batch_is_in_flight_begins_no_second_one(turns):
    """A batch may begin in between: that of a turn before, which has just landed."""
    journal = _with(turns)
    journal.commit(Transaction(), DAEMON, "one")
    turns.end_turn()
    turns.finish()
    journal.commit(Transaction(), DAEMON, "two")
    journal.commit(Transaction(), DAEMON, "three")
    turns.end_turn()
    journal.commit(Transaction(), DAEMON, "four")
    turns.end_turn()
    assert _sizes(turns) == [1, 2]
    turns.finish_all()
    assert _sizes(turns) == [1, 2, 1]


def test_a_commit_after_one_that_failed_begins_at_the_end_of_its_turn(turns):
    journal = _with(turns)
    journal.commit(Transaction(), DAEMON, "one")
    turns.end_turn()
    turns.fail()
    later = journal.commit(Transaction(), DAEMON, "two")
    turns.end_turn()
    turns.finish()
    assert later.done()
    assert later.exception() is None


def test_what_is_written_now_does_not_wait_for_the_turn_and_is_written_once(turns):
    journal = _with(turns)
    journal.commit(Transaction(), DAEMON, "one")
    journal.write_now()
    assert _sizes(turns) == [1]
    turns.end_turn()
    turns.finish()
    assert _sizes(turns) == [1]
    journal.commit(Transaction(), DAEMON, "two")
    turns.end_turn()
    assert _sizes(turns) == [1, 1]


def test_what_is_written_now_stays_with_what_is_committed_together_with_it(turns):
    journal = _with(turns)
    with journal.together():
        journal.commit(Transaction(), DAEMON, "one")
        journal.write_now()
        journal.commit(Transaction(), DAEMON, "two")
    turns.end_turn()
    assert _sizes(turns) == [2]


def test_a_reader_that_waits_for_what_can_wait_has_it_written_at_the_end_of_the_turn(turns):
    journal = _with(turns)
    held = Transaction()
    held.can_wait = True
    journal.commit(held, DAEMON, "held")
    turns.end_turn()
    assert turns.batches == []
    waiting = journal.durable()
    turns.end_turn()
    turns.finish()
    assert waiting.done()
