"""Names of game tools as users of GABS write them: the game in front, and no slash or dot in them."""

import re
from typing import Any

from bascule.foundation.errors import BasculeError
from bascule.game.protocol import MAX_TOOLS_PAGE
from bascule.kernel.tool import Result, Session
from gabp.errors import ErrorCode

# What GABS does not take into the name of an MCP tool.
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


def begins_with(tool: str, game: str) -> bool:
    return _NOT_IN_A_NAME.sub("_", tool).startswith(f"{game}_")


async def call_by_any_name(me: Session, method: str, params: dict[str, Any]) -> Result:
    """A call about a tool by its own name, or by the one that GABS would have made of it."""
    try:
        return Result(await me.call(method, params))
    except BasculeError as refused:
        error = (refused.details or {}).get("gabp")
        if not isinstance(error, dict) or error.get("code") != ErrorCode.TOOL_NOT_FOUND:
            raise
        found = await _tool_called(me, params["gameId"], params["tool"])
        if found is None:
            raise
    out = Result(await me.call(method, {**params, "tool": found}))
    out["note"] = f"{params['tool']} is {found} here"
    return out


async def _tool_called(me: Session, game: str, name: str) -> str | None:
    """The one tool whose name reads like this without slashes and dots; never one that is only similar."""
    wanted = _NOT_IN_A_NAME.sub("_", name)
    found: list[str] = []
    cursor: str | None = None
    while True:
        params: dict[str, Any] = {"gameId": game, "limit": MAX_TOOLS_PAGE}
        page = await me.call("games.tools", params | ({"cursor": cursor} if cursor else {}))
        for each in page["tools"]:
            plain = _NOT_IN_A_NAME.sub("_", each["name"])
            if wanted in (plain, f"{_NOT_IN_A_NAME.sub('_', game)}_{plain}"):
                found.append(each["name"])
        cursor = page.get("nextCursor")
        if cursor is None:
            return found[0] if len(found) == 1 else None
