"""Where one space's commands run: a few warm cells, more when needed."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Hashable
from typing import Protocol

from bascule.kernel.policy.programs import ProgramRules
from bascule.workspace.machine.sandbox import messages
from bascule.workspace.machine.sandbox.cell import Cell, CellState
from bascule.workspace.machine.sandbox.cell_plan import CellPlan
from bascule.workspace.machine.sandbox.groups import Counts
from bascule.workspace.machine.sandbox.limits import SandboxLimits
from bascule.workspace.machine.sandbox.output import HeadAndTail, Spool
from bascule.workspace.machine.sandbox.running import Running, Stream
from bascule.workspace.machine.sandbox.standstill import Standstill
from bascule.workspace.ports import Command, Extent, OnOutput, ProgramRun, SandboxFault

SHELL = "/bin/sh"


# How often files of git that a long command changed are brought out.
SYNC_SECONDS = 1.0


class Builder(Protocol):
    """Makes cells of one kind for one space."""

    kind: str
    # Where commands begin.
    workspace: str

    async def plan(self, command: Command, *, quiet: bool) -> CellPlan:
        """`quiet`: no command runs here. `SandboxFault` when there can be no cell for it."""

    async def build(self, plan: CellPlan) -> Cell:
        """`SandboxFault` when it cannot be."""

    def in_step(self, plan: CellPlan) -> bool:
        """False: `sync` has something to do."""

    def sync(self, plan: CellPlan, *, quiet: bool) -> list[str]:
        """Blocking. Bring out what commands did to repositories; returns what there is to say about it."""

    def supervise(self, cell: Cell, programs: ProgramRules, argv: tuple[str, ...], path: str) -> None:
        """From before a command starts; `argv` is what the spawner executes, `path` its own PATH, or empty."""

    def programs(self, cell: Cell) -> tuple[tuple[ProgramRun, ...], list[str]]:
        """Those that the command executed, and what there is to say about those that it could not."""

    async def close(self) -> None: ...


class Spools(Protocol):
    def new(self, process_id: str) -> tuple[Spool, Spool]: ...

    def ended(self, process_id: str) -> None: ...

    def forget(self, process_id: str) -> None: ...


class Room:
    """How many cells there may be, of all spaces together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    def enter(self) -> None:
        if self._taken >= self._most:
            raise SandboxFault(f"{self._most} sandboxes are in use on this machine; wait for a command, or stop one")
        self._taken += 1

    def leave(self) -> None:
        self._taken -= 1


