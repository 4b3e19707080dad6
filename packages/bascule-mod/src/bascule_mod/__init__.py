"""The mod SDK: make a game's functions callable by agents, over GABP.

`from bascule_mod import Mod, tool`. It stands on `gabp` and msgspec and imports nothing of Bascule, so it works in a
game where nothing else is installed.
"""

from bascule_mod.context import Context
from bascule_mod.endpoint import BadEndpoint, Endpoint
from bascule_mod.mod import Mod
from bascule_mod.schemas import BadTool
from bascule_mod.tools import ToolError, tool

__all__ = ["BadEndpoint", "BadTool", "Context", "Endpoint", "Mod", "ToolError", "tool"]
