"""How long a person or an agent waits for a small program: from its start to its end, or to its first answer
(`start`); and what the daemon costs that has nothing to do (`daemon`): its start, its sleep, its memory."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import uvloop

import processes
from ends_frames import FrameClient, encode, link
from measure_http import send_many
from processes import HERE, PROGRAMS, Server, cpu_seconds, memory_bytes
from report import Section, Settings, middle, millis
from scene import PAYLOAD, RECEIVER

# At least this many, whatever the rounds: a start is short, and its spread is wide.
RUNS = 15
QUICK_RUNS = 3
PATIENCE_SECONDS = 30.0
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}


def to_the_end(command: list[str], env: dict[str, str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_SECONDS, check=False
    )
    took = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr.decode(errors='replace').strip()}")
    return took


def to_the_first_answer(command: list[str], env: dict[str, str]) -> float:
    """Until an MCP server has answered `initialize`: before that its client shows no tools."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    took = time.perf_counter() - began
    process.stdin.close()
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
    if b'"result"' not in answer:
        raise RuntimeError(f"{command}: answered {answer!r}")
    return took


def start(settings: Settings) -> Section:
    def program(name: str) -> str:
        return os.path.join(PROGRAMS, name)

    taken: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        directory = enter(processes.scratch(settings.directory))
        state = os.path.join(directory, "state")
        enter(processes.bascule(state, durability="memory"))
        env = processes.environment(BASCULE_STATE_DIR=state)
        to_the_end([program("bridge-register"), "--agent", "Jerry"], env)
        runs: dict[str, tuple[Callable[[list[str], dict[str, str]], float], list[str]]] = {
            "`python -c pass` (the limit)": (to_the_end, [sys.executable, "-c", "pass"]),
            "`bridge-reply --help`": (to_the_end, [program("bridge-reply"), "--help"]),
            "`bridge-send Jerry hello --no-wait`": (
                to_the_end,
                [program("bridge-send"), "Jerry", "hello", "--no-wait"],
            ),
            "`bascule mcp`, `initialize` answered": (to_the_first_answer, [program("bascule"), "mcp"]),
            "MCP SDK server, `initialize` answered": (
                to_the_first_answer,
                [sys.executable, os.path.join(HERE, "bare_mcp.py")],
            ),
            "fastmcp server, `initialize` answered": (
                to_the_first_answer,
                [sys.executable, os.path.join(HERE, "fast_mcp.py")],
            ),
        }
        for _ in range(QUICK_RUNS if settings.quick else RUNS):
            for label, (measure, command) in runs.items():
                taken.setdefault(label, []).append(measure(command, env) * 1000)
            settings.progress()
    result = Section("start", "Small programs", ("", "median", "fastest", "above python -c pass"))
    limit = middle(next(iter(taken.values())))
    for label, times in taken.items():
        result.add(label, millis(middle(times)), millis(min(times)), millis(middle(times) - limit))
        result.keep(label, median_ms=middle(times), fastest_ms=min(times))
    result.notes.append(
        f"Wall time of {len(next(iter(taken.values())))} starts each, taking turns, with the daemon running."
    )
    return result


# -- the daemon that has nothing to do --

TICKETS = 100_000
QUICK_TICKETS = 500
STARTS = 5
# Long after the last call: the log and the store have written what they had.
SETTLE_SECONDS = 8.0
IDLE_SECONDS = 20.0
QUICK_SECONDS = 1.0
_AT_ONCE = 500


def with_bytecode(directory: str) -> dict[str, str]:
    """As installed programs have it, whatever the environment of the bench says."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": os.path.join(directory, "bytecode")}


def wake_ups(pid: int) -> int:
    """How often its threads went to sleep so far."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status", encoding="utf-8") as file:
            total += next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))
    return total


def at_rest(server: Server, settings: Settings) -> tuple[float, float, float]:
    """Wake-ups and milliseconds of CPU per second, and MiB."""
    time.sleep(QUICK_SECONDS if settings.quick else SETTLE_SECONDS)
    seconds = QUICK_SECONDS if settings.quick else IDLE_SECONDS
    before, used = wake_ups(server.pid), cpu_seconds(server.pid) or 0.0
    time.sleep(seconds)
    woken, spent = wake_ups(server.pid) - before, (cpu_seconds(server.pid) or 0.0) - used
    return woken / seconds, spent / seconds * 1000, (memory_bytes(server.pid) or 0) / 2**20


