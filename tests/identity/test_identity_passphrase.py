import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.foundation.errors import InvalidRequest
from bascule.kernel.identity import passphrase
from bascule.kernel.identity.passphrase import (
    FIRST_PAUSE_SECONDS,
    FREE_TRIES,
    LONGEST_PAUSE_SECONDS,
    UNLOCK_SECONDS,
    PassphraseThrottle,
    Unlock,
    make_hash,
    verify,
)
from bascule.kernel.limits import MAX_PASSPHRASE_CHARS

RIGHT = "caf\u00e9 and \u00fcber words"


@pytest.fixture(scope="module")
def stored():
    return make_hash(RIGHT)


def test_the_stored_form_names_its_own_parameters(stored):
    assert stored.startswith("$scrypt$ln=15,r=8,p=1$")
    assert RIGHT not in stored


def test_the_right_passphrase_is_right_and_any_other_is_wrong(stored):
    assert verify(RIGHT, stored)
    assert not verify(RIGHT + " ", stored)
    assert not verify("", stored)


def test_letters_may_come_composed_or_decomposed(stored):
    decomposed = unicodedata.normalize("NFD", RIGHT)
    assert decomposed != RIGHT
    assert verify(decomposed, stored)


def test_the_same_passphrase_is_never_stored_the_same_twice(stored):
    assert make_hash(RIGHT) != stored


def test_a_hash_made_with_other_parameters_is_still_verified():
    salt = b"0123456789abcdef"
    derived = passphrase._scrypt(RIGHT.encode(), salt, log_n=4, r=2, p=3, size=16)
    old = f"$scrypt$ln=4,r=2,p=3${passphrase._to_base64(salt)}${passphrase._to_base64(derived)}"
    assert verify(RIGHT, old)
    assert not verify("another one", old)


@pytest.mark.parametrize("short", ["", "1234567", "e\u0301" * 7])
def test_a_short_passphrase_is_refused_with_advice(short):
    with pytest.raises(InvalidRequest, match="at least 8 characters") as caught:
        make_hash(short)
    assert "words" in caught.value.hint


def test_a_passphrase_over_the_limit_is_refused_before_any_work():
    with pytest.raises(InvalidRequest, match="too long"):
        make_hash("x" * (MAX_PASSPHRASE_CHARS + 1))


def test_half_a_surrogate_pair_is_refused_as_text():
    with pytest.raises(InvalidRequest, match="not valid Unicode"):
        make_hash("12345678\ud800")


DAMAGED = [
    "",
    "plain",
    "$scrypt$",
    "$scrypt$ln=15,r=8,p=1$AAAA$",
    "$scrypt$ln=15,r=8,p=1$AAAA$A",
    "$scrypt$ln=0,r=8,p=1$AAAA$AAAA",
    "$scrypt$ln=15,r=0,p=1$AAAA$AAAA",
    "$scrypt$ln=15,r=8,p=0$AAAA$AAAA",
    "$scrypt$ln=15,r=8,p=99$AAAA$AAAA",
    "$scrypt$ln=30,r=8,p=1$AAAA$AAAA",
    "$scrypt$ln=99,r=999,p=1$AAAA$AAAA",
    "$argon2id$v=19$m=1,t=1,p=1$AAAA$AAAA",
    "$scrypt$ln=4,r=8,p=1$AAAA$AAAA\n",
]


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_damaged_hash_is_a_fault_and_neither_right_nor_wrong(damaged):
    with pytest.raises(ValueError, match=r"damaged|padded|base64"):
        verify(RIGHT, damaged)


# -- unlock ---------------------------------------------------------------------------------------


def test_an_unlock_lasts_fifteen_minutes_and_not_a_moment_more():
    unlock = Unlock.start(100.0)
    assert UNLOCK_SECONDS == 900
    assert unlock.active(100.0)
    assert unlock.active(999.9)
    assert not unlock.active(1_000.0)


# -- throttle -------------------------------------------------------------------------------------


def test_five_tries_are_free_then_pauses_double_up_to_a_quarter_of_an_hour():
    throttle, now, pauses = PassphraseThrottle(), 0.0, []
    for _ in range(FREE_TRIES):
        assert throttle.attempt(now) is None
    for _ in range(8):
        pause = throttle.attempt(now)
        pauses.append(pause)
        now += pause
        assert throttle.attempt(now) is None
    assert pauses == [30, 60, 120, 240, 480, 900, 900, 900]
    assert (pauses[0], pauses[-1]) == (FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)


def test_asking_during_a_pause_does_not_lengthen_it():
    throttle = PassphraseThrottle()
    for _ in range(FREE_TRIES):
        throttle.attempt(0.0)
    assert [throttle.attempt(float(second)) for second in range(3)] == [30.0, 29.0, 28.0]
    assert throttle.attempt(30.0) is None


def test_many_attempts_under_way_at_once_are_counted_before_the_first_is_found_wrong():
    throttle = PassphraseThrottle()
    assert sum(throttle.attempt(0.0) is None for _ in range(1_000)) == FREE_TRIES


def test_the_right_passphrase_forgives_everything():
    throttle = PassphraseThrottle()
    for _ in range(FREE_TRIES):
        throttle.attempt(0.0)
    throttle.succeeded()
    assert [throttle.attempt(0.0) for _ in range(FREE_TRIES)] == [None] * FREE_TRIES
    assert throttle.attempt(0.0) == FIRST_PAUSE_SECONDS


@given(st.lists(st.floats(min_value=0, max_value=2_000), max_size=60))
def test_guessing_for_any_time_gives_few_guesses(gaps):
    throttle, now, guesses = PassphraseThrottle(), 0.0, 0
    for gap in gaps:
        now += gap
        guesses += throttle.attempt(now) is None
    # The five free ones, the five while the pause grows to 15 min, then one per pause.
    assert guesses <= FREE_TRIES + 5 + now / LONGEST_PAUSE_SECONDS + 1


def test_years_of_wrong_guesses_do_not_overflow_the_pause():
    throttle, now = PassphraseThrottle(), 0.0
    for _ in range(5_000):
        assert throttle.attempt(now) is None
        now += LONGEST_PAUSE_SECONDS
