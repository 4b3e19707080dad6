"""bridge-register: announce a handle, or come back to it."""

from __future__ import annotations

import os

from bascule.foundation import paths
from bascule.local_client import choice, exits
from bascule.local_client.exits import Refusal, WrongUsage
from bascule.local_client.http import Door, call
from bascule.local_client.retry import retrying
from bascule.local_client.values import agent_id, decode_argument
from bascule.programs.helpers import program, terminal

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

EXAMPLES = """\
  bridge-register --agent Jerry --type codex --pane %0
  bridge-register --agent Jerry --capability review --capability tests
  bridge-register --agent Jerry --group reviewers
  BRIDGE_AGENT_ID=Jerry bridge-register --json

Run it again at any time: with the handle's own token, which is kept in the state
directory, it is a reconnect and the inbox stays. Then: bridge-recv --agent Jerry
"""


def main(arguments: Sequence[str]) -> int:
    options = build_parser().parse_args(arguments)
    state = paths.state_dir(options.state_dir)
    handle = agent_id(options.agent) if options.agent else choice.environment_handle()
    if handle is None:
        raise WrongUsage("which agent? Pass --agent NAME or set BRIDGE_AGENT_ID")
    body: dict[str, Any] = {"agentId": handle, "metadata": _metadata(options)}
    if options.type:
        body["type"] = options.type
    if options.group:
        body["groups"] = [agent_id(each) for each in options.group]
    if options.heartbeat_ms:
        body["heartbeatIntervalMs"] = options.heartbeat_ms
    door = choice.find_door(state)
    result = retrying(lambda: _register(door, handle, body))
    token = result.pop("agentToken", None)
    kept = choice.stored_token(door, handle)
    if options.json:
        terminal.show_json({**result, "tokenFile": paths.token_file(state, handle)} if kept else result)
    else:
        how = "reconnected" if result.get("reconnected") else "registered"
        if door.state is None and "unread" not in result:
            # A broker with no inbox to receive from.
            terminal.show(f"{how} {handle} at {door.where}")
        else:
            unread = result.get("unread", 0)
            terminal.show(f"{how} {handle}, {unread} unread; receive with: bridge-recv --agent {handle}")
    if token and token != kept:
        terminal.say(
            "the daemon keeps its tokens in another state directory; "
            f"to act as {handle} here: export BRIDGE_AGENT_TOKEN={token}"
        )
    return exits.OK


def _register(door: Door, handle: str, body: dict[str, Any]) -> dict[str, Any]:
    # Read at every attempt: if an answer was lost, the daemon has written the token meanwhile.
    token = choice.stored_token(door, handle) or choice.environment_token()
    try:
        answer = call(door, "POST", "/agents/register", body, token=token)
    except Refusal as fault:
        # The token is of an older life of the handle; without it the daemon says whether the handle is free.
        if token is None or fault.status != 401:
            raise
        answer = call(door, "POST", "/agents/register", body)
    return dict(answer)


def _metadata(options: argparse.Namespace) -> dict[str, Any]:
    out: dict[str, Any] = {"cwd": os.getcwd()}
    if pane := os.environ.get("TMUX_PANE"):
        out["paneId"] = pane
    if options.metadata:
        given = decode_argument(options.metadata, "--metadata")
        if not isinstance(given, dict):
            raise WrongUsage('--metadata is not a JSON object like {"team":"blue"}')
        out.update(given)
    given_flags = {
        "paneId": options.pane,
        "session": options.session,
        "cwd": options.cwd,
        "capabilities": options.capability,
    }
    out.update({key: value for key, value in given_flags.items() if value})
    return out


def build_parser() -> argparse.ArgumentParser:
    parser = program.parser("bridge-register", "Announce an agent to Bascule, or come back to its handle.", EXAMPLES)
    parser.add_argument("--agent", metavar="NAME", help="the handle (default: BRIDGE_AGENT_ID)")
    parser.add_argument("--type", metavar="TYPE", help="what kind of agent: codex, claude-code, ...")
    parser.add_argument("--pane", metavar="ID", help="its tmux pane (default: TMUX_PANE)")
    parser.add_argument("--session", metavar="NAME", help="its tmux session")
    parser.add_argument("--cwd", metavar="DIR", help="where it works (default: here)")
    parser.add_argument("--capability", metavar="WORD", action="append", help="what it can do; may be repeated")
    parser.add_argument("--group", metavar="NAME", action="append", help="share this group's queue; may be repeated")
    parser.add_argument("--metadata", metavar="JSON", help="further metadata, a JSON object")
    parser.add_argument("--heartbeat-ms", metavar="N", type=program.milliseconds, help="promise a heartbeat this often")
    parser.add_argument("--json", action="store_true", help="answer in JSON")
    return parser
