"""Questions, answers, grants and their time."""

import asyncio

import pytest
from desk_scene import JERRY, TOM, Cut, Forest

from bascule.foundation.errors import Conflict, NotFound, Overloaded, StorageFull, TooLarge
from bascule.kernel.consent.limits import ConsentLimits
from bascule.kernel.consent.questions import params_and_digest, required
from bascule.kernel.journal import Transaction
from bascule.kernel.plain_params import plain_params
from bascule.kernel.rows import Effect, Params

MINUTE = 60.0


@pytest.fixture
def forest():
    return Forest()


# -- asking --


def test_an_identical_call_joins_the_question_that_waits(forest):
    first = forest.ask()
    records = len(forest.ledger())
    assert forest.ask().approval_id == first.approval_id
    assert len(forest.desk.pending()) == 1
    assert len(forest.ledger()) == records


@pytest.mark.parametrize(
    "other",
    [
        {"principal": TOM},
        {"method": "tree.burn"},
        {"params": Cut(path="y")},
        {"params": Cut(force=True)},
        {"run_id": "run_1"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_call_that_differs_in_anything_asks_for_itself(forest, other):
    first = forest.ask()
    assert forest.ask(**other).approval_id != first.approval_id


class Numbered(Params, frozen=True, kw_only=True):
    seconds: float = 30


def test_saying_a_default_is_the_same_call(forest):
    assert params_and_digest(Cut(path="x", force=False)) == params_and_digest(Cut())
    assert plain_params(Cut(path="x", force=True)) == {"force": True}
    # As a number comes back from the store.
    assert plain_params(Numbered(seconds=30.0)) == plain_params(Numbered()) == {}
    assert plain_params(Numbered(seconds=True)) == {"seconds": True}


def test_an_answered_question_is_asked_anew(forest):
    first = forest.ask()
    forest.decide(first, approve=False)
    assert forest.ask().approval_id != first.approval_id


def test_questions_of_one_principal_are_bounded_and_another_still_asks():
    forest = Forest(limits=ConsentLimits(max_pending=3))
    for number in range(3):
        forest.ask(params=Cut(path=str(number)))
    with pytest.raises(Overloaded) as refused:
        forest.ask(params=Cut(path="one more"))
    assert refused.value.status == 429
    assert refused.value.details == {"limit": "max_pending", "pending": 3}
    assert "bascule approvals" in refused.value.hint
    forest.ask(TOM)
    # An identical call is no question more.
    forest.ask(params=Cut(path="1"))


def test_a_thousand_questions_of_many_agents_are_bounded_together():
    forest = Forest()
    most = forest.desk.limits.max_pending_total
    assert most == 1_000
    for number in range(most):
        agent, path = divmod(number, forest.desk.limits.max_pending)
        forest.ask(f"agent:a{agent}", params=Cut(path=str(path)))
    with pytest.raises(Overloaded) as refused:
        forest.ask()
    assert refused.value.details["limit"] == "max_pending_total"
    forest.advance(15 * MINUTE)
    assert forest.desk.pending() == []
    forest.ask()


def test_what_cannot_be_shown_whole_is_not_asked():
    forest = Forest(limits=ConsentLimits(max_preview_chars=100))
    with pytest.raises(TooLarge, match="max_preview_chars"):
        forest.ask(preview="x" * 101)
    assert forest.desk.pending() == []


def test_what_a_principal_has_waiting_is_bounded_in_size_too():
    forest = Forest(limits=ConsentLimits(max_pending_chars=100))
    forest.ask(preview="x" * 60)
    with pytest.raises(Overloaded) as refused:
        forest.ask(params=Cut(path="other"), preview="x" * 60)
    assert refused.value.details["limit"] == "max_pending_chars"


# -- grants --


def test_a_grant_is_for_one_exact_call_of_one_principal(forest):
    forest.approve(forest.ask())
    assert forest.grant() is not None
    assert forest.grant(TOM) is None
    assert forest.grant(method="tree.burn") is None
    assert forest.grant(params=Cut(path="y")) is None
    assert forest.grant(run_id="run_1") is None


def test_of_64_who_race_for_a_grant_one_spends_it(forest):
    approval = forest.ask()
    forest.approve(approval)
    won = 0
    for _ in range(64):
        try:
            forest.spend(approval)
            won += 1
        except Conflict:
            continue
    assert won == 1
    assert forest.grant() is None


def test_a_grant_whose_spending_could_not_be_stored_is_a_grant_again(forest):
    approval = forest.ask()
    forest.approve(approval)
    forest.store.hold = True
    forest.spend(approval)
    assert forest.grant() is None
    forest.store.fail()
    assert forest.grant() is not None


@pytest.mark.parametrize("state", ["pending", "denied", "expired", "spent"])
def test_what_is_not_approved_cannot_be_spent(forest, state):
    approval = forest.ask()
    if state == "denied":
        forest.decide(approval, approve=False)
    elif state == "expired":
        forest.advance(15 * MINUTE)
    elif state == "spent":
        forest.approve(approval)
        forest.spend(approval)
    assert forest.state(approval) == state
    with pytest.raises(Conflict, match=f"it is {state}"):
        forest.spend(approval)


def test_a_question_is_answered_once(forest):
    approval = forest.ask()
    forest.decide(approval, approve=False)
    with pytest.raises(Conflict, match="it is denied"):
        forest.approve(approval)
    assert forest.grant() is None


def test_an_unknown_id_is_not_found(forest):
    with pytest.raises(NotFound):
        forest.desk.find("apr_none")


def test_an_answer_that_could_not_be_stored_was_not_given(forest):
    approval = forest.ask()
    notified = []
    forest.desk.watch(approval.approval_id, notified.append)
    forest.store.hold = True
    forest.approve(approval)
    forest.store.fail()
    assert forest.state(approval) == "pending"
    assert forest.grant() is None
    assert notified == []
    forest.store.hold = False
    forest.approve(approval)
    assert [each.state.value for each in notified] == ["approved"]


def test_the_next_holder_of_a_handle_inherits_nothing(forest):
    granted, asked, other = forest.ask(), forest.ask(params=Cut(path="y")), forest.ask(TOM)
    ruled = forest.ask(params=Cut(path="z"), run_id="run_1")
    forest.approve(granted)
    forest.approve(ruled, scope="run")
    forest.desk.end_agent("Jerry")
    assert [forest.state(each) for each in (granted, asked, ruled, other)] == [
        "expired",
        "withdrawn",
        "expired",
        "pending",
    ]
    assert forest.grant() is None
    assert forest.desk.rules.in_force() == []
    assert forest.outcomes()[-1] == ("approvals.revoke", "ok")
    records = len(forest.ledger())
    forest.desk.end_agent("Jerry")
    assert len(forest.ledger()) == records


def test_what_a_question_was_about_goes_with_its_answer(forest):
    approval = forest.ask(preview="secret")
    forest.approve(approval)
    assert forest.desk.find(approval.approval_id).question.preview == "secret"
    forest.spend(approval)
    tx = Transaction()
    forest.desk.settle(tx, approval.approval_id)
    forest.journal.commit(tx, JERRY, "tree.cut")
    kept = forest.desk.find(approval.approval_id).question
    assert (kept.preview, kept.params_json, kept.summary) == ("", "", "cut")
    stored = dict(forest.store.load("approvals", type(approval)))[approval.approval_id]
    assert stored.question.preview == ""


def test_the_ledger_has_a_keyed_digest_that_says_nothing_about_short_params(forest):
    approval = forest.ask()
    recorded = forest.ledger()[-1].details["digest"]
    assert recorded != approval.question.digest
    assert recorded == forest.desk.keyed(approval.question.digest)


# -- time --


def test_a_question_lasts_15_minutes_and_a_grant_10(forest):
    unanswered, answered = forest.ask(), forest.ask(TOM)
    forest.advance(15 * MINUTE - 1)
    assert forest.state(unanswered) == "pending"
    forest.approve(answered)
    forest.advance(1)
    assert forest.state(unanswered) == "expired"
    forest.advance(10 * MINUTE - 2)
    assert forest.grant(TOM) is not None
    forest.advance(1)
    assert forest.grant(TOM) is None
    assert forest.state(answered) == "expired"
    assert forest.outcomes()[-1] == ("approvals.expire", "ok")


@pytest.mark.parametrize("jump", [-24 * 3_600, -60, 60, 24 * 3_600])
def test_a_jump_of_the_wall_clock_never_makes_a_grant_longer(forest, jump):
    forest.approve(forest.ask())
    forest.clock.jump_wall(jump)
    forest.timers.advance(10 * MINUTE - 1)
    if jump < 0:
        assert forest.grant() is not None
    else:
        assert forest.grant() is None, "it may end early: the laptop may have slept"
    forest.timers.advance(1)
    assert forest.grant() is None


def test_a_suspended_laptop_does_not_keep_a_grant_alive(forest):
    """CLOCK_MONOTONIC stands still while a machine sleeps; only the wall clock shows that it did."""
    forest.approve(forest.ask())
    forest.clock.jump_wall(10 * MINUTE)
    assert forest.grant() is None
    approval = forest.ask(TOM)
    forest.clock.jump_wall(15 * MINUTE)
    with pytest.raises(Conflict, match="expired"):
        forest.approve(approval)


def test_an_expiry_that_could_not_be_stored_is_tried_again_and_grants_nothing_meanwhile(forest):
    approval = forest.ask()
    forest.approve(approval)
    forest.store.hold = True
    forest.advance(10 * MINUTE)
    forest.store.fail()
    assert forest.state(approval) == "approved"
    assert forest.grant() is None
    forest.store.hold = False
    forest.advance(2)
    assert forest.state(approval) == "expired"


def test_answered_questions_are_forgotten_after_a_day(forest):
    approval = forest.ask()
    waiting = forest.ask(TOM)
    forest.decide(approval, approve=False)
    forest.advance(14 * MINUTE)
    assert [item.count for item in forest.desk.gc(Transaction(), dry_run=False)] == [0]
    forest.advance(24 * 60 * MINUTE)
    tx = Transaction()
    assert [item.count for item in forest.desk.gc(tx, dry_run=True)] == [1]
    assert not tx.changes
    forest.desk.gc(tx, dry_run=False)
    with pytest.raises(NotFound):
        forest.desk.find(approval.approval_id)
    assert forest.state(waiting) == "expired"


def test_of_answered_questions_only_so_many_are_kept():
    forest = Forest(limits=ConsentLimits(max_kept=3))
    asked = [forest.ask(params=Cut(path=str(number))) for number in range(5)]
    for approval in asked:
        forest.decide(approval, approve=False)
    tx = Transaction()
    assert [item.count for item in forest.desk.gc(tx, dry_run=False)] == [2]
    assert [each.approval_id for each in forest.desk.all()] == [each.approval_id for each in asked[2:]]


# -- restart --


def test_after_a_restart_questions_wait_and_grants_and_rules_are_dead(forest):
    asked, granted, ruled = forest.ask(), forest.ask(TOM), forest.ask(params=Cut(path="r"), run_id="run_1")
    forest.approve(granted)
    forest.approve(ruled, scope="run")
    forest.restart(down=60)
    assert forest.state(asked) == "pending"
    assert forest.state(granted) == "expired"
    assert forest.grant(TOM) is None
    assert forest.desk.rules.in_force() == []
    assert forest.died == 3
    forest.approve(asked)
    assert forest.grant() is not None


def test_a_question_keeps_its_time_over_a_restart(forest):
    approval = forest.ask()
    forest.advance(10 * MINUTE)
    forest.restart(down=4 * MINUTE)
    assert forest.state(approval) == "pending"
    forest.advance(1 * MINUTE)
    assert forest.state(approval) == "expired"


def test_a_question_that_expired_while_nobody_ran_is_expired(forest):
    approval = forest.ask()
    forest.restart(down=16 * MINUTE)
    with pytest.raises(Conflict, match="expired"):
        forest.approve(approval)
    forest.advance(2)
    assert forest.state(approval) == "expired"


def test_a_wall_clock_set_back_while_nobody_ran_makes_no_question_endless(forest):
    approval = forest.ask()
    forest.clock.jump_wall(-30 * 24 * 3_600)
    forest.restart()
    forest.advance(15 * MINUTE)
    assert forest.state(approval) == "expired"


# -- waiting --


def test_a_waiter_is_told_when_the_answer_is_durable(forest):
    approval = forest.ask()
    waiting = forest.desk.wait(approval.approval_id, 45)
    assert forest.desk.waiting(approval.approval_id) == 1
    forest.store.hold = True
    forest.approve(approval)
    assert not waiting.done()
    forest.store.finish_all()
    assert waiting.result().state.value == "approved"
    assert forest.desk.waiting(approval.approval_id) == 0


def test_a_waiter_whose_slice_is_over_hears_that_it_waits_still(forest):
    approval = forest.ask()
    waiting = forest.desk.wait(approval.approval_id, 45)
    forest.advance(45)
    assert waiting.result().state.value == "pending"
    assert forest.desk.waiting(approval.approval_id) == 0


def test_a_waiter_that_leaves_is_gone_at_once_and_leaves_no_timer(forest):
    approval = forest.ask()
    timers = forest.timers.open()
    waiting = forest.desk.wait(approval.approval_id, 45)
    waiting.cancel()
    assert forest.desk.waiting(approval.approval_id) == 0
    assert forest.timers.open() == timers
    forest.approve(approval)
    assert forest.state(approval) == "approved", "nobody was there: it is a grant"


def test_waiters_of_one_principal_are_bounded():
    forest = Forest(limits=ConsentLimits(max_waiting=2))
    approval = forest.ask()
    for _ in range(2):
        forest.desk.wait(approval.approval_id, 45)
    with pytest.raises(Overloaded) as refused:
        forest.desk.wait(approval.approval_id, 45)
    assert refused.value.details["limit"] == "max_waiting"


def test_a_stop_tells_everybody_who_waits_and_keeps_the_questions(forest):
    approval = forest.ask()
    waiting = forest.desk.wait(approval.approval_id, 45)
    forest.desk.end()
    assert waiting.result().state.value == "pending"
    forest.restart()
    assert forest.state(approval) == "pending"


@pytest.mark.parametrize("how", ["approved", "denied", "expired", "withdrawn"])
def test_a_watcher_is_told_once_whatever_comes_of_it(forest, how):
    approval = forest.ask(run_id="run_1")
    notified = []
    forest.desk.watch(approval.approval_id, lambda each: notified.append(each.state.value))
    if how == "expired":
        forest.advance(15 * MINUTE)
    elif how == "withdrawn":
        tx = Transaction()
        forest.desk.withdraw(tx, approval.approval_id)
        forest.journal.commit(tx, JERRY, "runs.cancel")
    else:
        forest.decide(approval, approve=how == "approved")
    assert notified == [how]
    forest.desk.watch(approval.approval_id, lambda each: notified.append(each.state.value))
    assert notified == [how, how], "too late to wait: told at once"


def test_a_listener_that_fails_does_not_keep_others_from_hearing(forest):
    approval = forest.ask()
    notified = []

    def fails(_):
        raise ZeroDivisionError

    forest.desk.watch(approval.approval_id, fails)
    forest.desk.watch(approval.approval_id, notified.append)
    forest.approve(approval)
    assert len(notified) == 1
    assert forest.log[-1][0] == "fault"


def test_a_run_that_ends_takes_its_questions_grants_and_rules_with_it(forest):
    asked = forest.ask(run_id="run_1")
    granted = forest.ask(params=Cut(path="g"), run_id="run_1")
    ruled = forest.ask(params=Cut(path="r"), run_id="run_1")
    elsewhere = forest.ask(run_id="run_2")
    forest.approve(granted)
    forest.approve(ruled, scope="run")
    tx = Transaction()
    forest.desk.end_run(tx, "run_1")
    forest.journal.commit(tx, JERRY, "runs.cancel")
    states = [forest.state(each) for each in (asked, granted, ruled, elsewhere)]
    assert states == ["withdrawn", "expired", "expired", "pending"]
    assert forest.desk.timed(JERRY, "tree.cut", Effect.WRITE, Cut(), "run_1") is None


# -- what is told --


def test_what_a_caller_hears_says_who_can_answer_and_how(forest):
    approval = forest.ask()
    recorded = required(approval, has_person=True)
    assert (recorded.status, recorded.code, recorded.message) == (202, "approval_required", "cutting is forever")
    assert f"bascule approvals approve {approval.approval_id}" in recorded.hint
    assert recorded.details["approvalId"] == approval.approval_id
    assert "bascule person set" in required(approval, has_person=False).hint


def test_a_full_disk_is_reported_to_the_caller(forest):
    forest.store.hold = True

    async def story():
        approval = forest.ask()
        durable = forest.journal.durable()
        forest.store.fail()
        assert isinstance(durable.exception(), StorageFull)
        with pytest.raises(NotFound):
            forest.desk.find(approval.approval_id)

    asyncio.run(story())
