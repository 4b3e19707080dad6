"""A game's process, under a keeper of its own: what it starts ends with it, and all of it ends with the daemon."""

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from bascule.foundation.deferred import Deferred
from bascule.foundation.emergency import EmergencyStop
from bascule.foundation.text import visible
from bascule.game.machine.masking import Mask
from bascule.game.ports import GameProcess, Launch, LaunchFault, OnData, OnLost, Wire
from gabp.codec import decode

KEEPER = os.path.join(os.path.dirname(__file__), "keeper.py")
# The end of what a game printed: enough for the traceback that killed it.
MAX_OUTPUT_BYTES = 64 * 1024
# Of a stdio game before the bridge listens: a hello is not answered before it is asked.
MAX_EARLY_BYTES = 64 * 1024
# The keeper is a small program; only a machine that swaps takes seconds to start it.
KEEPER_SECONDS = 30.0
# After the last process is gone its pipes are empty; somebody who was handed one of them may hold it open for ever.
DRAIN_SECONDS = 0.5
# What the daemon has in its environment that a game must not see.
_SECRETS = ("BASCULE_", "BRIDGE_", "GABP_", "GABS_")
_PIECE_BYTES = 64 * 1024


class _Process(asyncio.SubprocessProtocol):
    """One game and its keeper; also the wire of a stdio game, whose stdout is the connection."""

    def __init__(self, control: socket.socket, launch: Launch, emergency: EmergencyStop) -> None:
        # The game's own; after its launcher is gone, the first of what that left running.
        self.pid = 0
        self.exit_code: int | None = None
        # The keeper's first word: None when the game runs, else errno and text.
        self.started: Deferred[tuple[int, str] | None] = Deferred()
        self._control: socket.socket | None = control
        # The keeper takes the end of this for the end of the daemon; it asks the game first, then kills it.
        self._withdraw = emergency.add(partial(control.shutdown, socket.SHUT_WR))
        self._lines = b""
        self._unsent = b""
        self._group = 0
        self.handed_on = False
        self._reported_code: int | None = None
        self._stdio = launch.stdio
        self._max_unsent = launch.max_unsent_bytes
        self._transport: asyncio.SubprocessTransport | None = None
        self._output: deque[bytes] = deque()
        self._output_bytes = 0
        # By pipe: what is split over two reads of one is whole for neither.
        self._masks = {1: Mask(launch.secret), 2: Mask(launch.secret)}
        self._early = bytearray()
        self._on_data: OnData | None = None
        self._on_lost: OnLost | None = None
        self._closed: Exception | bool | None = False
        self._exited = asyncio.Event()

    # -- asyncio --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        assert self._control is not None
        asyncio.get_running_loop().add_reader(self._control, self._receive)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1 and self._stdio:
            if self._on_data is not None:
                self._on_data(data)
            elif len(self._early) < MAX_EARLY_BYTES:
                self._early += data
            return
        data = self._masks[fd].feed(data)
        self._output.append(data)
        self._output_bytes += len(data)
        while self._output_bytes > MAX_OUTPUT_BYTES and len(self._output) > 1:
            self._output_bytes -= len(self._output.popleft())

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd in (0, 1) and self._stdio:
            self._lost(exc)

    def process_exited(self) -> None:
        """The keeper is gone: nothing is left, unless somebody killed the keeper."""
        self._receive()
        self.hang_up()
        assert self._transport is not None
        if self._reported_code is None:
            self._reported_code = self._transport.get_returncode() or -1
            if self._group:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._group, signal.SIGKILL)
        self._answered((0, "its keeper ended"))
        asyncio.get_running_loop().call_later(DRAIN_SECONDS, self._transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """The keeper is gone and the pipes are read to their end."""
        assert self._transport is not None
        self._transport.close()
        self.exit_code = -1 if self._reported_code is None else self._reported_code
        self._lost(None)
        self._exited.set()

    # -- the keeper --

    def begin(self, launch: Launch) -> None:
        given = {"argv": launch.argv, "cwd": launch.cwd, "env": dict(launch.env), "terminal": launch.terminal}
        self._send(given)

    def _send(self, message: Any) -> None:
        # Not our codec: what is in an environment need not be UTF-8, and surrogates travel as escapes.
        self._unsent += json.dumps(message).encode() + b"\n"
        self._flush()

    def _flush(self) -> None:
        if self._control is None:
            return
        loop = asyncio.get_running_loop()
        try:
            sent = self._control.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            # It is gone, and asyncio is about to say so.
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]
        if self._unsent:
            loop.add_writer(self._control, self._flush)
        else:
            loop.remove_writer(self._control)

    def _receive(self) -> None:
        while self._control is not None:
            try:
                piece = self._control.recv(_PIECE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                piece = b""
            if not piece:
                self.hang_up()
                return
            *lines, self._lines = (self._lines + piece).split(b"\n")
            for line in lines:
                self._on_message(decode(line))

    def _on_message(self, message: dict[str, Any]) -> None:
        if "pid" in message:
            self.pid = self._group = message["pid"]
            self._answered(None)
        elif "fault" in message:
            self._answered((message["fault"][0], message["fault"][1]))
        elif "left" in message:
            self.pid = (message["left"] or [self.pid])[0]
            self.handed_on = True
        elif "ended" in message:
            self._reported_code = message["ended"]

    def _answered(self, fault: tuple[int, str] | None) -> None:
        if not self.started.done():
            self.started.set_result(fault)

    def hang_up(self) -> None:
        """For the keeper it is the end of the daemon: it ends the game."""
        self._withdraw()
        control, self._control = self._control, None
        if control is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(control)
            loop.remove_writer(control)
            control.close()

    def give_up(self) -> None:
        self.kill()
        self.hang_up()

    # -- GameProcess --

    def output(self) -> str:
        kept = [*self._output, *(mask.held() for mask in self._masks.values())]
        return visible(b"".join(kept)[-MAX_OUTPUT_BYTES:].decode(errors="replace"))

    async def wait(self) -> int:
        await self._exited.wait()
        assert self.exit_code is not None
        return self.exit_code

    def terminate(self) -> None:
        self._send("terminate")

    def kill(self) -> None:
        self._send("kill")

    def wire(self, on_data: OnData, on_lost: OnLost) -> Wire:
        self._on_data, self._on_lost = on_data, on_lost
        early, self._early = bytes(self._early), bytearray()
        loop = asyncio.get_running_loop()
        if early:
            loop.call_soon(on_data, early)
        if self._closed is not False:
            loop.call_soon(on_lost, None)
        return self

    def send(self, data: bytes) -> None:
        pipe = self._stdin()
        if pipe is None or pipe.is_closing():
            return
        pipe.write(data)
        if pipe.get_write_buffer_size() > self._max_unsent:
            pipe.abort()

    def close(self) -> None:
        """Closing its stdin tells a mod that nobody is there any more."""
        pipe = self._stdin()
        if pipe is not None:
            pipe.close()
        self._lost(None)

    def peer_pid(self) -> int | None:
        return self.pid

    def _stdin(self) -> asyncio.WriteTransport | None:
        if self._transport is None or not self._stdio:
            return None
        return cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))

    def _lost(self, exc: Exception | None) -> None:
        if self._closed is False:
            self._closed = exc
            if self._on_lost is not None:
                self._on_lost(exc)


