"""Codex starts its MCP servers from a background process that it shares between sessions.

That process has the environment of the session that started it, so the `bascule mcp` of a wrapped Codex would be
another agent than its wrapper. `--no-daemon` makes the session start them itself; the variables that say who it is
must be named in Codex's settings to get through.
"""

import os
import subprocess
import tomllib
from collections.abc import Mapping, Sequence

# As `bascule setup codex` names it; the broker spec (10) does too.
SERVER = "agent-bridge"
ALONE = "--no-daemon"
# The program that answers `--help` in 0.1 s; one that takes longer is started without being asked.
HELP_SECONDS = 5.0
_NAMED = {"BRIDGE_AGENT_ID", "BRIDGE_WRAPPED"}


def alone(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The command, with what makes a Codex that shares its servers start its own."""
    chosen = any(word == ALONE or word.startswith("--remote") for word in command)
    if chosen or ALONE not in _help(command[0], environment):
        return list(command)
    return [command[0], ALONE, *command[1:]]


def passes_identity(environment: Mapping[str, str]) -> bool:
    """Whether Codex's settings let its `bascule mcp` know who wraps it."""
    home = environment.get("CODEX_HOME") or os.path.join(environment.get("HOME", ""), ".codex")
    try:
        with open(os.path.join(home, "config.toml"), "rb") as file:
            servers = tomllib.load(file).get("mcp_servers")
    except (OSError, tomllib.TOMLDecodeError):
        return False
    server = servers.get(SERVER) if isinstance(servers, dict) else None
    named = server.get("env_vars") if isinstance(server, dict) else None
    return isinstance(named, list) and _NAMED.issubset(name for name in named if isinstance(name, str))


def _help(program: str, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the program that the person named
            [program, "--help"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=HELP_SECONDS,
            check=False,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
