"""A call or an operation as a question to the person."""

from typing import TYPE_CHECKING, Any

from bascule.foundation.text import one_line
from bascule.kernel.consent.blocks import Preview, made_visible
from bascule.kernel.consent.desk import Desk
from bascule.kernel.consent.offers import all_offers
from bascule.kernel.consent.questions import SUMMARY_CHARS, default_preview, default_summary, params_and_digest
from bascule.kernel.consent.records import Approval, Question
from bascule.kernel.effects import Changes
from bascule.kernel.journal import AfterCommit, Journal, Transaction
from bascule.kernel.policy.decision import Verdict
from bascule.kernel.resolution import Resolution

if TYPE_CHECKING:
    from bascule.kernel.passage import Passage


def question_of(passage: "Passage", verdict: Verdict, resolution: Resolution) -> Question:
    call = passage.call
    name = call.method
    params_json, digest = params_and_digest(call.params, resolution.bound)
    preview: Preview
    if resolution.summary is None:
        summary, preview = default_summary(name, params_json), default_preview(name, call.params)
    else:
        summary, preview = resolution.summary, resolution.preview
    lasts = passage.method.row.lasts
    same, offers = all_offers(call.principal, name, call.params, resolution.bound, resolution.offers)
    if lasts is not None:
        # It is not for this call alone: there is nothing to allow for a while.
        same, offers = None, ()
    return Question(
        principal=call.principal,
        method=name,
        digest=digest,
        params_json=params_json,
        rule=verdict.rule,
        reason=verdict.reason,
        suggestion=verdict.suggestion,
        summary=one_line(summary, SUMMARY_CHARS),
        preview=made_visible(preview),
        run_id=passage.run_id,
        operation_id=passage.operation_id,
        offers=offers,
        exact=same,
        lasts=lasts,
    )


def create_question(
    journal: Journal, desk: Desk, question: Question, changes: Changes | None = None, *, picture: bytes | None = None
) -> tuple[Approval, AfterCommit[Any] | None]:
    """A new question with its record in one transaction, or the identical one that waits already.

    With what to wait for before anybody may be pointed to it.
    """
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
        return approval, journal.commit(tx, question.principal, question.method, "approval_required", question.rule)
    return approval, journal.commit_quietly(tx) if tx.changes else journal.durable()
