"""Cells as they are made for one space: with bubblewrap, or with nothing around the spawner."""

import asyncio
import contextlib
import errno
import hashlib
import os
import pwd
import resource
import shutil
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

from bascule.foundation.emergency import EmergencyStop
from bascule.kernel.policy.programs import ProgramRules
from bascule.workspace.machine.files.repositories import GIT, find_repositories
from bascule.workspace.machine.sandbox import launch, layout, messages
from bascule.workspace.machine.sandbox.cell import Cell
from bascule.workspace.machine.sandbox.cell_plan import CellPlan
from bascule.workspace.machine.sandbox.doorway import Doorway, bound_in
from bascule.workspace.machine.sandbox.filters import Numbers, program
from bascule.workspace.machine.sandbox.groups import Group, Groups
from bascule.workspace.machine.sandbox.kernel import open_in_root
from bascule.workspace.machine.sandbox.limits import MIB, SandboxLimits
from bascule.workspace.machine.sandbox.seals import Plan, Seals
from bascule.workspace.machine.sandbox.supervisor import MAX_KNOWN_RULES, Listener, Supervisor, Watch
from bascule.workspace.ports import Command, ProgramRun, SandboxFault

# Where the kernel does not share the processors fairly between groups.
NICE = 5
# Of a principal's digest in a directory's name.
HOME_CHARS = 32
# A workspace with no more than these is searched for repositories without a thread of its own.
FEW_ENTRIES = 64


class Machine(NamedTuple):
    """What was found out about this machine, once."""

    tools: launch.Tools
    groups: Groups
    # Landlock scopes for cells that share the machine's network, or 0.
    scope: int
    # None on machines whose system calls we do not know.
    calls: Numbers | None
    supervisor: Supervisor | None
    # Why there is none.
    unsupervised: str | None
    emergency: EmergencyStop


class Supervised:
    """What both kinds of cells have in common: their programs are asked about."""

    def __init__(self, machine: Machine, limits: SandboxLimits) -> None:
        self._machine = machine
        self._limits = limits
        self._listeners: dict[Cell, Listener] = {}
        self._watches: dict[Cell, Watch] = {}

    def filter(self, *, confined: bool, unix_sockets: bool = True) -> dict[str, Any]:
        """The part of `Setup` about system calls."""
        machine = self._machine
        listen = machine.supervisor is not None
        if machine.calls is None or not (confined or listen):
            return {"filter": "", "listen": False, "seccomp_number": 0}
        code = program(machine.calls, confined=confined, listen=listen, unix_sockets=unix_sockets)
        return {"filter": code.hex(), "listen": listen, "seccomp_number": machine.calls.seccomp}

    async def started(
        self, child: launch.Child, group: Group | None, setup: messages.Setup, expected: list[tuple[int, int]]
    ) -> Cell:
        cell = Cell(child, group, self._limits, self._machine.emergency)
        await cell.start(setup, expected)
        if self._machine.supervisor is not None:
            listener = cell.take_listener()
            if listener is None:
                cell.kill()
                await cell.gone
                raise SandboxFault("the sandbox started without its supervisor; run `bascule doctor`")
            self._listeners[cell] = self._machine.supervisor.add(listener, self.open_root())
            cell.gone.add_done_callback(lambda _: self._listeners.pop(cell, None))
        return cell

    def open_root(self) -> int | None:
        """The root directory of cells, where it is known without asking the kernel for a process's."""
        return None

    def supervise(self, cell: Cell, programs: ProgramRules, argv: tuple[str, ...], path: str) -> None:
        """Every exec in this cell is decided by these rules from now on."""
        listener = self._listeners.get(cell)
        if listener is not None:
            listener.watch = self._watches[cell] = Watch(programs, self._limits.programs, argv, path)

    def programs(self, cell: Cell) -> tuple[tuple[ProgramRun, ...], list[str]]:
        watch = self._watches.pop(cell, None)
        if watch is None:
            return (), [f"programs were not supervised as they ran: {self._machine.unsupervised}"]
        return watch.result()


