"""Words for what several commands show."""

from typing import Any


def last_seen(agent: dict[str, Any]) -> str:
    """Since when an agent elsewhere cannot be reached; nothing of any other."""
    if agent["status"] != "unreachable":
        return ""
    return f"last seen {agent['lastHeartbeat']}" if agent.get("lastHeartbeat") else "not heard of yet"
