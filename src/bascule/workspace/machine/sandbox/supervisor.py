"""Decides over every program that a cell executes, while the kernel holds the process that would.

One thread for all cells: an answer must not wait for the event loop's turn, nor the loop for an answer.
"""

import contextlib
import errno
import fcntl
import itertools
import os
import select
import struct
import threading
import time
from functools import lru_cache
from typing import NamedTuple

from bascule.kernel.journal_ports import Log
from bascule.kernel.policy.programs import ProgramRule, ProgramRules, judge
from bascule.kernel.policy.shell.wrappers import is_loader
from bascule.workspace.machine.sandbox.execs import (
    MAX_INTERPRETERS,
    Interpreters,
    Named,
    Process,
    Unresolved,
    read_request,
)
from bascule.workspace.machine.sandbox.filters import numbers
from bascule.workspace.machine.sandbox.kernel import NOTIFICATION_BYTES, Memory
from bascule.workspace.machine.sandbox.wanted import Wanted
from bascule.workspace.ports import ProgramRun

RECEIVE, ANSWER, STILL_THERE, SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082102, 0x40082104
SYNC_WAKE_UP = 1
CONTINUE = 1
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
# Longer ones are made to keep us busy; by its name a program in them is denied all the same.
MAX_SEARCHED = 64
# One per principal whose rules differ.
MAX_KNOWN_RULES = 64
# Verdicts that are remembered, and how long a command line such a one may be about: 4 MiB at the most.
MAX_KNOWN_VERDICTS = 1_024
MAX_KNOWN_CHARS = 1_024
# Its options come first, then the program.
LOADER_WORDS = 16
# Which files are denied programs is looked up again after this: an upgrade replaces them.
WANTED_SECONDS = 60.0
# What a record keeps of a command line: enough to know it again, little of what might be secret.
SHOWN_WORDS = 6
SHOWN_CHARS = 64
SEARCHED = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Watch:
    """One command's programs, from its start to its end. Filled by the thread, read when all is over."""

    def __init__(self, rules: ProgramRules, most: int, argv: tuple[str, ...], path: str = "") -> None:
        self.rules = rules
        # Where this command's own PATH looks beyond the usual places.
        folders = (folder for folder in path.split(":") if folder.startswith("/") and folder not in SEARCHED)
        self.search = tuple(itertools.islice(folders, MAX_SEARCHED))
        self.wanted: Wanted | None = None
        self._most = most
        # What the spawner executes for this command; None once it did.
        self._first: tuple[str, ...] | None = argv
        self._runs: dict[tuple[str, tuple[str, ...], str | None], int] = {}
        self._more = 0
        self._notes: dict[str, None] = {}

    def take_first(self) -> tuple[str, ...] | None:
        """argv of the command's own `sh -c`, once. Nothing else is in a cell before it, so the first who asks is the
        spawner, and what it executes is what we asked it to: that need not be read from its memory."""
        first, self._first = self._first, None
        return first

    def add(self, path: str, argv: tuple[str, ...], denied: ProgramRule | None) -> None:
        words = tuple(word[:SHOWN_CHARS] for word in argv[:SHOWN_WORDS])
        key = (path, words, denied.rule if denied else None)
        if key in self._runs or len(self._runs) < self._most:
            self._runs[key] = self._runs.get(key, 0) + 1
        else:
            self._more += 1
        if denied is not None and len(self._notes) < self._most:
            self._notes[f"'{denied.name}' is blocked by rule {denied.rule}"] = None

    def result(self) -> tuple[tuple[ProgramRun, ...], list[str]]:
        runs = tuple(
            ProgramRun(path=path, argv=argv, denied=denied, times=times)
            for (path, argv, denied), times in self._runs.items()
        )
        notes = list(self._notes)
        if self._more:
            notes.append(f"{self._more:,} more programs ran than are listed")
        return runs, notes


