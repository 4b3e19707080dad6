"""Calls inside a run: each is judged, consented to and recorded like a call of its own, and none has a door.

The sibling of `dispatch` for bridges whose effects lie outside the store. The order is the run's to keep:

    verdict = operations.judge(call, method, params, run_id=...)
    deny:   operations.refused(...)
    ask:    grant = operations.grant(...), else operations.ask(...) and desk.watch until somebody answers
    begun = operations.begin(..., approval_id=...)       on disk (`begun.durable`) before anything happens
    ... the effect ...
    operations.finish(begun, "ok")                        on disk before anybody is told

`changes` of each of these puts the bridge's own rows into the same transaction.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bascule.approval.asking import Asked, allowed_for_now, put_before_the_person
from bascule.approval.desk import Desk
from bascule.approval.effects import Begun, Changes, Effects, OnUnknown
from bascule.approval.offers import all_offers
from bascule.approval.questions import SUMMARY_CHARS, params_and_digest
from bascule.approval.records import Approval, Question
from bascule.audit.begun import BegunRow
from bascule.audit.journal import Journal, Transaction
from bascule.call import Call, Principal
from bascule.later import Later
from bascule.policy.decision import Decision, Verdict
from bascule.policy.engine import Policy
from bascule.policy.programs import ProgramRules
from bascule.policy.rules import Rule
from bascule.protocols.methods import Row
from bascule.text import one_line, visible


class Operations:
    def __init__(
        self,
        *,
        policy: Callable[[], Policy],
        journal: Journal,
        desk: Desk,
        effects: Effects,
        rows: Iterable[Row],
    ) -> None:
        # Asked anew each time: a person may accept another policy at any moment.
        self._policy = policy
        self._journal = journal
        self._effects = effects
        self.desk = desk
        self._rows = {row.name: row for row in rows}

    # -- deciding --

    def judge(self, call: Call, method: str, params: Any, *, run_id: str | None = None) -> Verdict:
        """What the policy says, and a person's timed rule over an `ask`. Never raises for ask or deny."""
        row = self._rows[method]
        verdict = self._policy().decide(call.principal, method, row.effect, lambda: params)
        if verdict.decision is not Decision.ASK:
            return verdict
        return allowed_for_now(self.desk, verdict, call.principal, row, params, run_id=run_id) or verdict

    def program_rules(self, principal: Principal) -> ProgramRules:
        """What the sandbox enforces when programs are really executed."""
        return self._policy().program_rules(principal)

    # -- consent --

    def digest(self, params: Any, bound: Mapping[str, Any] | None = None) -> str:
        """What a grant for this call is bound to; `bound` adds what else must not change: cwd, script digests."""
        return params_and_digest(params, bound)[1]

    def grant(self, call: Call, method: str, digest: str, run_id: str | None = None) -> Approval | None:
        return self.desk.grant_for(call.principal, method, digest, run_id)

    def ask(
        self,
        call: Call,
        method: str,
        params: Any,
        verdict: Verdict,
        *,
        summary: str,
        preview: str,
        run_id: str | None = None,
        operation_id: str | None = None,
        offers: tuple[Rule, ...] = (),
        bound: Mapping[str, Any] | None = None,
        changes: Changes | None = None,
    ) -> Asked:
        """Put it before the person. `preview` is drawn here: pass the diff or the parsed command as it is."""
        params_json, digest = params_and_digest(params, bound)
        same, offers = all_offers(call.principal, method, params, bound, offers)
        question = Question(
            principal=call.principal,
            method=method,
            digest=digest,
            params_json=params_json,
            rule=verdict.rule,
            reason=verdict.reason,
            suggestion=verdict.suggestion,
            summary=one_line(summary, SUMMARY_CHARS),
            preview=visible(preview, keep="\n"),
            run_id=run_id,
            operation_id=operation_id,
            offers=offers,
            exact=same,
        )
        return put_before_the_person(self._journal, self.desk, question, changes)

    # -- recording --

    def begin(
        self,
        call: Call,
        method: str,
        *,
        subject: str | None,
        rule: str | None,
        details: dict[str, Any] | None = None,
        approval_id: str | None = None,
        run_id: str | None = None,
        operation_id: str | None = None,
        changes: Changes | None = None,
    ) -> Begun:
        """One transaction: the record `begun`, and the grant is spent. `Conflict` when it is no grant any more."""
        return self._effects.begin(
            call.principal,
            method,
            subject=subject,
            rule=rule,
            details=details,
            approval_id=approval_id,
            run_id=run_id,
            operation_id=operation_id,
            changes=changes,
        )

    def finish(
        self, begun: Begun, outcome: str, details: dict[str, Any] | None = None, changes: Changes | None = None
    ) -> Later[None] | None:
        """How it ended, in one transaction with `changes`; what to wait for before anybody is told."""
        return self._effects.finish(begun, outcome, details, changes)

    def refused(
        self, call: Call, method: str, *, subject: str | None, verdict: Verdict, changes: Changes | None = None
    ) -> Later[None] | None:
        """A denial is a decision, and decisions are recorded."""
        tx = Transaction()
        tx.subject = subject
        tx.details = {"reason": verdict.reason}
        with tx:
            if changes is not None:
                changes(tx)
        seq = self._journal.commit(tx, call.principal, method, "policy_denied", verdict.rule)
        return self._journal.settled(seq)

    def recover(self, listeners: Iterable[OnUnknown] = ()) -> list[BegunRow]:
        """Once, at start: see `Effects.recover`."""
        return self._effects.recover(listeners)
