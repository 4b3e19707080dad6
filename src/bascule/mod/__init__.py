"""The mod SDK: make a game's functions callable by agents, over GABP.

`from bascule.mod import Mod, tool`. msgspec is its only dependency; it may import `protocols`, `wire` and
`foundation`, and works where nothing else of Bascule is installed.
"""

from bascule.mod.context import Context
from bascule.mod.endpoint import BadEndpoint, Endpoint
from bascule.mod.mod import Mod
from bascule.mod.schemas import BadTool
from bascule.mod.tools import ToolError, tool

__all__ = ["BadEndpoint", "BadTool", "Context", "Endpoint", "Mod", "ToolError", "tool"]
