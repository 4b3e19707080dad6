"""What a session does, cell by cell, and over scripted days with a clock that the test moves."""

import os
from datetime import timedelta
from itertools import product
from typing import get_args

import pytest

from bascule.foundation.text import short_id
from bascule.native import sessions
from bascule.native.hooks import Moment
from bascule.native.states import IDLE_NOTICE, QUIET, State, following, is_probably_idle
from bascule.testing.house import House
from session_days import Count, day

MOMENTS = get_args(Moment)
BUSY = (State.WORKS, State.WAITS, State.ASKS)
EXPECTED = {
    "before": State.WORKS,
    "after": State.WORKS,
    "failed": State.WORKS,
    "question": State.WAITS,
    "asks": State.ASKS,
    "prompt": State.WORKS,
    "woken": State.WORKS,
    "stop": State.IDLE,
    "stop_failed": State.FAILED,
    "end": State.ENDED,
}
SOON, LATER = IDLE_NOTICE - timedelta(seconds=1), IDLE_NOTICE


def test_every_moment_has_a_test():
    assert set(MOMENTS) == {*EXPECTED, "start", "notice"}


@pytest.mark.parametrize(("state", "moment"), list(product(State, EXPECTED)))
def test_most_events_say_the_same_in_every_state(state, moment):
    assert following(state, moment, None, SOON) is EXPECTED[moment]


@pytest.mark.parametrize("state", State)
def test_a_start_in_the_middle_of_a_turn_says_nothing(state):
    """It is a compaction, or late."""
    expected = state if state in (*BUSY, State.FAILED) else State.IDLE
    assert following(state, "start", None, LATER) is expected


@pytest.mark.parametrize("state", State)
def test_a_late_notice_takes_nothing_back(state):
    after = following(state, "notice", "permission_prompt", LATER)
    assert after is (state if state in (State.IDLE, State.ASKS, State.ENDED, State.DEAD) else State.WAITS)
    assert following(state, "notice", "something new", LATER) is state
    assert following(state, "notice", "elicitation_dialog", LATER) is State.ASKS


@pytest.mark.parametrize("state", State)
def test_an_idle_notice_is_contradicted_by_what_was_heard_in_its_minute(state):
    stays = (State.FAILED, State.ENDED, State.DEAD)
    assert following(state, "notice", "idle_prompt", LATER) is (state if state in stays else State.IDLE)
    assert following(state, "notice", "idle_prompt", SOON) is (state if state in (*stays, *BUSY) else State.IDLE)


@pytest.mark.parametrize("state", State)
def test_an_event_of_no_kind_says_nothing(state):
    expected = State.UNKNOWN if state in (State.ENDED, State.DEAD) else state
    assert following(state, None, None, LATER) is expected


@pytest.mark.parametrize("state", State)
def test_only_silence_makes_a_working_session_probably_idle(state):
    is_works = state is State.WORKS
    assert is_probably_idle(state, QUIET, open_calls=0) is is_works
    assert not is_probably_idle(state, QUIET - timedelta(seconds=1), open_calls=0)
    assert not is_probably_idle(state, QUIET * 100, open_calls=1)


# -- days with silences, and a clock --------------------------------------------------------------


def play(house, seed, transitions=1_000):
    """Days of all three clients, until there were so many transitions."""
    count, number = Count(), 0
    while count.transitions < transitions:
        client = ("claude", "codex", "gemini")[number % 3]
        name = f"s{number}"
        for step in day(client, seed + number):
            house.advance(step.seconds)
            if step.event is not None:
                event = {"session_id": name, "cwd": "/projects", **step.event}
                result = house.begin("local", step.method, {"client": client, "event": event})
                house.advance(0.0)
                while not result.done:
                    house.advance(0.001)
                result.result()
            shown = house.call("local", "sessions.show", {"client": client, "session": name})
            count.compare(client, step, shown)
        number += 1
    return count


@pytest.fixture
def house():
    with House() as made:
        made.machine.directory("/projects", {})
        yield made


def test_over_a_thousand_scripted_transitions_no_session_is_falsely_called_idle(house):
    count = play(house, 19)
    assert count.wrong == []
    assert count.false_idle == []
    # The days were worth it: every state was shown, and silence as what it is.
    assert set(count.shown) >= {"works", "idle", "waits_for_permission", "asks", "failed", "ended"}
    assert count.probably > 0


@pytest.mark.parametrize("rule", ["late events count", "silence is a fact"])
def test_without_the_rules_of_evidence_sessions_at_work_are_called_idle(house, monkeypatch, rule):
    """The control of the test before."""
    if rule == "late events count":
        naive = {**EXPECTED, "start": State.IDLE}

        def says(state, moment, about, quiet):
            return State.IDLE if about == "idle_prompt" else naive.get(moment, state)

        monkeypatch.setattr(sessions, "following", says)
    else:
        monkeypatch.setattr(
            sessions, "is_probably_idle", lambda state, age, open_calls: state is State.WORKS and age >= QUIET
        )
        original = sessions.NativeSessionView
        monkeypatch.setattr(sessions, "NativeSessionView", lambda **fields: original(**fields | {"probably": False}))
    assert play(house, 19, 300).false_idle != []


def codex(house, session, **more):
    event = {"hook_event_name": "UserPromptSubmit", "session_id": session, "cwd": "/p", "prompt": "x", **more}
    house.call("local", "sessions.note", {"client": "codex", "event": event, "pid": os.getpid(), "pane": "%2"})


def test_a_pane_that_two_open_sessions_name_is_neither_s():
    """Codex runs the servers of all its sessions from one process: the pane is the one that this was started in."""
    with House() as house:
        codex(house, "one")
        assert panes(house) == {"one": "%2"}
        codex(house, "two")
        assert panes(house) == {"one": None, "two": None}
        codex(house, "two", hook_event_name="SessionEnd")
        assert panes(house)["one"] == "%2"


def panes(house):
    return {each["session"]: each.get("pane") for each in house.call("local", "sessions.list")}


def test_sessions_that_began_in_one_minute_are_told_apart_by_the_end_of_their_ids():
    names = [f"01a1f06d-5c12-7000-8000-{number:012x}" for number in (0xB1, 0xB2)]
    assert [short_id(name) for name in names] == ["000000b1", "000000b2"]
    assert len({name[:8] for name in names}) == 1
