"""All tools, set by set, and the lists that `bascule mcp` is shipped with.

`tools/gen_tools.py` writes the lists to `programs/mcp_stdio/`, so that the stdio program can show them before a daemon
runs.
"""

from collections.abc import Collection, Iterable
from typing import Any

from bascule.bridge_list import BRIDGES
from bascule.kernel.declared import Declared
from bascule.kernel.tool import Tool, Toolset
from bascule.programs.mcp_stdio.tools import toolsets_in
from bascule.surfaces.mcp.prompts import NEEDS, PROMPTS
from bascule.surfaces.mcp.recent import RESOURCES


def toolsets_of(bridges: Iterable[Declared] = BRIDGES) -> tuple[Toolset, ...]:
    return tuple(each for bridge in bridges if (each := bridge.toolset()) is not None)


def hooks_of(bridges: Iterable[Declared] = BRIDGES) -> tuple[Tool, ...]:
    """What hooks of clients call, whichever sets a session has."""
    return tuple(tool for bridge in bridges for tool in bridge.hooks())


def tools_of(toolsets: Iterable[Toolset]) -> tuple[Tool, ...]:
    return tuple(tool for toolset in toolsets for tool in toolset.tools)


def chosen(toolsets: Collection[Toolset], text: str | None) -> tuple[Tool, ...]:
    """The tools of the sets that a setting names, or of those that are shown by default."""
    names = toolsets_in(text, [each.name for each in toolsets]) if text is not None else None
    return tools_of(each for each in toolsets if (each.by_default if names is None else each.name in names))


def shown(toolsets: Iterable[Toolset], names: Collection[str], hidden: Collection[str] = ()) -> dict[str, Tool]:
    """The tools of some sets by name."""
    tools = tools_of(each for each in toolsets if each.name in names)
    return {tool.name: tool for tool in tools if tool.name not in hidden}


def shipped_toolsets() -> dict[str, Any]:
    """What `toolsets.json` holds: little, because the stdio program reads it at its start."""
    return {
        each.name: {
            "sentence": each.sentence,
            "byDefault": each.by_default,
            "tools": [tool.name for tool in each.tools],
        }
        for each in toolsets_of()
    }


def shipped_tools() -> dict[str, Any]:
    """What `tools.json` holds, which is read when a client lists or calls."""
    tools = tools_of(toolsets_of())
    hooks = hooks_of()
    return {
        "retry": {tool.name: tool.retry.value for tool in (*tools, *hooks)},
        "hooks": [tool.name for tool in hooks],
        "alone": [tool.name for tool in tools if not tool.as_task],
        "tools": [tool.listed() for tool in tools],
        "resources": RESOURCES,
        "prompts": PROMPTS,
        "promptsNeed": NEEDS,
    }
