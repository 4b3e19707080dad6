"""Control groups: the kernel's own limits for a cell, version 2 where it is delegated to us, else version 1.

What cannot be had is left to resource limits and the spawner's watch; `Groups.kept` says which are the kernel's.
"""

import contextlib
import os
import re
import select
import signal
import time
from typing import NamedTuple

from bascule.workspace.machine.sandbox.limits import SandboxLimits

MOUNTS = "/proc/self/mountinfo"
OWN = "/proc/self/cgroup"
CONTROLLERS = ("memory", "pids", "cpu")
# A whole cell weighs as much as one process outside: the daemon gets its turn under a fork bomb.
CPU_WEIGHT_V2 = 100
CPU_SHARES_V1 = 1024
# How far up from our own group a place is looked for: a session's scope, its slice, the user's manager.
MOST_LEVELS = 4
# Looks at a group whose processes are killed one by one; what forks faster than that is held by its limit of processes.
MOST_ROUNDS = 50
_GONE_SECONDS = 0.1
# A younger group without a process may be one that a daemon in another process namespace is about to fill.
YOUNG_SECONDS = 60.0
_MADE = re.compile(r"bascule-(?P<pid>\d+)-\d+")


class Counts(NamedTuple):
    """How often the kernel refused or killed because of a limit."""

    memory: int = 0
    processes: int = 0


class Group:
    """The limits of one cell."""

    def __init__(self, folders: dict[str, str], version: int) -> None:
        self._folders = folders
        self._version = version
        self._before = Counts()

    def join(self, pid: int) -> None:
        for folder in dict.fromkeys(self._folders.values()):
            write(os.path.join(folder, "cgroup.procs"), str(pid))

    def counts(self) -> Counts:
        """Since the last time it was asked."""
        now = Counts(
            _count(self._folders.get("memory"), "memory.events" if self._version == 2 else "memory.oom_control"),
            _count(self._folders.get("pids"), "pids.events", "max"),
        )
        before, self._before = self._before, now
        return Counts(now.memory - before.memory, now.processes - before.processes)

    def end(self) -> None:
        """End whatever is left in it: a command without a namespace may kill the spawner that would have done it."""
        for folder in dict.fromkeys(self._folders.values()):
            if self._version == 2:
                with contextlib.suppress(OSError):
                    # Since Linux 5.14, and no fork is quicker.
                    write(os.path.join(folder, "cgroup.kill"), "1")
            for _ in range(MOST_ROUNDS):
                if not _kill(os.path.join(folder, "cgroup.procs")):
                    break

    def remove(self) -> None:
        for folder in dict.fromkeys(self._folders.values()):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


class Groups:
    """Where groups of cells can be made; found out once, by making one."""

    def __init__(self, parents: dict[str, str], version: int) -> None:
        self._parents = parents
        self._version = version
        self._made = 0

    @property
    def kept(self) -> frozenset[str]:
        """Of memory, pids and cpu, those that the kernel limits for us."""
        return frozenset(self._parents)

    @property
    def version(self) -> int:
        return self._version

    def make(self, limits: SandboxLimits) -> Group | None:
        """None where there are no groups; `OSError` when one that was there is not any more."""
        if not self._parents:
            return None
        self._made += 1
        folders = {}
        for controller, parent in self._parents.items():
            folder = os.path.join(parent, f"bascule-{os.getpid()}-{self._made}")
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
            folders[controller] = folder
        group = Group(folders, self._version)
        try:
            for controller, folder in folders.items():
                _limit(self._version, controller, folder, limits)
        except OSError:
            group.remove()
            raise
        return group


def _limit(version: int, controller: str, folder: str, limits: SandboxLimits) -> None:
    match version, controller:
        case 2, "memory":
            write(os.path.join(folder, "memory.max"), str(limits.memory_bytes))
            with contextlib.suppress(OSError):
                # Without swap accounting there is no such file, and no swap to hide in.
                write(os.path.join(folder, "memory.swap.max"), "0")
        case 2, "cpu":
            write(os.path.join(folder, "cpu.weight"), str(CPU_WEIGHT_V2))
        case 1, "memory":
            write(os.path.join(folder, "memory.limit_in_bytes"), str(limits.memory_bytes))
            with contextlib.suppress(OSError):
                write(os.path.join(folder, "memory.memsw.limit_in_bytes"), str(limits.memory_bytes))
        case 1, "cpu":
            write(os.path.join(folder, "cpu.shares"), str(CPU_SHARES_V1))
        case _, "pids":
            write(os.path.join(folder, "pids.max"), str(limits.processes))


