"""A call on its way through the slow part of the gate, as a door makes it. A run overrides what its operations do
otherwise: they pause instead of waiting, and record the end of one with the beginning of the next.
"""

import asyncio
import inspect
import types
from collections.abc import Awaitable, Coroutine, Generator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from bascule.foundation.deferred import Deferred, Leavable
from bascule.foundation.errors import BasculeError, StorageFull
from bascule.kernel.asking import create_question
from bascule.kernel.call import Call, proof_of, subject_of
from bascule.kernel.consent.limits import HTTP_SLICE_SECONDS, MCP_SLICE_SECONDS
from bascule.kernel.consent.records import Approval, Question
from bascule.kernel.effects import RecordedEffect
from bascule.kernel.policy.decision import Verdict
from bascule.kernel.resolution import PLAIN, Resolution
from bascule.kernel.rows import Record, Shape

if TYPE_CHECKING:
    from bascule.kernel.gate import Gate
    from bascule.kernel.mounted import Mounted

T = TypeVar("T")

# How long a caller is held while a person is asked, by door; HTTP clients give up first.
SLICES: Mapping[str, float] = {"link": MCP_SLICE_SECONDS, "mcp": MCP_SLICE_SECONDS}


class Passage:
    # The run whose operation this is: its grants and timed rules are for it alone.
    run_id: str | None = None
    operation_id: str | None = None
    # A person was asked about it before, in an earlier passage.
    asked_before = False

    def __init__(self, gate: "Gate", call: Call, method: "Mounted") -> None:
        self.gate = gate
        self.call = call
        self.method = method
        # From its `begun` record on an effect belongs to the daemon: a caller that leaves does not end it.
        self.begun = False
        # Its handler was called.
        self.acting = False
        self.left = False
        # Its task runs; before that it is in the turn of the loop that brought the call.
        self.in_task = False
        # What the handler waits for.
        self.pending: Deferred[Any] | asyncio.Future[Any] | None = None

    async def resolve(self) -> Resolution:
        """What the call means now."""
        if self.method.resolve is None:
            return PLAIN
        resolution = self.method.resolve(self.call, self.call.params)
        if isinstance(resolution, Resolution):
            return resolution
        return await self.own_task(resolution)

    def act(self, effect: RecordedEffect | None) -> Any:
        """The effect itself: a value, or what brings one."""
        return self.method.handler(self.call, self.call.params, effect)

    async def own_task(self, work: Awaitable[T]) -> T:
        """Coroutines of bridges may use timeouts and be cancelled, which takes a task."""
        if not self.in_task:
            try:
                await asyncio.sleep(0)
            except BaseException:
                if inspect.iscoroutine(work):
                    work.close()
                raise
        return await work

    def must_ask(self, verdict: Verdict) -> bool:  # noqa: ARG002 - for those that override it
        return True

    def before_refusal(self) -> None:
        """Called before a refusal is recorded."""

    async def ask(self, question: Question, resolution: Resolution, verdict: Verdict) -> Approval:  # noqa: ARG002 - see `must_ask`
        """Store the question, wait for an answer; the approval as it is when the caller's slice is over."""
        desk = self.gate.desk
        approval, durable = create_question(self.gate.journal, desk, question, picture=resolution.picture)
        # Nobody may be pointed to a question that is not on disk.
        if durable is not None:
            await durable
        # Without a person nobody can answer, so nobody is held.
        longest = min(SLICES.get(self.call.door, HTTP_SLICE_SECONDS), desk.limits.hold_seconds)
        seconds = longest if desk.has_person() else 0.0
        return await desk.wait(approval.approval_id, seconds)

    def withdrawn(self) -> BaseException | None:
        """Why it must not act although it was admitted: its caller left, or everything was stopped meanwhile."""
        if self.left:
            # A bridge may have swallowed that.
            return asyncio.CancelledError()
        halt = self.gate.halt
        return None if halt is None or self.method.while_stopped(self.call.params) else halt.refusal()

    async def prepare(self) -> None:
        """Called when policy and person allow it, before anything is recorded."""

    def begin(self, resolution: Resolution, verdict: Verdict, approval_id: str | None) -> RecordedEffect:
        call = self.call
        return self.gate.effects.begin(
            call.principal,
            call.method,
            subject=subject_of(call.params) or resolution.subject,
            rule=verdict.rule,
            details=proof_of(call) or None,
            approval_id=approval_id,
            run_id=getattr(call.params, "run_id", None),
            resolution=resolution,
            timed_rule=verdict.timed_rule,
        )

    def must_be_durable_first(self, effect: RecordedEffect, resolution: Resolution) -> bool:
        """Whether its records are on disk before the effect and before the answer; else they are on their way."""
        ahead = self.method.row.record is Record.AHEAD
        return ahead or effect.approval_id is not None or resolution.record_first

    async def finish(self, effect: RecordedEffect, outcome: str, answer: Any, *, durable: bool) -> Any:
        """Record the end, then answer, or raise the refusal."""
        if isinstance(answer, BasculeError):
            effect.details.setdefault("reason", answer.message)
        finished = self.gate.effects.finish(effect, outcome)
        if durable:
            try:
                await finished
            except StorageFull as error:
                # It happened, and could not be recorded: the answer must not say that it did not happen.
                raise StorageFull(
                    "it was executed, but its end could not be recorded; the ledger will say `unknown`",
                    hint="look before you repeat it; free space on the disk that holds the state directory",
                ) from error
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def leave(self, task: "asyncio.Task[None]") -> None:
        """The caller has left."""
        self.left = True
        # What only waits for something ends when nobody waits for it any more.
        if not self.begun or (self.acting and self.method.row.shape is Shape.WAIT):
            if self.in_task:
                task.cancel()
            else:
                # A task that is cancelled before its first step never runs, and what it was to go on with is not ended.
                asyncio.get_running_loop().call_soon(task.cancel)
        elif isinstance(self.pending, Leavable):
            self.pending.cancel()


class Answer(Deferred[Any]):
    """The answer of a call whose passage takes time. Cancelling it means that its caller has left."""

    def __init__(self, passage: Passage) -> None:
        self.passage = passage
        self.task: asyncio.Task[None] | None = None

    @property
    def begun(self) -> bool:
        return self.passage.begun

    @property
    def stays(self) -> bool:
        """Whether it goes on when its caller leaves."""
        return self.passage.begun and not isinstance(self.passage.pending, Leavable)

    def cancel(self) -> bool:
        if not super().cancel():
            return False
        self._leave()
        return True

    def refuse(self, error: BasculeError) -> None:
        """Its caller is answered with this, and the call is withdrawn."""
        if not self.done():
            self.set_exception(error)
            self._leave()

    def _leave(self) -> None:
        if self.task is not None:
            self.passage.leave(self.task)


@types.coroutine
def resumed(work: Coroutine[Any, Any, Any], waiting: Any) -> Generator[Any, Any, Any]:
    """The rest of a coroutine that was started without a task and waits for `waiting`."""
    try:
        yield waiting
    except BaseException as error:  # noqa: BLE001 - cancelled: it belongs to the work
        return (yield from _thrown(work, error))
    return (yield from work)


def _thrown(work: Coroutine[Any, Any, Any], error: BaseException) -> Generator[Any, Any, Any]:
    try:
        waiting = work.throw(error)
    except StopIteration as done:
        return done.value
    return (yield from resumed(work, waiting))
