"""A command from its start to its outcome: its pipes, its time, how it ended."""

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import time
from datetime import timedelta
from typing import Literal

from bascule.foundation.deferred import Deferred
from bascule.workspace.machine.sandbox.cell import Cell
from bascule.workspace.machine.sandbox.groups import Counts
from bascule.workspace.machine.sandbox.limits import MIB, SandboxLimits
from bascule.workspace.machine.sandbox.messages import Ended
from bascule.workspace.machine.sandbox.output import CHUNK_BYTES, HeadAndTail, Spool
from bascule.workspace.ports import Command, EndedBy, OnOutput, Outcome, ProgramRun

TIMED_OUT = 124
KILLED = 137
CANNOT_START = 126
LOST = 255
# A command shorter than this is read once, when it has ended: two watchers on the loop cost it 5 % of its time.
UNWATCHED_SECONDS = 0.01
# A pipe that holds more is read in fewer turns. Beyond its share a user gets no more of it; then 64 KiB must do.
PIPE_BYTES = 256 * 1024
# After this much in one go a stream rests: back-pressure is what pipes are for, and others use the loop too.
BURST_BYTES = 4 * 1024 * 1024
REST_SECONDS = 0.004
LIMITS_NAMES: dict[str, EndedBy] = {"cpu": "cpu", "memory": "memory", "processes": "processes", "disk": "disk"}

ENDED_BY_US: dict[str | None, tuple[int, EndedBy]] = {
    "timeout": (TIMED_OUT, "timeout"),
    "cancelled": (KILLED, "cancelled"),
    "exchanged": (KILLED, "exchanged"),
}
EXCHANGED = (
    "another file was put in the place of a script that was approved, so the command was ended; look at what is there,"
    " and run it again to ask again"
)
MOVED = (
    "a script that was approved, or a directory that leads to it, was moved or made anew while the command ran: what"
    " ran may be another file than the one that was shown"
)

StreamName = Literal["stdout", "stderr"]


