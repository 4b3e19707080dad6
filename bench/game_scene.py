"""Games for the measures: started by the bridge in this process, or by a daemon of their own."""

import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import processes
from bascule.client.sync import SyncClient
from bascule.foundation.backoff import Backoff
from bascule.foundation.clock import SystemClock
from bascule.foundation.paths import read_unreachable_file, write_private_file
from bascule.game.games import Games
from bascule.game.life import Machine
from bascule.game.machine.bridge_file import BridgeJson
from bascule.game.machine.connector import LoopbackConnector
from bascule.game.machine.processes import GameLauncher
from bascule.game.machine.settings_file import TomlFile
from bascule.game.settings import LiveSettings

PATIENCE_SECONDS = 60.0
_WARM_UP = 20


def write_settings(directory: str, names: list[str], transport: str, program: str) -> str:
    """games.toml with these games. `program`: the path of one, or the text of one."""
    os.makedirs(directory, exist_ok=True)
    if not program.endswith(".py"):
        text, program = program, f"{directory}/mod.py"
        with open(program, "w", encoding="utf-8") as file:
            file.write(text)
    path = f"{directory}/games.toml"
    with open(path, "w", encoding="utf-8") as file:
        for name in names:
            file.write(f"[games.{name}]\ncommand = {sys.executable!r}\nargs = [{program!r}]\n")
            file.write(f"transport = {transport!r}\n")
    return path


@contextlib.asynccontextmanager
async def games_of(
    directory: str, names: list[str], program: str, *, started: int | None = None
) -> AsyncIterator[Games]:
    """The bridge by itself, in this process."""
    path = write_settings(directory, names, "tcp", program)
    clock = SystemClock()

    def log(*_: Any, **__: Any) -> None:
        """Nobody reads it here."""

    machine = Machine(
        connector=LoopbackConnector(),
        launcher=GameLauncher(),
        bridge_file=BridgeJson(f"{directory}/bridge.json", clock, log),
        clock=clock,
        log=log,
        delays=partial(Backoff, 0.1, 1.0),
        read_token=read_unreachable_file,
    )
    async with Games(LiveSettings(TomlFile(path)), machine) as games:
        for name in names[:started]:
            status = await games.start(name, PATIENCE_SECONDS)
            if status.state != "live":
                raise RuntimeError(f"{name} is {status.state}: {status.problem}")
        yield games


@contextlib.contextmanager
def daemon_with(directory: str, durability: str, program: str) -> Iterator[SyncClient]:
    state = f"{directory}/state"
    # Over stdio: a launch over TCP would write the user's own bridge.json.
    write_settings(f"{state}/config", ["bench"], "stdio", program)
    os.chmod(state, 0o700)
    with processes.bascule(state, durability=durability), SyncClient.connect(state) as client:
        client.call("games.start", {"gameId": "bench"})
        yield client


@contextlib.contextmanager
def daemon_attached(directory: str, port: str) -> Iterator[str]:
    """The state directory of a daemon in memory that plays a game which listens there already."""
    state = f"{directory}/state"
    os.makedirs(f"{state}/config")
    os.chmod(state, 0o700)
    write_private_file(f"{state}/token", "0" * 64)
    with open(f"{state}/config/games.toml", "w", encoding="utf-8") as file:
        file.write(f"[games.bench]\naddress = {port!r}\ntoken_file = '{state}/token'\n")
    # Nobody is here to be asked about the tools of an attached game.
    with (
        processes.bascule(state, durability="memory", BASCULE_POLICY="permissive"),
        SyncClient.connect(state) as client,
    ):
        client.call("games.start", {"gameId": "bench"})
        yield state


@contextlib.contextmanager
def detached(pid: int | None) -> Iterator[None]:
    """We on one core, the game on another: two processes that take turns cost half as much where they share one."""
    cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
    if len(cores) < 2 or pid is None:
        yield
        return
    os.sched_setaffinity(0, {cores[0]})
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), {cores[1]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


async def timed(ask: Callable[[], Awaitable[Any]], times: int) -> list[float]:
    for _ in range(_WARM_UP):
        await ask()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        await ask()
        taken.append(time.perf_counter() - began)
    return taken
