"""bridge-native: a hook of a client's own tools. The client's JSON in, the daemon's answer out, and never in the way.

It does not read the JSON, it passes the bytes on. Whatever goes wrong, it says nothing and exits 0, so that the client
goes on; with `--closed` it refuses the call instead, because its user chose so. `argparse` is not loaded: this runs
before every call of a tool.
"""

from __future__ import annotations

import binascii
import os
import sys

from bascule.foundation import paths
from bascule.local_client import exits
from bascule.local_client.choice import own_door
from bascule.local_client.exits import DoorError, Refusal
from bascule.local_client.hook_talk import Answer, converse, event_name
from bascule.local_client.http import Door, call
from bascule.local_client.values import encode
from bascule.programs.helpers import process_tree
from bascule.programs.helpers.hook import object_in, read_raw

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator, Sequence
    from typing import Any

    from bascule.local_client.hook_talk import Ask, End

CLIENTS = ("claude", "codex", "gemini")
BLOCK = 2
# Longer than any path that a kernel opens (PATH_MAX).
MAX_PATH_CHARS = 4_096
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
    raw = read_raw()
    name = event_name(raw)
    if name == "ConfigChange":
        raw = _guarded(raw, state)
    end = _talk(own_door(state), converse(name, _body(client, raw, closed=closed)))
    if end.refusal is not None:
        # All three clients take exit code 2 for a refusal, and stderr for its reason.
        sys.stderr.write(f"Bascule refuses this call: {end.refusal}\n")
        return BLOCK
    if end.output:
        sys.stdout.buffer.write(encode(end.output) + b"\n")
    return exits.OK


def _talk(door: Door, talk: Generator[Ask, Answer, End]) -> End:
    try:
        ask = next(talk)
        while True:
            ask = talk.send(_answer(door, ask))
    except StopIteration as stopped:
        end: End = stopped.value
        return end


def _answer(door: Door, ask: Ask) -> Answer:
    path = f"/v1/{ask.method.replace('.', '/')}"
    try:
        return Answer(call(door, "POST", path, ask.params, seconds=ask.seconds, unless_stopped=True))
    except Refusal as fault:
        return Answer(code=fault.code, message=fault.message)
    except (DoorError, OSError) as fault:
        return Answer(code="unreachable", message=f"the daemon cannot be asked ({fault})")


def _guarded(raw: bytes, state: str) -> bytes:
    from bascule.programs.helpers.guard import switched_off  # noqa: PLC0415 - only when settings change

    event = object_in(raw)
    reason = switched_off(event, state)
    return encode({**event, "switched_off": reason}) if reason else raw


def _body(client: str, raw: bytes, *, closed: bool) -> dict[str, Any]:
    text = binascii.b2a_base64(raw, newline=False).decode("ascii")
    body: dict[str, Any] = {"client": client, "raw": text, **({"closed": True} if closed else {})}
    named = os.environ.get("CLAUDE_PID", "")
    pid = int(named) if named.isdigit() else process_tree.client_of(os.getpid(), process_tree.Processes())
    if pid:
        body["pid"] = pid
    if pane := os.environ.get("TMUX_PANE"):
        body["pane"] = pane[:64]
    if here := _here():
        body["cwd"] = here
    return body


def _here() -> str:
    """A client starts its hooks in the directory of its session."""
    try:
        here = os.getcwd()
        here.encode()
    except (OSError, UnicodeEncodeError):
        return ""
    return here if len(here) <= MAX_PATH_CHARS else ""


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