class SpaceSandbox:
    """The port's `Sandbox`."""

    def __init__(
        self,
        builder: Builder,
        spools: Spools,
        room: Room,
        limits: SandboxLimits,
        *,
        standstill: Standstill,
        extent: Callable[[], Extent],
    ) -> None:
        self._builder = builder
        self._spools = spools
        self._room = room
        self._limits = limits
        self._cells: dict[Cell, Hashable] = {}
        # Oldest first.
        self._idle: list[Cell] = []
        self._running: dict[Cell, Running] = {}
        self._plans: dict[Cell, CellPlan] = {}
        self._starting = 0
        self._tidy: asyncio.TimerHandle | None = None
        self._tick: asyncio.TimerHandle | None = None
        # Repositories that are being brought in step, on threads.
        self._syncing: set[asyncio.Future[list[str]]] = set()
        # What was found while a command ran, for the next one that ends.
        self._notes: list[str] = []
        self._standstill = standstill.join(extent, lambda: tuple(self._running))
        self._closed = False
        self.kind = builder.kind

    async def start(self, command: Command, on_output: OnOutput) -> Running:
        request = self._request(command)
        await self._standstill.wait()
        if command.sealed and command.timeout is not None:
            return await self._start_alone(command, request, on_output)
        plan = await self._builder.plan(command, quiet=not self._running)
        cell = self._warm(plan.shape) if self._standstill.free else None
        if cell is not None:
            # A cell may have died while nobody needed it, and nobody heard of it yet.
            with contextlib.suppress(OSError):
                return self._run(cell, plan, command, request, on_output)
        cell = await self._new(plan)
        await self._standstill.wait()
        return self._run_new(cell, plan, command, request, on_output)

    async def _start_alone(self, command: Command, request: bytes, on_output: OnOutput) -> Running:
        """Every other command that can reach the files stands still from before they are read until it has ended."""
        try:
            await self._standstill.begin()
            plan = await self._builder.plan(command, quiet=not self._running)
            running = self._run_new(await self._new(plan), plan, command, request, on_output)
        except BaseException:
            self._standstill.end()
            raise
        running.outcome.add_done_callback(lambda _: self._standstill.end())
        return running

    def _run_new(self, cell: Cell, plan: CellPlan, command: Command, request: bytes, on_output: OnOutput) -> Running:
        try:
            return self._run(cell, plan, command, request, on_output)
        except OSError as error:
            raise SandboxFault(f"the command could not be handed to its sandbox: {error}; try again") from None

    async def close(self) -> None:
        self._closed = True
        for timer in (self._tidy, self._tick):
            if timer is not None:
                timer.cancel()
        for running in tuple(self._running.values()):
            running.stop()
        for cell in tuple(self._cells):
            cell.kill()
        for cell in tuple(self._cells):
            await cell.gone
        if self._syncing:
            await asyncio.wait(self._syncing)
        self._standstill.leave()
        await self._builder.close()

    # -- cells

    def _warm(self, shape: Hashable) -> Cell | None:
        if self._closed:
            raise SandboxFault("this space is closed; open it again")
        for cell in reversed(self._idle):
            if cell.state is CellState.IDLE and self._cells[cell] == shape:
                self._idle.remove(cell)
                return cell
        return None

    async def _new(self, plan: CellPlan) -> Cell:
        if len(self._cells) + self._starting - len(self._idle) >= self._limits.cells:
            raise SandboxFault(
                f"{self._limits.cells} commands are running in this space; wait for one to end, or stop one"
            )
        # An idle cell of another shape makes room; it would have gone sooner or later.
        if self._idle and len(self._cells) + self._starting >= self._limits.cells:
            self._idle.pop(0).close()
        self._room.enter()
        self._starting += 1
        try:
            cell = await self._builder.build(plan)
        except BaseException:
            self._room.leave()
            raise
        finally:
            self._starting -= 1
        self._cells[cell] = plan.shape
        cell.gone.add_done_callback(lambda _: self._left(cell))
        if self._closed:
            cell.kill()
            await cell.gone
            raise SandboxFault("this space was closed meanwhile")
        return cell

    def _left(self, cell: Cell) -> None:
        self._room.leave()
        self._cells.pop(cell, None)
        if cell in self._idle:
            self._idle.remove(cell)

    def _settle(self, cell: Cell) -> None:
        """Back among the warm ones, if it is fit for another command."""
        if cell.state is not CellState.IDLE:
            return
        self._idle.append(cell)
        if len(self._idle) > self._limits.warm_cells:
            self._idle.pop(0).close()
        if self._tidy is None and not self._closed:
            self._tidy = asyncio.get_running_loop().call_later(self._limits.idle_seconds, self._tidy_up)

    def _tidy_up(self) -> None:
        self._tidy = None
        loop = asyncio.get_running_loop()
        while self._idle and self._idle[0].idle_since + self._limits.idle_seconds <= loop.time():
            self._idle.pop(0).close()
        if self._idle:
            self._tidy = loop.call_at(self._idle[0].idle_since + self._limits.idle_seconds, self._tidy_up)

    # -- commands

    def _request(self, command: Command) -> bytes:
        place = self._builder.workspace
        run = messages.Run(
            argv=_argv(command),
            cwd=place if command.cwd is None else f"{place}/{command.cwd}",
            environment=dict(command.env),
        )
        if "\0" in command.command or any("\0" in name + value or "=" in name for name, value in command.env.items()):
            raise SandboxFault("a command and its environment cannot contain null bytes, nor a name in it `=`")
        request = messages.encode(run=run)
        if len(request) > self._limits.request_bytes:
            raise SandboxFault(
                f"the command and its environment have {len(request):,} bytes; at most"
                f" {self._limits.request_bytes:,} fit: put the rest into a file of the workspace"
            )
        return request

    def _run(self, cell: Cell, plan: CellPlan, command: Command, request: bytes, on_output: OnOutput) -> Running:
        spools = self._spools.new(command.process_id)
        self._builder.supervise(cell, command.programs, _argv(command), command.env.get("PATH", ""))
        ends: list[int] = []
        try:
            for _ in range(2):
                ends += os.pipe2(os.O_CLOEXEC)
            stdout, stdout_end, stderr, stderr_end = ends
            os.set_blocking(stdout, False)
            os.set_blocking(stderr, False)
            streams = (
                Stream("stdout", stdout, HeadAndTail(self._limits.shown_bytes), spools[0], on_output),
                Stream("stderr", stderr, HeadAndTail(self._limits.shown_bytes), spools[1], on_output),
            )

            def ended(ended: messages.Ended | None, counts: Counts) -> None:
                programs, notes = self._builder.programs(cell)
                del self._running[cell], self._plans[cell]

                def settled(found: list[str]) -> None:
                    if plan.files:
                        cell.close()
                    self._settle(cell)
                    running.ended(ended, counts, programs, [*notes, *found])
                    self._spools.ended(command.process_id)

                self._then(plan, settled)

            cell.run(request, (stdout_end, stderr_end), ended)
        except OSError:
            for end in ends:
                os.close(end)
            cell.kill()
            self._builder.programs(cell)
            self._spools.ended(command.process_id)
            self._spools.forget(command.process_id)
            raise
        os.close(stdout_end)
        os.close(stderr_end)
        running = Running(command, cell, *streams, self._limits)
        self._running[cell] = running
        self._plans[cell] = plan
        self._look_again()
        return running

    # -- repositories

    def _then(self, plan: CellPlan, settled: Callable[[list[str]], None]) -> None:
        """`settled` is called at once when there is nothing to bring out, else with what there is to say."""
        if self._builder.in_step(plan):
            settled(self._take_notes())
            return

        def done(future: asyncio.Future[list[str]]) -> None:
            self._syncing.discard(future)
            error = future.exception()
            settled(
                [*self._take_notes(), *([f"git's files were not brought out: {error}"] if error else future.result())]
            )

        self._sync(plan, quiet=not self._running).add_done_callback(done)

    def _sync(self, plan: CellPlan, *, quiet: bool) -> asyncio.Future[list[str]]:
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(None, lambda: self._builder.sync(plan, quiet=quiet))
        self._syncing.add(future)
        return future

    def _take_notes(self) -> list[str]:
        notes, self._notes = self._notes, []
        return notes

    def _look_again(self) -> None:
        """A command may run for days; what it commits should be seen outside before it ends."""
        if self._tick is None and not self._closed:
            self._tick = asyncio.get_running_loop().call_later(SYNC_SECONDS, self._ticked)

    def _ticked(self) -> None:
        self._tick = None
        for plan in self._plans.values():
            if not self._builder.in_step(plan) and not self._syncing:
                self._sync(plan, quiet=False).add_done_callback(self._on_synced)
        if self._running:
            self._look_again()

    def _on_synced(self, future: asyncio.Future[list[str]]) -> None:
        self._syncing.discard(future)
        if future.exception() is None:
            self._notes += future.result()


def _argv(command: Command) -> tuple[str, ...]:
    return (SHELL, "-c", command.command)
