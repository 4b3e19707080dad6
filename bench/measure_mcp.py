"""Tool calls through `bascule mcp`: CPU of the program and of the daemon, and what a client waits."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import processes
from report import Section, Settings, micros, middle

CALLS = 1_000
QUICK_CALLS = 50
PAYLOAD = "x" * 1024


class Client:
    """Speaks JSON lines with one program."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self._number = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._number += 1
        line = json.dumps({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == self._number:
                result: dict[str, Any] = answer["result"]
                return result

    def use(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.ask("tools/call", name=tool, arguments=arguments)
        if result["isError"]:
            raise RuntimeError(f"{tool}: {result['content']}")
        structured: dict[str, Any] = result["structuredContent"]
        return structured


@contextlib.contextmanager
def client(state: str, name: str) -> Iterator[Client]:
    command = [sys.executable, "-P", "-m", "bascule.cli.start", "mcp", "--state-dir", state, "--agent", name]
    with subprocess.Popen(
        [*command, "--no-start"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=processes.environment()
    ) as process:
        made = Client(process)
        about = {"name": "bench", "version": "1"}
        made.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=about)
        try:
            yield made
        finally:
            assert process.stdin is not None
            process.stdin.close()


def calls(settings: Settings) -> Section:
    times = QUICK_CALLS if settings.quick else CALLS
    spent: dict[str, list[tuple[float, float, float]]] = {}
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        directory = enter(processes.scratch(settings.directory))
        state = os.path.join(directory, "state")
        daemon = enter(processes.bascule(state, durability="memory"))
        anna = enter(client(state, "Anna"))
        anna.use("co_workers")
        kinds = {
            "`co_workers`": lambda: anna.use("co_workers"),
            "`send_message`, not awaited": lambda: anna.use(
                "send_message", agentId="Anna", payload=PAYLOAD, awaitResponse=False
            ),
            "`wait_for_message`": lambda: anna.use("wait_for_message"),
        }
        for _ in range(3 if settings.quick else 5):
            for label, kind in kinds.items():
                before = [processes.cpu_seconds(pid) or 0.0 for pid in (anna.process.pid, daemon.pid)]
                began = time.perf_counter()
                for _ in range(times):
                    kind()
                took = time.perf_counter() - began
                after = [processes.cpu_seconds(pid) or 0.0 for pid in (anna.process.pid, daemon.pid)]
                program, house = (end - start for start, end in zip(before, after, strict=True))
                spent.setdefault(label, []).append((program / times, house / times, took / times))
            settings.progress()
    result = Section(
        "mcp", "Tools through `bascule mcp`", ("", "program's CPU", "daemon's CPU", "together", "a client waits")
    )
    for label, rounds in spent.items():
        program, house, waits = (middle([each[place] * 1e6 for each in rounds]) for place in range(3))
        result.add(label, micros(program), micros(house), micros(program + house), micros(waits))
        result.keep(label, program_us=program, daemon_us=house, client_us=waits)
    result.notes.append(f"Medians of rounds of {times} calls, one after the other; store in memory.")
    return result


MEASURES = {"mcp": calls}
