"""Carries out a run: its operations in order, each judged, consented to, recorded and answered by one event.

    judge -> deny: policyDenied | ask: the run pauses | allow: begun on disk -> act -> finished on disk

The finish of an operation and the beginning of the next are one write. Nothing here is cancelled from outside: a run
that must end is told so (`Run.end_early`), ends its command, and still says for every operation what became of it.
"""

import asyncio
import hashlib
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import UNSET

from bascule.audit.journal import Journal, Transaction
from bascule.bridges.workspace import previews
from bascule.bridges.workspace.acts import FAILED, Acted, FileActs
from bascule.bridges.workspace.checkpointing import Checkpointing, say_what_stays
from bascule.bridges.workspace.commands import Commands
from bascule.bridges.workspace.events import Teller, type_of
from bascule.bridges.workspace.limits import WorkspaceLimits
from bascule.bridges.workspace.live import Run, Stop, Unfinished, now_running
from bascule.bridges.workspace.ports import FileFault, ResolvedPath, Root
from bascule.bridges.workspace.records import COMPLETED, ERROR, Asks, Step
from bascule.bridges.workspace.resolving import follows, judge_resolved, resolve
from bascule.bridges.workspace.spaces import Space, Spaces
from bascule.bridges.workspace.threads import Threads
from bascule.errors import BasculeError, Conflict, StorageFull
from bascule.later import within
from bascule.operations import Operations
from bascule.policy.decision import Decision, Verdict
from bascule.protocols.workspace import (
    Event,
    MessageEvent,
    MessageOperation,
    Operation,
    ReadFileEvent,
    ReadFileOperation,
    ShellOperation,
)
from bascule.protocols.workspace_validation import path_of
from bascule.wire import codec

# Events of reads and messages are stored with the next record; so many may wait for one.
MAX_UNSAVED_EVENTS = 64
# How long a run may keep the event loop without anything to wait for.
MAX_TURN_SECONDS = 0.002
# Characters of a command's digest in the ledger: enough to tell two apart, and keyed.
_DIGEST_CHARS = 16
# What an answer is bound to when the path cannot be resolved.
NOWHERE = "nowhere"


