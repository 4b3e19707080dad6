"""Sessions of the console: how many, how long, and that nothing of them outlives them."""

import pytest

from bascule.foundation.errors import Overloaded
from bascule.kernel.call import LOCAL, PERSON, Grade
from bascule.kernel.identity.sessions import IDLE_SECONDS, MAX_SESSIONS, SESSION_SECONDS, Sessions
from bascule.testing.clock import FakeClock

PAIRED, SIGNED_IN = Grade.PAIRED, Grade.SIGNED_IN


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sessions(clock):
    return Sessions(clock)


def test_a_token_is_a_session_and_is_kept_nowhere(sessions):
    token, session = sessions.open(PAIRED)
    assert sessions.find(token) is session
    assert token not in repr(vars(sessions))
    assert sessions.find(token[:-1]) is None
    assert sessions.find("") is None
    assert sessions.find("x" * 1_000) is None


@pytest.mark.parametrize(("grade", "principal"), [(PAIRED, LOCAL), (SIGNED_IN, PERSON)])
def test_a_grade_is_a_principal(sessions, grade, principal):
    assert sessions.open(grade)[1].principal == principal


@pytest.mark.parametrize("grade", [PAIRED, SIGNED_IN])
def test_a_session_ends_after_twelve_hours_however_much_it_is_used(sessions, clock, grade):
    token, _ = sessions.open(grade)
    for _ in range(int(SESSION_SECONDS // 600) - 1):
        clock.advance(600)
        assert sessions.find(token) is not None
    clock.advance(600)
    assert sessions.find(token) is None


def test_a_signed_in_session_ends_when_it_is_idle_and_a_paired_one_does_not(sessions, clock):
    paired, _ = sessions.open(PAIRED)
    idle, _ = sessions.open(SIGNED_IN)
    used, _ = sessions.open(SIGNED_IN)
    clock.advance(IDLE_SECONDS - 1)
    assert sessions.find(used) is not None
    clock.advance(1)
    assert sessions.find(idle) is None
    assert sessions.find(used) is not None
    assert sessions.find(paired) is not None


def test_where_nobody_looks_at_the_time_an_idle_session_goes_on(clock):
    """The control."""
    sessions = Sessions(clock, idle_seconds=float("inf"))
    token, _ = sessions.open(SIGNED_IN)
    clock.advance(IDLE_SECONDS)
    assert sessions.find(token) is not None


def test_a_machine_that_slept_has_ended_its_sessions(sessions, clock):
    """The monotonic clock stands still meanwhile."""
    token, _ = sessions.open(SIGNED_IN)
    clock.jump_wall(IDLE_SECONDS)
    assert sessions.find(token) is None


def test_a_wall_clock_that_goes_back_makes_no_session_longer(sessions, clock):
    token, _ = sessions.open(SIGNED_IN)
    clock.jump_wall(-3_600)
    clock.advance(IDLE_SECONDS)
    assert sessions.find(token) is None


def test_the_session_after_the_last_is_refused_until_one_ends(sessions, clock):
    opened = [sessions.open(PAIRED) for _ in range(MAX_SESSIONS)]
    with pytest.raises(Overloaded):
        sessions.open(PAIRED)
    assert all(sessions.find(token) is session for token, session in opened)
    assert sessions.end(opened[0][1].session_id) == 1
    sessions.open(PAIRED)
    # Those whose time is over are in nobody's way.
    clock.advance(SESSION_SECONDS)
    assert sessions.open(PAIRED)


def test_a_larger_limit_lets_one_more_session_open(clock):
    """The control."""
    sessions = Sessions(clock, most=MAX_SESSIONS + 1)
    assert len([sessions.open(PAIRED) for _ in range(MAX_SESSIONS + 1)]) == 33


def test_whatever_ends_a_session_is_reported_once(sessions, clock):
    ended = []
    sessions.on_end.append(ended.append)
    ids = [sessions.open(SIGNED_IN)[1].session_id for _ in range(4)]
    token, session = sessions.open(PAIRED)
    sessions.end(ids[0])
    assert ended == ids[:1]
    clock.advance(IDLE_SECONDS)
    sessions.expire()
    assert sorted(ended) == sorted(ids)
    assert sessions.find(token) is session
    assert sessions.end() == 1
    assert sessions.end() == 0
    assert sessions.all() == []


def test_programs_that_pair_as_often_as_they_can_do_not_keep_the_person_out(sessions, clock):
    """Whoever has a link may confirm a pairing of its own, once a minute."""
    first, *others = [opened_later(sessions, clock) for _ in range(MAX_SESSIONS)]
    person, _ = sessions.open(SIGNED_IN)
    assert sessions.find(person) is not None
    assert sessions.find(first) is None
    assert all(sessions.find(each) is not None for each in others)


def opened_later(sessions, clock):
    token, _ = sessions.open(PAIRED)
    clock.advance(60)
    return token


def test_among_persons_nobody_gives_way(sessions):
    for _ in range(MAX_SESSIONS):
        sessions.open(SIGNED_IN)
    with pytest.raises(Overloaded):
        sessions.open(SIGNED_IN)
    with pytest.raises(Overloaded):
        sessions.open(PAIRED)


def test_a_key_that_ends_takes_the_sessions_along_that_were_signed_in_with_it(sessions):
    lost, _ = sessions.open(SIGNED_IN, passkey_id="pk_lost")
    kept, _ = sessions.open(SIGNED_IN, passkey_id="pk_kept")
    typed, _ = sessions.open(SIGNED_IN)
    sessions.end_of_passkey("pk_lost")
    assert [sessions.find(each) is not None for each in (lost, kept, typed)] == [False, True, True]
