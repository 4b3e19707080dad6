"""A run that asks: the question and all that is left to do are on disk, and an answer sets it going again."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from bascule.foundation.clock import rfc3339
from bascule.foundation.errors import Overloaded, StorageFull, TooLarge
from bascule.kernel.asking import create_question
from bascule.kernel.consent.records import Approval, Question
from bascule.kernel.consent.states import ApprovalState
from bascule.kernel.gate import Gate
from bascule.kernel.journal import Journal, Transaction
from bascule.kernel.policy.decision import Verdict
from bascule.kernel.resolution import Resolution
from bascule.workspace.events import EventFactory, type_of
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.live import Run, Stop
from bascule.workspace.news import News
from bascule.workspace.protocol import ApprovalRequiredEvent, MessageOperation, ShellOperation
from bascule.workspace.records import AWAITING, ERROR, RUNNING, RunQuestion, RunRecord, RunRest, Step
from bascule.workspace.runbook import RunBook
from gabp import codec


class Pausing:
    def __init__(
        self,
        *,
        book: RunBook,
        gate: Gate,
        journal: Journal,
        limits: WorkspaceLimits,
        event_factory: EventFactory,
        live: Mapping[str, Run],
        go_on: Callable[[Run], None],
        news: News,
    ) -> None:
        self._book = book
        self._gate = gate
        self._journal = journal
        self._limits = limits
        self._event_factory = event_factory
        self._live = live
        self._go_on = go_on
        self._news = news

    async def pause(self, run: Run, step: Step, question: Question, resolution: Resolution, verdict: Verdict) -> bool:
        rest = RunRest(steps=run.steps[run.at :], size=0)
        rest = msgspec.structs.replace(rest, size=len(codec.encode(rest)))
        paused: list[RunRecord] = []

        def changes(tx: Transaction) -> None:
            self._book.save(run, tx)
            paused.append(self._paused(run, step, question, resolution, verdict))
            self._book.put(tx, paused[0])
            self._book.put_rest(tx, run.run_id, rest)

        try:
            if self._book.paused_bytes + rest.size > self._limits.max_paused_bytes:
                raise TooLarge(  # noqa: TRY301 - answered like what the desk itself refuses
                    f"runs that wait for the person hold {self._limits.max_paused_bytes} bytes of operations already",
                    hint="have the waiting ones answered, or send less in one run",
                )
            _, durable = create_question(self._journal, self._gate.desk, question, changes)
            if durable is not None:
                await durable
        except StorageFull as error:
            run.events.append(self._event_factory.error(step, "system", f"{error.message}; {error.hint}"))
            run.lost = True
            run.end_early(Stop("system", error.message, ERROR))
            return False
        except (Overloaded, TooLarge) as error:
            # Nobody can be asked now: the same as no.
            run.events.append(self._event_factory.denied(step, error.message, error.hint))
            return False
        run.record = paused[0]
        waits_for = run.record.question
        assert waits_for is not None
        run.feed.event(waits_for.event, len(question.preview))
        run.feed.status(AWAITING)
        self._news.run("asks", run.record)
        run.answer_waiters()
        self.watch(run.run_id, waits_for.approval_id)
        return True

    def _paused(self, run: Run, step: Step, question: Question, resolution: Resolution, verdict: Verdict) -> RunRecord:
        approval = self._gate.desk.pending_of_run(run.run_id)[-1]
        operation = step.operation
        assert operation is not None
        details: dict[str, Any] = {}
        if isinstance(operation, ShellOperation):
            details["command"] = operation.command
        elif not isinstance(operation, MessageOperation):
            details["path"] = operation.path
            if "resolved" in resolution.bound:
                details["resolved"] = resolution.bound["resolved"]
        details["policy"] = verdict.policy or verdict.rule
        details["approvalId"] = approval.approval_id
        details["expiresAt"] = rfc3339(approval.expires_at)
        if resolution.resolved is not None:
            details["again"] = resolution.resolved
        event = ApprovalRequiredEvent(
            timestamp=self._event_factory.now(),
            operation_id=step.id,
            operation_type=type_of(operation),
            reason=verdict.reason,
            details=details,
        )
        asks = RunQuestion(
            approval_id=approval.approval_id, digest=question.digest, bound=dict(resolution.bound), event=event
        )
        return msgspec.structs.replace(
            run.record,
            status=AWAITING,
            question=asks,
            segments=tuple(run.segments),
            note=run.note,
            steering=tuple(run.steering),
            would_ask=run.would_ask,
            seq=run.feed.seq + 2,
        )

    def watch(self, run_id: str, approval_id: str) -> None:
        """Go on when it is answered; in a turn of its own, for the answer may be there already."""
        asyncio.get_running_loop().call_soon(self._gate.desk.watch, approval_id, partial(self._answered, run_id))

    def _answered(self, run_id: str, approval: Approval) -> None:
        run = self._live.get(run_id)
        question = run.record.question if run is not None else None
        if run is None or question is None or question.approval_id != approval.approval_id:
            return
        if approval.state is ApprovalState.WITHDRAWN or run.record.status != AWAITING:
            return
        run.answer = approval
        run.record = msgspec.structs.replace(run.record, status=RUNNING)
        tx = Transaction()
        self._book.put(tx, msgspec.structs.replace(run.record, question=None))
        self._book.put_rest(tx, run_id, None)
        self._journal.commit_quietly(tx)
        run.feed.status(RUNNING)
        self._news.run("resumed", run.record)
        self._go_on(run)