class RunStore(Protocol):
    """What the runner needs of whoever keeps the runs."""

    def save(self, run: Run, tx: Transaction) -> None:
        """Events so far, in this transaction; they are told when it is durable."""

    async def pause(self, run: Run, ask: "Ask") -> bool:
        """True: the question is on disk and the run waits; False: it could not be asked, and has its event."""

    async def finish(self, run: Run, status: str) -> None:
        """The end is on disk and everybody who waits knows it."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """All that a question is made of."""

    step: Step
    operation: Operation
    method: str
    verdict: Verdict
    bound: dict[str, Any]
    preview: str
    # Why it is asked again.
    again: str | None = None


class _Work(NamedTuple):
    """One operation that is not denied as it was written."""

    run: Run
    space: Space
    step: Step
    operation: Operation
    root: Root
    # Where it leads, or why it leads nowhere; None for a command.
    place: ResolvedPath | FileFault | None

    @property
    def method(self) -> str:
        return _method(self.operation)


class Runner:
    def __init__(
        self,
        *,
        store: RunStore,
        spaces: Spaces,
        commands: Commands,
        checkpointing: Checkpointing,
        operations: Operations,
        journal: Journal,
        teller: Teller,
        limits: WorkspaceLimits,
        threads: Threads,
        key: bytes,
        policy_digest: Callable[[], str],
        internal: Callable[[BaseException], BasculeError],
    ) -> None:
        self._store = store
        self._spaces = spaces
        self._commands = commands
        self._checkpointing = checkpointing
        self._operations = operations
        self._journal = journal
        self._teller = teller
        self._limits = limits
        self._threads = threads
        self._key = key
        self._policy_digest = policy_digest
        self._internal = internal

    # -- the whole run --

    async def work(self, run: Run, space: Space) -> None:
        """Until it is over or asks. Nothing is raised: whoever waits gets an answer, whatever happened."""
        try:
            await self._with_a_turn(run, space)
        except Exception as error:  # noqa: BLE001 - I4: of what we did not foresee an id is told, the log has the rest
            run.stop = Stop("system", self._internal(error).message, ERROR)
            try:
                await self._end(run, space)
            except Exception as again:  # noqa: BLE001 - and whoever waits is answered even then
                self._internal(again)
                self._checkpointing.forget(run, space)
                run.record = msgspec.structs.replace(run.record, status=ERROR)
                run.tell()

    async def _with_a_turn(self, run: Run, space: Space) -> None:
        queued = run.changes and not run.record.on_copy
        if queued and run.stop is None:
            run.turn = space.turns.take()
            await within(None, run.turn)
            queued = not run.turn.cancelled()
            run.turn = None
        else:
            queued = False
        loop = asyncio.get_running_loop()
        run.working_since = loop.time()
        left = self._limits.max_run_ms - run.record.worked_ms
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
        seconds = self._limits.max_run_ms // 1000
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
                run.events.append(self._teller.error(step, run.stop.category, f"not run: {run.stop.sentence}"))
            run.at = len(run.steps)
        await self._checkpointing.close(run, space)
        say_what_stays(run)
        run.count_work(asyncio.get_running_loop().time())
        if run.stop is None:
            await self._store.finish(run, COMPLETED)
        else:
            await self._store.finish(run, run.stop.status)

    # -- one operation --

    async def _step(self, run: Run, space: Space, step: Step) -> bool:
        """Whether it has its event; else the run waits for the person."""
        operation = step.operation
        if operation is None:
            self._add(run, self._teller.error(step, "validation", step.problem or "not an operation"))
            return True
        if isinstance(operation, MessageOperation):
            self._add(run, MessageEvent(timestamp=self._teller.now(), operation_id=step.id, success=True))
            return True
        method = _method(operation)
        verdict = self._operations.judge(run.call(method, operation), method, operation, run_id=run.run_id)
        if verdict.decision is Decision.DENY:
            return self._deny(run, step, operation, verdict)
        try:
            root = await self._root(run, space)
        except FileFault as error:
            self._add(run, self._teller.error(step, "execution", str(error)))
            return True
        place = await self._resolve(root, operation)
        try:
            return await self._decide(_Work(run, space, step, operation, root, place), verdict)
        finally:
            if isinstance(place, ResolvedPath):
                place.close()

    async def _resolve(self, root: Root, operation: Operation) -> ResolvedPath | FileFault | None:
        """Where a file operation leads, or why nowhere; None for a command."""
        path = None if isinstance(operation, ShellOperation) else path_of(operation)
        if path is None:
            return None
        try:
            return await resolve(self._threads, root, path, follow=follows(operation))
        except FileFault as error:
            return error

    def _deny(self, run: Run, step: Step, operation: Operation, verdict: Verdict) -> bool:
        method = _method(operation)
        run.answer = None
        self.settle(run)
        self._operations.refused(run.call(method, operation), method, subject=run.run_id, verdict=verdict)
        self._add(run, self._teller.denied(step, verdict.reason, verdict.suggestion))
        return True

    async def _decide(self, work: _Work, verdict: Verdict) -> bool:
        """`verdict` is about the path as it was written."""
        run, space, step, operation, _, place = work
        call = run.call(work.method, operation)
        verdict = judge_resolved(self._operations, call, operation, place, verdict, run_id=run.run_id)
        if verdict.decision is Decision.DENY:
            return self._deny(run, step, operation, verdict)
        grant = None
        bound: dict[str, Any] = {}
        if verdict.decision is Decision.ASK and run.record.on_copy:
            # Nothing lasts before `runs.commit`, and that asks.
            run.would_ask = Asks(verdict.rule, verdict.reason)
        elif verdict.decision is Decision.ASK or run.answer is not None:
            self.settle(run)
            bound, preview = await self._bind(work, verdict)
            grant = self._operations.grant(call, work.method, self._operations.digest(operation, bound), run.run_id)
            if grant is None and verdict.decision is Decision.ASK:
                ask = Ask(
                    step=step,
                    operation=operation,
                    method=work.method,
                    verdict=verdict,
                    bound=bound,
                    preview=preview,
                    again=self._why_again(run, bound),
                )
                run.answer = None
                await self._checkpointing.close(run, space)
                run.count_work(asyncio.get_running_loop().time())
                return not await self._store.pause(run, ask)
        run.answer = None
        run.sealed = bound["files"] if grant is not None and isinstance(operation, ShellOperation) else {}
        approval_id = grant.approval_id if grant is not None else None
        await self._carry_out(work, rule=verdict.rule, approval_id=approval_id)
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
            said = f"a person denied it: {answer.decided_reason}" if answer.decided_reason else "a person denied it"
            hint = "do without it, or ask the person what would be allowed"
        else:
            said, hint = "nobody answered in time", "ask a person to look at `bascule approvals`, then run it again"
        self._add(run, self._teller.denied(step, said, hint))
        return False

    def _why_again(self, run: Run, bound: dict[str, Any]) -> str | None:
        if run.answer is None or run.asked is None:
            return None
        if run.answer.state.value == "expired":
            return "it was approved, but the daemon restarted before it ran"
        return previews.what_changed(run.asked.bound, bound)

    async def _bind(self, work: _Work, verdict: Verdict) -> tuple[dict[str, Any], str]:
        """What an answer is bound to besides the operation, and what the person sees."""
        _, space, step, operation, root, place = work
        bound: dict[str, Any] = {
            "space": space.space_id,
            "path": space.record.path,
            "operationId": step.id,
            "policy": self._policy_digest(),
        }
        if isinstance(operation, ShellOperation):
            look, where = previews.look_at_command, path_of(operation)
            pinned, preview = await self._threads.do(look, operation, where, root, verdict, limits=self._limits)
        else:
            assert place is not None
            pinned, preview = await self._threads.do(
                previews.look_at_file, operation, place, root, verdict, limits=self._limits
            )
            if isinstance(place, FileFault):
                bound["resolved"] = NOWHERE
            elif place.elsewhere:
                bound["resolved"] = place.path
        bound["files"] = pinned.files
        return bound, preview

    async def _carry_out(self, work: _Work, *, rule: str, approval_id: str | None) -> None:
        run, space, step, operation, _, place = work
        if isinstance(operation, ReadFileOperation) and approval_id is None:
            # Reads have no record.
            acted = await self._act(work)
            self._add(run, acted.event)
            return
        try:
            await self._checkpointing.open(run, space)
        except FileFault as error:
            self._add(run, self._teller.error(step, "execution", str(error)))
            return
        details = {"operation": step.id, "space": space.space_id, **self._about(operation, place)}
        if run.record.on_copy:
            details["copy"] = True
        try:
            with self._journal.together():
                self.settle(run)
                begun = self._operations.begin(
                    run.call(work.method, operation),
                    work.method,
                    subject=run.run_id,
                    rule=rule,
                    details=details,
                    approval_id=approval_id,
                    run_id=run.run_id,
                    operation_id=step.id,
                    changes=self._checkpointing.changes(run),
                )
            if begun.durable is not None:
                await begun.durable
        except Conflict as error:
            # The grant expired between looking and spending.
            self._add(run, self._teller.denied(step, error.message, error.hint))
            return
        except StorageFull as error:
            # What cannot be recorded is not done, and the next operation would meet the same disk.
            run.events.append(self._teller.error(step, "system", f"{error.message}; {error.hint}"))
            run.lost = True
            run.stop = Stop("system", error.message, ERROR)
            return
        try:
            acted = await self._act(work)
        except Exception as error:  # noqa: BLE001 - what has begun gets its end in the ledger, whatever it was
            fault = self._internal(error)
            acted = Acted(self._teller.error(step, "system", fault.message), fault.code)
        run.unfinished = Unfinished(begun, acted.outcome, acted.details)
        self._add(run, acted.event)

    async def _act(self, work: _Work) -> Acted:
        run, space, step, operation, root, place = work
        if isinstance(operation, ShellOperation):
            return await self._commands.carry_out(run, space, step, operation)
        assert not isinstance(operation, MessageOperation)
        assert place is not None
        acts = FileActs(root, self._teller.now, self._limits.max_read_bytes)
        acted = await self._threads.do(acts.carry_out, operation, place, step.id)
        if isinstance(operation, ReadFileOperation):
            return self._within_budget(run, acted)
        return acted

    def _within_budget(self, run: Run, acted: Acted) -> Acted:
        """A run's answer has a size too; what no longer fits is said, never cut silently."""
        event = acted.event
        if not isinstance(event, ReadFileEvent) or not event.success:
            return acted
        if len(codec.encode(event)) <= run.max_event_bytes - run.event_bytes:
            return acted
        said = f"the events of this run hold {run.max_event_bytes} bytes; read it in a run of its own, or in parts"
        failed = msgspec.structs.replace(event, success=False, content=UNSET, encoding=UNSET, size=UNSET, error=said)
        return Acted(failed, FAILED, acted.details)

    # -- where it works --

    async def _root(self, run: Run, space: Space) -> Root:
        return run.copy.root if run.copy is not None else await self._spaces.root_of(space)

    # -- events --

    def settle(self, run: Run) -> None:
        """Record how the last operation ended, with the events so far."""
        last, run.unfinished = run.unfinished, None
        if last is not None:
            self._operations.finish(last.begun, last.outcome, last.details, lambda tx: self._store.save(run, tx))

    def _add(self, run: Run, event: Event) -> None:
        run.events.append(event)
        run.event_bytes += len(codec.encode(event))
        if run.unfinished is None and len(run.events) - run.saved >= MAX_UNSAVED_EVENTS:
            tx = Transaction()
            self._store.save(run, tx)
            self._journal.commit_quietly(tx)

    def _about(self, operation: Operation, place: ResolvedPath | FileFault | None) -> dict[str, Any]:
        """What the ledger may know: a path, or a keyed digest of the command; never content."""
        if isinstance(operation, ShellOperation):
            text = codec.encode([operation.command, operation.cwd, operation.env])
            return {"command": hashlib.sha256(self._key + text).hexdigest()[:_DIGEST_CHARS]}
        if isinstance(operation, MessageOperation):
            return {}
        resolved = {"resolved": place.path} if isinstance(place, ResolvedPath) and place.elsewhere else {}
        return {"path": operation.path, **resolved}


def _method(operation: Operation) -> str:
    return f"workspace.{type_of(operation)}"
