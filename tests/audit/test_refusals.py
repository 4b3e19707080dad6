"""Refused calls: the first ones recorded one by one, a loop of them counted, the chain whole."""

import pytest

from bascule.foundation.timers import Timers
from bascule.kernel.journal import Journal
from bascule.kernel.ledger import Verifier, read_record
from bascule.kernel.refusals import Refusals
from bascule.stores.memory import MemoryStore
from bascule.testing.clock import FakeClock

WINDOW_S = 60


class Counted:
    def __init__(self, **limits):
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.journal = Journal(self.store, self.clock, on_anchor=lambda _: None)
        self.timers = Timers(self.clock, on_fault=print)
        self.journal.start()
        self.refusals = Refusals(self.journal, self.clock, self.timers, **limits)

    def refuse(self, times=1, principal="agent:spc_1", method="replies.post", subject="t"):
        for number in range(times):
            self.refusals.record(
                principal, method, "forbidden", rule=None, subject=f"{subject}-{number}", reason=f"not yours: {number}"
            )

    def later(self, seconds):
        self.clock.advance(seconds)
        self.timers.tick(self.clock.monotonic())

    def rows(self):
        return self.store.read_ledger(lambda ledger: list(reversed(ledger.newest(10_000, None)))).result()

    def records(self):
        return [read_record(row) for row in self.rows()]

    def repeats(self):
        return [(record.details or {}).get("repeats", 1) for record in self.records()]


@pytest.fixture
def counted():
    return Counted(one_by_one=3)


def test_a_few_refusals_are_recorded_one_by_one(counted):
    counted.refuse(3)
    assert [record.subject for record in counted.records()] == ["t-0", "t-1", "t-2"]
    counted.later(WINDOW_S + 1)
    assert counted.repeats() == [1, 1, 1]


def test_a_loop_is_counted_in_one_record_when_the_window_closes(counted):
    counted.refuse(20_000)
    assert counted.repeats() == [1, 1, 1]
    counted.later(WINDOW_S + 1)
    assert counted.repeats() == [1, 1, 1, 19_997]
    last = counted.records()[-1]
    assert (last.principal, last.method, last.outcome) == ("agent:spc_1", "replies.post", "forbidden")
    assert last.subject == "t-19999"
    assert last.details["reason"] == "not yours: 19999"
    assert last.details["since"].endswith("Z")


def test_a_loop_that_goes_on_is_one_record_per_window_and_begins_anew_after_a_pause(counted):
    for _ in range(5):
        counted.refuse(100)
        counted.later(WINDOW_S + 1)
    assert counted.repeats() == [1, 1, 1, 97, 100, 100, 100, 100]
    counted.later(WINDOW_S + 1)
    counted.refuse(2)
    assert counted.repeats()[-3:] == [100, 1, 1]


def test_another_caller_method_or_refusal_is_another_kind(counted):
    counted.refuse(10)
    counted.refuse(1, principal="agent:Jerry")
    counted.refuse(1, method="inbox.ack")
    assert [record.principal for record in counted.records()][-2:] == ["agent:Jerry", "agent:spc_1"]


def test_what_is_counted_is_recorded_when_the_daemon_stops(counted):
    counted.refuse(10)
    counted.refusals.flush()
    assert counted.repeats() == [1, 1, 1, 7]
    counted.later(WINDOW_S + 1)
    assert counted.repeats() == [1, 1, 1, 7]


def test_more_kinds_than_are_counted_close_the_oldest():
    counted = Counted(one_by_one=1, max_kinds=2)
    for name in ("a", "b", "c"):
        counted.refuse(3, principal=f"agent:{name}")
    principals = [record.principal for record in counted.records()]
    assert principals == ["agent:a", "agent:b", "agent:a", "agent:c"]
    assert counted.repeats() == [1, 1, 2, 1]


def test_the_chain_stays_whole(counted):
    counted.refuse(50)
    counted.later(WINDOW_S + 1)
    verifier = Verifier([], [])
    verifier.feed(counted.rows())
    verifier.finish()
    assert verifier.faults == []
