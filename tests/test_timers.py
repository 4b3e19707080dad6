"""Deadlines against a plain list of them: the same ones come, in the same order, and nothing of the others stays."""

import random

import pytest

from bascule.foundation.timers import Timers
from bascule.testing.clock import FakeClock

LENGTHS = (5, 50, 50, 1_000, 30_000)


class Scene:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.clock = FakeClock()
        self.faults = []
        self.timers = Timers(self.clock, self.faults.append)
        self.came = []
        # Number, time, deadline.
        self.open = []
        self.set = 0

    def act(self):
        act = self.random.choice(["after", "after", "since", "at", "call off", "time"])
        now = self.clock.monotonic()
        if act == "call off" and self.open:
            self.timers.call_off(self.open.pop(self.random.randrange(len(self.open)))[2])
        elif act == "time":
            self.let_pass(self.random.choice([0.001, 0.05, 1.0]))
        elif act == "at":
            when = now + self.random.choice(LENGTHS) / 1000
            self.opened(when, self.timers.at(when, self.coming(self.set)))
        else:
            ms = self.random.choice(LENGTHS)
            since = now - self.random.choice([0, 0, 0.004]) if act == "since" else now
            self.opened(since + ms / 1000, self.timers.after_ms(ms, self.coming(self.set), since=since))

    def opened(self, when, deadline):
        self.open.append((self.set, when, deadline))
        self.set += 1

    def coming(self, number):
        return lambda now: self.came.append((number, now))

    def let_pass(self, seconds):
        self.clock.advance(seconds)
        now = self.clock.monotonic()
        due = sorted((each for each in self.open if each[1] <= now), key=lambda each: (each[1], each[0]))
        self.open = [each for each in self.open if each[1] > now]
        self.came.clear()
        while (first := self.timers.next()) is not None and first <= now:
            self.timers.tick(now)
        assert self.came == [(number, now) for number, _, _ in due]
        assert self.faults == []


@pytest.mark.parametrize("seed", range(30))
def test_deadlines_come_as_from_a_sorted_list(seed):
    scene = Scene(seed)
    for _ in range(400):
        scene.act()
        assert len(scene.timers) == len(scene.open)
        if scene.open:
            assert scene.timers.next() <= min(when for _, when, _ in scene.open)
    scene.let_pass(60)
    assert len(scene.timers) == 0
    assert scene.timers.next() is None


@pytest.mark.parametrize("differ", [True, False])
def test_deadlines_that_were_called_off_leave_nothing_however_long_they_were(differ):
    """Each of another length, as a peer may choose them, and all of the same."""
    timers = Timers(FakeClock(), lambda error: None)
    for number in range(5_000):
        timers.call_off(timers.after_ms(86_400_000 + number * differ, print))
    assert len(timers) == 0
    assert len(timers._heap) <= 2 * timers.MIN_SWEEP
    assert len(timers._lines) <= 2 * timers.MIN_SWEEP


def test_without_the_sweep_deadlines_that_were_called_off_stay(monkeypatch):
    monkeypatch.setattr(Timers, "tidy", lambda self: None)
    timers = Timers(FakeClock(), lambda error: None)
    for number in range(1_000):
        timers.call_off(timers.after_ms(86_400_000 + number, print))
    assert len(timers._heap) == 1_000
