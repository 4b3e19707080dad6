"""The two ways in which a client's hook reaches the daemon: a program, and the hidden tool of the session's server."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

from native_scene import BRIDGE_NATIVE
from patience import PATIENCE

BASCULE = str(Path(sys.executable).parent / "bascule")
_calls = itertools.count(1)


class Verdict:
    """What the client is told: None as long as it decides by itself."""

    def __init__(self, decision=None, reason=""):
        self.decision = decision
        self.reason = reason

    @classmethod
    def of(cls, output):
        found = output.get("hookSpecificOutput", {})
        if output.get("decision") == "deny":
            return cls("deny", output["reason"])
        if "decision" in found:
            return cls(found["decision"]["behavior"], found["decision"].get("message", ""))
        return cls(found.get("permissionDecision"), found.get("permissionDecisionReason", ""))

    def __repr__(self):
        return f"{self.decision}: {self.reason}"


def run_hook(raw, *options, client="claude", state, cwd=None):
    return subprocess.run(
        [BRIDGE_NATIVE, "--client", client, "--state-dir", str(state), *options],
        input=raw, capture_output=True, timeout=PATIENCE, check=False, cwd=cwd,
    )  # fmt: skip


class Program:
    def __init__(self, daemon, cwd):
        self.daemon = daemon
        self.cwd = str(cwd)

    def raw(self, raw, *options, client="claude"):
        done = run_hook(raw, *options, client=client, state=self.daemon.state_dir, cwd=self.cwd)
        if done.returncode == 2:
            return Verdict("deny", done.stderr.decode())
        assert done.returncode == 0, done
        return Verdict.of(json.loads(done.stdout)) if done.stdout else Verdict()

    def call(self, tool, given, *, client="claude", event=None):
        """`given`: the JSON text of the tool's arguments, as the client writes it."""
        event = event or ("BeforeTool" if client == "gemini" else "PreToolUse")
        text = json.dumps(
            {"session_id": "s", "cwd": self.cwd, "hook_event_name": event, "tool_use_id": f"p{next(_calls)}"}
        )
        return self.raw(f'{text[:-1]},"tool_name":"{tool}","tool_input":{given}}}'.encode(), client=client)

    def close(self):
        pass


class HiddenTool:
    """`bascule mcp`, as a session of the client has it."""

    def __init__(self, daemon, cwd):
        self.cwd = str(cwd)
        self._numbers = itertools.count(1)
        self._process = subprocess.Popen(
            [BASCULE, "mcp", "--agent", "Hooked", "--state-dir", daemon.state_dir],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd,
            env={name: value for name, value in os.environ.items() if not name.startswith("BRIDGE_")},
        )  # fmt: skip
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "m", "version": "1"}}
        self._ask("initialize", json.dumps(about))

    def _ask(self, method, params):
        number = next(self._numbers)
        # Claude Code writes the id behind the params.
        line = f'{{"method":"{method}","params":{params},"jsonrpc":"2.0","id":{number}}}\n'
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()
        while (answer := json.loads(self._process.stdout.readline())).get("id") != number:
            assert answer.get("id") is not None or "error" not in answer, answer
        return answer

    def call(self, tool, given, *, client="claude", event="PreToolUse", field=None):
        """`field`: the name of another argument and its JSON text."""
        arguments = {"client": client, "event": event, "session": "s", "cwd": self.cwd, "tool": tool}
        arguments |= {"id": f"h{next(_calls)}"}
        more = f',"{field[0]}":{field[1]}' if field else ""
        text = json.dumps({name: value for name, value in arguments.items() if not field or name != field[0]})
        # Claude Code fills the arguments in as text, Codex as the object that they are.
        filled = json.dumps(given) if client == "claude" else given
        answer = self._ask("tools/call", f'{{"name":"native_hook","arguments":{text[:-1]}{more},"input":{filled}}}}}')
        result = answer["result"]
        assert not result.get("isError"), result
        return Verdict.of(result["structuredContent"])

    def tool(self, name, **arguments):
        """One that its model sees."""
        return self._ask("tools/call", json.dumps({"name": name, "arguments": arguments}))["result"]

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(PATIENCE)
