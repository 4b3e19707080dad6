"""Real games for tests: a mod in a process of its own, a bridge of the real adapters around it."""

import asyncio
import functools
import json
import sys
import tempfile
import textwrap
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

from bascule.foundation.backoff import Backoff
from bascule.foundation.clock import SystemClock
from bascule.foundation.paths import read_unreachable_file
from bascule.game.games import Games
from bascule.game.life import Machine
from bascule.game.machine.bridge_file import BridgeJson
from bascule.game.machine.connector import LoopbackConnector
from bascule.game.machine.processes import GameLauncher
from bascule.game.machine.settings_file import TomlFile
from bascule.game.settings import LiveSettings
from bascule.kernel.event_ring import Fact
from gabp.codec import decode
from gabp.kept import KeptResult
from patience import PATIENCE

# A game of everything: calls are counted in a file, so that a test knows how often they really ran.
MOD = '''
import os, sys, time
from typing import Generator, Literal
import msgspec
from bascule_mod import Context, Mod, ToolError

mod = Mod("arena", version="1.2")
runs = os.environ.get("RUNS_FILE")

class Place(msgspec.Struct):
    x: int
    y: int

@mod.tool(read_only=True)
def echo(value: object = None) -> object:
    "Give back what was given."
    return value

@mod.tool
def move(to: Place, style: Literal["walk", "run"] = "walk") -> Place:
    """Go somewhere.

    Args:
        to: where
        style: how
    """
    return to

@mod.tool
def count(key: str) -> int:
    "Write a line, so that it is known who ran."
    with open(runs, "a") as file:
        file.write(key + "\\n")
    return 1

@mod.tool
def fail(kind: str) -> None:
    if kind == "tool":
        raise ToolError("the door is locked", {"door": 7, "huge": 2**70})
    raise RuntimeError("a fault of the game")

@mod.tool
def walk(steps: int, context: Context) -> Generator[None, None, str]:
    for step in range(steps):
        context.progress(step + 1, steps)
        yield
    return "there"

@mod.tool
def forever(context: Context) -> Generator[None, None, None]:
    mod.emit("walk/began", None)
    try:
        while True:
            yield
    finally:
        mod.emit("walk/ended", context.cancelled)

@mod.tool
def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "awake"

@mod.tool
def shout(channel: str, times: int = 1, size: int = 0) -> int:
    for number in range(times):
        mod.emit(channel, {"n": number, "pad": "x" * size})
    return times

@mod.tool
def large(size: int) -> str:
    return "\\u00e9" * size

@mod.tool(read_only=True)
def alarm(blocking: bool = True) -> str:
    return mod.attention.open("the reactor is hot", severity="error", blocking=blocking)

@mod.tool
def grow() -> None:
    @mod.tool(name="arena/grown")
    def grown() -> int:
        return 42

@mod.tool
def leave(code: int = 0) -> None:
    os._exit(code)

@mod.resource("gabp://game/map", mime_type="text/plain")
def map_() -> str:
    "The map."
    return "\\u2588."

@mod.resource("gabp://game/tiles")
def tiles() -> bytes:
    return bytes(range(256))

score = 3

@mod.state("score")
def get_score() -> int:
    return score

@get_score.setter
def set_score(value: int) -> None:
    global score
    if value < 0:
        raise ValueError("a score is never negative")
    score = value

@mod.state("who")
def who(player_id: str | None = None) -> str:
    return player_id or "nobody"

for name in ("walk/began", "walk/ended", "noise/a", "noise/b"):
    mod.channel(name)

if os.environ.get("OWN_THREAD"):
    mod.start()
    while True:
        mod.poll(budget_ms=2)
        time.sleep(0.001)
else:
    mod.serve()
'''


