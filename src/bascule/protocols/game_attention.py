"""Which calls an open, blocking attention holds back: all that act, none that only look."""

import re
from typing import Any, Final

from bascule.protocols import game
from bascule.protocols.game_errors import ErrorCode, GameError
from bascule.wire.codec import decode
from bascule.wire.gabp import to_json

# GABS lets calls with these through; its users tag their tools so.
BYPASS_TAGS: Final = frozenset(
    {
        "attention-bypass",
        "diagnostic",
        "diagnostics",
        "health",
        "lifecycle",
        "observation",
        "read-only",
        "status",
        "telemetry",
    }
)
# And tools with one of these as a word of their name.
BYPASS_WORDS: Final = frozenset(
    {
        "attention",
        "diagnostic",
        "diagnostics",
        "health",
        "idle",
        "journal",
        "log",
        "logs",
        "operation",
        "operations",
        "ping",
        "ready",
        "status",
        "telemetry",
    }
)
_WORD_ENDS: Final = re.compile(r"[/_.-]+")


def passes(name: str, tags: object) -> bool:
    """Whether a tool may be called while attention blocks."""
    if isinstance(tags, list) and not BYPASS_TAGS.isdisjoint(tags):
        return True
    return not BYPASS_WORDS.isdisjoint(_WORD_ENDS.split(name))


def blocked(what: str, attention: game.Attention) -> GameError:
    """The answer to a call that is held back: nothing was executed, and how to go on."""
    data: dict[str, Any] = {
        "executed": False,
        "status": "blocked_by_attention",
        "attention": decode(to_json(attention)),
    }
    return GameError(
        ErrorCode.TOOL_UNAVAILABLE,
        f"{what} was not executed: the game wants attention ({attention.summary}); "
        f"look into it, then acknowledge {attention.attention_id}",
        data,
    )
