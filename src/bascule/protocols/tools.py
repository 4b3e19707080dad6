"""What a model reads before it decides: one row per MCP tool, for every surface that lists them.

`tools/gen_tools.py` writes the rows to `shim/tools.json`, which `bascule mcp` and `/mcp` both list. Every word here
is paid for in every session of every agent: schemas name what a caller needs and leave the finer checks to the daemon.
"""

from typing import Any

from bascule.protocols import agent_tools, desktop_tools, game_tools, workspace_tools
from bascule.protocols.tool import Tool

# In the order they are listed. An agent sees only the sets it was started with.
TOOLSETS = ("agents", "workspace", "desktop", "games")

# A bridge adds its rows here, and every surface lists them.
TOOLS: tuple[Tool, ...] = (*agent_tools.TOOLS, *workspace_tools.TOOLS, *desktop_tools.TOOLS, *game_tools.TOOLS)


def table() -> dict[str, Any]:
    """What `shim/tools.json` holds."""
    return {
        "toolsets": {name: [tool.name for tool in TOOLS if tool.toolset == name] for name in TOOLSETS},
        "methods": {tool.name: tool.method for tool in TOOLS if tool.method},
        "tools": [tool.listed() for tool in TOOLS],
    }
