"""What our hooks cost a call of a client's own shell, beside no hook: `make bench-clients`.

Two homes per client, one without anything of ours and one after `bascule on`; turns alternate between them, so that
whatever else the machine does falls on both. A call is timed by the scripted model: from its answer (run `true`) to the
request with the result. The decision alone is timed through `bascule mcp`, as Claude Code calls it.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(CHECKOUT / "tests"))

from client_program import BASCULE, DONE, Client  # noqa: E402 - tests are not a package
from scripted_model import ScriptedModel, call  # noqa: E402 - the same

from daemon_process import DaemonProcess  # noqa: E402 - the same

OPTIONS = {
    "claude": ["--allowedTools", "Bash"],
    "codex": ["--dangerously-bypass-approvals-and-sandbox"],
    "gemini": ["--yolo"],
}
CALLS = 12
DECISIONS = 300


class Timed:
    """A model that runs `true` so often, and notes how long each call took."""

    def __init__(self, client, model):
        self.client, self.model = client, model
        self.times = []
        self._left, self._since = 0, None

    def turn(self, calls):
        self._left, self._since = calls, None
        self.model.script = self
        self.client.run("please run")

    def __call__(self, _prompt):
        now = time.perf_counter()
        if self._since is not None:
            self.times.append((now - self._since) * 1000)
        if self._left == 0:
            return DONE
        self._left -= 1
        # Gemini CLI stops a model that repeats itself.
        command = f"true {len(self.times)}"
        self._since = time.perf_counter()
        if self.client.name == "codex":
            return call("exec_command", cmd=command)
        tool = "run_shell_command" if self.client.name == "gemini" else "Bash"
        return call(tool, command=command, description="x")


def measure(name, model, daemon, rounds):
    sides = {}
    for side in ("no hook", "hook"):
        client = Client(name, daemon, model).configure()
        client.options = OPTIONS[name]
        if side == "hook":
            client.switch_on()
        sides[side] = Timed(client, model)
        sides[side].turn(2)
        sides[side].times.clear()
    for number in range(rounds):
        order = list(sides.values())
        for each in order if number % 2 else reversed(order):
            each.turn(CALLS)
    for each in sides.values():
        each.client.remove()
    return {side: each.times for side, each in sides.items()}


def decisions(daemon, project):
    """Milliseconds from a call of the hidden tool to its answer, and of a ping of the same server."""
    process = subprocess.Popen(
        [BASCULE, "mcp", "--agent", "Measured", "--state-dir", daemon.state_dir],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    numbers = itertools.count(1)

    def ask(method, params):
        number = next(numbers)
        began = time.perf_counter()
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
        process.stdin.flush()
        while json.loads(process.stdout.readline()).get("id") != number:
            pass
        return (time.perf_counter() - began) * 1000

    ask(
        "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "m", "version": "1"}}
    )
    programs = (process.pid, daemon.pid)
    used = sum(map(cpu_ms, programs))
    found = {"ping": [], "a command that only looks": [], "a command that may write": []}
    commands = {"a command that only looks": "ls -l", "a command that may write": "touch built"}
    for number in range(DECISIONS):
        found["ping"].append(ask("ping", {}))
        for what, command in commands.items():
            given = {"client": "claude", "session": "s", "cwd": str(project), "tool": "Bash"}
            given |= {"input": json.dumps({"command": command}), "id": f"{what}{number}"}
            arguments = {"name": "native_hook", "arguments": given | {"event": "PreToolUse"}}
            found[what].append(ask("tools/call", arguments))
            ask("tools/call", {"name": "native_hook", "arguments": given | {"event": "PostToolUse"}})
    used = sum(map(cpu_ms, programs)) - used
    process.stdin.close()
    process.wait()
    # Of another job this takes nothing: before and after of two commands each.
    say(f"CPU of the daemon and `bascule mcp` together: {used / DECISIONS / 4:.1f} ms for each hook")
    return found


def cpu_ms(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def say(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def show(what, times):
    ordered = sorted(times)
    p95 = ordered[int(len(ordered) * 0.95)]
    say(f"{what:45} p50 {statistics.median(ordered):7.1f} ms   p95 {p95:7.1f} ms   {len(ordered)} calls")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clients", nargs="*", default=list(OPTIONS))
    parser.add_argument("--rounds", type=int, default=5, help="turns on each side; 0: the decision alone")
    chosen = parser.parse_args()
    model = ScriptedModel(lambda _: DONE)
    daemon = DaemonProcess(None)
    try:
        say(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        project = Path(daemon.state_dir) / "project"
        project.mkdir()
        for what, times in decisions(daemon, project).items():
            show(f"decision, {what}", times)
        for name in chosen.clients if chosen.rounds else ():
            for side, times in measure(name, model, daemon, chosen.rounds).items():
                show(f"{name}, {side}", times)
        say(f"load {os.getloadavg()[0]:.1f}")
    finally:
        daemon.remove()
        model.close()


if __name__ == "__main__":
    main()