class BubblewrapBuilder(Supervised):
    """Cells of a space, each with the workspace bound through the descriptor we were given."""

    kind = "bubblewrap"

    def __init__(
        self,
        machine: Machine,
        limits: SandboxLimits,
        *,
        root: int,
        workspace: str,
        private: str,
        network: bool,
        readable: tuple[str, ...] = (),
        doorway: Doorway | None = None,
    ) -> None:
        super().__init__(machine, limits)
        self._root = os.dup(root)
        # In a network namespace of its own a cell meets nobody's abstract sockets; else Landlock keeps them away, and
        # where it cannot, there are no sockets of that family.
        self._unix_sockets = not network or machine.scope != 0
        self._doorway = doorway if self._unix_sockets else None
        self._network = network
        self._readable = readable
        self._user = user_of(self._root)
        self._homes: dict[str, str] = {}
        self._masks: dict[ProgramRules, tuple[str, ...]] = {}
        self.workspace = workspace
        # Homes, and what stands for `.git`.
        self._private = private
        if self._user is not None:
            self._private = private_of_another(private, self._user)
        else:
            os.makedirs(private, 0o700, exist_ok=True)
        # The store's disk, wherever homes are.
        self._store = os.path.dirname(private)
        self._seals = Seals(self._root, self._private)
        self._notes: list[str] = []

    async def plan(self, command: Command, *, quiet: bool) -> CellPlan:
        self._check_disk()
        places = await self._places(command)
        seals = self._seals.current(places) or await self._new_seals(places, quiet=quiet)
        home = self._home_of(command.principal)
        masked = self._masked(command.programs)
        files = await asyncio.to_thread(self._approved, command) if command.sealed else ()
        # No other command has these bytes in its cell, so none may get it.
        alone = command.process_id if files else None
        guarded = bool(files) and command.timeout is not None
        return CellPlan((home, masked, seals.shape, alone), command.programs, home, seals, files, guarded)

    async def _new_seals(self, places: tuple[str, ...], *, quiet: bool) -> Plan:
        try:
            seals, notes = await asyncio.to_thread(self._seals.plan, places, quiet=quiet)
        except OSError as error:
            raise SandboxFault(f"the workspace's repository could not be protected: {error}; try again") from None
        # They are about commands that still run: the next one that ends tells.
        self._notes += notes
        return seals

    async def _places(self, command: Command) -> tuple[str, ...]:
        places = command.repositories
        if places is None:
            found = find_repositories(self._root, most=FEW_ENTRIES)
            if not found.complete:
                found = await asyncio.to_thread(find_repositories, self._root)
            places = tuple(found.inodes)
        return places if GIT in places else (GIT, *places)

    def _check_disk(self) -> None:
        disk = os.statvfs(self._store)
        free = disk.f_bavail * disk.f_frsize
        if free < self._limits.store_free_bytes:
            raise SandboxFault(
                f"only {free // MIB:,} MiB are free on the disk of Bascule's store, {self._store}, and commands need"
                f" {self._limits.store_free_bytes // MIB:,}; delete something there, or close spaces: that deletes the"
                " home directories of their commands"
            )

    def _approved(self, command: Command) -> tuple[tuple[str, bytes], ...]:
        """The bytes that a person said yes to, or nothing runs."""
        found = []
        for place, digest in command.sealed.items():
            try:
                data = read_beneath(self._root, place, self._limits.sealed_bytes)
            except OSError as error:
                why = error.strerror
                raise SandboxFault(f"{place}, which was approved, cannot be read: {why}; run it again") from None
            if hashlib.sha256(data).hexdigest() != digest:
                raise SandboxFault(f"{place} changed after it was approved, so nothing ran; run it again to ask again")
            found.append((str(place), data))
        return tuple(found)

    def in_step(self, plan: CellPlan) -> bool:
        return all(mirror.in_step for mirror in plan.seals.mirrors)

    def sync(self, plan: CellPlan, *, quiet: bool) -> list[str]:
        earlier, self._notes = self._notes, []
        notes = [*earlier, *self._seals.sync(plan.seals, quiet=quiet)]
        return [*notes, *self._seals.unfinished(plan.seals)] if quiet else notes

    def _home_of(self, principal: str) -> str:
        """A directory's name: whatever a principal is called, it is one, and another's is another."""
        if (home := self._homes.get(principal)) is None:
            name = hashlib.sha256(principal.encode()).hexdigest()[:HOME_CHARS]
            home = self._homes[principal] = os.path.join(self._private, f"home-{name}")
        return home

    def _masked(self, programs: ProgramRules) -> tuple[str, ...]:
        """Looked up once for each set of rules: a changed policy is a new object."""
        if programs not in self._masks:
            if len(self._masks) >= MAX_KNOWN_RULES:
                self._masks.clear()
            self._masks[programs] = layout.masked(programs, self._machine.tools.python)
        return self._masks[programs]

    async def build(self, plan: CellPlan) -> Cell:
        machine = self._machine
        user = self._user.user if self._user else os.getuid()
        try:
            door = await self._doorway.open(user) if self._doorway is not None else None
        except OSError as error:
            raise SandboxFault(f"space.sock could not be opened: {error}; `bascule logs` says more") from None
        wanted = layout.Layout(
            workspace=self.workspace,
            user=user,
            group=self._user.group if self._user else os.getgid(),
            network=self._network,
            readable=self._readable,
            masked=self._masked(plan.programs),
            files=plan.files,
            agent=door.agent if door is not None else "",
        )
        opened: list[layout.Bound] = []
        try:
            opened.append(layout.Bound(self._home(plan.home), layout.HOME, writable=True))
            opened.append(layout.Bound(os.dup(self._root), self.workspace, writable=True))
            opened += self._seals.binds(plan.seals, self.workspace)
            if door is not None:
                opened.append(bound_in(door))
            expected = [bound.identity() for bound in opened]
            group = machine.groups.make(self._limits)
            child = launch.start_in_bwrap(machine.tools, wanted, self._limits, opened, self._user)
        except OSError as error:
            raise SandboxFault(f"the sandbox could not be started: {error}; run `bascule doctor`") from None
        finally:
            for bound in opened:
                os.close(bound.descriptor)
        disks = {self.workspace: self._limits.disk_bytes, layout.HOME: self._limits.home_bytes}
        setup = messages.Setup(
            environment=layout.environment(wanted),
            watch=watch(machine.groups, self._limits, disks),
            rlimits=rlimits(machine.groups, self._limits),
            nice=0 if "cpu" in machine.groups.kept else NICE,
            look=[bound.where for bound in opened],
            workspace=self.workspace,
            guarded=[place for place, _ in plan.files] if plan.guarded else [],
            scope=machine.scope if self._network else 0,
            **self.filter(confined=True, unix_sockets=self._unix_sockets),
        )
        try:
            return await self.started(child, group, setup, expected)
        except SandboxFault as fault:
            if self._user is not None and "Can't find source path" in str(fault):
                who = f"user {self._user.user}, who owns the workspace, and whom commands run as,"
                raise SandboxFault(
                    f"{who} cannot enter every directory above {self.workspace}; chmod o+x them"
                ) from None
            raise

    def _home(self, path: str) -> int:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
            if self._user is not None:
                os.chown(path, *self._user)
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    async def close(self) -> None:
        if self._doorway is not None:
            await self._doorway.close()
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._seals.close()
        os.close(self._root)
        shutil.rmtree(self._private, ignore_errors=True)


