"""A game's tools and events: the session beside a bare echo of its frames, and the whole way of an agent's call."""

import asyncio
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import uvloop

import processes
from bare_frames import Frames
from bascule.client.sync import SyncClient
from bascule.foundation.deferred import Deferred
from game_scene import PATIENCE_SECONDS, daemon_attached, daemon_with, detached, games_of, timed
from report import Section, Settings, middle, ratio

BARE = "asyncio, Content-Length and JSON (the limit)"
SESSION = "our session, the same echo as its mod"
WITH_SDK = "our session, a mod with our SDK"
LSP_FRAMES = "pygls' read loop at both ends, the same echo"
LSP_SESSION = "pygls' JSON-RPC session, the same value"
LINK_MEMORY = "an agent's call over the link, in memory"
LINK_FSYNC = "an agent's call over the link, ledger on disk"
MCP = "the same through `bascule mcp`"
MCP_APART = "through `bascule mcp`, a mod that sends header and body apart"
CALLS = 5_000
EVENTS = 20_000
SUBSCRIBERS = 10
MANY_GAMES = 20
MANY_CHANNELS = 60
ECHO_MOD = os.path.join(processes.HERE, "bare_frames.py")

MOD = """
from bascule_mod import Mod

mod = Mod("bench")

@mod.tool(read_only=True)
def echo(value: str) -> str:
    "Give back what was given."
    return value

@mod.tool
def shout(times: int) -> int:
    "Send as many events."
    for number in range(times):
        mod.emit("noise/a", {"n": number})
    return times

for each in ["a", *map(str, range(100))]:
    mod.channel("noise/" + each)

mod.serve()
"""
_VALUE = "x" * 100


def calls(settings: Settings) -> Section:
    """One call at a time, all ways in turn in every round."""
    section = Section("game-calls", "A call of a game's tool, 100 characters there and back", ("", "p50", "/ limit"))
    times = 100 if settings.quick else CALLS // settings.rounds
    taken: dict[str, list[float]] = {}
    with processes.scratch(settings.directory) as directory, contextlib.ExitStack() as stack:
        echo = stack.enter_context(processes.http_program("bare_frames", directory))
        detached_port = stack.enter_context(processes.http_program("apart_frames", directory)).address
        ways: dict[str, Callable[[], list[float]]] = {
            BARE: lambda: uvloop.run(_bare(echo, times)),
            SESSION: lambda: uvloop.run(_session(f"{directory}/session", times, ECHO_MOD)),
            WITH_SDK: lambda: uvloop.run(_session(f"{directory}/sdk", times, MOD)),
            **_lsp(directory, times, stack, section),
            LINK_MEMORY: partial(_agent, stack.enter_context(daemon_with(f"{directory}/memory", "memory", MOD)), times),
            LINK_FSYNC: partial(_agent, stack.enter_context(daemon_with(f"{directory}/fsync", "fsync", MOD)), times),
            MCP: partial(_over_mcp, f"{directory}/memory/state", times),
            MCP_APART: partial(
                _over_mcp, stack.enter_context(daemon_attached(f"{directory}/attached", detached_port)), times
            ),
        }
        for _ in range(settings.rounds):
            for name, way in ways.items():
                taken.setdefault(name, []).extend(way())
            settings.progress()
    limit = middle(taken[BARE])
    for name, values in taken.items():
        section.add(name, f"{middle(values) * 1e6:.0f} us", ratio(middle(values) / limit))
        section.keep(name, p50_us=middle(values) * 1e6)
    section.notes.append(
        "One call at a time over TCP, both processes on cores of their own and on uvloop, except for the mod with our "
        "SDK, which has a selector of the standard library. The limit frames, `json.loads` and `json.dumps`, and "
        "checks nothing. pygls' read loop is its `run_async` on an asyncio StreamReader at both ends, around that very "
        "echo; its session is a `JsonRPCClient` and a `JsonRPCServer` with one feature that gives its params back: "
        "JSON-RPC envelopes by cattrs, no schema of the params. Our session checks the tool's name, the arguments "
        "against the tool's inputSchema, every envelope, depth, UTF-8 and size, and keeps a deadline for each call."
    )
    section.notes.append(
        "An agent's call is judged, its tool compared with its pin, its arguments with their schema, and recorded "
        "`behind`. The mod SDK hands each call to the game's own thread. The mod of the last row writes by two sends "
        "with Nagle's algorithm on, as Lib.GAB does: with delayed ACKs such a call took 44 ms."
    )
    return section


def events(settings: Settings) -> Section:
    """A mod that shouts, and readers that each hear everything."""
    section = Section("game-events", "Events of one game", ("", "events/s", "delivered/s"))
    count = 500 if settings.quick else EVENTS
    with processes.scratch(settings.directory) as directory:
        for readers in (1, SUBSCRIBERS):
            took = middle([uvloop.run(_shouted(directory, readers, count)) for _ in range(settings.few_rounds)])
            name = f"{readers} reader{'s'[: readers > 1]}"
            section.add(name, f"{count / took:,.0f}", f"{count * readers / took:,.0f}")
            section.keep(name, per_second=count / took)
    return section


def scale(settings: Settings) -> Section:
    """What a call costs beside many other games, and with many channels subscribed to."""
    many = 4 if settings.quick else MANY_GAMES
    section = Section("game-scale", "A call beside others", ("", "alone", "beside them", "growth"))
    times = 50 if settings.quick else 1_000
    with processes.scratch(settings.directory) as directory:
        costs = uvloop.run(_scaled(directory, many, times, settings.rounds))
    for name, (first, last) in costs.items():
        section.add(name, f"{first * 1e6:.0f} us", f"{last * 1e6:.0f} us", ratio(last / first))
        section.keep(name, growth=last / first)
    return section


