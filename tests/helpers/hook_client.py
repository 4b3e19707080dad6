"""Hooks as the clients run them: through a shell, with the JSON their references show."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from living import eventually

from patience import PATIENCE

BIN = Path(sys.executable).parent
KEPT = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")

# What Claude Code and Codex say to a hook, as their references show it.
COMMON = {
    "session_id": "00893aaf-19fa-41d2-8238-13269b9b3ca0",
    "transcript_path": "/home/user/.claude/projects/p/00893aaf.jsonl",
    "cwd": "/home/user/my-project",
    "permission_mode": "default",
}
CLAUDE = {
    "SessionStart": {"source": "startup", "model": "claude-sonnet-4-6"},
    "UserPromptSubmit": {"prompt": "Write a function"},
    "PostToolUse": {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_response": {}, "tool_use_id": "t1"},
    "Stop": {"stop_hook_active": False, "last_assistant_message": "Done.", "background_tasks": [], "session_crons": []},
}
CODEX = {
    event: {"turn_id": "turn-1", "model": "gpt-6-codex", **fields}
    for event, fields in (
        ("SessionStart", {"source": "startup"}),
        ("UserPromptSubmit", {"prompt": "hi"}),
        ("PostToolUse", CLAUDE["PostToolUse"]),
        ("Stop", {"stop_hook_active": False, "last_assistant_message": None}),
    )
}


def payload_of(kind, event, **more):
    fields = (CLAUDE if kind == "claude" else CODEX)[event]
    return json.dumps({**COMMON, "hook_event_name": event, **fields, **more})


def environment(**variables):
    return {name: os.environ[name] for name in KEPT if name in os.environ} | variables


# A client in a few lines: runs its hooks through a shell, each with its JSON, and lives as long as its stdin.
CLIENT = f"""#!{sys.executable}
import json, subprocess, sys
for line in sys.stdin:
    job = json.loads(line)
    done = subprocess.run(["/bin/sh", "-c", job["command"]], input=job["stdin"], text=True)
    sys.exit(done.returncode)
"""


def start(daemon, *words, client=None, stdin="", **variables):
    """A hook as a client starts it: through a shell, with its JSON on stdin."""
    command = " ".join([f"'{BIN}/bridge-wait'", *words, "--state-dir", f"'{daemon.state}'"])
    # `flock` stands in for the client: otherwise that would be pytest, whose own options may look like the client's.
    program = [client] if client else ["flock", "--shared", "/dev/null", "/bin/sh", "-c", command]
    process = subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**variables),
    )
    process.stdin.write(json.dumps({"command": command, "stdin": stdin}) + "\n" if client else stdin)
    process.stdin.close()
    process.stdin = None
    return process


def run(daemon, *words, **variables):
    process = start(daemon, *words, **variables)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def run_hook(daemon, kind, event, agent, *words, client=None, **more):
    words = ("--hook", kind, "--event", event, *words)
    return run(daemon, *words, client=client, stdin=payload_of(kind, event, **more), BRIDGE_AGENT_ID=agent)


def ok(daemon, *words):
    done = subprocess.run(
        [BIN / words[0], *words[1:], "--state-dir", daemon.state],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def send(daemon, to, text="secret text", **options):
    words = [word for name, value in options.items() for word in (f"--{name.rstrip('_')}", value)]
    return ok(daemon, "bridge-send", to, text, "--no-wait", *words).strip()


def delivery(daemon, ticket):
    return json.loads(ok(daemon, "bridgectl", "show", ticket, "--json"))["delivery"]


def held(daemon):
    """Waits that the daemon holds open now."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(daemon.http_socket)
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        with sock.makefile("r") as lines:
            return next(int(float(line.split()[1])) for line in lines if line.startswith("bascule_waits "))


@contextlib.contextmanager
def one_more_wait(daemon):
    """Goes on when what was started inside has reached the daemon and waits there."""
    before = held(daemon)
    yield
    eventually(lambda: held(daemon) > before, "it waits")
