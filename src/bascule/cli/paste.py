"""The lines to paste into agents' MCP configuration."""

import os
import shutil
import sys


def command() -> str:
    """The `bascule` of this installation, absolute: agents' clients have a PATH of their own."""
    beside = os.path.join(os.path.dirname(sys.executable), "bascule")
    return beside if os.path.exists(beside) else shutil.which("bascule") or "bascule"


def lines() -> str:
    bascule = command()
    return "\n".join(
        [
            "Claude Code:  run this once (or put the same into .mcp.json)",
            f"  claude mcp add --scope user agent-bridge -- {bascule} mcp",
            "Codex:        ~/.codex/config.toml",
            "  [mcp_servers.agent-bridge]",
            f'  command = "{bascule}"',
            '  args = ["mcp"]',
            "Gemini CLI:   ~/.gemini/settings.json",
            f'  {{"mcpServers": {{"agent-bridge": {{"command": "{bascule}", "args": ["mcp"]}}}}}}',
        ]
    )
