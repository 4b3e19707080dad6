import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.foundation.ids import new_token
from bascule.kernel.identity.tokens import (
    MAX_TOKEN_CHARS,
    WRONG_TOKEN_BURST,
    WRONG_TOKENS_PER_SECOND,
    TokenBook,
    WrongTokenThrottle,
    hash_token,
)


def book(**tokens):
    made = TokenBook()
    for handle, token in tokens.items():
        made.add(handle, hash_token(token))
    return made


def test_a_token_finds_its_handle():
    tokens = book(Jerry="j", Tom="t")
    assert tokens.find("j") == "Jerry"
    assert tokens.find("t") == "Tom"
    assert tokens.find_hash(hash_token("t")) == "Tom"
    assert len(tokens) == 2


@pytest.mark.parametrize("wrong", ["", "J", "j ", " j", "jj", "j\0", "\ud800", "x" * 10_000_000])
def test_any_other_text_finds_nobody(wrong):
    assert book(Jerry="j").find(wrong) is None


def test_the_hash_itself_is_not_a_token():
    assert book(Jerry="j").find(hash_token("j")) is None


def test_the_stored_form_is_sha256_in_hex():
    assert hash_token("j") == hashlib.sha256(b"j").hexdigest()


def test_a_new_token_makes_the_handles_old_one_wrong_at_once():
    tokens = book(Jerry="old")
    tokens.add("Jerry", hash_token("new"))
    assert tokens.find("old") is None
    assert tokens.find("new") == "Jerry"
    assert len(tokens) == 1


def test_adding_the_same_token_again_changes_nothing():
    tokens = book(Jerry="j")
    tokens.add("Jerry", hash_token("j"))
    assert tokens.find("j") == "Jerry"


def test_one_token_cannot_belong_to_two_handles():
    tokens = book(Jerry="j")
    with pytest.raises(ValueError, match="already the token of Jerry"):
        tokens.add("Tom", hash_token("j"))
    assert tokens.find("j") == "Jerry"


def test_a_removed_handle_has_no_token_and_removing_it_again_is_nothing():
    tokens = book(Jerry="j", Tom="t")
    tokens.remove("Jerry")
    tokens.remove("Jerry")
    assert tokens.find("j") is None
    assert tokens.find("t") == "Tom"


def test_our_own_tokens_are_within_the_length_that_is_looked_at():
    assert len(new_token()) < MAX_TOKEN_CHARS
    longest = "x" * MAX_TOKEN_CHARS
    tokens = book(Jerry=longest, Tom=longest + "x")
    assert tokens.find(longest) == "Jerry"
    assert tokens.find(longest + "x") is None


def test_the_book_keeps_no_token_it_was_shown():
    token = new_token()
    tokens = book(Jerry=token)
    tokens.find(token)
    tokens.find("wrong-" + token)
    assert token not in repr(vars(tokens))


_steps = st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from(["1", "2", "3", None])))


@given(_steps)
def test_after_any_history_exactly_the_newest_tokens_are_right(steps):
    tokens, model = TokenBook(), {}
    for handle, token in steps:
        if token is None:
            tokens.remove(handle)
            model.pop(handle, None)
        else:
            tokens.add(handle, hash_token(handle + token))
            model[handle] = handle + token
    assert len(tokens) == len(model)
    for handle in "ABC":
        for token in "123":
            right = model.get(handle) == handle + token
            assert tokens.find(handle + token) == (handle if right else None)


# -- the throttle ---------------------------------------------------------------------------------


def test_of_ten_thousand_wrong_tokens_at_once_all_but_the_burst_are_told_to_wait():
    throttle = WrongTokenThrottle()
    answers = [throttle.failed(5.0) for _ in range(10_000)]
    assert answers[:WRONG_TOKEN_BURST] == [None] * WRONG_TOKEN_BURST
    assert all(wait is not None and 0 < wait <= 1 / WRONG_TOKENS_PER_SECOND for wait in answers[WRONG_TOKEN_BURST:])


def test_a_throttled_caller_is_answered_once_after_its_wait():
    throttle = WrongTokenThrottle(burst=2, per_second=0.5)
    assert throttle.failed(0.0) is None
    assert throttle.failed(0.0) is None
    wait = throttle.failed(0.0)
    assert wait == 2.0
    assert throttle.failed(1.0) == 1.0
    assert throttle.failed(0.0 + wait) is None
    assert throttle.failed(0.0 + wait) is not None


def test_after_a_quiet_time_the_whole_burst_is_there_again_and_not_more():
    throttle = WrongTokenThrottle(burst=3, per_second=1.0)
    for _ in range(5):
        throttle.failed(0.0)
    assert [throttle.failed(1_000.0) is None for _ in range(5)] == [True, True, True, False, False]


def test_a_clock_that_stands_still_or_steps_back_gives_nothing_away():
    throttle = WrongTokenThrottle(burst=1, per_second=1.0)
    assert throttle.failed(100.0) is None
    assert throttle.failed(50.0) is not None
    assert throttle.failed(50.0) is not None


@given(st.lists(st.floats(min_value=0, max_value=5), max_size=200))
def test_in_any_stretch_of_time_only_burst_and_rate_are_answered(gaps):
    throttle = WrongTokenThrottle(burst=4, per_second=2.0)
    now, answered = 0.0, 0
    for gap in gaps:
        now += gap
        answered += throttle.failed(now) is None
    assert answered <= 4 + 2.0 * now + 1e-6
