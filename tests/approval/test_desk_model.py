"""Any order of questions, answers, spending, time, clock jumps, full disks and restarts, beside a model of the desk."""

import os

import pytest
from desk_scene import JERRY, TOM, Cut, Forest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from bascule.foundation.errors import Conflict
from bascule.kernel.consent.desk import Desk
from bascule.kernel.journal import Transaction

LONG = bool(os.environ.get("BASCULE_LONG"))
QUESTION, GRANT = 15 * 60.0, 10 * 60.0
PATHS = st.sampled_from(["x", "y"])
WHO = st.sampled_from([JERRY, TOM])
RUNS = st.sampled_from([None, "run_1"])


class Wanted:
    """What the model knows of one question."""

    def __init__(self, key, now):
        self.key = key
        self.state = "pending"
        self.asked = now
        self.spent = 0
        self.grant_until = (0.0, 0.0)


class DeskMachine(RuleBasedStateMachine):
    asked = Bundle("asked")

    def __init__(self):
        super().__init__()
        self.forest = Forest()
        self.known = {}

    # -- time, as the model sees it: a grant needs both clocks --

    def now(self):
        return self.forest.clock.monotonic(), self.forest.clock.wall_ms() / 1000

    def good(self, wanted):
        mono, wall = self.now()
        return wanted.state == "approved" and mono < wanted.grant_until[0] and wall < wanted.grant_until[1]

    def follow(self):
        """What time does by itself: everything whose monotonic time is over has expired."""
        mono, _ = self.now()
        for wanted in self.known.values():
            if wanted.state == "pending" and mono >= wanted.asked + QUESTION:
                wanted.state = "expired"
            if wanted.state == "approved" and mono >= wanted.grant_until[0]:
                wanted.state = "expired"

    # -- what happens --

    @rule(target=asked, who=WHO, path=PATHS, run=RUNS)
    def ask(self, who, path, run):
        approval = self.forest.ask(who, params=Cut(path=path), run_id=run)
        key = (who, path, run)
        same = [each for each, wanted in self.known.items() if wanted.key == key and wanted.state == "pending"]
        if same:
            assert approval.approval_id == same[0], "an identical question is joined"
        else:
            assert approval.approval_id not in self.known
            self.known[approval.approval_id] = Wanted(key, self.now()[0])
        return approval

    @rule(approval=asked, yes=st.booleans(), stored=st.sampled_from([True, True, True, False]))
    def decide(self, approval, yes, stored):
        wanted = self.known[approval.approval_id]
        store = self.forest.store
        store.hold = not stored
        try:
            self.forest.decide(approval, approve=yes)
        except Conflict:
            # The wall clock may have jumped over the end of a question that still looks open.
            assert wanted.state != "pending" or self.now()[1] * 1000 >= approval.expires_at
            return
        finally:
            if not stored and store.waiting:
                store.fail()
            store.hold = False
        assert wanted.state == "pending"
        if stored:
            mono, wall = self.now()
            wanted.state = "approved" if yes else "denied"
            wanted.grant_until = (mono + GRANT, wall + GRANT)

    @rule(approval=asked, stored=st.sampled_from([True, True, False]))
    def spend(self, approval, stored):
        wanted = self.known[approval.approval_id]
        store = self.forest.store
        store.hold = not stored
        try:
            self.forest.spend(approval)
        except Conflict:
            assert not self.good(wanted)
            return
        finally:
            if not stored and store.waiting:
                store.fail()
            store.hold = False
        assert self.good(wanted), "only a grant in time can be spent"
        if stored:
            wanted.state = "spent"
            wanted.spent += 1
            assert wanted.spent == 1

    @rule(approval=consumes(asked))
    def withdraw(self, approval):
        tx = Transaction()
        self.forest.desk.withdraw(tx, approval.approval_id)
        self.forest.journal.commit(tx, JERRY, "runs.cancel")
        wanted = self.known[approval.approval_id]
        wanted.state = {"pending": "withdrawn", "approved": "expired"}.get(wanted.state, wanted.state)

    @rule(approval=asked)
    def settle(self, approval):
        tx = Transaction()
        self.forest.desk.settle(tx, approval.approval_id)
        self.forest.journal.commit(tx, JERRY, "tree.cut")
        wanted = self.known[approval.approval_id]
        wanted.state = {"spent": "done"}.get(wanted.state, wanted.state)

    @rule(seconds=st.sampled_from([1.0, 60.0, GRANT - 1, GRANT, QUESTION]))
    def time_passes(self, seconds):
        self.forest.advance(seconds)
        self.follow()

    @rule(seconds=st.sampled_from([-86_400, -60, 60, 86_400]))
    def wall_clock_jumps(self, seconds):
        self.forest.clock.jump_wall(seconds)

    @rule(down=st.sampled_from([0.0, 60.0]))
    def restart(self, down):
        self.forest.restart(down=down)
        _, wall = self.now()
        for approval_id, wanted in self.known.items():
            if wanted.state == "approved":
                wanted.state = "expired"
            elif wanted.state == "pending":
                # From here on by what the wall clock says, and never longer than a question may be.
                left = self.forest.desk.find(approval_id).expires_at / 1000 - wall
                wanted.asked = self.now()[0] - QUESTION + max(0.0, min(left, QUESTION))
        self.forest.advance(2)
        self.follow()

    # -- what always holds --

    @invariant()
    def the_desk_agrees(self):
        for approval_id, wanted in self.known.items():
            assert self.forest.desk.find(approval_id).state.value == wanted.state
        good = {wanted.key for wanted in self.known.values() if self.good(wanted)}
        for who in (JERRY, TOM):
            for path in ("x", "y"):
                for run in (None, "run_1"):
                    grant = self.forest.grant(who, params=Cut(path=path), run_id=run)
                    if grant is not None:
                        assert (who, path, run) in good

    @invariant()
    def what_waits_is_what_is_counted(self):
        waiting = sum(wanted.state == "pending" for wanted in self.known.values())
        assert len(self.forest.desk.pending()) == waiting
        assert sum(len(each) for each in self.forest.desk._pending.values()) == waiting
        if not waiting:
            assert self.forest.desk._pending_chars == {}


DeskMachine.TestCase.settings = settings(
    max_examples=600 if LONG else 40,
    stateful_step_count=60 if LONG else 25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestDesk = DeskMachine.TestCase


def test_the_model_sees_a_desk_that_spends_twice(monkeypatch):
    """The control: without the check in `spend` the machine finds the second spending."""

    def naive(self, tx, approval_id):
        return self.find(approval_id)

    monkeypatch.setattr(Desk, "spend", naive)
    machine = DeskMachine()
    approval = machine.ask(JERRY, "x", None)
    machine.decide(approval, yes=True, stored=True)
    machine.spend(approval, stored=True)
    with pytest.raises(AssertionError):
        machine.spend(approval, stored=True)
