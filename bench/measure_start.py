"""How long a person or an agent waits for a small program: from its start to its end, or to its first answer."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import processes
from processes import HERE, PROGRAMS
from report import Section, Settings, middle, millis

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
