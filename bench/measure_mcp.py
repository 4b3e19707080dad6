"""Tool calls through `bascule mcp`: CPU of the program and of the daemon, and what a client waits beside the link."""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import processes
from bascule import __version__
from bascule.foundation.agreement import PROTOCOL_VERSION
from bascule.local_client.link import LinkSocket
from bascule.programs.mcp_stdio.words import DEFAULT_TRUST
from report import Section, Settings, micros, middle

CALLS = 1_000
QUICK_CALLS = 50
PAYLOAD = "x" * 1024
SDK = "the official SDK, a tool that gives back its text"


class User(Protocol):
    def use(self, tool: str, **arguments: Any) -> dict[str, Any]: ...


# The tools, each as the agent of that name uses it.
TOOLS: dict[str, Callable[[User, str], object]] = {
    "`co_workers`": lambda user, _: user.use("co_workers"),
    "`send_message`, not awaited": lambda user, name: user.use(
        "send_message", agentId=name, payload=PAYLOAD, awaitResponse=False
    ),
    "`wait_for_message`": lambda user, _: user.use("wait_for_message"),
}


class OverLink:
    """Asks the daemon what the program asks it, without the program."""

    def __init__(self, state: str, name: str) -> None:
        self._socket = LinkSocket(state)
        self._number = 0
        hello = {"protocol": PROTOCOL_VERSION, "version": __version__}
        self._ask("hello", hello)
        token = self._ask("agents.register", {"agentId": name, "type": "bench"})["agentToken"]
        self._ask("hello", {**hello, "token": token})
        self._ask("mcp.open", {"toolsets": ["agents"], "trust": DEFAULT_TRUST})

    def close(self) -> None:
        self._socket.close()

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        self._socket.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        while True:
            select.select([self._socket], [], [])
            for answer in self._socket.receive():
                if answer.get("id") == self._number:
                    result: dict[str, Any] = answer["result"]
                    return result

    def use(self, tool: str, **arguments: Any) -> dict[str, Any]:
        call = {"jsonrpc": "2.0", "id": self._number, "method": "tools/call"}
        message = {**call, "params": {"name": tool, "arguments": arguments}}
        name = f"call-{self._number}"
        answer = self._ask("mcp.request", {"call": name, "leftMs": 45_000, "again": False, "message": message})
        if answer.get("confirm"):
            self._socket.send({"jsonrpc": "2.0", "method": "mcp.done", "params": {"call": name}})
        return _structured(tool, answer["message"]["result"])


class Client:
    """Speaks JSON lines with one program."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self._number = 0

    def notify(self, method: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n")
        self.process.stdin.flush()

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
        return _structured(tool, self.ask("tools/call", name=tool, arguments=arguments))


def _structured(tool: str, result: dict[str, Any]) -> dict[str, Any]:
    if result["isError"]:
        raise RuntimeError(f"{tool}: {result['content']}")
    structured: dict[str, Any] = result["structuredContent"]
    return structured


def client(state: str, name: str) -> contextlib.AbstractContextManager[Client]:
    command = [sys.executable, "-P", "-m", "bascule.cli.start", "mcp", "--state-dir", state, "--agent", name]
    return _started([*command, "--no-start"])


@contextlib.contextmanager
def _started(command: list[str]) -> Iterator[Client]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=processes.environment()
    ) as process:
        made = Client(process)
        about = {"name": "bench", "version": "1"}
        made.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=about)
        made.notify("notifications/initialized")
        try:
            yield made
        finally:
            assert process.stdin is not None
            process.stdin.close()


def calls(settings: Settings) -> Section:
    times = QUICK_CALLS if settings.quick else CALLS
    spent: dict[str, list[tuple[float, ...]]] = {}
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        directory = enter(processes.scratch(settings.directory))
        state = os.path.join(directory, "state")
        daemon = enter(processes.bascule(state, durability="memory"))
        anna = enter(client(state, "Anna"))
        bea = enter(contextlib.closing(OverLink(state, "Bea")))
        bare = enter(_started([sys.executable, os.path.join(processes.HERE, "bare_mcp.py")]))
        for user in (anna, bea):
            user.use("co_workers")
        echoed = []
        for _ in range(3 if settings.quick else 5):
            for label, use in TOOLS.items():
                before = [processes.cpu_seconds(pid) or 0.0 for pid in (anna.process.pid, daemon.pid)]
                waits = _waits(times, use, anna, "Anna")
                after = [processes.cpu_seconds(pid) or 0.0 for pid in (anna.process.pid, daemon.pid)]
                linked = _waits(times, use, bea, "Bea")
                program, house = (end - start for start, end in zip(before, after, strict=True))
                spent.setdefault(label, []).append((program / times, house / times, waits, linked, waits - linked))
            echoed.append(_waits(times, lambda user, _: user.use("send", text=PAYLOAD), bare, ""))
            settings.progress()
    columns = ("", "program's CPU", "daemon's CPU", "together", "a client waits", "over the link", "more")
    result = Section("mcp", "Tools through `bascule mcp`", columns)
    for label, rounds in spent.items():
        program, house, waits, linked, added = (middle([each[at] * 1e6 for each in rounds]) for at in range(5))
        result.add(label, *map(micros, (program, house, program + house, waits, linked, added)))
        result.keep(label, program_us=program, daemon_us=house, client_us=waits, link_us=linked, added_us=added)
    result.add(SDK, "-", "-", "-", micros(middle(echoed) * 1e6), "-", "-")
    result.keep(SDK, client_us=middle(echoed) * 1e6)
    result.notes.append(
        f"Medians of rounds of {times} calls, one after the other; store in memory. Over the link the bench asks the "
        "daemon itself what the program asks it, in turns with the program."
    )
    return result


def _waits(times: int, use: Callable[[User, str], object], user: User, name: str) -> float:
    """The middle one of so many calls."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        use(user, name)
        taken.append(time.perf_counter() - began)
    return middle(taken)


MEASURES = {"mcp": calls}
