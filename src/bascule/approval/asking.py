"""Steps that a call at a door and an operation in a run have in common once a rule says `ask`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from bascule.approval.desk import Desk
from bascule.approval.effects import Changes
from bascule.approval.questions import params_and_digest, timed_text
from bascule.approval.records import Approval, Question
from bascule.audit.journal import Journal, Transaction
from bascule.call import Call, Principal
from bascule.later import Later
from bascule.policy.decision import Decision, Verdict
from bascule.protocols.methods import Row


class Asked(NamedTuple):
    approval: Approval
    # Until this is settled the question is not on disk, and nobody may be pointed to it.
    durable: Later[None] | None


def allowed_for_now(
    desk: Desk,
    verdict: Verdict,
    principal: Principal,
    row: Row,
    params: Any,
    *,
    run_id: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Verdict | None:
    """The verdict that a person's timed rule makes of an `ask`; a `deny` is never looked at."""
    if verdict.decision is not Decision.ASK:
        return None
    timed = desk.timed(principal, row.name, row.effect, params, run_id, over=verdict.rule, facts=facts)
    if timed is None:
        return None
    return msgspec.structs.replace(
        verdict,
        decision=Decision.ALLOW,
        rule=timed.rule_id,
        reason=f"a person said for a while: {timed_text(timed)}",
        suggestion=None,
        cacheable=False,
    )


def would_be_new(
    desk: Desk, verdict: Verdict, call: Call, row: Row, *, facts: Mapping[str, Any] | None, bound: Mapping[str, Any]
) -> bool:
    """Whether a person would be asked something that nobody has asked yet: then a picture of it is worth its time."""
    if verdict.decision is not Decision.ASK:
        return False
    if allowed_for_now(desk, verdict, call.principal, row, call.params, facts=facts) is not None:
        return False
    digest = params_and_digest(call.params, bound)[1]
    return not desk.is_known(call.principal, row.name, digest)


def put_before_the_person(
    journal: Journal,
    desk: Desk,
    question: Question,
    changes: Changes | None = None,
    *,
    picture: bytes | None = None,
) -> Asked:
    """A new question with its record in one transaction, or the identical one that waits already."""
    with Transaction() as tx:
        approval = desk.ask(tx, question, picture)
        is_new = bool(tx.changes)
        if changes is not None:
            changes(tx)
    if is_new:
        tx.subject = approval.approval_id
        tx.details = {"digest": desk.keyed(question.digest)}
        if question.run_id is not None:
            tx.details["run"] = question.run_id
        seq = journal.commit(tx, question.principal, question.method, "approval_required", question.rule)
    else:
        seq = journal.commit_quietly(tx) if tx.changes else journal.newest()
    return Asked(approval, journal.settled(seq))
