"""A game's process: started in a session of its own, so that it and what it starts can be ended together."""

import asyncio
import contextlib
import os
import signal
from collections import deque
from typing import cast

from bascule.adapters.games.connector import MAX_UNSENT_BYTES
from bascule.bridges.game.ports import GameProcess, Launch, LaunchFault, OnData, OnLost, Wire

# The end of what a game printed: enough for the traceback that killed it.
MAX_OUTPUT_BYTES = 64 * 1024
# Of a stdio game before the bridge listens: a hello is not answered before it is asked.
MAX_EARLY_BYTES = 64 * 1024
# What the daemon has in its environment that a game must not see.
_SECRETS = ("BASCULE_", "BRIDGE_", "GABP_", "GABS_")


class _Process(asyncio.SubprocessProtocol):
    """One child; also the wire of a stdio game, whose stdout is the connection."""

    def __init__(self, *, stdio: bool) -> None:
        self.pid = 0
        self.exit_code: int | None = None
        self._stdio = stdio
        self._transport: asyncio.SubprocessTransport | None = None
        self._output: deque[bytes] = deque()
        self._output_bytes = 0
        self._early = bytearray()
        self._on_data: OnData | None = None
        self._on_lost: OnLost | None = None
        self._closed: Exception | bool | None = False
        self._exited = asyncio.Event()

    # -- asyncio --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid() or 0

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1 and self._stdio:
            if self._on_data is not None:
                self._on_data(data)
            elif len(self._early) < MAX_EARLY_BYTES:
                self._early += data
            return
        self._output.append(data)
        self._output_bytes += len(data)
        while self._output_bytes > MAX_OUTPUT_BYTES and len(self._output) > 1:
            self._output_bytes -= len(self._output.popleft())

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd in (0, 1) and self._stdio:
            self._lost(exc)

    def process_exited(self) -> None:
        assert self._transport is not None
        code = self._transport.get_returncode()
        self.exit_code = -1 if code is None else code
        # What it left behind in its group does not outlive it: nobody could reach or end it any more.
        self._signal(signal.SIGKILL)
        self._lost(None)
        self._exited.set()
        # Its pipes too: what it started in a session of its own may hold their other ends for ever.
        self._transport.close()

    # -- GameProcess --

    def output(self) -> str:
        text = b"".join(self._output)[-MAX_OUTPUT_BYTES:].decode(errors="replace")
        return "".join(each if each.isprintable() or each in "\n\t" else "?" for each in text)

    async def wait(self) -> int:
        await self._exited.wait()
        assert self.exit_code is not None
        return self.exit_code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # Its own session, so its group has its pid; the kernel keeps that number while one of the group is left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

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
        if pipe.get_write_buffer_size() > MAX_UNSENT_BYTES:
            pipe.abort()

    def close(self) -> None:
        """Closing its stdin tells a mod that nobody is there any more."""
        pipe = self._stdin()
        if pipe is not None:
            pipe.close()
        self._lost(None)

    def _stdin(self) -> asyncio.WriteTransport | None:
        if self._transport is None or not self._stdio:
            return None
        return cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))

    def _lost(self, exc: Exception | None) -> None:
        if self._closed is False:
            self._closed = exc
            if self._on_lost is not None:
                self._on_lost(exc)


class GameLauncher:
    def base_environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith(_SECRETS)}

    async def launch(self, launch: Launch) -> GameProcess:
        loop = asyncio.get_running_loop()
        try:
            _, process = await loop.subprocess_exec(
                lambda: _Process(stdio=launch.stdio),
                *launch.argv,
                stdin=asyncio.subprocess.PIPE if launch.stdio else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=launch.cwd,
                env=dict(launch.env),
                start_new_session=True,
            )
        except FileNotFoundError:
            where = f" (or no directory {launch.cwd})" if launch.cwd is not None else ""
            raise LaunchFault(
                f"{launch.game_id} cannot be started: there is no {launch.argv[0]}{where}; see games.toml"
            ) from None
        except (OSError, ValueError) as error:
            raise LaunchFault(f"{launch.game_id} cannot be started: {error}; see games.toml") from None
        return process
