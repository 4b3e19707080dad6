"""`bascule mcp` itself: options, environment, and who this process will be."""

from __future__ import annotations

import os
import sys
import time

from bascule.foundation import paths
from bascule.local_client import exits
from bascule.local_client.choice import find_door
from bascule.local_client.exits import DoorError
from bascule.local_client.link import LinkSocket
from bascule.local_client.turns import note_turn
from bascule.local_client.values import agent_id
from bascule.programs.mcp_stdio import tools, words
from bascule.programs.mcp_stdio.identity import Identity, invented_name
from bascule.programs.mcp_stdio.link import Link
from bascule.programs.mcp_stdio.serve import Program
from bascule.programs.mcp_stdio.starter import Starter

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

    from bascule.local_client.http import Door
    from bascule.programs.mcp_stdio.serve import Fallback, Way


def main(arguments: Sequence[str]) -> int:
    if sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write("bascule mcp speaks MCP on stdin and stdout: an MCP client starts it. Ctrl-D ends it.\n")
    try:
        return _program(arguments).run()
    except DoorError as fault:
        sys.stderr.write(f"bascule mcp: {fault.message}\n")
        return fault.exit_code
    except paths.UnsafePlace as fault:
        sys.stderr.write(f"bascule mcp: {fault}\n")
        return exits.UNEXPECTED
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The client has left without closing its end first.
        return exits.OK


def _program(arguments: Sequence[str]) -> Program:
    options = _parse(arguments) if arguments else None
    state = paths.state_dir(options.state_dir if options else None)
    environment = os.environ.get
    name = (options.agent if options else None) or environment("BRIDGE_AGENT_ID")
    if name:
        agent_id(name)
    kind = options.type if options else None
    toolsets = (options.toolset if options else None) or environment("BRIDGE_TOOLSETS")
    trust = (options.trust_label if options else None) or environment("BRIDGE_TRUST_LABEL")
    timeout = environment("BRIDGE_DEFAULT_TIMEOUT_MS", "")
    door = find_door(state)
    # A user who names another broker means that one: our daemon must not be started beside it.
    starts = not (options and options.no_start) and door.state is not None
    shown = tools.toolsets_in(toolsets) if toolsets else tools.by_default()
    hidden = ("register_agent",) if options and options.no_rename else ()
    # The params of `mcp.open`.
    session: dict[str, Any] = {
        "toolsets": shown,
        "hidden": hidden,
        "trust": words.trust_label(trust) if trust else words.DEFAULT_TRUST,
        "directory": os.getcwd(),
    }
    if timeout.isdigit() and int(timeout):
        session["defaultTimeoutMs"] = int(timeout)
    return Program(
        _way(state, door, Starter(state, enabled=starts), session),
        lambda client: identity_for(door, client, name, kind),
        starts=starts,
        toolsets=shown,
        hidden=hidden,
        fallback=_fallback(options),
        on_hook=(lambda event: note_turn(state, event)) if os.environ.get("BRIDGE_WRAPPED") else None,
    )


def _fallback(options: argparse.Namespace | None) -> Fallback | None:
    """(9) "optionally fall back to tmux path, but report reduced functionality": only who says so gets it."""
    if not (options and options.tmux_fallback) and os.environ.get("BRIDGE_TMUX_FALLBACK") != "1":
        return None
    from bascule.programs.mcp_stdio.tmux_fallback import answer  # noqa: PLC0415 - only who says so pays for it

    return answer


def _way(state: str, door: Door, starter: Starter, session: dict[str, Any]) -> Way:
    if door.state is not None:
        return Link(lambda: LinkSocket(state), paths.link_socket(state), starter, time.monotonic, session)
    from bascule.programs.mcp_stdio.foreign import Foreign  # noqa: PLC0415 - threads, that only this way pays for

    return Foreign(door, state, session)


def identity_for(door: Door, client: dict[str, Any], name: str | None, kind: str | None) -> Identity:
    client_name = str(client.get("name") or "")
    cwd = os.getcwd()
    metadata: dict[str, Any] = {"cwd": cwd, "pid": os.getpid()}
    if pane := os.environ.get("TMUX_PANE"):
        metadata["paneId"] = pane
    if client.get("version"):
        metadata["clientVersion"] = str(client["version"])[:64]
    shared = os.environ.get("BRIDGE_WRAPPED")
    return Identity(door, name or invented_name(client_name, cwd), kind or client_name, metadata, shared=shared)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    import argparse  # noqa: PLC0415 - 9 ms that a client which gives no options does not pay

    parser = argparse.ArgumentParser(
        prog="bascule mcp",
        description="Serve MCP on stdin and stdout, as one agent of this machine.",
        epilog=(
            f"toolsets:\n{tools.described()}\n\n"
            "examples:\n"
            "  claude mcp add agent-bridge -- bascule mcp\n"
            "  codex mcp add agent-bridge -- bascule mcp --agent Jerry\n"
            '  .mcp.json: {"mcpServers": {"agent-bridge": {"command": "bascule", "args": ["mcp"]}}}\n\n'
            "Without --agent the name is made from the client and the directory, e.g. claude-otter."
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--agent", metavar="NAME", help="the handle (default: BRIDGE_AGENT_ID, else made up)")
    parser.add_argument("--type", metavar="TYPE", help="what kind of agent (default: the client's name)")
    parser.add_argument(
        "--toolset",
        metavar="SETS",
        help=f"show these sets of tools: {','.join(tools.toolsets())} "
        f"(default: BRIDGE_TOOLSETS, else {','.join(tools.by_default())})",
    )
    parser.add_argument("--no-rename", action="store_true", help="hide register_agent: the handle stays as it is")
    parser.add_argument(
        "--trust-label",
        metavar="LABEL",
        help=f"how texts of other agents are introduced: {', '.join(words.TRUST_LABELS)} "
        f"(default: BRIDGE_TRUST_LABEL, else {words.DEFAULT_TRUST})",
    )
    parser.add_argument("--state-dir", metavar="DIR", help="where the daemon keeps its sockets")
    parser.add_argument(
        "--tmux-fallback",
        action="store_true",
        help="when no daemon runs, type messages into tmux panes instead (reduced; or BRIDGE_TMUX_FALLBACK=1)",
    )
    parser.add_argument("--no-start", action="store_true", help="do not start the daemon when none runs")
    return parser.parse_args(arguments)
