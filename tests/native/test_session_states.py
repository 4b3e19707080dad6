"""What a session does, cell by cell, and over a thousand scripted days."""

import random
from datetime import timedelta
from itertools import product
from typing import get_args

import pytest

from bascule.native.hooks import Moment
from bascule.native.states import QUIET, State, following, is_probably_idle

MOMENTS = get_args(Moment)
EXPECTED = {
    "before": State.WORKS,
    "after": State.WORKS,
    "failed": State.WORKS,
    "question": State.WAITS,
    "asks": State.ASKS,
    "start": State.IDLE,
    "prompt": State.WORKS,
    "stop": State.IDLE,
    "stop_failed": State.FAILED,
    "end": State.ENDED,
}


@pytest.mark.parametrize(
    ("state", "moment"), list(product([None, *State], [each for each in MOMENTS if each != "notice"]))
)
def test_every_event_says_the_same_in_every_state(state, moment):
    assert following(state, moment, None) is EXPECTED[moment]


@pytest.mark.parametrize("state", [None, *State])
def test_a_late_notice_takes_nothing_back(state):
    after = following(state, "notice", "permission_prompt")
    assert after is (State.WAITS if state in (None, State.WORKS, State.WAITS, State.FAILED) else state)
    assert following(state, "notice", "idle_prompt") is State.IDLE
    assert following(state, "notice", "something new") is (state or State.IDLE)


@pytest.mark.parametrize("state", list(State))
def test_only_silence_makes_a_working_session_probably_idle(state):
    is_works = state is State.WORKS
    assert is_probably_idle(state, QUIET, open_calls=0) is is_works
    assert not is_probably_idle(state, QUIET - timedelta(seconds=1), open_calls=0)
    assert not is_probably_idle(state, QUIET * 100, open_calls=1)


def test_over_a_thousand_scripted_transitions_no_working_session_is_called_idle():
    """A turn is a prompt, some calls, a stop. Between prompt and stop the truth is never idle."""
    chance = random.Random(19)
    state, transitions = following(None, "start", None), 0
    while transitions < 1_000:
        steps = ["prompt"]
        for _ in range(chance.randrange(6)):
            steps += [
                "before",
                *(["question", "notice"] if chance.random() < 0.3 else []),
                chance.choice(["after", "failed"]),
            ]
        for step in steps:
            state = following(state, step, "permission_prompt" if step == "notice" else None)
            transitions += 1
            assert state in (State.WORKS, State.WAITS), step
        state = following(state, chance.choice(["stop", "stop_failed"]), None)
        assert state in (State.IDLE, State.FAILED)
        # A notice of a question that was answered long ago.
        state = following(state, "notice", "permission_prompt") if state is State.IDLE else state
        transitions += 1
        assert state in (State.IDLE, State.FAILED)
