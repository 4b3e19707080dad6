from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.kernel.policy.decision import Decision, Verdict, strictest

ALLOW, ASK, DENY = Decision.ALLOW, Decision.ASK, Decision.DENY


def test_allow_is_less_strict_than_ask_and_ask_less_than_deny():
    assert ALLOW < ASK < DENY
    for order in permutations([ALLOW, ASK, DENY]):
        assert sorted(order) == [ALLOW, ASK, DENY]


@pytest.mark.parametrize(("one", "other"), list(product(Decision, repeat=2)))
def test_of_two_decisions_exactly_one_relation_holds(one, other):
    assert (one < other) + (one == other) + (one > other) == 1
    assert (one <= other) == (one < other or one == other)
    assert (one >= other) == (other <= one)


def test_a_decision_is_not_compared_with_a_bare_word():
    with pytest.raises(TypeError):
        assert ALLOW < "deny"


@given(st.lists(st.sampled_from(Decision), min_size=1))
def test_the_strictest_of_many_is_one_of_them_and_none_is_stricter(decisions):
    chosen = strictest(decisions)
    assert chosen in decisions
    assert all(decision <= chosen for decision in decisions)


def test_nothing_said_is_deny():
    assert strictest([]) is DENY


def test_a_verdict_cannot_be_changed_after_it_was_given():
    verdict = Verdict(DENY, "rule", "because")
    with pytest.raises(AttributeError):
        verdict.decision = ALLOW