class _Asked(NamedTuple):
    """struct seccomp_notif"""

    number: int
    pid: int
    flags: int
    call: int
    arch: int
    instruction: int
    first: int
    second: int
    third: int
    fourth: int
    fifth: int
    sixth: int


class Listener:
    """A cell whose programs are asked about. `watch` is set before each command, by the loop."""

    __slots__ = ("root", "watch")

    def __init__(self, root: int | None) -> None:
        self.watch: Watch | None = None
        # The spawner's root directory; else opened at its first exec.
        self.root = root


def _check_still_there(listener: int, asked: _Asked) -> None:
    """The pid may be another's by now; while this does not raise `OSError`, what we read was the asking process's."""
    fcntl.ioctl(listener, STILL_THERE, struct.pack("=Q", asked.number))


@lru_cache(MAX_KNOWN_VERDICTS)
def _known_verdict(rules: ProgramRules, real: str, argv: tuple[str, ...], names: tuple[str, ...]) -> ProgramRule | None:
    """By all that it depends on; what the file is was looked up for this very exec, and is in `names`."""
    return judge(rules, real, argv, lambda _: names)


def _verdict(rules: ProgramRules, real: str, argv: tuple[str, ...], names: tuple[str, ...]) -> ProgramRule | None:
    if len(real) + sum(map(len, argv)) > MAX_KNOWN_CHARS:
        return judge(rules, real, argv, lambda _: names)
    return _known_verdict(rules, real, argv, names)


