"""The desk behind its method rows: what waits for the person, and the person's word."""

import asyncio
from collections.abc import Iterable
from typing import cast

import msgspec

from bascule.admin.approvals import (
    ApprovalParams,
    ApprovalsListParams,
    ApprovalView,
    AskedBefore,
    AskerHistory,
    DecideParams,
    DecideResult,
    Mark,
    PreviewBlock,
    PreviewLine,
    RuleOffer,
)
from bascule.admin.rule_words import timed_in_words
from bascule.admin.rulebook import timed_view
from bascule.foundation.clock import rfc3339
from bascule.foundation.errors import NotFound, Overloaded, Unavailable
from bascule.foundation.stream import Stream
from bascule.foundation.tasks import Tasks
from bascule.kernel.blob import Blob
from bascule.kernel.call import Call, Principal, shown_by
from bascule.kernel.consent.blocks import Block, lines_of
from bascule.kernel.consent.desk import Desk
from bascule.kernel.consent.questions import rule_text, timed_text
from bascule.kernel.consent.records import Approval, Question, Scope
from bascule.kernel.consent.states import ApprovalState
from bascule.kernel.journal import Transaction
from bascule.kernel.retention import GcItem
from bascule.kernel.rows import Nothing

# Terminals that watch for questions: one per pair of eyes, and some that were left open. Of the person as many again:
# no program may take every place, and so keep questions from them.
MAX_WATCHERS = 64
# Of what the asker asked before: as many as a person takes in beside the question itself.
RECENT_QUESTIONS = 5


class Consent:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        # And who reads them.
        self._streams: dict[Stream, Principal] = {}
        # Who asked for it is answered with its fault.
        self._tasks = Tasks(lambda _name, _error: None)
        self._stopping = False
        desk.on_news.append(self._push)

    def list_approvals(self, call: Call, params: ApprovalsListParams) -> list[ApprovalView]:
        if params.all:
            found = sorted(self._desk.all(), key=lambda approval: approval.asked_at, reverse=True)
        else:
            found = self._desk.pending()
        return [self._view(approval, whole=False) for approval in found[: params.limit]]

    def show(self, call: Call, params: ApprovalParams) -> ApprovalView:
        approval = self._desk.find(params.approval_id)
        return msgspec.structs.replace(
            self._view(approval, whole=True),
            blocks=[_block_view(block) for block in approval.question.blocks],
            history=asker_history(self._desk.all(), approval),
        )

    def picture(self, call: Call, params: ApprovalParams) -> "asyncio.Future[Blob]":
        question = self._desk.find(params.approval_id).question
        return self._tasks.start(self._picture(params.approval_id, question), call.method)

    async def _picture(self, approval_id: str, question: Question) -> Blob:
        png = await asyncio.get_running_loop().run_in_executor(None, self._desk.pictures.read, question)
        if png is None:
            raise NotFound(
                f"{approval_id} has no picture", hint="pictures are kept until a question is answered; its words stay"
            )
        return Blob("image/png", png)

    def decide(self, call: Call, params: DecideParams, tx: Transaction) -> DecideResult:
        approval, rule = self._desk.decide(
            tx,
            params.approval_id,
            approve=params.decision == "approved",
            scope=Scope(params.scope),
            offer=params.offer,
            minutes=params.minutes,
            reason=params.reason,
            by=shown_by(call),
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
        if sum(each == call.principal for each in self._streams.values()) >= MAX_WATCHERS:
            raise Overloaded(f"{MAX_WATCHERS} terminals watch for questions", hint="close one of them", retry_after=5.0)

        def closed() -> None:
            self._streams.pop(stream, None)

        stream = Stream(on_close=closed)
        self._streams[stream] = call.principal
        for approval in self._desk.pending():
            stream.push(self._view(approval, whole=True))
        return stream

    def pending(self) -> int:
        return len(self._desk.pending())

    def gc(self, tx: Transaction, *, dry_run: bool) -> list[GcItem]:
        return self._desk.gc(tx, dry_run=dry_run)

    async def close(self) -> None:
        await self._tasks.close()

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
                words=timed_in_words(rule, exact=asked.exact if number == 1 else None),
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
            preview=asked.text if whole else None,
            picture=asked.picture if whole else None,
            has_picture=asked.picture is not None,
            run_id=asked.run_id,
            operation_id=asked.operation_id,
            waiting=self._desk.waiting(approval.approval_id),
            decided_at=rfc3339(approval.decided_at) if approval.decided_at is not None else None,
            decided_reason=approval.decided_reason,
            lasts=asked.lasts,
            offers=offers if whole else [],
        )


def _conditions(rule: msgspec.Struct) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(rule)
    return {name: value for name, value in plain.items() if value and name not in ("match", "not_match")}


def _block_view(block: Block) -> PreviewBlock:
    lines = [PreviewLine(text=line.text, mark=cast("Mark | None", line.mark)) for line in lines_of(block)]
    return PreviewBlock(kind=block.kind.value, lines=lines, title=block.title or None)


def asker_history(kept: Iterable[Approval], about: Approval) -> AskerHistory:
    """What the person said before to who asks now."""
    own = [each for each in kept if each.question.principal == about.question.principal]
    answered = [each for each in own if each.decided_at is not None]
    denied = sum(each.state is ApprovalState.DENIED for each in answered)
    over = (ApprovalState.EXPIRED, ApprovalState.WITHDRAWN)
    before = sorted(
        (each for each in own if each.approval_id != about.approval_id and each.asked_at <= about.asked_at),
        key=lambda each: each.asked_at,
        reverse=True,
    )
    return AskerHistory(
        asked=len(own),
        # A yes that was never used has expired as well, and was a yes.
        approved=len(answered) - denied,
        denied=denied,
        expired=sum(each.state in over and each.decided_at is None for each in own),
        recent=[
            AskedBefore(
                approval_id=each.approval_id,
                summary=each.question.summary,
                state=each.state.value,
                at=rfc3339(each.asked_at),
            )
            for each in before[:RECENT_QUESTIONS]
        ],
    )
