"""Calls inside a run: judged, consented to, begun on disk before they happen, finished on disk before they are told."""

import pytest
from desk_scene import JERRY, TOM, Cut, Forest

from bascule.errors import Conflict, StorageFull
from bascule.policy.decision import Decision


@pytest.fixture
def forest():
    return Forest()


def asked(forest, params=None, run_id="run_1", **more):
    call = forest.call()
    params = params or Cut()
    verdict = forest.operations.judge(call, "tree.cut", params, run_id=run_id)
    return forest.operations.ask(
        call, "tree.cut", params, verdict, summary="cut x", preview="cut x", run_id=run_id, operation_id="op-1", **more
    )


def test_an_operation_is_judged_by_the_policy_in_force_at_that_moment(forest):
    judge = forest.operations.judge
    assert judge(forest.call(), "tree.look", Cut()).decision is Decision.ALLOW
    assert judge(forest.call(), "tree.cut", Cut()).decision is Decision.ASK
    assert judge(forest.call(), "tree.burn", Cut()).decision is Decision.DENY
    forest.policy = type(forest.policy)(forest.policy.rules[:1], "reads only", "")
    assert judge(forest.call(), "tree.cut", Cut()).decision is Decision.DENY


def test_what_is_approved_begins_once_with_its_grant_spent_in_the_same_commit(forest):
    approval = asked(forest).approval
    forest.approve(approval)
    digest = forest.operations.digest(Cut())
    grant = forest.operations.grant(forest.call(), "tree.cut", digest, "run_1")
    forest.store.batches.clear()
    begun = forest.operations.begin(
        forest.call(), "tree.cut", subject="x", rule="cutting-asks", approval_id=grant.approval_id, run_id="run_1"
    )
    (batch,) = forest.store.batches
    assert {table for table, _, _ in batch.changes} == {"approvals", "begun"}
    assert begun.durable is None
    assert forest.state(approval) == "spent"
    assert forest.operations.grant(forest.call(), "tree.cut", digest, "run_1") is None
    with pytest.raises(Conflict, match="is no grant"):
        forest.operations.begin(forest.call(), "tree.cut", subject="x", rule=None, approval_id=grant.approval_id)
    forest.operations.finish(begun, "ok", {"bytes": 3})
    assert forest.state(approval) == "done"
    assert [(record.outcome, record.subject) for record in forest.ledger()][-2:] == [("begun", "x"), ("ok", "x")]
    begun_record, ended = forest.ledger()[-2:]
    assert begun_record.details["begun"] == ended.details["begun"] == begun.begun_id
    assert ended.details["bytes"] == 3


def test_nothing_is_durable_before_the_disk_has_it_and_a_failed_write_gives_the_grant_back():
    forest = Forest()
    approval = asked(forest).approval
    forest.approve(approval)
    forest.store.hold = True
    begun = forest.operations.begin(forest.call(), "tree.cut", subject="x", rule=None, approval_id=approval.approval_id)
    assert not begun.durable.done()
    forest.store.fail()
    assert isinstance(begun.durable.exception(), StorageFull)
    assert forest.state(approval) == "approved"
    assert forest.effects._begun.left() == []


def test_a_bridges_own_rows_are_in_the_same_transaction_and_undone_with_it(forest):
    seen = []

    def changes(tx):
        seen.append(tx)
        raise ZeroDivisionError

    approval = asked(forest).approval
    forest.approve(approval)
    with pytest.raises(ZeroDivisionError):
        forest.operations.begin(
            forest.call(), "tree.cut", subject="x", rule=None, approval_id=approval.approval_id, changes=changes
        )
    assert forest.state(approval) == "approved"
    assert forest.effects._begun.left() == []


def test_a_denial_is_recorded_with_its_rule(forest):
    verdict = forest.operations.judge(forest.call(), "tree.burn", Cut())
    forest.operations.refused(forest.call(), "tree.burn", subject="run_1", verdict=verdict)
    record = forest.ledger()[-1]
    assert (record.method, record.outcome, record.rule) == ("tree.burn", "policy_denied", "no-fire")
    assert record.details == {"reason": "no fire in the forest"}


def test_a_grant_is_for_its_run_and_for_what_it_is_bound_to(forest):
    approval = asked(forest, bound={"script": "abc"}).approval
    forest.approve(approval)
    operations, call = forest.operations, forest.call()
    same = operations.digest(Cut(), {"script": "abc"})
    assert operations.grant(call, "tree.cut", same, "run_2") is None
    assert operations.grant(call, "tree.cut", operations.digest(Cut(), {"script": "changed"}), "run_1") is None
    assert operations.grant(call, "tree.cut", operations.digest(Cut()), "run_1") is None
    assert operations.grant(forest.call(TOM), "tree.cut", same, "run_1") is None
    assert operations.grant(call, "tree.cut", same, "run_1").approval_id == approval.approval_id


def test_what_had_begun_when_the_daemon_died_is_recorded_as_unknown_and_told_once(forest):
    approval = asked(forest).approval
    forest.approve(approval)
    forest.operations.begin(
        forest.call(), "tree.cut", subject="x", rule=None, approval_id=approval.approval_id, run_id="run_1"
    )
    forest.live()
    told = []
    rows = forest.operations.recover([lambda tx, row: told.append((row.run_id, row.method))])
    assert told == [("run_1", "tree.cut")]
    assert [(row.principal, row.approval_id) for row in rows] == [(JERRY, approval.approval_id)]
    assert forest.state(approval) == "unknown"
    record = forest.ledger()[-1]
    assert (record.principal, record.method, record.outcome) == (JERRY, "tree.cut", "unknown")
    forest.live()
    assert forest.operations.recover() == []


def test_what_ended_is_not_unknown(forest):
    begun = forest.operations.begin(forest.call(), "tree.cut", subject="x", rule=None)
    forest.operations.finish(begun, "ok")
    forest.live()
    assert forest.operations.recover() == []


def test_approving_the_run_allows_what_this_run_asks_and_no_other(forest):
    approval = asked(forest).approval
    forest.approve(approval, scope="run")
    judge = forest.operations.judge
    allowed = judge(forest.call(), "tree.cut", Cut(path="other"), run_id="run_1")
    assert allowed.decision is Decision.ALLOW
    assert allowed.rule.startswith("rul_")
    assert judge(forest.call(), "tree.cut", Cut(), run_id="run_2").decision is Decision.ASK
    assert judge(forest.call(), "tree.cut", Cut()).decision is Decision.ASK
    assert judge(forest.call(TOM), "tree.cut", Cut(), run_id="run_1").decision is Decision.ASK
    assert judge(forest.call(), "tree.burn", Cut(), run_id="run_1").decision is Decision.DENY
