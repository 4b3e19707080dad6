"""Executes a run: its operations in order, each passes the gate (`passage`) and is answered by one event.

The finish of an operation and the beginning of the next are one write. Nothing here is cancelled from outside: a run
that must end is stopped (`Run.end_early`), ends its command, and still says for every operation what became of it.
"""

import asyncio
import hashlib
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from bascule.foundation.deferred import within
from bascule.foundation.errors import BasculeError, Conflict, PolicyDenied, StorageFull
from bascule.kernel.consent.records import Question
from bascule.kernel.gate import Gate
from bascule.kernel.journal import Journal, Transaction
from bascule.kernel.policy.decision import Verdict
from bascule.kernel.resolution import Resolution
from bascule.workspace.acts import FAILED, Acted, FileActs
from bascule.workspace.checkpointing import Checkpointing, report_not_undoable
from bascule.workspace.commands import Commands
from bascule.workspace.events import EventFactory
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.live import Run, Stop, now_running
from bascule.workspace.passage import OperationPassage, Paused
from bascule.workspace.ports import FileFault, ResolvedPath, Root
from bascule.workspace.protocol import (
    Event,
    MessageEvent,
    MessageOperation,
    Operation,
    ReadFileEvent,
    ReadFileOperation,
    ShellOperation,
)
from bascule.workspace.records import COMPLETED, ERROR, Step
from bascule.workspace.spaces import Space, Spaces
from bascule.workspace.threads import Threads
from gabp import codec

# Events of reads and messages are stored with the next record; so many may wait for one.
MAX_UNSAVED_EVENTS = 64
# How long a run may keep the event loop without anything to wait for.
MAX_TURN_SECONDS = 0.002
# Characters of a command's digest in the ledger: enough to tell two apart, and keyed.
_DIGEST_CHARS = 16


class RunStore(Protocol):
    """What the runner needs of the keeper of runs."""

    def save(self, run: Run, tx: Transaction) -> None:
        """Events so far, in this transaction; they are shown when it is durable."""

    async def pause(self, run: Run, step: Step, question: Question, resolution: Resolution, verdict: Verdict) -> bool:
        """True: the question is on disk and the run waits; False: it could not be asked, and has its event."""

    async def finish(self, run: Run, status: str) -> None:
        """The end is on disk and everybody who waits knows it."""


