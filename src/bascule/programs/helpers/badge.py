"""`bascule badge`: one line for Claude Code's status line. What it says is true, or it says that nobody knows.

Claude Code runs it after every turn and shows what it prints; it gives the session's JSON on stdin.
"""

from __future__ import annotations

import sys

from bascule.foundation import paths
from bascule.local_client import exits
from bascule.local_client.choice import own_door
from bascule.local_client.exits import DoorError, Refusal
from bascule.local_client.http import Door, call
from bascule.programs.helpers.hook import read_input

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# The client waits for nobody; a line that comes later is not drawn.
ANSWER_SECONDS = 1.0
_USAGE = """\
usage: bascule badge [--client claude|codex|gemini] [--state-dir DIR]

A line for a client's status line: reads the session's JSON on stdin, prints what Bascule knows of that session.
"""


def main(arguments: Sequence[str]) -> int:
    words = list(arguments)
    given = {"--client": "claude", "--state-dir": ""}
    while len(words) > 1 and words[0] in given:
        given[words[0]] = words[1]
        words = words[2:]
    if words:
        sys.stdout.write(_USAGE)
        return exits.OK if words[0] in ("-h", "--help") else exits.USAGE
    about = read_input()
    session = about.get("session_id")
    sys.stdout.write(_line(given["--client"], session, paths.state_dir(given["--state-dir"] or None)) + "\n")
    return exits.OK


def _line(client: str, session: Any, state: str) -> str:
    try:
        door = own_door(state)
        waiting = call(door, "GET", "/v1/approvals", seconds=ANSWER_SECONDS)
        view = _session(door, client, session)
    except (DoorError, OSError):
        return "bascule: the daemon is down"
    parts = [_reported(view)]
    if waiting:
        parts.append(f"{len(waiting)} wait for you")
    return f"bascule: {', '.join(parts)}"


def _session(door: Door, client: str, session: Any) -> dict[str, Any] | None:
    # Every client's ids are letters, digits and dashes; what else may be in a path is not worth 8 ms of urllib.
    if not isinstance(session, str) or not session.replace("-", "").isalnum() or not session.isascii():
        return None
    try:
        view = call(door, "GET", f"/v1/sessions/{client}/{session}", seconds=ANSWER_SECONDS)
    except Refusal:
        return None
    return view if isinstance(view, dict) else None


def _reported(view: dict[str, Any] | None) -> str:
    if view is None:
        return "this session does not report"
    if view.get("notice"):
        return f"{view.get('mode', 'observe')}, hooks switched off for new sessions"
    calls, without = int(view.get("calls", 0)), int(view.get("withoutUndo", 0))
    line = f"{view.get('mode', 'observe')}, {calls} {'call' if calls == 1 else 'calls'}"
    return f"{line}, {without} without undo" if without else line
