"""Commands in the background: each is a run of its own, beside those that take turns.

It has a checkpoint from before its start and one from after its end, its event, its place in `runs.list`, and is
undone like any run once it is over. Nothing waits for it, and it waits for nothing.
"""

import asyncio
from typing import Any

import msgspec

from bascule.foundation.clock import Clock
from bascule.foundation.errors import Conflict, InvalidRequest, Unavailable
from bascule.foundation.ids import new_id
from bascule.foundation.tasks import Tasks
from bascule.kernel.call import Call
from bascule.kernel.consent import blocks
from bascule.kernel.effects import RecordedEffect
from bascule.kernel.gate import Gate
from bascule.kernel.halt import check_not_stopped
from bascule.kernel.journal import Journal, Transaction
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.kernel.resolution import Resolution
from bascule.workspace import previews
from bascule.workspace.checkpointing import Checkpointing, report_not_undoable
from bascule.workspace.commands import sealed_files
from bascule.workspace.events import EventFactory
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.live import Run
from bascule.workspace.paths import WorkspacePath
from bascule.workspace.ports import FileFault, Outcome, SandboxFault
from bascule.workspace.processes import Process, Processes
from bascule.workspace.protocol import ErrorEvent, ProcessStartParams, ProcessView, ShellEvent, ShellOperation
from bascule.workspace.records import CANCELLED, COMPLETED, ERROR, RUNNING, RunPlan, RunRecord, Step
from bascule.workspace.runs import Runs
from bascule.workspace.spaces import Space, Spaces
from bascule.workspace.threads import Threads
from bascule.workspace.validation import BadOperation, check_command

_STEP_ID = "op-1"


