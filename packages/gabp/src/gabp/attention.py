"""What a mod's attention says, and which calls an open, blocking one holds back: all that act, none that only look.

What cannot be read of an attention counts as open and blocking. A mod that means something else can say so; a call that
acts on a state nobody has looked at cannot be taken back.
"""

import re
from typing import Any, Final

from gabp import messages
from gabp.codec import BadJson, Raw, decode, decoder
from gabp.envelopes import to_json
from gabp.errors import ErrorCode, GameError
from gabp.words import bounded_attention

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
# Of an attention whose own id cannot be read; acknowledging it asks the mod what is current.
UNREADABLE_ID: Final = "unreadable"
_attention: Final = decoder(messages.Attention)
_WORD_ENDS: Final = re.compile(r"[/_.-]+")


def read(payload: Raw, channel: str) -> tuple[messages.Attention, str | None]:
    """An event's payload, and what is wrong with it."""
    try:
        return bounded_attention(_attention.decode(payload)), None
    except BadJson as bad:
        problem = bad.message
    try:
        found: Any = decode(payload)
    except BadJson:
        found = None
    fields = found if isinstance(found, dict) else {}
    id_, summary = fields.get("attentionId"), fields.get("summary")
    cleared = channel == messages.ATTENTION_CLEARED or fields.get("state") == "cleared"
    item = messages.Attention(
        attention_id=id_ if isinstance(id_, str) and id_ else UNREADABLE_ID,
        state="cleared" if cleared else "open",
        severity="error",
        blocking=fields.get("blocking") is not False,
        summary=summary if isinstance(summary, str) and summary else f"the game's attention cannot be read: {problem}",
    )
    return bounded_attention(item), problem


def still_open(item: messages.Attention | None) -> messages.Attention | None:
    return None if item is None or item.state == "cleared" else bounded_attention(item)


def unreadable(why: str) -> messages.Attention:
    """In place of an answer of attention/current that cannot be read."""
    return messages.Attention(attention_id=UNREADABLE_ID, state="open", severity="error", summary=why)


def passes(name: str, tags: object) -> bool:
    """Whether a tool may be called while attention blocks."""
    if isinstance(tags, list) and not BYPASS_TAGS.isdisjoint(tags):
        return True
    return not BYPASS_WORDS.isdisjoint(_WORD_ENDS.split(name))


def blocked(what: str, attention: messages.Attention) -> GameError:
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