class BareBuilder(Supervised):
    """No sandbox: for who said `sandbox = "none"`. Whole trees are still ended, limits of a process still hold."""

    kind = "none"

    def __init__(self, machine: Machine, limits: SandboxLimits, *, root: int, workspace: str) -> None:
        super().__init__(machine, limits)
        self._user = user_of(root)
        self.workspace = workspace

    def open_root(self) -> int | None:
        """Ours. Nobody but root may look into the spawner, for its own protection: in a user namespace of ours we are
        root enough, out here we may not be."""
        return os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    async def plan(self, command: Command, *, quiet: bool) -> CellPlan:
        del quiet
        return CellPlan((), command.programs)

    def in_step(self, plan: CellPlan) -> bool:
        """Commands wrote to the repository itself."""
        del plan
        return True

    def sync(self, plan: CellPlan, *, quiet: bool) -> list[str]:
        del plan, quiet
        return []

    async def build(self, plan: CellPlan) -> Cell:
        del plan
        machine = self._machine
        try:
            group = machine.groups.make(self._limits)
            child = launch.start_bare(machine.tools, self._user)
        except OSError as error:
            raise SandboxFault(f"the command's spawner could not be started: {error}") from None
        setup = messages.Setup(
            environment=bare_environment(self._user),
            watch=watch(machine.groups, self._limits, {self.workspace: self._limits.disk_bytes}),
            rlimits=rlimits(machine.groups, self._limits),
            nice=0,
            look=[],
            workspace=self.workspace,
            guarded=[],
            scope=0,
            **self.filter(confined=False),
        )
        return await self.started(child, group, setup, [])

    async def close(self) -> None:
        """Nothing of it is kept."""


