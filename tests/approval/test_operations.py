"""Calls inside a run: judged, consented to, begun on disk before they happen, finished on disk before they are told."""

import asyncio

import pytest
from desk_scene import JERRY, TOM, Cut, Forest

from bascule.foundation.errors import Conflict, PolicyDenied, StorageFull
from bascule.kernel.asking import create_question
from bascule.kernel.call import Call
from bascule.kernel.consent.questions import params_and_digest
from bascule.kernel.passage import Passage
from bascule.kernel.policy.decision import Decision


@pytest.fixture
def forest():
    return Forest()


def asked(forest, run_id="run_1", bound=None):
    text, digest = params_and_digest(Cut(), bound)
    question = forest.question(run_id=run_id, operation_id="op-1", digest=digest, params_json=text)
    return create_question(forest.journal, forest.desk, question)[0]


def begin(forest, approval=None, **more):
    approval_id = approval.approval_id if approval is not None else None
    how = {"subject": "x", "rule": None, "approval_id": approval_id, "run_id": "run_1"}
    return forest.effects.begin(JERRY, "tree.cut", **(how | more))


def test_an_operation_is_judged_by_the_policy_in_force_at_that_moment(forest):
    gate = forest.gate
    assert gate.verdict(JERRY, "tree.look", Cut()).decision is Decision.ALLOW
    assert gate.verdict(JERRY, "tree.cut", Cut()).decision is Decision.ASK
    assert gate.verdict(JERRY, "tree.burn", Cut()).decision is Decision.DENY
    gate.policy = type(forest.policy)(forest.policy.rules[:1], "reads only", "")
    assert gate.verdict(JERRY, "tree.cut", Cut()).decision is Decision.DENY


def test_what_is_approved_begins_once_with_its_grant_spent_in_the_same_commit(forest):
    approval = asked(forest)
    forest.approve(approval)
    grant = forest.grant(run_id="run_1")
    forest.store.batches.clear()
    begun = begin(forest, grant, rule="cutting-asks")
    (batch,) = forest.store.batches
    assert {table for table, _, _ in batch.changes} == {"approvals", "begun"}
    assert begun.started.done()
    assert forest.state(approval) == "spent"
    assert forest.grant(run_id="run_1") is None
    with pytest.raises(Conflict, match="can no longer be used"):
        begin(forest, grant)
    begun.details["bytes"] = 3
    forest.effects.finish(begun, "ok")
    assert forest.state(approval) == "done"
    assert [(record.outcome, record.subject) for record in forest.ledger()][-2:] == [("begun", "x"), ("ok", "x")]
    begun_record, ended = forest.ledger()[-2:]
    assert begun_record.details["begun"] == ended.details["begun"] == begun.begun_id
    assert ended.details["bytes"] == 3


def test_nothing_is_durable_before_the_disk_has_it_and_a_failed_write_gives_the_grant_back():
    forest = Forest()
    approval = asked(forest)
    forest.approve(approval)
    forest.store.hold = True
    begun = begin(forest, approval)
    assert not begun.started.done()
    forest.store.fail()
    assert isinstance(begun.started.exception(), StorageFull)
    assert forest.state(approval) == "approved"
    assert forest.effects.table.rows == {}


def test_a_bridges_own_rows_are_in_the_same_transaction_and_undone_with_it(forest):
    seen = []

    def changes(tx):
        seen.append(tx)
        raise ZeroDivisionError

    approval = asked(forest)
    forest.approve(approval)
    with pytest.raises(ZeroDivisionError):
        begin(forest, approval, changes=changes)
    assert forest.state(approval) == "approved"
    assert forest.effects.table.rows == {}


def test_a_denial_is_recorded_with_its_rule(forest):
    passage = Passage(forest.gate, Call(JERRY, "tree.burn", Cut(), door="run"), forest.gate.methods["tree.burn"])
    passage.run_id = "run_1"
    with pytest.raises(PolicyDenied, match="no fire"):
        asyncio.run(forest.gate.operate(passage))
    record = forest.ledger()[-1]
    assert (record.method, record.outcome, record.rule) == ("tree.burn", "policy_denied", "no-fire")
    assert record.subject == "run_1"
    assert record.details == {"reason": "no fire in the forest"}


def test_a_grant_is_for_its_run_and_for_what_it_is_bound_to(forest):
    approval = asked(forest, bound={"script": "abc"})
    forest.approve(approval)

    def grant(bound, run_id="run_1", principal=JERRY):
        return forest.desk.grant_for(principal, "tree.cut", params_and_digest(Cut(), bound)[1], run_id)

    same = {"script": "abc"}
    assert grant(same, "run_2") is None
    assert grant({"script": "changed"}) is None
    assert grant(None) is None
    assert grant(same, principal=TOM) is None
    assert grant(same).approval_id == approval.approval_id


def test_what_had_begun_when_the_daemon_died_is_recorded_as_unknown_and_reported_once(forest):
    approval = asked(forest)
    forest.approve(approval)
    begin(forest, approval)
    forest.live()
    notified = []
    rows = forest.effects.recover([lambda tx, row: notified.append((row.run_id, row.method))])
    assert notified == [("run_1", "tree.cut")]
    assert [(row.principal, row.approval_id) for row in rows] == [(JERRY, approval.approval_id)]
    assert forest.state(approval) == "unknown"
    record = forest.ledger()[-1]
    assert (record.principal, record.method, record.outcome) == (JERRY, "tree.cut", "unknown")
    forest.live()
    assert forest.effects.recover() == []


def test_what_ended_is_not_unknown(forest):
    forest.effects.finish(begin(forest), "ok")
    forest.live()
    assert forest.effects.recover() == []


def test_approving_the_run_allows_what_this_run_asks_and_no_other(forest):
    approval = asked(forest)
    forest.approve(approval, scope="run")
    judge = forest.gate.verdict
    allowed = judge(JERRY, "tree.cut", Cut(path="other"), run_id="run_1")
    assert allowed.decision is Decision.ALLOW
    assert allowed.rule.startswith("rul_")
    assert judge(JERRY, "tree.cut", Cut(), run_id="run_2").decision is Decision.ASK
    assert judge(JERRY, "tree.cut", Cut()).decision is Decision.ASK
    assert judge(TOM, "tree.cut", Cut(), run_id="run_1").decision is Decision.ASK
    assert judge(JERRY, "tree.burn", Cut(), run_id="run_1").decision is Decision.DENY