class Playground:
    """A bridge with its own files; `write` says which games there are."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.toml = directory / "games.toml"
        self.bridge_json = directory / "config" / "gabp" / "bridge.json"
        self.runs_file = directory / "runs"
        self.socket_dir = str(directory)
        self.logged: list[dict[str, Any]] = []
        # For `events.all`.
        self.facts: list[Fact] = []
        self.games: Games

    def log(self, event: str, *, level: str = "info", **fields: Any) -> None:
        self.logged.append({"event": event, "level": level, **fields})

    def machine(self) -> Machine:
        clock = SystemClock()
        return Machine(
            connector=LoopbackConnector(),
            launcher=GameLauncher(),
            bridge_file=BridgeJson(str(self.bridge_json), clock, self.log),
            clock=clock,
            log=self.log,
            delays=partial(Backoff, 0.1, 1.0),
            read_token=read_unreachable_file,
            socket_dir=self.socket_dir,
            publish=self.facts.append,
        )

    def mod_file(self, source: str = MOD) -> Path:
        path = self.directory / "mod.py"
        path.write_text(textwrap.dedent(source))
        return path

    def write(self, *names: str, transport: str = "tcp", mode: str = "strict", source: str = MOD, **more: Any) -> None:
        """Games that all run the same program."""
        program = self.mod_file(source)
        lines = []
        for name in names or ("arena",):
            lines += [
                f"[games.{name}]",
                f"command = {sys.executable!r}",
                f"args = [{str(program)!r}]",
                f"transport = {transport!r}",
                f"mode = {mode!r}",
                *(f"{key} = {json.dumps(value)}" for key, value in more.items()),
                f"env = {{ RUNS_FILE = {str(self.runs_file)!r} }}",
            ]
        self.toml.write_text("\n".join(lines))

    def runs(self) -> list[str]:
        return self.runs_file.read_text().split() if self.runs_file.exists() else []

    async def call(self, tool: str, game: str = "arena", client: str = "test", **arguments: Any) -> Any:
        async with asyncio.timeout(PATIENCE):
            found = self.games.find(game)
            answer = await found.call_tool(client, f"arena/{tool}", arguments)
            return answer if isinstance(answer, KeptResult) else decode(answer)


@asynccontextmanager
async def playground(directory: Path) -> AsyncIterator[Playground]:
    ground = Playground(directory)
    # pytest names directories after tests, and a socket's path has 107 characters.
    with tempfile.TemporaryDirectory(prefix="gabp-") as ground.socket_dir:
        async with opened(ground):
            yield ground


@asynccontextmanager
async def opened(ground: Playground) -> AsyncIterator[None]:
    async with Games(LiveSettings(TomlFile(str(ground.toml))), ground.machine()) as games:
        ground.games = games
        yield
    assert not games.running()


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        # ESRCH is what a read says when it ends between the two.
        return False


class Arena:
    """One running game for several tests: a bridge on a loop of its own, in a thread of its own."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self._directory = directory
        self._settings = settings
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self.ground: Playground
        self._loop: asyncio.AbstractEventLoop
        self._done: asyncio.Event

    async def _main(self) -> None:
        async with playground(self._directory) as ground:
            self.ground = ground
            ground.write(**self._settings)
            self._loop = asyncio.get_running_loop()
            self._done = asyncio.Event()
            await ground.games.start("arena", PATIENCE)
            self._ready.set()
            await self._done.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        assert self.game.state == "live", self.game.problem
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(PATIENCE)

    @property
    def game(self) -> Any:
        return self.ground.games.find("arena")

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(PATIENCE):
                return await coroutine

        return asyncio.run_coroutine_threadsafe(bounded(), self._loop).result()

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.run(self.ground.call(tool, **arguments))

    def ask(self, act: Callable[[], Any]) -> Any:
        """Something that answers later, on the bridge's loop."""

        async def asked() -> Any:
            return await act()

        return self.run(asked())


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what has no event of its own."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.005)


def attached(ground: Playground, port: int, token: str = "t" * 64, **more: Any) -> None:
    """The game `arena` is one that somebody else started."""
    token_file = ground.directory / "token"
    token_file.write_text(token)
    token_file.chmod(0o600)
    lines = [f"{key} = {value!r}" for key, value in more.items()]
    ground.toml.write_text(
        f"[games.arena]\ntransport = 'tcp'\naddress = '{port}'\ntoken_file = {str(token_file)!r}\n" + "\n".join(lines)
    )
