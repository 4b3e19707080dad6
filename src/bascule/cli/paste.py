"""The lines to paste into agents' MCP configuration."""

import os
import shutil
import sys

from bascule.foundation import paths

# Codex gives an MCP server a handful of variables; these must be named to get through.
PASSED_VARIABLES = [
    "BRIDGE_AGENT_ID",
    "BRIDGE_WRAPPED",
    "BRIDGE_AGENT_TOKEN",
    "BRIDGE_BROKER_URL",
    "BRIDGE_BROKER_CA",
    "BASCULE_STATE_DIR",
]


def command() -> str:
    """The `bascule` of this installation, absolute: agents' clients have a PATH of their own."""
    beside = os.path.join(os.path.dirname(sys.executable), "bascule")
    return beside if os.path.exists(beside) else shutil.which("bascule") or "bascule"


def lines(state: str) -> str:
    bascule = command()
    words = ["mcp"] if state == paths.default_state_dir() else ["mcp", "--state-dir", state]
    arguments = ", ".join(f'"{word}"' for word in words)
    passed = ", ".join(f'"{name}"' for name in PASSED_VARIABLES)
    return "\n".join(
        [
            "Claude Code:  run this once (or put the same into .mcp.json)",
            f"  claude mcp add --scope user agent-bridge -- {bascule} {' '.join(words)}",
            "Codex:        ~/.codex/config.toml",
            "  [mcp_servers.agent-bridge]",
            f'  command = "{bascule}"',
            f"  args = [{arguments}]",
            f"  env_vars = [{passed}]",
            "Gemini CLI:   ~/.gemini/settings.json",
            f'  {{"mcpServers": {{"agent-bridge": {{"command": "{bascule}", "args": [{arguments}]}}}}}}',
        ]
    )
