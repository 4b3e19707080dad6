"""All tools, bridge by bridge, and the list that `bascule mcp` is shipped with.

`tools/gen_tools.py` writes the list to `shim/tools.json`, so that the stdio program can show it before a daemon runs.
"""

from collections.abc import Collection
from typing import Any

from bascule.bridges.broker.tools import TOOLS as AGENT_TOOLS
from bascule.bridges.desktop.tools import TOOLS as DESKTOP_TOOLS
from bascule.bridges.game.tools import TOOLS as GAME_TOOLS
from bascule.bridges.workspace.tools import TOOLS as WORKSPACE_TOOLS
from bascule.mcp.recent import RESOURCES
from bascule.protocols.tool import Tool
from bascule.shim.tools import TOOLSETS

# In the order they are listed.
TOOLS: tuple[Tool, ...] = (*AGENT_TOOLS, *WORKSPACE_TOOLS, *DESKTOP_TOOLS, *GAME_TOOLS)


def shown(toolsets: Collection[str], hidden: Collection[str] = ()) -> dict[str, Tool]:
    """The tools of some sets by name."""
    return {tool.name: tool for tool in TOOLS if tool.toolset in toolsets and tool.name not in hidden}


def shipped() -> dict[str, Any]:
    """What `shim/tools.json` holds."""
    return {
        "toolsets": {name: [tool.name for tool in TOOLS if tool.toolset == name] for name in TOOLSETS},
        "retry": {tool.name: tool.retry.value for tool in TOOLS},
        "tools": [tool.listed() for tool in TOOLS],
        "resources": RESOURCES,
    }
