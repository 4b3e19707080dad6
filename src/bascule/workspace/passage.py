"""An operation of a run on its way through the gate: it pauses where a door's call would wait."""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from bascule.foundation.errors import BasculeError
from bascule.kernel.consent import blocks
from bascule.kernel.consent.records import Approval
from bascule.kernel.consent.records import Question as Asked
from bascule.kernel.effects import RecordedEffect
from bascule.kernel.passage import Passage
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.kernel.resolution import Resolution
from bascule.kernel.rows import Effect
from bascule.workspace import previews
from bascule.workspace.acts import Acted
from bascule.workspace.events import type_of
from bascule.workspace.live import Run, Unfinished
from bascule.workspace.ports import FileFault, ResolvedPath, Root
from bascule.workspace.protocol import Operation, ShellOperation
from bascule.workspace.records import Asks, Step
from bascule.workspace.resolving import follows, leads, resolve
from bascule.workspace.spaces import Space
from bascule.workspace.validation import path_of

if TYPE_CHECKING:
    from bascule.workspace.runner import Runner

# What an answer is bound to when the path cannot be resolved.
NOWHERE = "nowhere"


class Paused(Exception):
    """The operation is not executed now."""

    def __init__(self, *, waits: bool) -> None:
        super().__init__()
        # For a person; else it could not be asked, and has its event.
        self.waits = waits


class OperationPassage(Passage):
    def __init__(self, runner: "Runner", run: Run, space: Space, step: Step, operation: Operation) -> None:
        name = f"workspace.{type_of(operation)}"
        super().__init__(runner.gate, run.call(name, operation), runner.gate.methods[name])
        self.run_id = run.run_id
        self.operation_id = step.id
        self.asked_before = run.answer is not None
        self._runner = runner
        self.run = run
        self.space = space
        self.step = step
        self.operation = operation
        self.root: Root | None = None
        # Where a file operation leads, or why nowhere; None for a command.
        self.place: ResolvedPath | FileFault | None = None

    def close(self) -> None:
        if isinstance(self.place, ResolvedPath):
            self.place.close()

    # -- what it means --

    async def resolve(self) -> Resolution:
        root = self.root = await self._runner.root_of(self.run, self.space)
        operation = self.operation
        path = None if isinstance(operation, ShellOperation) else path_of(operation)
        if path is not None:
            try:
                self.place = await resolve(self._runner.threads, root, path, follow=follows(operation))
            except FileFault as error:
                self.place = error
        place = self.place
        if isinstance(place, ResolvedPath) and place.elsewhere:
            moved = msgspec.structs.replace(operation, path=place.path)
            return Resolution(leads_to=moved, led=leads(place), describe=self._describe)
        return Resolution(describe=self._describe)

    async def _describe(self, verdict: Verdict) -> Resolution:
        """What an answer is bound to besides the operation, and what the person sees."""
        runner, run, operation, place, root = self._runner, self.run, self.operation, self.place, self.root
        assert root is not None
        runner.settle(run)
        bound: dict[str, Any] = {
            "space": self.space.space_id,
            "path": self.space.record.path,
            "operationId": self.step.id,
            "policy": self.gate.policy.digest,
        }
        look = runner.threads.do
        if isinstance(operation, ShellOperation):
            pinned, preview = await look(
                previews.look_at_command, operation, path_of(operation), root, verdict, limits=runner.limits
            )
        else:
            assert place is not None
            pinned, preview = await look(previews.look_at_file, operation, place, root, verdict, limits=runner.limits)
            if isinstance(place, FileFault):
                bound["resolved"] = NOWHERE
            elif place.elsewhere:
                bound["resolved"] = place.path
        bound["files"] = pinned.files
        if pinned.loads:
            bound["loads"] = dict(pinned.loads)
        again = self._reason_to_ask_again(bound)
        return Resolution(
            bound=bound,
            summary=previews.summary(operation, bound.get("resolved")),
            preview=(blocks.text(f"{again}: it is asked anew"), *preview) if again else preview,
            resolved=again,
        )

    def _reason_to_ask_again(self, bound: dict[str, Any]) -> str | None:
        run = self.run
        if run.answer is None or run.asked is None:
            return None
        if run.answer.state.value == "expired":
            return "it was approved, but the daemon restarted before it ran"
        return previews.what_changed(run.asked.bound, bound)

    # -- consent --

    def must_ask(self, verdict: Verdict) -> bool:
        if self.run.record.on_copy:
            # Nothing lasts before `runs.commit`, and that asks.
            self.run.would_ask = Asks(verdict.rule, verdict.reason)
            return False
        return True

    def before_refusal(self) -> None:
        self.run.answer = None
        self._runner.settle(self.run)

    async def ask(self, question: Asked, resolution: Resolution, verdict: Verdict) -> Approval:
        """The run stores its question and ends; the answer calls it again."""
        self.run.answer = None
        await self._runner.checkpointing.close(self.run, self.space)
        self.run.count_work(asyncio.get_running_loop().time())
        raise Paused(waits=await self._runner.store.pause(self.run, self.step, question, resolution, verdict))

    # -- carrying out --

    async def prepare(self) -> None:
        await self._runner.checkpointing.open(self.run, self.space)

    def begin(self, resolution: Resolution, verdict: Verdict, approval_id: str | None) -> RecordedEffect:
        run, runner = self.run, self._runner
        details: dict[str, Any] = {"operation": self.step.id, "space": self.space.space_id}
        details |= runner.about(self.operation, self.place)
        if run.record.on_copy:
            details["copy"] = True
        approved = approval_id is not None and isinstance(self.operation, ShellOperation)
        if self.method.row.effect is not Effect.READ and (
            approval_id is not None or verdict.decision is Decision.ALLOW
        ):
            # On a copy an operation that asks has nobody's yes yet.
            yes = self.gate.desk.approver(rule=verdict.rule, timed_rule=verdict.timed_rule, approval_id=approval_id)
            run.record = run.record.with_yes(yes)
        run.sealed = resolution.bound["files"] if approved else {}
        # The end of the last operation and the beginning of this one are one write.
        with runner.journal.together():
            runner.settle(run)
            return self.gate.effects.begin(
                run.principal,
                self.call.method,
                subject=run.run_id,
                rule=verdict.rule,
                details=details,
                approval_id=approval_id,
                run_id=run.run_id,
                operation_id=self.step.id,
                changes=runner.checkpointing.changes(run),
                resolution=resolution,
            )

    def must_be_durable_first(self, effect: RecordedEffect, resolution: Resolution) -> bool:
        return True

    def act(self, effect: RecordedEffect | None) -> Any:
        self.run.answer = None
        return self._runner.act(self)

    async def finish(self, effect: RecordedEffect, outcome: str, answer: Any, *, durable: bool) -> Acted:
        """The record of its end rides with the beginning of the next one; see `Runner.settle`."""
        if isinstance(answer, BasculeError):
            answer = Acted(self._runner.event_factory.error(self.step, "system", answer.message), outcome)
        elif isinstance(answer, BaseException):
            raise answer
        acted: Acted = answer
        effect.details |= acted.details or {}
        self.run.unfinished = Unfinished(effect, acted.outcome)
        return acted
