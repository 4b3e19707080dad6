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