def read_beneath(root: int, path: str, most: int) -> bytes:
    """A regular file's content. Whatever links lead to, the caller compares it with a digest."""
    found = open_in_root(root, path)
    try:
        descriptor = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    finally:
        os.close(found)
    with open(descriptor, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data


def private_of_another(record: str, user: launch.User) -> str:
    """bwrap follows names even to what it is given open, and our directory is closed to that user. The link
    stays with us, so that the next daemon finds what this one leaves when it is killed."""
    made = tempfile.mkdtemp(prefix="bascule-space-")
    os.chown(made, *user)
    os.symlink(made, record)
    return made


def user_of(root: int) -> launch.User | None:
    """As root, commands run as the workspace's owner: uid 0 reads what its owner alone may read, even without
    a single capability. Anyone else runs them as themselves."""
    found = os.fstat(root)
    if os.getuid() != 0 or found.st_uid == 0:
        return None
    return launch.User(found.st_uid, found.st_gid)


def watch(groups: Groups, limits: SandboxLimits, disks: dict[str, int]) -> messages.Watch:
    """`disks`: by path, how much less may be free there."""
    return messages.Watch(
        cpu_seconds=limits.cpu_seconds,
        memory_bytes=None if "memory" in groups.kept else limits.memory_bytes,
        processes=None if "pids" in groups.kept else limits.processes,
        disks=[
            messages.DiskWatch(path=path, bytes=most, keep_free=limits.keep_free_bytes, blame=limits.blame_bytes)
            for path, most in disks.items()
        ],
    )


def rlimits(groups: Groups, limits: SandboxLimits) -> list[tuple[int, int]]:
    found = [
        # A core file is a surprise in somebody's workspace.
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        # Message queues would outlive the command that made them.
        (RLIMIT_MSGQUEUE, 0),
    ]
    if "memory" not in groups.kept:
        # Address space would be the wrong thing to limit: runtimes reserve hundreds of gigabytes and use few.
        found.append((resource.RLIMIT_DATA, limits.memory_bytes))
    if "pids" not in groups.kept:
        # Counted per user in a cell's own user namespace; root's processes are never counted.
        found.append((resource.RLIMIT_NPROC, limits.processes))
    return found


# Not in Python's module: Linux only.
RLIMIT_MSGQUEUE = 12
# What the person's own programs need; no tokens, no sockets of agents and desktops.
BARE_ENVIRONMENT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")


def bare_environment(user: launch.User | None, ours: Callable[[str], str | None] = os.environ.get) -> dict[str, str]:
    found = {name: value for name in BARE_ENVIRONMENT if (value := ours(name)) is not None}
    if user is not None:
        try:
            entry = pwd.getpwuid(user.user)
        except KeyError:
            found |= {"HOME": "/", "USER": str(user.user), "LOGNAME": str(user.user)}
        else:
            found |= {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
    return {"PATH": layout.PATH} | found | {"TERM": "dumb", "BASCULE_SANDBOX": "none"}
