"""The one resource: what happened lately around an agent. Ids, states and times, never texts."""

import json
from typing import Any

from bascule.kernel.tool import Session

RECENT_URI = "bascule://transactions/recent"
RESOURCES: list[dict[str, Any]] = [
    {
        "uri": RECENT_URI,
        "name": "recent-transactions",
        "title": "Recent transactions",
        "description": "The newest events of your agent and its tickets, oldest first: ids, states, times; no texts.",
        "mimeType": "application/json",
    }
]
# A screenful; the ledger has the rest.
RECENT_EVENTS = 50


async def read(me: Session) -> list[dict[str, Any]]:
    """The contents of RECENT_URI."""
    events = await me.call("events.recent", {"agentId": me.handle, "limit": RECENT_EVENTS})
    return [{"uri": RECENT_URI, "mimeType": "application/json", "text": json.dumps(events, ensure_ascii=False)}]
