"""One cell: a started spawner, its control socket, and the one command that may be in it."""

import array
import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable
from enum import Enum

from bascule.foundation.deferred import Deferred
from bascule.foundation.emergency import EmergencyStop
from bascule.workspace.machine.sandbox import messages
from bascule.workspace.machine.sandbox.groups import Counts, Group
from bascule.workspace.machine.sandbox.launch import MAX_COMPLAINT_BYTES, Child
from bascule.workspace.machine.sandbox.limits import SandboxLimits
from bascule.workspace.ports import SandboxFault
from gabp.codec import BadJson


class CellState(Enum):
    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    # No command may enter any more; processes may still be ending.
    CLOSING = "closing"
    # Every process is reaped.
    GONE = "gone"


# Ancillary data with one descriptor.
ROOM_FOR_ONE = socket.CMSG_SPACE(4)
# Flags of a message that came incomplete. A plain number: operators of an enum cost more than the rest of the read.
CUT = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)

OnEnded = Callable[[messages.Ended | None, Counts], None]


class Cell:
    """`start`, then `run` and `end` any number of times, then `close`; `gone` settles when nothing is left of it."""

    def __init__(self, child: Child, group: Group | None, limits: SandboxLimits, emergency: EmergencyStop) -> None:
        self._loop = asyncio.get_running_loop()
        self._child = child
        self._group = group
        self._limits = limits
        self._ready: Deferred[messages.Ready] = Deferred()
        self._on_ended: OnEnded | None = None
        # Settled when the spawner has stopped every process, or none is left.
        self._paused: Deferred[None] | None = None
        self._escalation: asyncio.TimerHandle | None = None
        self._last_complaint = ""
        # The spawner, where it is not our child but bwrap's.
        self._inner: int | None = None
        self.state = CellState.STARTING
        self.gone: Deferred[None] = Deferred()
        # The descriptor on which execs are asked about, once `start` is through and until somebody takes it.
        self._listener: int | None = None
        self.idle_since = 0.0
        self._withdraw = emergency.add(self._end_without_loop)
        self._loop.add_reader(child.control, self._on_readable)
        self._loop.add_reader(child.pidfd, self._reaped)

    async def start(self, setup: messages.Setup, expected: list[tuple[int, int]]) -> None:
        """`SandboxFault` says what bwrap said; the cell is gone then."""
        try:
            async with asyncio.timeout(self._limits.start_seconds):
                await self._get_ready(setup, expected)
        except BaseException as error:
            complaint = self._complaint()
            self.kill()
            await self.gone
            if isinstance(error, TimeoutError):
                message = f"the sandbox did not start within {self._limits.start_seconds:g} s"
                raise SandboxFault(f"{message}; run `bascule doctor`") from None
            if isinstance(error, OSError | EOFError | BadJson):
                message = f"the sandbox could not be started: {complaint or self._last_complaint or error}"
                raise SandboxFault(f"{message}; run `bascule doctor`") from None
            raise
        self.state = CellState.IDLE

    async def _get_ready(self, setup: messages.Setup, expected: list[tuple[int, int]]) -> None:
        self._send(messages.encode(setup=setup))
        ready = await self._ready
        if ready.seen != expected:
            raise SandboxFault("the workspace was moved or replaced while its sandbox started; try again")
        spawner = self._spawner_pid()
        if spawner != self._child.pid:
            self._inner = os.pidfd_open(spawner)
        if self._group is not None:
            # Before the first command: whatever it starts is in the group from its first instruction.
            self._group.join(spawner)

    def take_listener(self) -> int | None:
        """The caller closes it."""
        listener, self._listener = self._listener, None
        return listener

    def run(self, request: bytes, pipes: tuple[int, int], on_ended: OnEnded) -> None:
        """`on_ended` is called once, on the loop; with None when the cell was lost."""
        assert self.state is CellState.IDLE
        socket.send_fds(self._child.control, [request], pipes)
        self.state = CellState.BUSY
        self._on_ended = on_ended

    def pause(self) -> Deferred[None]:
        """Settled when every process of the command stands still, or is gone. A later `resume` lets them go on."""
        if self._paused is None:
            self._paused = Deferred()
            if self.state is not CellState.BUSY:
                self._paused.set_result(None)
            else:
                self._send_or_kill(messages.encode(pause=True))
        return self._paused

    def resume(self) -> None:
        if self._paused is not None:
            self._paused = None
            if self.state is CellState.BUSY:
                self._send_or_kill(messages.encode(pause=False))

    def _send_or_kill(self, data: bytes) -> None:
        try:
            self._send(data)
        except OSError:
            self.kill()

    def _on_paused(self) -> None:
        if self._paused is not None and not self._paused.done():
            self._paused.set_result(None)

    def end(self, why: str) -> None:
        """End the command; the spawner answers when nothing is left of it, or the cell is killed."""
        if self.state is not CellState.BUSY or self._escalation is not None:
            return
        self._escalation = self._loop.call_later(self._limits.end_seconds, self.kill)
        self._send_or_kill(messages.encode(end=why))

    def kill(self) -> None:
        """The spawner dies and its namespace with it, then bwrap; `gone` says when."""
        if self.state is CellState.GONE:
            return
        if self.state is not CellState.BUSY:
            self.state = CellState.CLOSING
        self._hang_up()
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._child.pidfd if self._inner is None else self._inner, signal.SIGKILL)

    def _end_without_loop(self) -> None:
        """For `EmergencyStop`, on its thread: the loop hears of it as of any cell that died."""
        if self._inner is not None:
            signal.pidfd_send_signal(self._inner, signal.SIGKILL)
        else:
            # A spawner that is not the first of a namespace ends its descendants, then itself.
            self._child.control.shutdown(socket.SHUT_RDWR)
        if self._group is not None:
            self._group.end()

    def close(self) -> None:
        """An idle cell leaves by itself when its socket does; `kill` is for the others."""
        if self.state is CellState.IDLE:
            self.state = CellState.CLOSING
            self._hang_up()
            self._escalation = self._loop.call_later(self._limits.end_seconds, self.kill)
        else:
            self.kill()

    # -- what comes from inside

    def _on_readable(self) -> None:
        try:
            data, descriptors, flags = self._receive()
        except BlockingIOError:
            return
        except OSError:
            data, descriptors, flags = b"", [], 0
        if not data:
            self._lose(EOFError("it ended"))
            return
        try:
            self._take(data, descriptors, whole=not flags & CUT)
        except BadJson as error:
            for descriptor in descriptors:
                os.close(descriptor)
            self._lose(error)

    def _receive(self) -> tuple[bytes, list[int], int]:
        # Not socket.recv_fds: it ignores its flags (3.11), and what we start next would inherit the descriptor.
        data, extra, flags, _ = self._child.control.recvmsg(
            messages.MAX_ANSWER_BYTES, ROOM_FOR_ONE, socket.MSG_CMSG_CLOEXEC
        )
        if not extra:
            return data, [], flags
        return data, list(array.array("i", b"".join(content for _, _, content in extra))), flags

    def _take(self, data: bytes, descriptors: list[int], *, whole: bool) -> None:
        if not whole:
            raise BadJson("the spawner's message was too long")
        answer = messages.ANSWER.decode(data)
        if answer.ready is not None and self.state is CellState.STARTING and not self._ready.done():
            self._listener = descriptors[0] if descriptors else None
            self._ready.set_result(answer.ready)
        elif answer.ended is not None and self.state is CellState.BUSY and not descriptors:
            self._ended(answer.ended)
        elif answer.paused is not None and not descriptors:
            if answer.paused:
                self._on_paused()
        else:
            raise BadJson("the spawner said what nobody had asked for")

    def _ended(self, ended: messages.Ended) -> None:
        if self._escalation is not None:
            self._escalation.cancel()
            self._escalation = None
        self._on_paused()
        on_ended, self._on_ended = self._on_ended, None
        assert on_ended is not None
        # Reading the kernel's counters costs more than the command: only when it failed.
        hit = ended.why is not None or ended.status != 0
        counts = self._group.counts() if hit and self._group is not None else Counts()
        if ended.clean:
            self.state = CellState.IDLE
            self.idle_since = self._loop.time()
        else:
            self.state = CellState.IDLE
            self.close()
        on_ended(ended, counts)

    def _lose(self, error: Exception) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
        self.kill()

    # -- its end

    def _hang_up(self) -> None:
        self._withdraw()
        if self._child.control.fileno() >= 0:
            self._loop.remove_reader(self._child.control)
            self._child.control.close()

    def _reaped(self) -> None:
        self._loop.remove_reader(self._child.pidfd)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._child.pid, 0)
        if self._escalation is not None:
            self._escalation.cancel()
            self._escalation = None
        self._hang_up()
        os.close(self._child.pidfd)
        if self._inner is None:
            self._left()
        else:
            # bwrap may have been killed before its child: a namespace ends when its first process does, and that
            # is over when nothing else is left in it.
            self._loop.add_reader(self._inner, self._left)

    def _left(self) -> None:
        if self._inner is not None:
            self._loop.remove_reader(self._inner)
            os.close(self._inner)
            self._inner = None
        counts = self._group.counts() if self._group is not None else Counts()
        if self._group is not None:
            self._group.end()
            self._group.remove()
        if not self._ready.done():
            self._ready.set_exception(EOFError("it ended"))
        # Kept for `start` to quote.
        self._last_complaint = self._complaint()
        self.state = CellState.GONE
        for descriptor in (self._child.info, self._child.complaints, self.take_listener()):
            if descriptor is not None:
                os.close(descriptor)
        self._on_paused()
        on_ended, self._on_ended = self._on_ended, None
        if on_ended is not None:
            on_ended(None, counts)
        self.gone.set_result(None)

    def _send(self, data: bytes) -> None:
        self._child.control.send(data)

    def _complaint(self) -> str:
        if self.state is CellState.GONE:
            return self._last_complaint
        try:
            data = os.read(self._child.complaints, MAX_COMPLAINT_BYTES)
        except BlockingIOError:
            return ""
        # A traceback's last line says it all.
        return data.decode("utf-8", "replace").strip().rpartition("\n")[2]

    def _spawner_pid(self) -> int:
        if self._child.info is None:
            return self._child.pid
        with contextlib.suppress(BlockingIOError, ValueError):
            info = json.loads(os.read(self._child.info, MAX_COMPLAINT_BYTES))  # noqa: TID251 - bwrap's own, not a peer's
            pid = info.get("child-pid")
            if isinstance(pid, int) and pid > 1:
                return pid
        raise OSError("bwrap did not say which process it started")