class Background:
    def __init__(
        self,
        *,
        runs: Runs,
        spaces: Spaces,
        processes: Processes,
        checkpointing: Checkpointing,
        gate: Gate,
        journal: Journal,
        clock: Clock,
        limits: WorkspaceLimits,
        event_factory: EventFactory,
        tasks: Tasks,
        threads: Threads,
    ) -> None:
        self._runs = runs
        self._spaces = spaces
        self._processes = processes
        self._checkpointing = checkpointing
        self._gate = gate
        self._journal = journal
        self._clock = clock
        self._limits = limits
        self._event_factory = event_factory
        self._tasks = tasks
        self._threads = threads

    async def start(self, call: Call, params: ProcessStartParams, effect: RecordedEffect) -> ProcessView:
        space = self._spaces.find(params.space_id)
        cwd = _checked(params)
        self._processes.check_room(space.space_id)
        run = self._run(call, space, params)
        run.record = run.record.with_yes(self._gate.effects.approver(effect))
        try:
            sandbox = await self._spaces.sandbox_of(space)
            await self._checkpointing.open(run, space)
            await self._record(run)
            check_not_stopped(self._gate.halt)
            process = await self._processes.start(
                sandbox,
                space.space_id,
                call.principal,
                params.command,
                cwd=cwd,
                env=params.env,
                limit=None,
                programs=self._gate.program_rules(call.principal),
                run_id=run.run_id,
                repositories=run.repositories,
                sealed=sealed_files(effect.resolution.bound.get("files", {})) if effect.approval_id is not None else {},
                on_output=lambda stream, data: run.feed.output(_STEP_ID, stream, data),
            )
        except BaseException as error:
            self._discard(run, space)
            if isinstance(error, SandboxFault | FileFault):
                raise Unavailable(str(error), hint="`bascule doctor` says what commands need on this machine") from None
            raise
        effect.details |= {"process": process.process_id, "space": space.space_id, "run": run.run_id}
        run.process = process
        if (run.stop is not None or self._gate.halt is not None) and process.running is not None:
            # The daemon or the space was closed, or everything was stopped, while the command was being started.
            process.running.stop()
        self._tasks.start(self._until_over(run, space, process, sandbox.kind), f"background {process.process_id}")
        return process.view()

    async def resolve(self, call: Call, params: ProcessStartParams) -> Resolution:
        """A command in the background is judged as the same command in a run would be."""
        space = self._spaces.find(params.space_id)
        cwd = _checked(params)
        operation = ShellOperation(command=params.command, cwd=params.cwd, env=params.env)
        verdict = self._gate.verdict(call.principal, "workspace.shell", operation)
        if verdict.decision is Decision.ALLOW:
            return Resolution()
        pinned, preview = await self._looked_at(space, operation, cwd, verdict)
        bound: dict[str, Any] = {"policy": self._gate.policy.digest, "files": pinned.files}
        if pinned.loads:
            bound["loads"] = dict(pinned.loads)
        return Resolution(
            summary=f"in the background: {params.command}",
            preview=(blocks.facts(f"in the background of {space.record.path}"), *preview),
            bound=bound,
            verdict=verdict,
        )

    async def _looked_at(
        self, space: Space, operation: ShellOperation, cwd: WorkspacePath | None, verdict: Verdict
    ) -> previews.Looked:
        try:
            root = await self._spaces.root_of(space)
        except FileFault as error:
            raise Conflict(str(error)) from None
        return await self._threads.do(previews.look_at_command, operation, cwd, root, verdict, limits=self._limits)

    def _run(self, call: Call, space: Space, params: ProcessStartParams) -> Run:
        record = RunRecord(
            run_id=new_id("run"),
            space_id=space.space_id,
            number=self._runs.book.number + 1,
            started_by=call.principal,
            started_at=self._clock.wall_ms(),
            status=RUNNING,
            operations=1,
            background=True,
        )
        operation = ShellOperation(command=params.command, cwd=params.cwd, env=params.env)
        run = Run(record, [Step(id=_STEP_ID, operation=operation)], [], max_event_bytes=self._limits.max_event_bytes)
        run.working_since = asyncio.get_running_loop().time()
        return run

    async def _record(self, run: Run) -> None:
        """It and its checkpoint are on disk before the command runs."""
        book = self._runs.book
        tx = Transaction()
        run.record = msgspec.structs.replace(run.record, number=book.number + 1, note=run.note)
        book.put(tx, run.record)
        book.put_plan(tx, run.run_id, RunPlan(ids=[_STEP_ID], types=["shell"]))
        recorded = self._journal.commit_quietly(tx)
        self._runs.live[run.run_id] = run
        await recorded
        self._runs.announce("started", run)

    def _discard(self, run: Run, space: Space) -> None:
        self._checkpointing.forget(run)
        self._runs.live.pop(run.run_id, None)
        tx = Transaction()
        self._runs.book.drop(tx, run.run_id)
        self._journal.commit_quietly(tx)

    async def _until_over(self, run: Run, space: Space, process: Process, kind: str) -> None:
        outcome: Outcome | None = None
        step = run.steps[0]
        event: ShellEvent | ErrorEvent
        try:
            outcome = await self._processes.wait(process)
            event = self._event_factory.shell(step, process.command, process.process_id, outcome, kind=kind)
        except SandboxFault as error:
            event = self._event_factory.error(step, "execution", str(error))
        finally:
            run.process = None
            self._record_end(run, process, outcome)
        run.events.append(event)
        run.at = len(run.steps)
        try:
            await self._checkpointing.close(run, space)
            report_not_undoable(run)
        finally:
            run.count_work(asyncio.get_running_loop().time())
            await self._runs.finish(run, _status(run, outcome))

    def _record_end(self, run: Run, process: Process, outcome: Outcome | None) -> None:
        tx = Transaction()
        tx.subject = process.process_id
        tx.details = {"space": process.space_id}
        if outcome is not None:
            tx.details |= {"exit": outcome.exit_code, "ended": outcome.ended_by}
        self._journal.commit(tx, run.principal, "processes.end", "ok" if outcome is not None else "unknown")


def _status(run: Run, outcome: Outcome | None) -> str:
    if run.stop is not None:
        return run.stop.status
    if outcome is None:
        return ERROR
    return CANCELLED if outcome.ended_by == "cancelled" else COMPLETED


def _checked(params: ProcessStartParams) -> WorkspacePath | None:
    try:
        return check_command(params.command, params.cwd, params.env)
    except BadOperation as error:
        raise InvalidRequest(str(error)) from None
