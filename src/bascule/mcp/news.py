"""Tells a subscriber that there is more to read; what there is, the subscriber reads for itself.

Every event of the house that concerns the agent is news for `bascule://transactions/recent`, and only of that agent:
the stream behind it is opened as the agent, with the agent's own handle as its filter.
"""

import asyncio
from collections.abc import Callable

from mcp.server.subscriptions import ResourceUpdated, ServerEvent

from bascule.call import Call, Principal, agent_of
from bascule.kernel.gate import Gate
from bascule.mcp.errand import DOOR
from bascule.protocols.broker import EventsParams
from bascule.shim.resources import NEWS_SECONDS, RECENT_URI
from bascule.stream import Stream


class News:
    """One open stream of events, thinned out: a burst is one piece of news."""

    def __init__(
        self,
        dispatch: Gate,
        principal: Principal,
        tell: Callable[[], None],
        ended: Callable[[], None] | None = None,
    ) -> None:
        self._tell = tell
        self._ended = ended
        self._soon: asyncio.TimerHandle | None = None
        stream = dispatch.call(Call(principal, "events.stream", EventsParams(agent_id=agent_of(principal)), door=DOOR))
        assert isinstance(stream, Stream)
        self._stream = stream
        stream.on_ready = self._ready

    def close(self) -> None:
        self._stream.on_ready = None
        self._stream.close()
        if self._soon is not None:
            self._soon.cancel()

    def _ready(self) -> None:
        items, dropped = self._stream.drain()
        if (items or dropped) and self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(NEWS_SECONDS, self._now)
        if self._stream.ended and self._ended is not None:
            self._ended()

    def _now(self) -> None:
        self._soon = None
        self._tell()


class AgentBus:
    """The SDK's bus, as one agent hears it."""

    def __init__(self, dispatch: Gate, principal: Principal) -> None:
        self._dispatch = dispatch
        self._principal = principal
        # Set by whoever must hear that the house has nothing more to tell.
        self.on_end: Callable[[], None] = _nothing

    async def publish(self, event: ServerEvent) -> None:
        """Nobody publishes here: the events come from the house."""
        raise NotImplementedError(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        news = News(
            self._dispatch,
            self._principal,
            lambda: listener(ResourceUpdated(uri=RECENT_URI)),
            self.on_end,
        )
        return news.close


def _nothing() -> None:
    return None
