"""The way in: sandboxes of spaces, and the spooled output of their commands."""

import contextlib
import itertools
import os
import re
import shutil
import threading
from collections import OrderedDict
from typing import Literal

from bascule.foundation.emergency import EmergencyStop
from bascule.kernel.journal_ports import Log
from bascule.workspace.machine.sandbox import filters, kernel, probe
from bascule.workspace.machine.sandbox.builders import BareBuilder, BubblewrapBuilder, Machine
from bascule.workspace.machine.sandbox.doorway import Doorway
from bascule.workspace.machine.sandbox.groups import find_groups
from bascule.workspace.machine.sandbox.limits import SandboxLimits
from bascule.workspace.machine.sandbox.output import Spool
from bascule.workspace.machine.sandbox.space import Builder, Room, SpaceSandbox
from bascule.workspace.machine.sandbox.standstill import Standstill
from bascule.workspace.machine.sandbox.supervisor import Supervisor
from bascule.workspace.ports import Doors, LogPage, Root, SandboxFault

# Ids become file names.
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


class SpoolShelf:
    """Output of commands by process id: running ones always, ended ones while there is room."""

    def __init__(self, directory: str, limits: SandboxLimits) -> None:
        self._directory = directory
        self._limits = limits
        self._running: dict[str, tuple[Spool, Spool]] = {}
        self._ended: OrderedDict[str, tuple[Spool, Spool]] = OrderedDict()
        self._ended_bytes = 0

    def new(self, process_id: str) -> tuple[Spool, Spool]:
        if not _ID.fullmatch(process_id):
            raise SandboxFault(f"{process_id!r} is not a process id")
        if process_id in self._running or process_id in self._ended:
            raise SandboxFault(f"there is a process {process_id} already")
        path = f"{self._directory}/{process_id}"
        pair = (Spool(f"{path}.stdout", self._limits), Spool(f"{path}.stderr", self._limits))
        self._running[process_id] = pair
        return pair

    def ended(self, process_id: str) -> None:
        pair = self._running.pop(process_id)
        for spool in pair:
            spool.end()
        self._ended[process_id] = pair
        self._ended_bytes += sum(spool.size for spool in pair)
        while len(self._ended) > self._limits.kept_logs or self._ended_bytes > self._limits.kept_log_bytes:
            self.forget(next(iter(self._ended)))

    def page(self, process_id: str, stream: Literal["stdout", "stderr"], offset: int, limit: int) -> LogPage:
        pair = self._running.get(process_id) or self._ended[process_id]
        return pair[0 if stream == "stdout" else 1].page(max(0, offset), max(0, limit))

    def forget(self, process_id: str) -> None:
        pair = self._ended.pop(process_id, None)
        if pair is not None:
            self._ended_bytes -= sum(spool.size for spool in pair)
            for spool in pair:
                spool.forget()


class Sandboxes:
    """The port's `Sandboxes`. `directory` is ours alone: spools, and what commands of each space keep."""

    def __init__(
        self,
        directory: str,
        *,
        log: Log,
        limits: SandboxLimits | None = None,
        readable: tuple[str, ...] = (),
        doors: Doors | None = None,
        emergency: EmergencyStop | None = None,
    ) -> None:
        self._log = log
        self._doors = doors
        self._emergency = emergency or EmergencyStop()
        self._limits = limits or SandboxLimits()
        self._readable = readable
        self._private = os.path.join(directory, "tmp")
        spool = os.path.join(directory, "spool")
        _clear(directory, spool, self._private)
        self._shelf = SpoolShelf(spool, self._limits)
        self._opened = itertools.count(1)
        self._room = Room(self._limits.all_cells)
        self._standstill = Standstill()
        self._machine: Machine | None = None
        self._problem: tuple[str | None] | None = None

    def problem(self) -> str | None:
        if self._problem is None:
            self._problem = (probe.bubblewrap_problem(self._found().tools),)
            if self._problem[0] is not None:
                self._log("sandbox.problem", level="warning", problem=self._problem[0])
        return self._problem[0]

    def open(
        self,
        space_id: str,
        root: Root,
        *,
        network: bool,
        kind: Literal["bubblewrap", "none"] = "bubblewrap",
        door: bool = False,
    ) -> SpaceSandbox:
        if not _ID.fullmatch(space_id):
            raise SandboxFault(f"{space_id!r} is not a space id")
        machine = self._found()
        builder: Builder
        if kind == "none":
            builder = BareBuilder(machine, self._limits, root=root.fileno(), workspace=root.path)
        else:
            if (problem := self.problem()) is not None:
                raise SandboxFault(problem)
            builder = BubblewrapBuilder(
                machine,
                self._limits,
                root=root.fileno(),
                workspace=root.path,
                # A space that is opened twice, or again, has no home in common with itself.
                private=os.path.join(self._private, f"{space_id}-{next(self._opened)}"),
                network=network,
                readable=self._readable,
                doorway=Doorway(self._doors if door else None, space_id),
            )
        return SpaceSandbox(
            builder, self._shelf, self._room, self._limits, standstill=self._standstill, extent=root.extent
        )

    def logs(self, process_id: str, stream: Literal["stdout", "stderr"], offset: int, limit: int) -> LogPage:
        return self._shelf.page(process_id, stream, offset, limit)

    def forget(self, process_id: str) -> None:
        self._shelf.forget(process_id)

    def _found(self) -> Machine:
        if self._machine is None:
            unsupervised = kernel.supervision_problem()
            self._machine = Machine(
                tools=probe.find_tools(),
                groups=find_groups(self._limits),
                scope=kernel.landlock_scopes(),
                calls=filters.numbers(),
                supervisor=Supervisor(self._log) if unsupervised is None else None,
                unsupervised=unsupervised,
                emergency=self._emergency,
            )
        return self._machine


def _clear(directory: str, spool: str, private: str) -> None:
    """What an earlier life left goes; what could be large goes on a thread."""
    os.makedirs(directory, 0o700, exist_ok=True)
    old = os.path.join(directory, "old")
    for number, folder in enumerate((spool, private)):
        with contextlib.suppress(FileNotFoundError):
            os.makedirs(old, 0o700, exist_ok=True)
            os.rename(folder, os.path.join(old, f"{os.getpid()}-{number}-{os.urandom(4).hex()}"))
        os.mkdir(folder, 0o700)
    threading.Thread(target=_remove, args=(old,), name="bascule-sandbox-tidy", daemon=True).start()


def _remove(old: str) -> None:
    for folder, names, _ in os.walk(old):
        for name in names:
            # What a space keeps, where that had to lie elsewhere.
            if os.path.islink(link := os.path.join(folder, name)):
                shutil.rmtree(os.readlink(link), ignore_errors=True)
        if folder != old:
            # The links are in the first two levels; below lies what commands left.
            names.clear()
    shutil.rmtree(old, ignore_errors=True)
