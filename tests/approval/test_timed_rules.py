"""Timed rules: what a person allowed for a while, exactly as printed, and not a minute longer."""

import pytest
from desk_scene import JERRY, TOM, Cut, Deep, Forest

from bascule.approval.limits import Limits
from bascule.approval.questions import rule_text, same_call_offer
from bascule.errors import InvalidRequest, Overloaded
from bascule.policy.decision import Decision
from bascule.policy.engine import matches
from bascule.protocols.methods import Effect

MINUTE = 60.0


@pytest.fixture
def forest():
    return Forest()


def offered(forest, params=None, minutes=10):
    params = params or Cut()
    offers = same_call_offer(JERRY, "tree.cut", params, "again")
    approval = forest.ask(params=params, offers=offers)
    return forest.approve(approval, scope="rule", offer=1, minutes=minutes)


def test_a_timed_rule_matches_what_it_printed_and_nothing_else(forest):
    timed = offered(forest)
    assert rule_text(timed.rule) == 'allow agent:Jerry to call tree.cut, params {"path":"x","force":"false"}'
    hits = [
        (principal, method, path, force)
        for principal in (JERRY, TOM, "local", "agent:Jerry2")
        for method in ("tree.cut", "tree.burn", "tree.cutter")
        for path in ("x", "y", "xx", "*", "")
        for force in (False, True)
        if forest.desk.timed(principal, method, Effect.WRITE, Cut(path=path, force=force))
    ]
    assert hits == [(JERRY, "tree.cut", "x", False)]


def test_a_wildcard_in_a_param_means_itself(forest):
    timed = offered(forest, Cut(path="*[a]?"))
    assert matches(timed.rule, JERRY, "tree.cut", Effect.WRITE, Cut(path="*[a]?"))
    assert not matches(timed.rule, JERRY, "tree.cut", Effect.WRITE, Cut(path="xab"))


def test_no_rule_is_offered_that_could_not_say_all_of_the_call():
    assert same_call_offer(JERRY, "tree.cut", Deep(), "again") == ()


def test_a_timed_rule_ends_and_the_ledger_says_so(forest):
    timed = offered(forest, minutes=30)
    forest.advance(30 * MINUTE - 1)
    assert forest.desk.timed(JERRY, "tree.cut", Effect.WRITE, Cut()) is not None
    forest.advance(1)
    assert forest.desk.timed(JERRY, "tree.cut", Effect.WRITE, Cut()) is None
    record = forest.ledger()[-1]
    assert (record.method, record.subject) == ("approvals.rule_over", timed.rule_id)


@pytest.mark.parametrize("jump", [-3_600, 3_600])
def test_a_clock_that_jumps_never_makes_a_rule_longer(forest, jump):
    offered(forest, minutes=30)
    forest.clock.jump_wall(jump)
    forest.advance(30 * MINUTE)
    assert forest.desk.timed(JERRY, "tree.cut", Effect.WRITE, Cut()) is None


@pytest.mark.parametrize("minutes", [0, 8 * 60 + 1])
def test_no_rule_is_longer_than_eight_hours(forest, minutes):
    approval = forest.ask(offers=same_call_offer(JERRY, "tree.cut", Cut(), "again"))
    with pytest.raises(InvalidRequest, match="1 to 480 minutes"):
        forest.approve(approval, scope="rule", offer=1, minutes=minutes)
    assert forest.state(approval) == "pending"


@pytest.mark.parametrize("offer", [None, 0, 2, -1])
def test_only_what_was_offered_can_be_a_rule(forest, offer):
    approval = forest.ask(offers=same_call_offer(JERRY, "tree.cut", Cut(), "again"))
    with pytest.raises(InvalidRequest, match="has 1 offers"):
        forest.approve(approval, scope="rule", offer=offer)


def test_a_call_that_belongs_to_no_run_cannot_be_approved_for_one(forest):
    with pytest.raises(InvalidRequest, match="belongs to no run"):
        forest.approve(forest.ask(), scope="run")


def test_a_timed_rule_lies_over_an_ask_and_never_over_a_deny(forest):
    approval = forest.ask(
        method="tree.burn", offers=same_call_offer(JERRY, "tree.burn", Cut(), "again"), rule="no-fire"
    )
    forest.approve(approval, scope="rule", offer=1)
    assert forest.desk.timed(JERRY, "tree.burn", Effect.WRITE, Cut()) is not None
    assert forest.operations.judge(forest.call(), "tree.burn", Cut()).decision is Decision.DENY


def test_timed_rules_are_bounded():
    forest = Forest(limits=Limits(max_timed_rules=1))
    offered(forest)
    with pytest.raises(Overloaded, match="max_timed_rules"):
        offered(forest, Cut(path="y"))
