"""The one resource: what happened lately around this agent. Ids, states and times, never what was said.

A client reads it, or asks to be told when there is more: by `resources/subscribe` until 2025-11-25, by
`subscriptions/listen` since 2026-07-28. No I/O here.
"""

from __future__ import annotations

import json

from bascule.shim import mcp
from bascule.shim.calls import Ask

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from bascule.shim.calls import Me

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
# A client has one stream, or two while it replaces one.
MAX_LISTENERS = 16
# A burst of events is one piece of news: the client reads once for all of them.
NEWS_SECONDS = 0.1


def read(me: Me) -> Generator[Ask, Any, list[dict[str, Any]]]:
    """The contents of RECENT_URI."""
    events = yield Ask("events.recent", {"agentId": me.handle, "limit": RECENT_EVENTS}, repeat=True)
    return [{"uri": RECENT_URI, "mimeType": "application/json", "text": json.dumps(events, ensure_ascii=False)}]


class Subscriptions:
    """Who wants to know that there is more to read."""

    def __init__(self) -> None:
        self._subscribed = False
        # Open streams, and whether they asked for the resource.
        self._listeners: dict[str | int, tuple[mcp.Request, bool]] = {}
        self._news_since: float | None = None
        self._told_at = float("-inf")

    @property
    def wanted(self) -> bool:
        return self._subscribed or any(hears for _, hears in self._listeners.values())

    def __contains__(self, number: str | int) -> bool:
        return number in self._listeners

    def subscribe(self, *, on: bool) -> None:
        self._subscribed = on

    def listen(self, request: mcp.Request) -> dict[str, Any]:
        """The acknowledgement: "the first message" on the subscription, with the part we can honour."""
        wanted = request.params.get("notifications")
        if not isinstance(wanted, dict):
            raise mcp.BadRequest(request.number, mcp.INVALID_PARAMS, "notifications must be an object")
        if len(self._listeners) >= MAX_LISTENERS:
            text = f"{MAX_LISTENERS} subscriptions are open already; cancel one first"
            raise mcp.BadRequest(request.number, mcp.INTERNAL_ERROR, text)
        uris = wanted.get("resourceSubscriptions")
        hears = isinstance(uris, list) and RECENT_URI in uris
        self._listeners[request.number] = (request, hears)
        return request.acknowledged({"resourceSubscriptions": [RECENT_URI]} if hears else {})

    def cancel(self, number: str | int) -> None:
        self._listeners.pop(number, None)

    def happened(self, now: float) -> None:
        if self._news_since is None:
            self._news_since = now

    def next_time(self) -> float | None:
        """When the waiting news may be told."""
        return None if self._news_since is None else max(self._news_since, self._told_at + NEWS_SECONDS)

    def news(self, now: float) -> list[dict[str, Any]]:
        due = self.next_time()
        if due is None or now < due:
            return []
        self._news_since = None
        self._told_at = now
        out = [request.updated(RECENT_URI) for request, hears in self._listeners.values() if hears]
        if self._subscribed:
            out.append(mcp.notification("notifications/resources/updated", {"uri": RECENT_URI}))
        return out

    def end(self) -> list[dict[str, Any]]:
        """We leave: every stream ends with its result."""
        out = [request.ended() for request, _ in self._listeners.values()]
        self._listeners.clear()
        return out
