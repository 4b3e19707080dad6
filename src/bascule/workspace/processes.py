"""Commands, in the foreground of a run or in the background: who started them, and what they said."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

import msgspec

from bascule.foundation.agreement import MAX_WAIT_MS
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import NotFound, Overloaded
from bascule.foundation.ids import new_id
from bascule.foundation.tasks import Tasks
from bascule.kernel.call import PERSON, Principal
from bascule.kernel.policy.programs import ProgramRules
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.paths import WorkspacePath
from bascule.workspace.ports import Command, LogPage, OnOutput, Outcome, RunningCommand, Sandbox, Sandboxes
from bascule.workspace.protocol import ProcessLogs, ProcessLogsParams, ProcessView
from bascule.workspace.threads import Threads


class Process:
    """One command of this life of the daemon; those of earlier lives are gone with them."""

    def __init__(
        self, process_id: str, space_id: str, command: str, started_by: Principal, started_at: int, *, background: bool
    ) -> None:
        # The run that it belongs to.
        self.run_id: str | None = None
        self.process_id = process_id
        self.space_id = space_id
        self.command = command
        self.started_by = started_by
        self.started_at = started_at
        self.background = background
        self.running: RunningCommand | None = None
        self.outcome: Outcome | None = None
        # Settled when it ended, was found lost, or never started.
        self.ended: Deferred[None] = Deferred()
        self._more: list[Deferred[None]] = []

    def more(self) -> Deferred[None]:
        """Settled with the next output, or the end."""
        later: Deferred[None] = Deferred()
        self._more.append(later)
        later.add_done_callback(lambda _: self._more.remove(later) if later in self._more else None)
        return later

    def wake(self) -> None:
        waiting, self._more = self._more, []
        for later in waiting:
            if not later.done():
                later.set_result(None)

    def view(self) -> ProcessView:
        outcome = self.outcome
        return ProcessView(
            process_id=self.process_id,
            space_id=self.space_id,
            run_id=self.run_id,
            command=self.command,
            started_by=self.started_by,
            started_at=rfc3339(self.started_at),
            running=not self.ended.done(),
            background=self.background,
            exit_code=outcome.exit_code if outcome else None,
            ended_by=outcome.ended_by if outcome else None,
        )

    @property
    def program(self) -> str:
        """Its first word; of an assignment before it only the name, for the value may be a secret."""
        word = (self.command.split(maxsplit=1) or [""])[0]
        name, is_assignment, _ = word.partition("=")
        return f"{name}=…" if is_assignment else word

    def seen_by(self, principal: Principal) -> ProcessView:
        """Arguments may hold secrets: callers other than the starter see which program runs, not its arguments."""
        view = self.view()
        if principal in (self.started_by, PERSON):
            return view
        return msgspec.structs.replace(view, command=self.program)


class Processes:
    def __init__(
        self,
        sandboxes: Sandboxes,
        clock: Clock,
        limits: WorkspaceLimits,
        threads: Threads,
        tasks: Tasks,
        *,
        on_change: Callable[[str, Process], None],
    ) -> None:
        self._sandboxes = sandboxes
        self._clock = clock
        self._limits = limits
        self._threads = threads
        self._tasks = tasks
        # Called with "started" or "ended" and the command.
        self._on_change = on_change
        self._all: dict[str, Process] = {}
        # In the order in which they ended.
        self._ended: dict[str, None] = {}

    def starter(self, process_id: str) -> Principal:
        return self.find(process_id).started_by

    def find(self, process_id: str, space_id: str | None = None) -> Process:
        process = self._all.get(process_id)
        if process is None or space_id not in (None, process.space_id):
            raise NotFound(
                f"unknown process {process_id}",
                hint="commands end with the daemon, and the output of old ones makes room for that of newer ones",
            )
        return process

    def of_space(self, space_id: str | None) -> list[Process]:
        return [process for process in self._all.values() if space_id is None or process.space_id == space_id]

    def running_in(self, space_id: str) -> int:
        return sum(not process.ended.done() for process in self.of_space(space_id))

    def check_room(self, space_id: str) -> None:
        """One more in the background."""
        running = sum(process.background and not process.ended.done() for process in self.of_space(space_id))
        if running >= self._limits.max_processes:
            raise Overloaded(
                f"{running} commands run in the background of this space already",
                hint="stop one of them: processes.list, processes.stop",
                retry_after=1.0,
            )

    async def start(
        self,
        sandbox: Sandbox,
        space_id: str,
        started_by: Principal,
        command: str,
        *,
        cwd: WorkspacePath | None,
        env: dict[str, str],
        limit: timedelta | None,
        programs: ProgramRules,
        run_id: str | None = None,
        repositories: Iterable[str] | None = None,
        sealed: Mapping[WorkspacePath, str] | None = None,
        on_output: OnOutput | None = None,
    ) -> Process:
        """`SandboxFault` when it cannot be. Without a limit of time it is one for the background."""
        process = Process(new_id("prc"), space_id, command, started_by, self._clock.wall_ms(), background=limit is None)
        process.run_id = run_id

        def on_data(stream: "str", data: bytes) -> None:
            process.wake()
            if on_output is not None:
                on_output(stream, data)  # type: ignore[arg-type] # the port's own two names

        wanted = Command(
            process_id=process.process_id,
            command=command,
            cwd=cwd,
            env=env,
            timeout=limit,
            programs=programs,
            principal=started_by,
            repositories=None if repositories is None else tuple(sorted(repositories)),
            sealed=sealed or {},
        )
        self._all[process.process_id] = process
        try:
            process.running = await sandbox.start(wanted, on_data)
        except BaseException:
            del self._all[process.process_id]
            process.ended.set_result(None)
            raise
        self._on_change("started", process)
        return process

    async def wait(self, process: Process) -> Outcome:
        """Until it ended."""
        assert process.running is not None
        try:
            process.outcome = await process.running.wait()
            return process.outcome
        finally:
            if not process.ended.done():
                process.ended.set_result(None)
            process.wake()
            self._on_change("ended", process)
            self._make_room(process)

    def stop(self, process: Process) -> Deferred[None]:
        if process.running is not None and not process.ended.done():
            process.running.stop()
        return process.ended

    def logs(self, params: ProcessLogsParams) -> "asyncio.Future[ProcessLogs]":
        process = self.find(params.process_id, params.space_id)
        return self._tasks.start(self._logs(process, params), f"logs {process.process_id}")

    async def _logs(self, process: Process, params: ProcessLogsParams) -> ProcessLogs:
        deadline = asyncio.get_running_loop().time() + min(params.wait_ms, MAX_WAIT_MS) / 1000
        while True:
            # Asked for before reading: what comes in between counts.
            more = process.more()
            running = not process.ended.done()
            try:
                page = await self._threads.do(self._page, params)
            except KeyError:
                more.cancel()
                raise NotFound(
                    f"the output of {params.process_id} is no longer kept", hint="run the command again"
                ) from None
            left = deadline - asyncio.get_running_loop().time()
            if page.data or not running or left <= 0:
                more.cancel()
                return _shown(process, params, page, running=running)
            try:
                async with asyncio.timeout(left):
                    await more
            except TimeoutError:
                deadline = 0.0

    def _page(self, params: ProcessLogsParams) -> LogPage:
        offset = params.offset
        if offset < 0:
            # Counted from the end as it is now.
            offset = max(0, self._sandboxes.logs(params.process_id, params.stream, 0, 0).size + offset)
        return self._sandboxes.logs(params.process_id, params.stream, offset, params.limit)

    def _make_room(self, process: Process) -> None:
        if process.process_id in self._all:
            self._ended[process.process_id] = None
        while len(self._ended) > self._limits.max_kept_processes:
            self._forget(next(iter(self._ended)))

    def forget_space(self, space_id: str) -> None:
        for process in self.of_space(space_id):
            self._forget(process.process_id)

    def _forget(self, process_id: str) -> None:
        del self._all[process_id]
        self._ended.pop(process_id, None)
        self._sandboxes.forget(process_id)


def _shown(process: Process, params: ProcessLogsParams, page: LogPage, *, running: bool) -> ProcessLogs:
    """A page as text; half a character at its end waits for the next page."""
    data = page.data
    if running or page.offset + len(data) < page.size:
        data = data[: len(data) - _half_character(data)] or data
    outcome = process.outcome
    return ProcessLogs(
        process_id=process.process_id,
        stream=params.stream,
        text=data.decode("utf-8", "replace"),
        offset=page.offset,
        next_offset=page.offset + len(data),
        size=page.size,
        running=running,
        exit_code=outcome.exit_code if outcome else None,
        dropped=page.dropped,
    )


def _half_character(data: bytes) -> int:
    """How many bytes at the end begin a character that is not complete."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if needed > back else 0
        if byte < 0x80:
            return 0
    return 0
