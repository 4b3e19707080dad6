"""The workspace behind its method rows: puts the parts together, and keeps them clean."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.deferred import Deferred, within
from bascule.foundation.errors import Conflict
from bascule.foundation.tasks import Tasks
from bascule.kernel.bridge import Bridge, Gauge, HttpForm
from bascule.kernel.call import Call
from bascule.kernel.effects import BegunRow, RecordedEffect
from bascule.kernel.event_ring import EventRing
from bascule.kernel.faults import internal, log_fault
from bascule.kernel.gate import Gate
from bascule.kernel.journal import Journal, Transaction
from bascule.kernel.journal_ports import JournalStore, Log
from bascule.kernel.policy.decision import Decision
from bascule.kernel.ports import NATIVE_RUNS
from bascule.kernel.resolution import Resolution
from bascule.kernel.retention import GcItem
from bascule.kernel.rows import Nothing
from bascule.workspace import rows
from bascule.workspace.background import Background
from bascule.workspace.blame import BlameParams
from bascule.workspace.blaming import Blamer
from bascule.workspace.checkpointing import Checkpointing
from bascule.workspace.choosing import Choosing
from bascule.workspace.commands import Commands
from bascule.workspace.declared import WorkspaceDeclared
from bascule.workspace.elsewhere import Elsewhere
from bascule.workspace.events import EventFactory
from bascule.workspace.files import FileMethods
from bascule.workspace.history import History
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.listing import Listing
from bascule.workspace.log import ProjectLog
from bascule.workspace.native_runs import NativeRuns
from bascule.workspace.news import News
from bascule.workspace.operations import Operations
from bascule.workspace.parts import Parts
from bascule.workspace.ports import (
    CheckpointStore,
    Files,
    GitStates,
    OutsideStore,
    Sandboxes,
    SandboxKind,
    Scratch,
    Standing,
)
from bascule.workspace.processes import Process, Processes
from bascule.workspace.protocol import (
    EventsMessage,
    ProcessesListParams,
    ProcessLogs,
    ProcessLogsParams,
    ProcessParams,
    ProcessView,
    RunIdParams,
    SpaceOpenParams,
    SpaceParams,
    SpaceView,
    UndoParams,
)
from bascule.workspace.records import SpaceRecord
from bascule.workspace.routes import status_of
from bascule.workspace.run_list import LogParams
from bascule.workspace.runbook import RunBook
from bascule.workspace.runner import Runner
from bascule.workspace.runs import Runs
from bascule.workspace.spaces import Space, Spaces
from bascule.workspace.threads import Threads
from bascule.workspace.undoing import Undoing
from bascule.workspace.undos import Undos

# Runs and sandboxes end at once when stopped; what does not is left to the end of the process.
CLOSE_SECONDS = 10.0
# Checkpoints of runs that are no longer kept are removed so often at most: it walks all objects.
COLLECT_EVERY_MS = 60 * 60 * 1000


class Workspace:
    def __init__(
        self,
        *,
        store: JournalStore,
        journal: Journal,
        clock: Clock,
        gate: Gate,
        files: Files,
        sandboxes: Sandboxes,
        checkpoints: CheckpointStore,
        scratch: Scratch,
        git: GitStates,
        outside: OutsideStore,
        standing_of: Callable[[int], Standing],
        log: Log,
        key: bytes,
        events: EventRing,
        limits: WorkspaceLimits | None = None,
        network: bool = False,
        sandbox: SandboxKind = "bubblewrap",
        on_closed: Callable[[Transaction, str], None] = lambda _tx, _space_id: None,
        on_shut: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_closed` adds to the transaction that forgets a space; `on_shut` is called when the last one is shut."""
        self._on_closed = on_closed
        self._on_shut = on_shut
        self._clock = clock
        self._journal = journal
        self._gate = gate
        self._log = log
        self.limits = limits or WorkspaceLimits()
        self.threads = Threads()
        self.tasks = Tasks(lambda name, error: log_fault(log, error, task=name))
        self.spaces = Spaces(
            store=store,
            journal=journal,
            clock=clock,
            limits=self.limits,
            files=files,
            sandboxes=sandboxes,
            checkpoints=checkpoints,
            threads=self.threads,
            log=log,
            network=network,
            sandbox=sandbox,
        )
        event_factory = EventFactory(clock)
        news = News(events)
        self.processes = Processes(sandboxes, clock, self.limits, self.threads, self.tasks, on_change=news.process)
        self.book = RunBook(store, self.limits)
        self.runs = Runs(
            book=self.book,
            spaces=self.spaces,
            gate=gate,
            journal=journal,
            clock=clock,
            limits=self.limits,
            tasks=self.tasks,
            threads=self.threads,
            event_factory=event_factory,
            news=news,
        )
        self.listing = Listing(self.book, self.runs.live, self.spaces)
        checkpointing = Checkpointing(
            spaces=self.spaces,
            threads=self.threads,
            book=self.book,
            journal=journal,
            clock=clock,
            limits=self.limits,
        )
        self.background = Background(
            runs=self.runs,
            spaces=self.spaces,
            processes=self.processes,
            checkpointing=checkpointing,
            gate=gate,
            journal=journal,
            clock=clock,
            limits=self.limits,
            event_factory=event_factory,
            tasks=self.tasks,
            threads=self.threads,
        )
        elsewhere = Elsewhere(git, outside, checkpointing.moment)
        self.undos = undos = Undos(store, self.limits)
        for undo in undos.table.rows.values():
            checkpointing.note_moment(max(undo.segment.began, undo.segment.ended))
        self.operations = operations = Operations(book=self.book, undos=undos, live=self.runs.live)
        self.blamer = Blamer(operations=operations, spaces=self.spaces, threads=self.threads, clock=clock)
        parts = Parts(operations=operations, checkpointing=checkpointing, elsewhere=elsewhere, threads=self.threads)
        self.choosing = Choosing(operations=operations, parts=parts, spaces=self.spaces, limits=self.limits)
        self.undoing = Undoing(
            operations=operations,
            parts=parts,
            choosing=self.choosing,
            checkpointing=checkpointing,
            spaces=self.spaces,
            gate=gate,
            limits=self.limits,
            threads=self.threads,
            files=files,
            store=checkpoints,
            scratch=scratch,
            news=news,
            elsewhere=elsewhere,
            standing_of=standing_of,
            journal=journal,
            clock=clock,
        )
        self.project_log = ProjectLog(
            operations=operations, elsewhere=elsewhere, spaces=self.spaces, threads=self.threads
        )
        self.history = History(
            checkpointing=checkpointing,
            operations=operations,
            spaces=self.spaces,
            gate=gate,
            limits=self.limits,
            threads=self.threads,
            files=files,
            store=checkpoints,
            scratch=scratch,
            news=news,
            elsewhere=elsewhere,
        )
        self.native = NativeRuns(
            runs=self.runs,
            spaces=self.spaces,
            checkpointing=checkpointing,
            elsewhere=elsewhere,
            journal=journal,
            clock=clock,
            limits=self.limits,
            threads=self.threads,
            tasks=self.tasks,
        )
        self.files = FileMethods(
            spaces=self.spaces,
            runs=self.runs,
            gate=gate,
            clock=clock,
            limits=self.limits,
            threads=self.threads,
            tasks=self.tasks,
        )
        self.runs.make_copy = self.history.make_copy
        self.runs.drop_copy = self.history.drop_copy
        self.runs.runner = Runner(
            store=self.runs,
            spaces=self.spaces,
            commands=Commands(
                spaces=self.spaces,
                processes=self.processes,
                gate=gate,
                limits=self.limits,
                event_factory=event_factory,
            ),
            checkpointing=checkpointing,
            gate=gate,
            journal=journal,
            event_factory=event_factory,
            limits=self.limits,
            threads=self.threads,
            key=key,
            internal=partial(internal, log),
        )
        self._begun: dict[str, list[BegunRow]] = {}
        self._collected_at = clock.monotonic()

    # -- what is mounted --

    def bridge(self) -> Bridge:
        return Bridge(
            declared=WorkspaceDeclared(),
            service=self,
            methods=[
                rows.SPACES_OPEN.bind(self.open_space),
                rows.SPACES_LIST.bind(self.list_spaces),
                rows.SPACES_SHOW.bind(self.show_space),
                rows.SPACES_BLAME.bind(self.blame),
                rows.SPACES_LOG.bind(self.log),
                rows.SPACES_CLOSE.bind(self.close_space),
                rows.RUNS_START.bind(self.runs.start),
                rows.RUNS_LIST.bind(self.listing.list_runs),
                rows.RUNS_SHOW.bind(self.runs.show),
                rows.RUNS_WAIT.bind(self.runs.wait),
                rows.RUNS_STREAM.bind(self.runs.stream),
                rows.RUNS_RESUME.bind(self.runs.resume),
                rows.RUNS_CANCEL.bind(self.runs.cancel),
                rows.RUNS_DIFF.bind(self.diff),
                rows.RUNS_UNDO.bind(self.undoing.undo, resolve=self._resolve_undo),
                rows.RUNS_REDO.bind(self.undoing.redo, resolve=self.undoing.resolve_redo),
                rows.RUNS_COMMIT.bind(self.history.commit, resolve=self.history.resolve_commit),
                rows.PROCESSES_START.bind(self.background.start, resolve=self.background.resolve),
                rows.PROCESSES_LIST.bind(self.list_processes),
                rows.PROCESSES_LOGS.bind(self.read_logs),
                rows.PROCESSES_STOP.bind(self.stop_process),
                rows.FILES_LIST.bind(self.files.list),
                rows.FILES_READ.bind(self.files.read),
                rows.FILES_WRITE.bind(self.files.write),
                rows.FILES_DELETE.bind(self.files.delete),
            ],
            starters={
                "run_id": self.operations.starter,
                "process_id": self.processes.starter,
                "space_id": self.spaces.starter,
            },
            provides=(NATIVE_RUNS.provided_by(self.native),),
            complete=self._with_space,
            gauges=[
                Gauge("bascule_spaces", "Spaces.", lambda: len(self.spaces.table.rows)),
                Gauge("bascule_runs_live", "Runs under way or waiting for the person.", lambda: len(self.runs.live)),
            ],
            http_forms={"runs.start": HttpForm(status_of, lambda error: self.runs.invalid(error.message))},
            stop=self.stop,
            on_unknown=self.on_unknown,
            recover=self.recover,
            sweep=self.sweep,
            end=self.end,
            close=self.close,
        )

    # -- spaces --

    def open_space(self, call: Call, params: SpaceOpenParams, tx: Transaction) -> "asyncio.Future[SpaceView]":
        async def opened() -> SpaceView:
            return self._space_view(await self.spaces.open(call, params, check_real))

        def check_real(real: str) -> None:
            """Rules read the path as it was given; a link must not lead where they would have asked or said no."""
            verdict = self._gate.verdict(call.principal, "spaces.open", msgspec.structs.replace(params, path=real))
            if verdict.decision is not Decision.ALLOW:
                raise Conflict(
                    f"{params.path} leads to {real}, and the policy has a word of its own about that: {verdict.reason}",
                    hint="open it by that name",
                    details={"path": real, "rule": verdict.rule},
                )

        return self._do(opened(), "spaces.open")

    def list_spaces(self, call: Call, params: Nothing) -> list[SpaceView]:
        return [self._space_view(record) for record in self.spaces.table.rows.values()]

    def show_space(self, call: Call, params: SpaceParams) -> SpaceView:
        return self._space_view(self.spaces.record(params.space_id))

    def close_space(self, call: Call, params: SpaceParams, tx: Transaction) -> SpaceView:
        space = self.spaces.find(params.space_id)
        view = self._space_view(space.record)
        space.closing = True
        tx.subject = params.space_id

        def end(_: object) -> Deferred[SpaceView]:
            closed: Deferred[SpaceView] = Deferred()
            self.tasks.start(self._closed(call, space, view, closed), f"close {space.space_id}")
            return closed

        tx.then = end
        return view

    async def _closed(self, call: Call, space: Space, view: SpaceView, closed: Deferred[SpaceView]) -> None:
        try:
            for waiter in self.runs.end_space(space.space_id, "its space was closed"):
                await waiter
            await self.spaces.shut(space)
            tx = Transaction()
            tx.put(self.spaces.table, space.space_id, None)
            self._on_closed(tx, space.space_id)
            self.undos.drop(tx, space.space_id)
            for record in self.book.of_space(space.space_id):
                self.book.drop(tx, record.run_id)
            await self._journal.commit_quietly(tx)
            self.processes.forget_space(space.space_id)
            self.spaces.live.pop(space.space_id, None)
            await self.history.forget(space.space_id)
        except Exception as error:
            space.closing = False
            if not closed.done():
                closed.set_exception(internal(self._log, error))
            raise
        if not closed.done():
            closed.set_result(view)

    def _space_view(self, record: SpaceRecord) -> SpaceView:
        return SpaceView(
            space_id=record.space_id,
            name=record.name,
            path=record.path,
            opened_by=record.opened_by,
            opened_at=rfc3339(record.opened_at),
            sandbox=self.spaces.kind,
            problem=self.spaces.problem,
            runs=self.book.count(record.space_id),
            processes=self.processes.running_in(record.space_id),
        )

    # -- what runs changed --

    async def _resolve_undo(self, call: Call, params: UndoParams) -> Resolution:
        for run_id in self.choosing.waited_for(params):
            try:
                await self.native.over(run_id)
            except Conflict:
                # Of many that one stays, and is named.
                if params.run_id is not None:
                    raise
        return await self.undoing.resolve(call, params)

    def log(self, call: Call, params: LogParams) -> "asyncio.Future[Any]":
        return self._do(self.project_log.log(call, params), "spaces.log")

    def blame(self, call: Call, params: BlameParams) -> "asyncio.Future[Any]":
        return self._do(self.blamer.blame(params), "spaces.blame")

    def diff(self, call: Call, params: RunIdParams) -> "asyncio.Future[Any]":
        return self._do(self.history.diff(params), "runs.diff")

    # -- commands --

    def list_processes(self, call: Call, params: ProcessesListParams) -> list[ProcessView]:
        if params.space_id is not None:
            self.spaces.record(params.space_id)
        return [process.seen_by(call.principal) for process in self.processes.of_space(params.space_id)]

    def read_logs(self, call: Call, params: ProcessLogsParams) -> "asyncio.Future[ProcessLogs]":
        return self.processes.logs(params)

    def stop_process(self, call: Call, params: ProcessParams, effect: RecordedEffect) -> "Deferred[ProcessView]":
        process = self.processes.find(params.process_id, params.space_id)
        effect.details["process"] = process.process_id
        run = self.runs.live.get(process.run_id or "") if process.background else None
        # One in the background is over when its changes are known: then it can be undone.
        over = process.ended if run is None else self.runs.when_over(run)
        self.processes.stop(process)
        return over.mapped(lambda _: process.view())

    # -- lives --

    def on_unknown(self, tx: Transaction, row: BegunRow) -> None:
        """Called with every operation that had begun when the last life ended."""
        if row.run_id is not None:
            self._begun.setdefault(row.run_id, []).append(row)

    def recover(self) -> None:
        """Called once at start, after `on_unknown`."""
        self.runs.recover(self._begun)
        self.native.recover()
        self._begun.clear()

    def end(self) -> None:
        """The daemon stops: end runs now, so that waiting callers are answered."""
        self.runs.stop()

    def stop(self, _tx: Transaction) -> Awaitable[str]:
        """Everything is stopped: end runs under way and every command. Runs that wait for the person wait on."""
        ends = self.runs.end_working("everything was stopped")
        running = [process for process in self.processes.of_space(None) if not process.ended.done()]
        for process in running:
            self.processes.stop(process)
        return self._ended(ends, running)

    async def _ended(self, ends: list[Deferred[EventsMessage]], running: list[Process]) -> str:
        for end in ends:
            await within(None, end)
        for process in running:
            await within(None, process.ended)
        return f"{len(ends)} runs and {len(running)} commands ended" if ends or running else "nothing was running"

    async def close(self) -> None:
        """Nothing that was started here is left when this returns."""
        self.runs.stop()
        for process in self.processes.of_space(None):
            self.processes.stop(process)
        await self.tasks.close(CLOSE_SECONDS)
        await self.spaces.close()
        self.threads.close()
        self._on_shut()

    def sweep(self, tx: Transaction) -> list[GcItem]:
        """Now and then, in a transaction of the daemon's."""
        self.runs.sweep(tx)
        if self._clock.monotonic() - self._collected_at >= COLLECT_EVERY_MS / 1000:
            self._collected_at = self._clock.monotonic()
            self.tasks.start(self._collect(), "collect checkpoints")
        return []

    async def _collect(self) -> None:
        freed = await self.history.collect()
        if freed:
            self._log("checkpoints_collected", bytes=freed)

    # -- small things --

    def _with_space(self, params: Any) -> Any:
        """The params of a run or command that is named by its own id, with the space that it is in."""
        if getattr(params, "space_id", "") is not None:
            return params
        if isinstance(params, UndoParams):
            return msgspec.structs.replace(params, space_id=self.choosing.space_of(params))
        if isinstance(params, RunIdParams):
            return msgspec.structs.replace(params, space_id=self.operations.find(params.run_id).space_id)
        if isinstance(params, ProcessParams):
            return msgspec.structs.replace(params, space_id=self.processes.find(params.process_id).space_id)
        return params

    def _do(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Future[Any]":
        return self.tasks.start(work, name)