class Stream:
    """One pipe's end, and what came through it."""

    __slots__ = ("_burst", "_loop", "_on_output", "_size", "_watched", "descriptor", "name", "shown", "spool")

    def __init__(
        self, name: StreamName, descriptor: int, shown: HeadAndTail, spool: Spool, on_output: OnOutput
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_output = on_output
        self._watched = False
        self._burst = 0
        self._size = 0
        self.name: StreamName = name
        self.descriptor = descriptor
        self.shown = shown
        self.spool = spool

    def watch(self) -> None:
        if self.descriptor >= 0 and not self._watched:
            self._watched = True
            if self._size == 0:
                self._size = CHUNK_BYTES
                with contextlib.suppress(OSError):
                    self._size = fcntl.fcntl(self.descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            self._loop.add_reader(self.descriptor, self._readable)

    def _readable(self) -> None:
        before = self.shown.size
        self._read()
        self._burst += self.shown.size - before
        if self._burst >= BURST_BYTES:
            self._burst = 0
            self._unwatch()
            self._loop.call_later(REST_SECONDS, self.watch)

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._loop.remove_reader(self.descriptor)

    def _read(self) -> bool:
        """False when there is nothing more, now or ever."""
        most = self._size or CHUNK_BYTES
        try:
            data = os.read(self.descriptor, most)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self.shown.feed(data)
        self.spool.feed(data)
        self._on_output(self.name, data)
        # Less than was asked for: there was no more.
        return len(data) == most

    def drain(self) -> None:
        """All that is still in the pipe. Nobody of this command can add to it any more."""
        # A descriptor that was handed to another cell could be written to for ever.
        for _ in range(32):
            if self.descriptor < 0 or not self._read():
                break
        self.close()

    def close(self) -> None:
        if self.descriptor >= 0:
            self._unwatch()
            os.close(self.descriptor)
            self.descriptor = -1


class Running:
    """The port's `RunningCommand`."""

    def __init__(self, command: Command, cell: Cell, stdout: Stream, stderr: Stream, limits: SandboxLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._command = command
        self._cell = cell
        self._streams = (stdout, stderr)
        self._limits = limits
        self._started = time.monotonic()
        self._stopped = False
        self._timed_out = False
        self.process_id = command.process_id
        self.outcome: Deferred[Outcome] = Deferred()
        self._watching = self._loop.call_later(UNWATCHED_SECONDS, self._watch)
        self._deadline: asyncio.TimerHandle | None = None
        if command.timeout is not None:
            self._deadline = self._loop.call_later(command.timeout.total_seconds(), self._on_timeout)

    async def wait(self) -> Outcome:
        if self.outcome.done():
            return self.outcome.result()
        # Not awaited itself: that would withdraw it when the waiter is cancelled.
        turn: asyncio.Future[None] = self._loop.create_future()
        self.outcome.add_done_callback(lambda _: None if turn.done() else turn.set_result(None))
        await turn
        return self.outcome.result()

    def stop(self, why: Literal["cancelled"] = "cancelled") -> None:
        if not self.outcome.done():
            self._stopped = True
            self._cell.end(why)

    def _watch(self) -> None:
        for stream in self._streams:
            stream.watch()

    def _on_timeout(self) -> None:
        self._timed_out = True
        self._cell.end("timeout")

    # -- its end

    def ended(self, ended: Ended | None, counts: Counts, programs: tuple[ProgramRun, ...], notes: list[str]) -> None:
        duration = timedelta(seconds=time.monotonic() - self._started)
        self._watching.cancel()
        if self._deadline is not None:
            self._deadline.cancel()
        try:
            for stream in self._streams:
                stream.drain()
        finally:
            # A listener may fail; the waiter is answered all the same.
            code, by = self._verdict(ended, counts, notes)
            stdout, stderr = self._streams
            for stream in self._streams:
                stream.close()
            self.outcome.set_result(
                Outcome(
                    exit_code=code,
                    ended_by=by,
                    duration=duration,
                    stdout=stdout.shown.shown(),
                    stderr=stderr.shown.shown(),
                    programs=programs,
                    note="; ".join(notes) or None,
                )
            )

    def _verdict(self, ended: Ended | None, counts: Counts, notes: list[str]) -> tuple[int, EndedBy]:
        if ended is None:
            return self._lost(counts, notes)
        if ended.fault is not None:
            number, name = ended.fault
            if number == errno.EACCES and notes:
                # A rule says it better.
                return CANNOT_START, "exit"
            notes.append(f"it could not be started: {name + ': ' if name else ''}{os.strerror(number)}")
            if number in (errno.ENOENT, errno.ENOTDIR) and self._command.cwd is not None:
                notes.append("cwd must be a directory of the workspace")
            return CANNOT_START, "exit"
        code = exit_code(ended.status)
        if ended.moved:
            notes.append(EXCHANGED if ended.why == "exchanged" else MOVED)
        by = which_limit(ended, counts, code)
        if by is not None:
            notes.append(reached(by, self._limits))
        if counts.processes and by != "processes":
            notes.append(reached("processes", self._limits))
        if ended.why in ENDED_BY_US:
            return ENDED_BY_US[ended.why]
        if ended.left and by is None:
            notes.append(left_running(ended.left))
        return code, by or "exit"

    def _lost(self, counts: Counts, notes: list[str]) -> tuple[int, EndedBy]:
        """The cell ended, not only the command."""
        if counts.memory:
            notes.append(reached("memory", self._limits))
            return KILLED, "memory"
        if self._stopped:
            return KILLED, "cancelled"
        if self._timed_out:
            return TIMED_OUT, "timeout"
        notes.append("the sandbox ended while the command ran; whether it had finished is unknown")
        return LOST, "lost"


def which_limit(ended: Ended, counts: Counts, code: int) -> EndedBy | None:
    """A limit that was reached by a command that then succeeded did not end it."""
    if ended.why in LIMITS_NAMES:
        return LIMITS_NAMES[ended.why]
    if ended.why is not None or code == 0:
        return None
    if counts.memory:
        return "memory"
    if code == 128 + signal.SIGXFSZ:
        return "disk"
    return "processes" if counts.processes else None


def reached(limit: EndedBy, limits: SandboxLimits) -> str:
    match limit:
        case "memory":
            return f"it reached the limit of {limits.memory_bytes // MIB:,} MiB of memory"
        case "processes":
            return f"it reached the limit of {limits.processes:,} processes and threads"
        case "cpu":
            return f"it used more than {limits.cpu_seconds:,} seconds of processor time"
        case _:
            return (
                f"it wrote too much: {limits.disk_bytes // MIB:,} MiB in all, {limits.home_bytes // MIB:,} MiB in its"
                f" home directory, {limits.file_bytes // MIB:,} MiB in one file, or nearly all that was free"
            )


def left_running(count: int) -> str:
    what = "process that it left running was" if count == 1 else "processes that it left running were"
    return f"{count} {what} ended with it; start what should stay as a background command"


def exit_code(status: int) -> int:
    """As a shell says it."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code
