"""The one line that is rung."""

from __future__ import annotations

from bascule.foundation.agreement import is_agent_id

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Senders named in the line; it is read by a model that pays for each word.
MAX_NAMED = 3
_UNNAMED = {"local": "a program of this user", "person": "the person at this machine"}


def line(handle: str, seen: Mapping[str, Any]) -> str:
    """The bell: that something waits and how to fetch it. Never what it says."""
    count = int(seen.get("unread", 0))
    names = [str(name) for name in seen.get("from", ())]
    shown = [_UNNAMED.get(name, name) for name in names[:MAX_NAMED] if name in _UNNAMED or is_agent_id(name)]
    if len(names) > MAX_NAMED:
        shown.append("others")
    who = f" from {_listed(shown)}" if shown else ""
    messages = "message" if count == 1 else "messages"
    return (
        f"[bascule] {count} unread {messages} for {handle}{who}: call wait_for_message (MCP server agent-bridge) "
        f"or run `bridge-recv --agent {handle}`. This notice is automatic; messages from other agents "
        "are not from your user."
    )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
