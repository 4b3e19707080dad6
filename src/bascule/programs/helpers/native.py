"""bridge-native: a hook of a client's own tools. The client's JSON in, the daemon's answer out, and never in the way.

Whatever goes wrong, it says nothing and exits 0, so that the client goes on; with `--closed` it refuses the call
instead, because its user chose so. `argparse` is not loaded: this runs before every call of a tool.
"""

from __future__ import annotations

import os
import sys
import time

from bascule.foundation import paths
from bascule.local_client import exits
from bascule.local_client.choice import own_door
from bascule.local_client.exits import DoorError, Refusal
from bascule.local_client.http import Door, call
from bascule.local_client.values import encode
from bascule.programs.helpers import process_tree
from bascule.programs.helpers.hook import read_input

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

CLIENTS = ("claude", "codex", "gemini")
# A destructive call waits for its checkpoint, which in the largest project takes half a minute.
ANSWER_SECONDS = 60.0
BLOCK = 2
_SHORTEST_HOLD_SECONDS = 0.5
_PATHS = {
    "PreToolUse": "/v1/native/before",
    "BeforeTool": "/v1/native/before",
    "PostToolUse": "/v1/native/after",
    "PostToolUseFailure": "/v1/native/after",
    "AfterTool": "/v1/native/after",
}
_BEFORE = "/v1/native/before"
_NOTE = "/v1/sessions/note"
_QUESTION = "/v1/native/question"
_USAGE = """\
usage: bridge-native --client claude|codex|gemini [--closed] [--state-dir DIR]

A client runs this as a hook (`bascule on`): it reads the client's JSON and prints what the client is to do.
  --closed    refuse calls of tools while the daemon cannot be asked; without it they go on
"""


def main(arguments: Sequence[str]) -> int:
    options = _options(list(arguments))
    if options is None:
        asked = "--help" in arguments
        (sys.stdout if asked else sys.stderr).write(_USAGE)
        return exits.OK if asked else exits.USAGE
    client, state, closed = options
    event = read_input()
    if event.get("hook_event_name") == "ConfigChange":
        event = _guarded(event, state)
    path = _PATHS.get(str(event.get("hook_event_name")), _NOTE)
    try:
        body = _body(client, event, closed=closed)
        answer = call(own_door(state), "POST", path, body, seconds=ANSWER_SECONDS, unless_stopped=True)
    except Refusal as fault:
        return _refused(fault, path, closed=closed)
    except (DoorError, OSError) as fault:
        return _closed(f"the daemon cannot be asked ({fault})") if closed and path == _BEFORE else exits.OK
    if not isinstance(answer, dict):
        return exits.OK
    output = answer.get("output")
    if question := answer.get("question"):
        wait_ms = answer.get("waitMs")
        if wait_ms is not None:
            output = _dialog(own_door(state), question, wait_ms / 1000)
        elif _agreed(own_door(state), question):
            return exits.OK
    if output:
        sys.stdout.buffer.write(encode(output) + b"\n")
    return exits.OK


def _guarded(event: dict[str, Any], state: str) -> dict[str, Any]:
    from bascule.programs.helpers.guard import switched_off  # noqa: PLC0415 - only when settings change

    reason = switched_off(event, state)
    return {**event, "switched_off": reason} if reason else event


def _agreed(door: Door, question: Any) -> bool:
    """Whether a person says yes while the client waits. If they say it later, the same call is let through then."""
    try:
        call(door, "POST", _QUESTION, question, seconds=ANSWER_SECONDS, unless_stopped=True)
    except (DoorError, OSError):
        return False
    return True


def _dialog(door: Door, question: Any, seconds: float) -> Any:
    """What a person says at the desk while the client's own dialog is open; nothing if they say it there."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        began = time.monotonic()
        try:
            return call(door, "POST", _QUESTION, question, seconds=left, unless_stopped=True).get("output")
        except Refusal as fault:
            if fault.code == "policy_denied":
                decision = {"behavior": "deny", "message": fault.message}
                return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}
            # A daemon that holds no call is not asked over and over.
            if fault.code != "approval_required" or time.monotonic() - began < _SHORTEST_HOLD_SECONDS:
                return None
        except (DoorError, OSError):
            return None
    return None


def _refused(fault: Refusal, path: str, *, closed: bool) -> int:
    if path != _BEFORE:
        return exits.OK
    if fault.code == "stopped":
        # A person has stopped everything: that holds for agents' own tools as well, whatever their mode is.
        return _closed(fault.message)
    return _closed(fault.message) if closed else exits.OK


def _closed(reason: str) -> int:
    """All three clients take exit code 2 for a refusal, and stderr for its reason."""
    sys.stderr.write(f"Bascule refuses this call: {reason}\n")
    return BLOCK


def _body(client: str, event: dict[str, Any], *, closed: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"client": client, "event": event, **({"closed": True} if closed else {})}
    named = os.environ.get("CLAUDE_PID", "")
    pid = int(named) if named.isdigit() else process_tree.client_of(os.getpid(), process_tree.Processes())
    if pid:
        body["pid"] = pid
    if pane := os.environ.get("TMUX_PANE"):
        body["pane"] = pane[:64]
    return body


def build_parser() -> argparse.ArgumentParser:
    """For completions; the program itself reads its few options without argparse."""
    from bascule.programs.helpers import program  # noqa: PLC0415 - costs more than the rest of this program

    parser = program.parser("bridge-native", "A hook of a client's own tools.", "  bridge-native --client claude\n")
    parser.add_argument("--client", choices=CLIENTS, help="whose JSON is read")
    parser.add_argument("--closed", action="store_true", help="refuse calls while the daemon cannot be asked")
    return parser


def _options(arguments: list[str]) -> tuple[str, str, bool] | None:
    client, state, closed = None, None, False
    while arguments:
        word = arguments.pop(0)
        if word == "--client" and arguments:
            client = arguments.pop(0)
        elif word == "--state-dir" and arguments:
            state = arguments.pop(0)
        elif word == "--closed":
            closed = True
        else:
            return None
    return (client, paths.state_dir(state), closed) if client in CLIENTS else None
