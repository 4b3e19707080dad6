"""`bascule mcp` itself: options, environment, and who this process will be."""

from __future__ import annotations

import os
import sys
import time

from bascule import places
from bascule.doors import exits
from bascule.doors.exits import DoorError
from bascule.doors.values import agent_id
from bascule.shim.identity import Identity, invented_name
from bascule.shim.link import Link
from bascule.shim.serve import Shim
from bascule.shim.starter import Starter

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any


def main(arguments: Sequence[str]) -> int:
    options = _parse(arguments) if arguments else None
    state = places.state_dir(options.state_dir if options else None)
    starts = not (options and options.no_start)
    name = (options.agent if options else None) or os.environ.get("BRIDGE_AGENT_ID")
    kind = options.type if options else None
    if sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write("bascule mcp speaks MCP on stdin and stdout: an MCP client starts it. Ctrl-D ends it.\n")
    try:
        if name:
            agent_id(name)
        timeout = os.environ.get("BRIDGE_DEFAULT_TIMEOUT_MS", "")
        shim = Shim(
            Link(state, Starter(state, enabled=starts), time.monotonic),
            lambda client: identity_for(state, client, name, kind),
            starts=starts,
            default_timeout_ms=int(timeout) if timeout.isdigit() and int(timeout) else None,
        )
        return shim.run()
    except DoorError as fault:
        sys.stderr.write(f"bascule mcp: {fault.message}\n")
        return fault.exit_code
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The client has left without closing its end first.
        return exits.OK


def identity_for(state: str, client: dict[str, Any], name: str | None, kind: str | None) -> Identity:
    said = str(client.get("name") or "")
    cwd = os.getcwd()
    metadata: dict[str, Any] = {"cwd": cwd, "pid": os.getpid()}
    if pane := os.environ.get("TMUX_PANE"):
        metadata["paneId"] = pane
    if client.get("version"):
        metadata["clientVersion"] = str(client["version"])[:64]
    return Identity(state, name or invented_name(said, cwd), kind or said, metadata)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    import argparse  # noqa: PLC0415 - 9 ms that a client which gives no options does not pay

    parser = argparse.ArgumentParser(
        prog="bascule mcp",
        description="Serve MCP on stdin and stdout, as one agent of this machine.",
        epilog=(
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
    parser.add_argument("--state-dir", metavar="DIR", help="where the daemon keeps its sockets")
    parser.add_argument("--no-start", action="store_true", help="do not start the daemon when none runs")
    return parser.parse_args(arguments)