def find_groups(limits: SandboxLimits) -> Groups:
    for parents, version in ((_version_2(), 2), (_version_1(), 1)):
        usable = {}
        for controller, parent in parents.items():
            _tidy(parent)
            groups = Groups({controller: parent}, version)
            try:
                made = groups.make(limits)
            except OSError:
                continue
            if made is not None:
                made.remove()
                usable[controller] = parent
        if usable:
            return Groups(usable, version)
    return Groups({}, 0)


def _kill(path: str) -> bool:
    """Whether there was somebody to kill. By descriptor, looked up again: a number may be somebody else's by now."""
    held = []
    for pid in _words(path):
        with contextlib.suppress(OSError):
            held.append((pid, os.pidfd_open(int(pid))))
    still = _words(path)
    for pid, descriptor in held:
        if pid in still:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                # Until it is gone, a moment at the most: it is counted in the group until then.
                select.select([descriptor], [], [], _GONE_SECONDS)
        os.close(descriptor)
    return bool(still)


def _tidy(parent: str) -> None:
    """Groups of a daemon that was killed: empty, and nobody's."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            made = _MADE.fullmatch(name)
            folder = os.path.join(parent, name)
            if made is not None and not os.path.exists(f"/proc/{made['pid']}") and _age(folder) > YOUNG_SECONDS:
                with contextlib.suppress(OSError):
                    os.rmdir(folder)


def _age(folder: str) -> float:
    try:
        return time.time() - os.stat(folder).st_mtime
    except OSError:
        return 0.0


def _mounted() -> list[tuple[str, str, str]]:
    """(where, type, options) of the mounted control groups."""
    found = []
    try:
        with open(MOUNTS, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    for line in lines:
        before, _, after = line.partition(" - ")
        kind, _, options = [*after.split(" ", 2), "", ""][:3]
        if kind in ("cgroup", "cgroup2"):
            found.append((before.split(" ")[4].replace("\\040", " "), kind, options))
    return found


def _own() -> dict[str, str]:
    """Our group in each hierarchy, by controller; "" is version 2."""
    found = {}
    try:
        with open(OWN, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return {}
    for line in lines:
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            found[name] = path
    return found


def _version_2() -> dict[str, str]:
    mount = next((where for where, kind, _ in _mounted() if kind == "cgroup2"), None)
    own = _own().get("")
    if mount is None or own is None:
        return {}
    folder = os.path.normpath(mount + "/" + own)
    for _ in range(MOST_LEVELS):
        # A group with processes of its own hands nothing down (except the root): then one above it may.
        handed = _words(os.path.join(folder, "cgroup.subtree_control"))
        offered = _words(os.path.join(folder, "cgroup.controllers"))
        if {"memory", "pids"} <= offered and not {"memory", "pids"} <= handed:
            with contextlib.suppress(OSError):
                write(os.path.join(folder, "cgroup.subtree_control"), "+memory +pids")
            handed = _words(os.path.join(folder, "cgroup.subtree_control"))
        # To move a process between two groups one must be allowed to write where their paths meet.
        if {"memory", "pids"} <= handed and os.access(os.path.join(folder, "cgroup.procs"), os.W_OK):
            return {name: folder for name in CONTROLLERS if name in handed}
        if folder == mount:
            break
        folder = os.path.dirname(folder)
    return {}


def _version_1() -> dict[str, str]:
    own = _own()
    parents = {}
    for where, kind, options in _mounted():
        if kind != "cgroup":
            continue
        for name in set(options.split(",")) & set(CONTROLLERS):
            # In a container our own group may lie outside of what is mounted: the mount's root then is ours.
            folder = os.path.normpath(where + "/" + own.get(name, "/"))
            parents[name] = folder if os.path.isdir(folder) else where
    return parents


def _words(path: str) -> set[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return set(file.read().split())
    except OSError:
        return set()


def _count(folder: str | None, file: str, key: str = "oom_kill") -> int:
    if folder is None:
        return 0
    try:
        with open(os.path.join(folder, file), encoding="utf-8") as opened:
            for line in opened:
                name, _, value = line.partition(" ")
                if name == key:
                    return int(value)
    except (OSError, ValueError):
        return 0
    return 0


def write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