class _Adopted:
    """A game that a launcher handed to a program that ran before; known by the process at the end of the connection."""

    handed_on = True

    def __init__(self, pid: int, descriptor: int, output: Callable[[], str], emergency: EmergencyStop) -> None:
        self.pid = pid
        self.exit_code: int | None = None
        self.output = output
        self._descriptor = descriptor
        self._exited = asyncio.Event()
        self._withdraw = emergency.add(self.terminate)
        asyncio.get_running_loop().add_reader(descriptor, self._gone)

    def _gone(self) -> None:
        self._withdraw()
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        # Not our child: how it ended is told to its parent only.
        self.exit_code = 0
        self._exited.set()

    async def wait(self) -> int:
        await self._exited.wait()
        return 0

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._descriptor, number)

    def wire(self, on_data: OnData, on_lost: OnLost) -> Wire:
        raise AssertionError("a game on stdio is not handed over")


class GameLauncher:
    def __init__(self, emergency: EmergencyStop | None = None) -> None:
        self._emergency = emergency or EmergencyStop()

    def base_environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith(_SECRETS)}

    async def launch(self, launch: Launch) -> GameProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            process = _Process(ours, launch, self._emergency)
            loop = asyncio.get_running_loop()
            try:
                await loop.subprocess_exec(
                    lambda: process,
                    # The last one is for people who read a list of processes.
                    *(sys.executable, "-I", "-S", KEEPER, str(theirs.fileno()), launch.game_id),
                    stdin=asyncio.subprocess.PIPE if launch.stdio else asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    pass_fds=(theirs.fileno(),),
                    # Not the game's: what that says to the loader and to Python is not for the keeper.
                    env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                    # Ctrl-C in the daemon's terminal is for the daemon.
                    start_new_session=True,
                )
            except OSError as error:
                process.hang_up()
                raise LaunchFault(f"{launch.game_id} cannot be started: its keeper: {error}") from None
        try:
            process.begin(launch)
            async with asyncio.timeout(KEEPER_SECONDS):
                fault = await process.started
        except TimeoutError:
            process.give_up()
            raise LaunchFault(f"{launch.game_id} cannot be started: its keeper does not answer; try again") from None
        except BaseException:
            process.give_up()
            raise
        if fault is None:
            return process
        await process.wait()
        number, text = fault
        if number == errno.ENOENT:
            where = f" (or no directory {launch.cwd})" if launch.cwd is not None else ""
            raise LaunchFault(
                f"{launch.game_id} cannot be started: there is no {launch.argv[0]}{where}; see games.toml"
            )
        raise LaunchFault(f"{launch.game_id} cannot be started: {text}; see games.toml")

    def adopt(self, pid: int, before: GameProcess) -> GameProcess | None:
        try:
            return _Adopted(pid, os.pidfd_open(pid), before.output, self._emergency)
        except OSError:
            return None
