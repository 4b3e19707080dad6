"""The desk behind its method rows: what waits for the person, and the person's word."""

import msgspec

from bascule.admin.approvals import (
    ApprovalParams,
    ApprovalsListParams,
    ApprovalView,
    DecideParams,
    DecideResult,
    RuleOffer,
)
from bascule.admin.rulebook import timed_view
from bascule.foundation.clock import rfc3339
from bascule.foundation.errors import Overloaded, Unavailable
from bascule.foundation.stream import Stream
from bascule.kernel.call import Call
from bascule.kernel.consent.desk import Desk
from bascule.kernel.consent.questions import rule_text, timed_text
from bascule.kernel.consent.records import Approval, Scope
from bascule.kernel.consent.states import ApprovalState
from bascule.kernel.journal import Transaction
from bascule.kernel.retention import GcItem
from bascule.kernel.rows import Nothing

# Terminals that watch for questions: one per pair of eyes, and some that were left open.
MAX_WATCHERS = 64


class Consent:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._streams: set[Stream] = set()
        self._stopping = False
        desk.on_news.append(self._push)

    def list_approvals(self, call: Call, params: ApprovalsListParams) -> list[ApprovalView]:
        if params.all:
            found = sorted(self._desk.all(), key=lambda approval: approval.asked_at, reverse=True)
        else:
            found = self._desk.pending()
        return [self._view(approval, whole=False) for approval in found[: params.limit]]

    def show(self, call: Call, params: ApprovalParams) -> ApprovalView:
        return self._view(self._desk.find(params.approval_id), whole=True)

    def decide(self, call: Call, params: DecideParams, tx: Transaction) -> DecideResult:
        approval, rule = self._desk.decide(
            tx,
            params.approval_id,
            approve=params.decision == "approved",
            scope=Scope(params.scope),
            offer=params.offer,
            minutes=params.minutes,
            reason=params.reason,
        )
        asked = approval.question
        tx.subject = approval.approval_id
        tx.details = {
            "decision": params.decision,
            "principal": asked.principal,
            "method": asked.method,
            "digest": self._desk.keyed(asked.digest),
            "process": getattr(call.connection, "peer", None),
        }
        if params.decision == "approved":
            tx.details["scope"] = params.scope
        if rule is not None:
            # In full: what was allowed for hours must be readable for as long as the ledger is.
            tx.details["rule"] = timed_text(rule)
            tx.details["until"] = rfc3339(rule.expires_at)
        return DecideResult(
            approval_id=approval.approval_id,
            state=approval.state.value,
            rule=timed_view(rule) if rule is not None else None,
        )

    def stream(self, call: Call, params: Nothing) -> Stream:
        if self._stopping:
            raise Unavailable("the daemon is stopping", hint="try again in a moment", retry_after=1.0)
        if len(self._streams) >= MAX_WATCHERS:
            raise Overloaded(f"{MAX_WATCHERS} terminals watch for questions", hint="close one of them", retry_after=5.0)
        stream = Stream(on_close=lambda: self._streams.discard(stream))
        self._streams.add(stream)
        for approval in self._desk.pending():
            stream.push(self._view(approval, whole=True))
        return stream

    def pending(self) -> int:
        return len(self._desk.pending())

    def gc(self, tx: Transaction, *, dry_run: bool) -> list[GcItem]:
        return self._desk.gc(tx, dry_run=dry_run)

    def end(self) -> None:
        self._stopping = True
        for stream in list(self._streams):
            stream.end()

    def _push(self, approval: Approval) -> None:
        for stream in list(self._streams):
            stream.push(self._view(approval, whole=approval.state is ApprovalState.PENDING))

    def _view(self, approval: Approval, *, whole: bool) -> ApprovalView:
        asked = approval.question
        offers = [
            RuleOffer(
                number=number,
                title=rule.reason,
                text=rule_text(rule, exact=asked.exact if number == 1 else None),
                rule=_conditions(rule),
            )
            for number, rule in enumerate(asked.offers, 1)
        ]
        return ApprovalView(
            approval_id=approval.approval_id,
            state=approval.state.value,
            principal=asked.principal,
            method=asked.method,
            digest=asked.digest,
            rule=asked.rule,
            reason=asked.reason,
            suggestion=asked.suggestion,
            summary=asked.summary,
            asked_at=rfc3339(approval.asked_at),
            expires_at=rfc3339(approval.expires_at),
            preview=asked.preview if whole else None,
            picture=asked.picture if whole else None,
            run_id=asked.run_id,
            operation_id=asked.operation_id,
            waiting=self._desk.waiting(approval.approval_id),
            decided_at=rfc3339(approval.decided_at) if approval.decided_at is not None else None,
            decided_reason=approval.decided_reason,
            offers=offers if whole else [],
        )


def _conditions(rule: msgspec.Struct) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(rule)
    return {name: value for name, value in plain.items() if value and name not in ("match", "not_match")}