class Runner:
    def __init__(
        self,
        *,
        store: RunStore,
        spaces: Spaces,
        commands: Commands,
        checkpointing: Checkpointing,
        gate: Gate,
        journal: Journal,
        event_factory: EventFactory,
        limits: WorkspaceLimits,
        threads: Threads,
        key: bytes,
        internal: Callable[[BaseException], BasculeError],
    ) -> None:
        self.store = store
        self._spaces = spaces
        self._commands = commands
        self.checkpointing = checkpointing
        self.gate = gate
        self.journal = journal
        self.event_factory = event_factory
        self.limits = limits
        self.threads = threads
        self._key = key
        self._internal = internal

    # -- the whole run --

    async def work(self, run: Run, space: Space) -> None:
        """Until it is over or asks. Nothing is raised: waiters get an answer, whatever happened."""
        try:
            await self._run_exclusively(run, space)
        except Exception as error:  # noqa: BLE001 - I4: the answer is an id, the log has the rest
            run.stop = Stop("system", self._internal(error).message, ERROR)
            try:
                await self._end(run, space)
            except Exception as again:  # noqa: BLE001 - waiters are answered even then
                self._internal(again)
                self.checkpointing.forget(run)
                run.record = msgspec.structs.replace(run.record, status=ERROR)
                run.answer_waiters()

    async def _run_exclusively(self, run: Run, space: Space) -> None:
        queued = run.changes and not run.record.on_copy
        if queued and run.stop is None:
            run.turn = await self._spaces.take_turn(space)
            if run.stop is not None:
                # It was ended meanwhile, when there was no turn to give up yet.
                run.turn.cancel()
            await within(None, run.turn)
            queued = not run.turn.cancelled()
            run.turn = None
        else:
            queued = False
        loop = asyncio.get_running_loop()
        run.working_since = loop.time()
        left = self.limits.max_run_ms - run.record.worked_ms
        timer = loop.call_later(max(0.0, left / 1000), run.end_early, self._out_of_time())
        try:
            await self._steps(run, space)
        finally:
            timer.cancel()
            run.count_work(loop.time())
            run.working_since = None
            if queued:
                space.turns.give_back()

    def _out_of_time(self) -> Stop:
        seconds = self.limits.max_run_ms // 1000
        return Stop("timeout", f"the run worked longer than {seconds} s; split it, or use the background", ERROR)

    async def _steps(self, run: Run, space: Space) -> None:
        if run.answer is not None and not self._go_on(run):
            run.at += 1
        turn_began = perf_counter()
        while run.at < len(run.steps) and run.stop is None:
            if perf_counter() - turn_began > MAX_TURN_SECONDS:
                # Thousands of operations that nothing is waited for must not keep the loop from everybody else.
                await asyncio.sleep(0)
                turn_began = perf_counter()
            if not await self._step(run, space, run.steps[run.at]):
                # Paused; it has given up its turn.
                return
            run.at += 1
        await self._end(run, space)

    async def _end(self, run: Run, space: Space) -> None:
        if run.stop is not None:
            for step in run.steps[run.at :]:
                run.events.append(self.event_factory.error(step, run.stop.category, f"not run: {run.stop.sentence}"))
            run.at = len(run.steps)
        await self.checkpointing.close(run, space)
        report_not_undoable(run)
        run.count_work(asyncio.get_running_loop().time())
        if run.stop is None:
            await self.store.finish(run, COMPLETED)
        else:
            await self.store.finish(run, run.stop.status)

    # -- one operation --

    async def _step(self, run: Run, space: Space, step: Step) -> bool:
        """Whether it has its event; else the run waits for the person."""
        operation = step.operation
        if operation is None:
            self._add(run, self.event_factory.error(step, "validation", step.problem or "not an operation"))
            return True
        if isinstance(operation, MessageOperation):
            self._add(run, MessageEvent(timestamp=self.event_factory.now(), operation_id=step.id, success=True))
            return True
        passage = OperationPassage(self, run, space, step, operation)
        try:
            acted: Acted = await self.gate.operate(passage)
        except Paused as paused:
            return not paused.waits
        except (PolicyDenied, Conflict) as error:
            # Conflict: the grant expired between looking and spending.
            self._add(run, self.event_factory.denied(step, error.message, error.hint))
        except StorageFull as error:
            # What cannot be recorded is not done, and the next operation would meet the same disk.
            run.events.append(self.event_factory.error(step, "system", f"{error.message}; {error.hint}"))
            run.lost = True
            run.stop = Stop("system", error.message, ERROR)
        except FileFault as error:
            self._add(run, self.event_factory.error(step, "execution", str(error)))
        except BasculeError as error:
            self._add(run, self.event_factory.error(step, "system", error.message))
        else:
            self._add(run, acted.event)
        finally:
            run.answer = None
            passage.close()
        return True

    def _go_on(self, run: Run) -> bool:
        """The question was answered; False when its operation has its event by that: it was not approved."""
        answer, question = run.answer, run.record.question
        assert answer is not None
        assert question is not None
        run.record = now_running(run.record)
        step = run.steps[run.at]
        assert step.operation is not None
        run.asked = question
        if answer.state.value in ("approved", "expired") and answer.decided_at is not None:
            # Expired after it was approved: the grant died with the last life of the daemon, so it is asked anew.
            return True
        run.answer = None
        if answer.state.value == "denied":
            message = f"a person denied it: {answer.decided_reason}" if answer.decided_reason else "a person denied it"
            hint = "do without it, or ask the person what would be allowed"
        else:
            message, hint = "nobody answered in time", "ask a person to look at `bascule approvals`, then run it again"
        self._add(run, self.event_factory.denied(step, message, hint))
        return False

    # -- what an operation does on its way through the gate --

    async def act(self, passage: OperationPassage) -> Acted:
        run, step, operation = passage.run, passage.step, passage.operation
        if isinstance(operation, ShellOperation):
            return await self._commands.execute(run, passage.space, step, operation)
        assert not isinstance(operation, MessageOperation)
        assert passage.root is not None
        assert passage.place is not None
        acts = FileActs(passage.root, self.event_factory.now, self.limits.max_read_bytes)
        acted = await self.threads.do(acts.execute, operation, passage.place, step.id)
        if isinstance(operation, ReadFileOperation):
            return self._within_budget(run, acted)
        return acted

    def _within_budget(self, run: Run, acted: Acted) -> Acted:
        """A run's answer has a limit too; what no longer fits is an error, never cut silently."""
        event = acted.event
        if not isinstance(event, ReadFileEvent) or not event.success:
            return acted
        if len(codec.encode(event)) <= run.max_event_bytes - run.event_bytes:
            return acted
        message = f"the events of this run hold {run.max_event_bytes} bytes; read it in a run of its own, or in parts"
        failed = msgspec.structs.replace(event, success=False, content=UNSET, encoding=UNSET, size=UNSET, error=message)
        return Acted(failed, FAILED, acted.details)

    # -- where it works --

    async def root_of(self, run: Run, space: Space) -> Root:
        return run.copy.root if run.copy is not None else await self._spaces.root_of(space)

    # -- events --

    def settle(self, run: Run) -> None:
        """Record how the last operation ended, with the events so far."""
        last, run.unfinished = run.unfinished, None
        if last is not None:
            last.effect.changes.append(lambda tx: self.store.save(run, tx))
            self.gate.effects.finish(last.effect, last.outcome)

    def _add(self, run: Run, event: Event) -> None:
        run.events.append(event)
        run.event_bytes += len(codec.encode(event))
        if run.unfinished is None and len(run.events) - run.saved >= MAX_UNSAVED_EVENTS:
            tx = Transaction()
            self.store.save(run, tx)
            self.journal.commit_quietly(tx)

    def about(self, operation: Operation, place: ResolvedPath | FileFault | None) -> dict[str, Any]:
        """What the ledger may know: a path, or a keyed digest of the command; never content."""
        if isinstance(operation, ShellOperation):
            text = codec.encode([operation.command, operation.cwd, operation.env])
            return {"command": hashlib.sha256(self._key + text).hexdigest()[:_DIGEST_CHARS]}
        if isinstance(operation, MessageOperation):
            return {}
        resolved = {"resolved": place.path} if isinstance(place, ResolvedPath) and place.elsewhere else {}
        return {"path": operation.path, **resolved}
