"""From what a game answers, or fails to answer, to what its caller hears. Code, message and data stay the game's."""

from typing import Any, Final

from msgspec import UNSET

from bascule.errors import BasculeError, Conflict, InvalidRequest, NotFound, PeerFailed
from bascule.protocols.game_errors import ErrorCode, GameError

_BY_CODE: Final[dict[int, type[BasculeError]]] = {
    ErrorCode.INVALID_PARAMS: InvalidRequest,
    ErrorCode.TOOL_NOT_FOUND: NotFound,
    ErrorCode.RESOURCE_NOT_FOUND: NotFound,
    ErrorCode.CHANNEL_NOT_FOUND: NotFound,
    ErrorCode.METHOD_NOT_FOUND: NotFound,
    ErrorCode.TOOL_UNAVAILABLE: Conflict,
}
_HINTS: Final[dict[int, str]] = {
    ErrorCode.TOOL_NOT_FOUND: "`bascule games tools` and games_tool_names list the tools",
    ErrorCode.METHOD_NOT_FOUND: "`bascule games show` says what the game's mod offers",
    ErrorCode.INVALID_PARAMS: "details.gabp.data has the tool's inputSchema",
    ErrorCode.TOOL_UNAVAILABLE: "look into it, acknowledge the attention by its id, then call again",
}


def refusal(error: GameError) -> BasculeError:
    told: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None and error.data is not UNSET:
        told["data"] = error.data
    if error.peer_code is not None:
        told["peerCode"] = error.peer_code
    kind = _BY_CODE.get(error.code, PeerFailed)
    hint = "look at the game before calling it again" if error.executed == "unknown" else _HINTS.get(error.code)
    return kind(error.message, hint=hint, details={"executed": error.executed, "gabp": told})
