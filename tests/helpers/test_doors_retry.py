"""Knocking again: when, how often, and when not."""

import pytest

from bascule.foundation.agreement import MAX_WAIT_MS
from bascule.foundation.backoff import JITTER, LONGEST_SECONDS, Backoff
from bascule.local_client import exits
from bascule.local_client.retry import RETRY_SECONDS, retrying
from bascule.programs.helpers.waiting import wait_in_slices


class Hands:
    """A clock that only moves when somebody sleeps."""

    def __init__(self):
        self.now = 0.0
        self.slept = []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def failing(*faults, then="done"):
    left = list(faults)

    def attempt(*_):
        if left:
            raise left.pop(0)
        return then

    return attempt


def busy(status, retry_after=None):
    return exits.Refusal(status, {"code": "x", "message": "x"}, retry_after)


def test_a_daemon_that_comes_back_is_reached():
    hands = Hands()
    attempt = failing(exits.NotRunning("x"), exits.ConnectionLost("x"), busy(503))
    assert retrying(attempt, clock=hands.clock, sleep=hands.sleep) == "done"
    assert len(hands.slept) == 3


def test_the_wait_a_busy_daemon_asks_for_is_kept():
    hands = Hands()
    assert retrying(failing(busy(429, 3.0)), clock=hands.clock, sleep=hands.sleep) == "done"
    assert hands.slept == [3.0]


def test_a_wait_beyond_the_budget_is_not_begun():
    hands = Hands()
    with pytest.raises(exits.Refusal):
        retrying(failing(busy(429, 60.0)), clock=hands.clock, sleep=hands.sleep)
    assert hands.slept == []


@pytest.mark.parametrize("fault", [busy(409), busy(401), exits.SocketsForbidden("x"), exits.WrongUsage("x")])
def test_what_trying_again_cannot_change_is_not_tried_again(fault):
    hands = Hands()
    with pytest.raises(type(fault)):
        retrying(failing(fault), clock=hands.clock, sleep=hands.sleep)
    assert hands.slept == []


def test_after_ten_seconds_the_last_error_is_reported():
    hands = Hands()

    def never():
        raise exits.NotRunning("x")

    with pytest.raises(exits.NotRunning):
        retrying(never, clock=hands.clock, sleep=hands.sleep)
    # The last pause, which would have gone beyond, is as long as pauses get.
    assert RETRY_SECONDS - LONGEST_SECONDS * (1 + JITTER) <= hands.now <= RETRY_SECONDS


def test_pauses_grow_to_a_second_and_differ():
    pauses = [next(Backoff()) for _ in range(50)]
    assert len(set(pauses)) > 1
    grown = Backoff()
    last = [next(grown) for _ in range(20)][-1]
    assert 0.75 <= last <= 1.25


def test_a_long_wait_is_cut_into_slices():
    hands = Hands()
    slices = []

    def attempt(slice_ms):
        slices.append(slice_ms)
        hands.now += slice_ms / 1000

    assert wait_in_slices(attempt, 150_000, clock=hands.clock, sleep=hands.sleep) is None
    assert slices == [MAX_WAIT_MS, MAX_WAIT_MS, 30_000]


def test_a_wait_of_nothing_asks_once():
    hands = Hands()
    slices = []
    assert wait_in_slices(slices.append, 0, clock=hands.clock, sleep=hands.sleep) is None
    assert slices == [0]


def test_a_wait_goes_on_through_a_restart():
    hands = Hands()
    steps = iter([None, exits.ConnectionLost("x"), exits.NotRunning("x"), "reply"])

    def attempt(_slice_ms):
        step = next(steps)
        if isinstance(step, Exception):
            raise step
        return step

    assert wait_in_slices(attempt, None, clock=hands.clock, sleep=hands.sleep) == "reply"


def test_a_daemon_that_stays_away_ends_the_wait():
    hands = Hands()
    steps = iter([None])

    def attempt(_slice_ms):
        next(steps, None)
        if hands.now or hands.slept:
            raise exits.NotRunning("x")
        hands.now += 1

    with pytest.raises(exits.NotRunning):
        wait_in_slices(attempt, None, clock=hands.clock, sleep=hands.sleep)
    assert 55 < hands.now < 65


def test_a_daemon_that_was_never_there_is_told_at_once_when_asked_so():
    hands = Hands()
    with pytest.raises(exits.NotRunning):
        wait_in_slices(failing(exits.NotRunning("x")), 60_000, contact_seconds=0, clock=hands.clock, sleep=hands.sleep)
    assert hands.slept == []