async def settle_many(server: Server, count: int, payload: str) -> float:
    """Bytes of memory that each ticket takes which was sent, answered and is kept."""
    asker, receiver = await link(server.address, "Tom"), await link(server.address, RECEIVER)

    async def asks(first: int, count: int) -> None:
        ids = [f"settled-{number:08d}" for number in range(first, first + count)]
        for start in range(0, count, _AT_ONCE):
            some = ids[start : start + _AT_ONCE]
            sends = [{"agentId": RECEIVER, "payload": payload, "ticketId": each} for each in some]
            await call_all(asker, "messages.send", sends)
            await call_all(receiver, "replies.post", [{"ticketId": each, "payload": payload} for each in some])

    # What the first ones need, all later ones share.
    await asks(0, count // 10)
    before = memory_bytes(server.pid) or 0
    await asks(count // 10, count)
    return ((memory_bytes(server.pid) or 0) - before) / count


async def call_all(client: FrameClient, method: str, params: list[dict[str, str]]) -> None:
    await asyncio.gather(*(client.call(method, encode(each)) for each in params))


async def fill(server: Server, count: int) -> None:
    asker = await link(server.address, "Tom")
    await link(server.address, RECEIVER)
    await send_many(asker, RECEIVER, "kept", count)


def daemon(settings: Settings) -> Section:
    tickets = QUICK_TICKETS if settings.quick else TICKETS
    result = Section("daemon", "The daemon with nothing to do", ("", "median", "best", "CPU"))
    with processes.scratch(settings.directory) as directory:
        code = with_bytecode(directory)

        def starts(state: Callable[[int], str], label: str) -> None:
            walls, spent = [], []
            for number in range(1 if settings.quick else STARTS):
                with processes.bascule(state(number), durability="fsync", **code) as server:
                    spent.append((cpu_seconds(server.pid) or 0.0) * 1000)
                    walls.append(server.started_s * 1000)
                settings.progress()
            result.add(label, millis(middle(walls)), millis(min(walls)), millis(middle(spent)))
            result.keep(label, median_ms=middle(walls), fastest_ms=min(walls), cpu_ms=middle(spent))

        # The first start writes the bytecode, and is larger for it.
        with processes.bascule(os.path.join(directory, "first"), durability="memory", **code):
            pass
        full = os.path.join(directory, "full")
        with processes.bascule(full, durability="relaxed", **code) as server:
            woken, spent, memory = at_rest(server, settings)
            uvloop.run(fill(server, tickets))
        starts(lambda number: os.path.join(directory, f"empty-{number}"), READY_EMPTY)
        starts(lambda _number: full, READY_FULL)
        for label, figure, shown in (
            (WAKE_UPS, woken, f"{woken:.1f} per s"),
            (IDLE_CPU, spent, f"{spent:.2f} ms per s"),
            (IDLE_MEMORY, memory, f"{memory:.1f} MiB"),
        ):
            result.add(label, shown, "", "")
            result.keep(label, figure=figure)
        for label, payload in ((SETTLED_SMALL, "done"), (SETTLED_LARGE, PAYLOAD)):
            with processes.bascule(os.path.join(directory, f"s{len(payload)}"), durability="relaxed", **code) as server:
                each = uvloop.run(settle_many(server, tickets // 5, payload))
            result.add(label, f"{each:.0f} B", "", "")
            result.keep(label, figure=each / 1000)
            if payload is PAYLOAD:
                # The question's and the answer's: what the two are about is not the ticket's cost.
                result.add(SETTLED_APART, f"{each - 2 * len(payload):.0f} B", "", "")
                result.keep(SETTLED_APART, figure=(each - 2 * len(payload)) / 1000)
            settings.progress()
    result.notes.append(
        f"From the start of the process to `ready`, with bytecode, on an empty store and with {tickets:,} open tickets "
        "of 1 KiB. Then the daemon without a client: how often a thread of it wakes, its CPU time, its memory; "
        "and what it grows by per ticket that was answered, in the half hour that it is kept. The payloads of question "
        "and answer are kept as long: a ticket of 1 KiB each way takes 2 KiB more for them."
    )
    return result


READY_EMPTY = "ready, empty store"
READY_FULL = "ready, many tickets"
WAKE_UPS = "wake-ups, idle"
IDLE_CPU = "CPU, idle"
IDLE_MEMORY = "memory, idle"
SETTLED_SMALL = "a settled ticket, 4 bytes each way"
SETTLED_LARGE = "a settled ticket, 1 KiB each way"
SETTLED_APART = "the same without its payloads"
