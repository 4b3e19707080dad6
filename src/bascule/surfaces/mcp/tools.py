"""All tools, bridge by bridge, and the list that `bascule mcp` is shipped with.

`tools/gen_tools.py` writes the list to `programs/mcp_stdio/tools.json`, so that the stdio program can show it before a
daemon runs.
"""

from collections.abc import Collection, Iterable
from typing import Any

from bascule.bridge_list import BRIDGES
from bascule.kernel.declared import Declared
from bascule.kernel.tool import Tool
from bascule.programs.mcp_stdio.tools import TOOLSETS
from bascule.surfaces.mcp.recent import RESOURCES


def tools_of(bridges: Iterable[Declared] = BRIDGES) -> tuple[Tool, ...]:
    return tuple(tool for bridge in bridges for tool in bridge.tools())


def shown(tools: Iterable[Tool], toolsets: Collection[str], hidden: Collection[str] = ()) -> dict[str, Tool]:
    """The tools of some sets by name."""
    return {tool.name: tool for tool in tools if tool.toolset in toolsets and tool.name not in hidden}


def shipped() -> dict[str, Any]:
    """What `programs/mcp_stdio/tools.json` holds, in the order of the toolsets."""
    tools = [tool for name in TOOLSETS for tool in tools_of() if tool.toolset == name]
    return {
        "toolsets": {name: [tool.name for tool in tools if tool.toolset == name] for name in TOOLSETS},
        "retry": {tool.name: tool.retry.value for tool in tools},
        "tools": [tool.listed() for tool in tools],
        "resources": RESOURCES,
    }