# -- the ways --


async def _bare(echo: processes.Server, times: int) -> list[float]:
    answered: list[Deferred[Any]] = []

    class Client(Frames):
        def body(self, message: dict[str, object]) -> None:
            answered.pop().set_result(message["result"])

    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", int(echo.address))

    async def ask() -> None:
        later: Deferred[Any] = Deferred()
        answered.append(later)
        params = {"name": "bench/echo", "arguments": {"value": _VALUE}}
        client.send({"v": "gabp/1", "id": "1", "type": "request", "method": "tools/call", "params": params})
        await later

    with detached(echo.pid):
        taken = await timed(ask, times)
    client.transport.close()
    return taken


def _lsp(
    directory: str, times: int, stack: contextlib.ExitStack, section: Section
) -> dict[str, Callable[[], list[float]]]:
    if importlib.util.find_spec("pygls") is None:
        section.notes.append("pygls is not installed here: `make bench` installs it.")
        return {}
    import lsp_echo

    server = stack.enter_context(processes.http_program("lsp_echo", directory))
    params = {"name": "bench/echo", "arguments": {"value": _VALUE}}

    async def measured(ask: Callable[[Any], Any]) -> list[float]:
        with detached(server.pid):
            return await timed(lambda: ask(params), times)

    framed, session = map(int, server.address.split())
    return {
        LSP_FRAMES: lambda: uvloop.run(lsp_echo.ask_framed(framed, measured)),
        LSP_SESSION: lambda: uvloop.run(lsp_echo.ask_session(session, measured)),
    }


async def _session(directory: str, times: int, program: str) -> list[float]:
    async with games_of(directory, ["bench"], program) as games:
        found = games.find("bench")

        async def ask() -> None:
            await found.call_tool("bench", "bench/echo", {"value": _VALUE})

        with detached(games.status("bench").pid):
            return await timed(ask, times)


async def _shouted(directory: str, readers: int, count: int) -> float:
    async with games_of(f"{directory}/{readers}", ["bench"], MOD) as games:
        found = games.find("bench")
        received = [0] * readers
        all_received: Deferred[None] = Deferred()

        async def listen(number: int) -> None:
            await found.subscribe(number, ["noise/a"])
            cursor = found.events.cursor
            while received[number] < count:
                page = await found.events.wait(cursor, ("noise/a",), 1_000)
                received[number] += sum(1 + event.missed for event in page.events)
                cursor = page.cursor
            if min(received) >= count and not all_received.done():
                all_received.set_result(None)

        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            for number in range(readers):
                group.create_task(listen(number))
            await asyncio.sleep(0.1)
            began = time.perf_counter()
            # In pieces that fit the log, which keeps the newest 2,048.
            for _ in range(count // 500):
                await found.call_tool("bench", "bench/shout", {"times": 500})
            await all_received
            return time.perf_counter() - began


async def _scaled(directory: str, many: int, times: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Three bridges, asked in turns: with one game, with many, and with one that many channels are heard of."""
    names = [f"bench{number}" for number in range(many)]
    async with (
        games_of(f"{directory}/alone", ["bench0"], MOD) as alone,
        games_of(f"{directory}/many", names, MOD) as crowd,
        games_of(f"{directory}/heard", ["bench0"], MOD) as received,
    ):
        await received.find("bench0").subscribe("bench", [f"noise/{number}" for number in range(MANY_CHANNELS)])
        taken: list[list[float]] = [[], [], []]
        for _ in range(rounds):
            for values, games in zip(taken, (alone, crowd, received), strict=True):
                first = games.find("bench0")
                ask = partial(first.call_tool, "bench", "bench/echo", {"value": _VALUE})
                values.extend(await timed(ask, times // rounds))
        first, beside, subscribed = map(middle, taken)
        return {
            f"{many} games": (first, beside),
            f"{MANY_CHANNELS} channels subscribed to": (first, subscribed),
        }


def _agent(client: SyncClient, times: int) -> list[float]:
    params = {"gameId": "bench", "tool": "bench/echo", "arguments": {"value": _VALUE}}
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        client.call("games.call", params)
        taken.append(time.perf_counter() - began)
    return taken


def _over_mcp(state: str, times: int) -> list[float]:
    command = [sys.executable, "-P", "-m", "bascule.cli.start", "mcp", "--state-dir", state, "--toolset", "games"]
    with subprocess.Popen(
        [*command, "--no-start"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=processes.environment()
    ) as shim:
        assert shim.stdin is not None
        assert shim.stdout is not None

        def ask(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
            line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            shim.stdin.write(line.encode() + b"\n")
            shim.stdin.flush()
            while True:
                answer = json.loads(shim.stdout.readline())
                if answer.get("id") == number:
                    return answer

        client = {"name": "bench", "version": "1"}
        ask(0, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        shim.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        arguments = {"gameId": "bench", "tool": "bench/echo", "arguments": {"value": _VALUE}}
        taken = []
        for number in range(1, times + 1):
            began = time.perf_counter()
            answer = ask(number, "tools/call", {"name": "games_call_tool", "arguments": arguments})
            taken.append(time.perf_counter() - began)
            if _VALUE not in json.dumps(answer["result"]["structuredContent"]):
                raise RuntimeError(f"the game answered {answer}")
        shim.stdin.close()
        return taken


MEASURES = {"game-calls": calls, "game-events": events, "game-scale": scale}
