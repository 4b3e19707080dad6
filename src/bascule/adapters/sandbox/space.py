"""Where one space's commands run: a few warm cells, more when needed."""

import asyncio
import contextlib
import os
from collections.abc import Hashable
from typing import Protocol

from bascule.adapters.sandbox import messages
from bascule.adapters.sandbox.cell import Cell, State
from bascule.adapters.sandbox.groups import Counts
from bascule.adapters.sandbox.limits import Limits
from bascule.adapters.sandbox.output import HeadAndTail, Spool
from bascule.adapters.sandbox.running import Running, Stream
from bascule.bridges.workspace.ports import Command, OnOutput, ProgramRun, SandboxFault
from bascule.policy.programs import ProgramRules

SHELL = "/bin/sh"


class Builder(Protocol):
    """Makes cells of one kind for one space."""

    kind: str
    # Where commands begin.
    workspace: str

    def shape(self, programs: ProgramRules) -> Hashable:
        """What a cell would look like now; one of another shape is not used for the next command."""

    async def build(self, programs: ProgramRules) -> Cell:
        """`SandboxFault` when it cannot be."""

    def supervise(self, cell: Cell, programs: ProgramRules, path: str) -> None:
        """From before a command starts; `path` is its own PATH, or empty."""

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

    def __init__(self, builder: Builder, spools: Spools, room: Room, limits: Limits) -> None:
        self._builder = builder
        self._spools = spools
        self._room = room
        self._limits = limits
        self._cells: dict[Cell, Hashable] = {}
        # Oldest first.
        self._idle: list[Cell] = []
        self._running: dict[Cell, Running] = {}
        self._starting = 0
        self._tidy: asyncio.TimerHandle | None = None
        self._closed = False
        self.kind = builder.kind

    async def start(self, command: Command, on_output: OnOutput) -> Running:
        request = self._request(command)
        cell = self._warm(self._builder.shape(command.programs))
        if cell is not None:
            # A cell may have died while nobody needed it, and nobody heard of it yet.
            with contextlib.suppress(OSError):
                return self._run(cell, command, request, on_output)
        cell = await self._new(command.programs)
        try:
            return self._run(cell, command, request, on_output)
        except OSError as error:
            raise SandboxFault(f"the command could not be handed to its sandbox: {error}; try again") from None

    async def warm_up(self, programs: ProgramRules) -> None:
        """A cell for the first command, before it comes."""
        if not self._idle:
            cell = await self._new(programs)
            self._settle(cell)

    async def close(self) -> None:
        self._closed = True
        if self._tidy is not None:
            self._tidy.cancel()
        for running in tuple(self._running.values()):
            running.stop()
        for cell in tuple(self._cells):
            cell.kill()
        for cell in tuple(self._cells):
            await cell.gone
        await self._builder.close()

    # -- cells

    def _warm(self, shape: Hashable) -> Cell | None:
        if self._closed:
            raise SandboxFault("this space is closed; open it again")
        for cell in reversed(self._idle):
            if cell.state is State.IDLE and self._cells[cell] == shape:
                self._idle.remove(cell)
                return cell
        return None

    async def _new(self, programs: ProgramRules) -> Cell:
        if len(self._cells) + self._starting - len(self._idle) >= self._limits.cells:
            raise SandboxFault(
                f"{self._limits.cells} commands are running in this space; wait for one to end, or stop one"
            )
        # An idle cell of another shape makes room; it would have gone sooner or later.
        if self._idle and len(self._cells) + self._starting >= self._limits.cells:
            self._idle.pop(0).close()
        self._room.enter()
        self._starting += 1
        shape = self._builder.shape(programs)
        try:
            cell = await self._builder.build(programs)
        except BaseException:
            self._room.leave()
            raise
        finally:
            self._starting -= 1
        self._cells[cell] = shape
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
        if cell.state is not State.IDLE:
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
            argv=[SHELL, "-c", command.command],
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

    def _run(self, cell: Cell, command: Command, request: bytes, on_output: OnOutput) -> Running:
        spools = self._spools.new(command.process_id)
        self._builder.supervise(cell, command.programs, command.env.get("PATH", ""))
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
                del self._running[cell]
                self._settle(cell)
                running.ended(ended, counts, programs, notes)
                self._spools.ended(command.process_id)

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
        return running