class Supervisor:
    """One for all cells."""

    def __init__(self, log: Log) -> None:
        calls = numbers()
        assert calls is not None
        self._calls = calls
        self._log = log
        self._lock = threading.Lock()
        self._poll = select.epoll()
        self._listeners: dict[int, Listener] = {}
        self._usual: dict[ProgramRules, tuple[float, Wanted]] = {}
        self._interpreters = Interpreters()
        self._memory = Memory()
        self._thread: threading.Thread | None = None

    def add(self, listener: int, root: int | None = None) -> Listener:
        """From now on the descriptors are this thread's, which closes them when the cell is gone."""
        with contextlib.suppress(OSError):
            # Older kernels wake the asking process on whichever processor; it only costs time.
            fcntl.ioctl(listener, SET_FLAGS, SYNC_WAKE_UP)
        with self._lock:
            self._listeners[listener] = added = Listener(root)
            self._poll.register(listener, select.EPOLLIN)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="bascule-execs", daemon=True)
                self._thread.start()
        return added

    # -- the thread's

    def _work(self) -> None:
        while True:
            for listener, events in self._poll.poll():
                if events & select.EPOLLIN:
                    self._serve(listener)
                elif events & (select.EPOLLHUP | select.EPOLLERR):
                    self._drop(listener)
            with self._lock:
                if not self._listeners:
                    self._thread = None
                    return

    def _drop(self, listener: int) -> None:
        with self._lock:
            self._poll.unregister(listener)
            root = self._listeners.pop(listener).root
            os.close(listener)
        if root is not None:
            os.close(root)

    def _serve(self, listener: int) -> None:
        """One question; there may be more, and the poll will say so."""
        notification = bytearray(NOTIFICATION_BYTES)
        try:
            fcntl.ioctl(listener, RECEIVE, notification)
        except OSError:
            # The process that asked was killed meanwhile.
            return
        asked = _Asked(*_NOTIFICATION.unpack(notification))
        try:
            error = self._decide(listener, asked)
        except Exception as fault:  # noqa: BLE001 - a fault here must neither stop all cells nor let a program run
            self._log("sandbox.exec-fault", level="error", error=repr(fault))
            error = errno.EACCES
        flags = 0 if error else CONTINUE
        with contextlib.suppress(OSError):
            fcntl.ioctl(listener, ANSWER, _RESPONSE.pack(asked.number, 0, -error, flags))

    def _decide(self, listener: int, asked: "_Asked") -> int:
        """0, or the error that the process gets."""
        asking = self._listeners[listener]
        watch = asking.watch
        if watch is None:
            return errno.EACCES
        first = watch.take_first()
        process = Process(asked.pid, None if first is None else asking.root)
        try:
            if first is None:
                named, argv = self._read(asked)
                _check_still_there(listener, asked)
                return self._judge(watch, process, named, argv, argv)
            if asking.root is None:
                root = process.root()
                _check_still_there(listener, asked)
                asking.root = os.dup(root)
            # Policy has read the text of `sh -c`, and reading it takes as long as running it.
            return self._judge(watch, process, Named(first[0]), first, first[:1])
        except Unresolved as unresolved:
            return unresolved.number
        except OSError:
            return errno.EACCES
        finally:
            process.close()

    def _read(self, asked: "_Asked") -> tuple[Named, tuple[str, ...]]:
        if asked.call == self._calls.execve:
            path, argv = read_request(self._memory, asked.pid, asked.first, asked.second)
            return Named(path), argv
        directory = struct.unpack("=i", struct.pack("=I", asked.first & 0xFFFFFFFF))[0]
        path, argv = read_request(self._memory, asked.pid, asked.second, asked.third)
        return Named(path, directory, asked.fifth), argv

    def _judge(
        self, watch: Watch, process: Process, named: Named, argv: tuple[str, ...], judged: tuple[str, ...]
    ) -> int:
        for _ in range(MAX_INTERPRETERS):
            real, interpreter, denied = self._look(watch, process, named, judged)
            if denied is None and is_loader(real.rpartition("/")[2]):
                denied = self._loaded(watch, process, argv)
            watch.add(real, argv, denied)
            if denied is not None:
                return errno.EACCES
            if not interpreter:
                return 0
            # The kernel starts a script's interpreter without another exec: it is judged here.
            argv = judged = (*interpreter, named.path, *argv[1:])
            named = Named(interpreter[0])
        return errno.ELOOP

    def _look(
        self, watch: Watch, process: Process, named: Named, argv: tuple[str, ...]
    ) -> tuple[str, tuple[str, ...], ProgramRule | None]:
        """The file's real path, what interprets it, and the rule against it."""
        descriptor = process.open(named)
        try:
            found = os.fstat(descriptor)
            real = os.readlink(f"/proc/self/fd/{descriptor}")
            interpreter = self._interpreters.of(descriptor, found)
            names = self._wanted(watch, process).names(descriptor, found) if watch.rules.denied else ()
        finally:
            os.close(descriptor)
        if not watch.rules.denied:
            return real, interpreter, None
        return real, interpreter, _verdict(watch.rules, real, argv, names)

    def _loaded(self, watch: Watch, process: Process, argv: tuple[str, ...]) -> ProgramRule | None:
        """The dynamic loader maps a program instead of executing it: whatever it is given is judged as if executed,
        by its file, since a link in the workspace may be called anything."""
        for at, word in enumerate(argv[1:LOADER_WORDS], 1):
            with contextlib.suppress(Unresolved):
                if (denied := self._look(watch, process, Named(word), argv[at:])[2]) is not None:
                    return denied
        return None

    def _wanted(self, watch: Watch, process: Process) -> Wanted:
        """Denied programs by their files."""
        if watch.wanted is None:
            usual = self._usual.get(watch.rules)
            now = time.monotonic()
            if usual is None or now - usual[0] > WANTED_SECONDS:
                if len(self._usual) > MAX_KNOWN_RULES:
                    self._usual.clear()
                # /usr is the same in every cell.
                usual = self._usual[watch.rules] = (now, Wanted.of(watch.rules, SEARCHED, process.root()))
            watch.wanted = usual[1]
            if watch.search:
                watch.wanted = usual[1].and_also(Wanted.of(watch.rules, watch.search, process.root()))
        return watch.wanted
