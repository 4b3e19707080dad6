"""What agents cost a game's own thread: the time in `mod.poll` under a flood, and the example game's frames."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

import processes
from gabp.errors import GameError
from game_scene import games_of
from report import Section, Settings, middle, millis, ratio

BUDGET_MS = 2.0
# Each keeps as many calls open as the bridge lets one client have, so the game never sees the end of the queue.
FLOODERS = 4
OPEN_CALLS = 32
SPIN = "a loop that computes for the budget, nobody calls"
ALONE = "nobody connected calls"
PLAYED = "an agent calls without a pause"
EXAMPLE = os.path.join(os.path.dirname(processes.HERE), "examples", "burrow")

# `work` is about what a look at a small world costs. A poll that had nothing to do is not counted.
PUMP = """
import time
from bascule_mod import Mod

mod = Mod("bench")
taken = []

@mod.tool(read_only=True)
def echo(value: str) -> str:
    "Give back what was given."
    return value

@mod.tool
def work() -> int:
    "Compute for a while."
    until = time.perf_counter() + 0.0003
    while time.perf_counter() < until:
        pass
    return 1

@mod.tool(read_only=True)
def figures() -> list[float]:
    "Seconds in poll, since the last time."
    out = taken[:]
    taken.clear()
    return out

def spin() -> list[float]:
    "The same loop without a pump: what the machine itself does to two milliseconds."
    out = []
    for _ in range(SPINS):
        began = time.perf_counter()
        while time.perf_counter() - began < BUDGET / 1000:
            pass
        out.append(time.perf_counter() - began)
        time.sleep(1 / 120 - BUDGET / 1000)
    return out

mod.tool(spin)
mod.start()
while True:
    began = time.perf_counter()
    if mod.poll(budget_ms=BUDGET):
        taken.append(time.perf_counter() - began)
    time.sleep(max(0.0, 1 / 120 - (time.perf_counter() - began)))
"""

# The game itself, with a stop-watch: what a frame costs, and when the next one was shown.
PLAY = """
import os, sys, time
os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["PYGAME_HIDE_SUPPORT_PROMPT"] = "1"
sys.path.insert(0, EXAMPLE)
from burrow import Burrow

class Timed(Burrow):
    def __init__(self):
        super().__init__(seed=5)
        self.taken, self.shown = [], []
        self.mod.tool(self.figures, read_only=True)

    def frame(self, surface):
        began = time.perf_counter()
        super().frame(surface)
        now = time.perf_counter()
        self.taken.append(now - began)
        self.shown.append(now)

    def figures(self) -> list[list[float]]:
        "Seconds of each frame, and between one and the next, since the last time."
        out = [self.taken, [after - before for before, after in zip(self.shown, self.shown[1:])]]
        self.taken, self.shown = [], []
        return out

Timed().run()
"""


def pump(settings: Settings) -> Section:
    """`mod.poll` while more waits than any frame has time for."""
    section = Section("game-pump", f"`mod.poll(budget_ms={BUDGET_MS:g})` in a flood", ("", "p50", "p99", "/ budget"))
    with processes.scratch(settings.directory) as directory:
        found = uvloop.run(_flooded(directory, 5 * settings.seconds))
    for name, taken in found.items():
        p99 = at(taken, 0.99) * 1000
        section.add(name, millis(middle(taken) * 1000), millis(p99), ratio(p99 / BUDGET_MS))
        section.keep(name, p99_ms=p99)
    section.notes.append(
        f"{FLOODERS} agents with {OPEN_CALLS} calls open each, a game of 120 frames per second. `echo` gives 100 "
        "characters back; `work` computes for 0.3 ms. Polls that found nothing to do are left out. The first row is "
        "the machine's own: whoever else runs here takes that much from any two milliseconds."
    )
    return section


def frames(settings: Settings) -> Section:
    """The example game with an agent that always calls, and beside it with one that is silent; in turns."""
    section = Section(
        "game-frames", "A frame of the example game, headless", ("", "work p50", "p99", "shown every, p99", "n")
    )
    with processes.scratch(settings.directory) as directory:
        found = uvloop.run(_played(directory, settings.rounds, 4 * settings.seconds))
    for name, (taken, shown) in found.items():
        figures = (middle(taken), at(taken, 0.99), at(shown, 0.99))
        section.add(name, *(millis(each * 1000) for each in figures), str(len(taken)))
        section.keep(name, work_p99_ms=at(taken, 0.99) * 1000, shown_p99_ms=at(shown, 0.99) * 1000)
    section.notes.append(
        "Burrow at 60 frames per second, SDL's dummy display. Work is all that a frame does, drawing and `mod.poll` "
        "included; shown is from one picture to the next, which is what a player sees. The agent looks and digs, one "
        "call after the other, as fast as it is answered."
    )
    return section


def at(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def _flooded(directory: str, seconds: float) -> dict[str, list[float]]:
    program = PUMP.replace("BUDGET", repr(BUDGET_MS)).replace("SPINS", str(int(100 * seconds)))
    async with games_of(directory, ["bench"], program) as games:
        game = games.find("bench")

        async def figures() -> list[float]:
            return json.loads(bytes(await game.call_tool("bench", "bench/figures", {})))

        found = {SPIN: json.loads(bytes(await game.call_tool("bench", "bench/spin", {})))}
        for tool, arguments in (("echo", {"value": "x" * 100}), ("work", {})):

            async def call(client: str, tool: str = tool, arguments: dict[str, Any] = arguments) -> None:
                await game.call_tool(client, f"bench/{tool}", arguments)

            flood = [lambda name=f"agent-{number}": call(name) for number in range(FLOODERS)] * OPEN_CALLS
            # Once before it counts: the pump learns what a tool takes by its first call.
            await _for(seconds / 10, flood)
            await figures()
            await _for(seconds, flood)
            found[f"`{tool}`"] = await figures()
        return found


async def _played(directory: str, rounds: int, seconds: float) -> dict[str, tuple[list[float], list[float]]]:
    found: dict[str, tuple[list[float], list[float]]] = {ALONE: ([], []), PLAYED: ([], [])}
    async with games_of(directory, ["bench"], PLAY.replace("EXAMPLE", repr(EXAMPLE))) as games:
        game = games.find("bench")

        async def play() -> None:
            await game.call_tool("bench", "burrow/look", {})
            for direction in ("left", "right"):
                try:
                    await game.call_tool("bench", "burrow/move", {"direction": direction})
                except GameError as error:
                    if error.data and error.data.get("status") == "blocked_by_attention":
                        await game.call_tool("bench", "burrow/restart", {})

        await game.call_tool("bench", "burrow/figures", {})
        for _ in range(rounds):
            for name in (ALONE, PLAYED):
                await (asyncio.sleep(seconds) if name == ALONE else _for(seconds, [play]))
                taken, shown = json.loads(bytes(await game.call_tool("bench", "burrow/figures", {})))
                found[name][0].extend(taken)
                found[name][1].extend(shown)
    return found


async def _for(seconds: float, acts: list[Callable[[], Awaitable[None]]]) -> None:
    """Each again and again, all at once."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds

    async def repeat(act: Callable[[], Awaitable[None]]) -> None:
        while loop.time() < end:
            await act()

    async with asyncio.TaskGroup() as group:
        for act in acts:
            group.create_task(repeat(act))


MEASURES = {"game-pump": pump, "game-frames": frames}
