"""The SDK's bus of server events, as one agent hears it."""

from collections.abc import Callable

from mcp.server.subscriptions import ResourceUpdated, ServerEvent, ToolsListChanged

from bascule.kernel.call import Principal
from bascule.kernel.gate import Gate
from bascule.surfaces.mcp.news import News
from bascule.surfaces.mcp.recent import RECENT_URI
from bascule.surfaces.mcp.sessions import DOOR
from bascule.surfaces.mcp.tool_lists import ToolLists


class AgentBus:
    def __init__(self, gate: Gate, principal: Principal, lists: ToolLists) -> None:
        self._lists = lists
        self._gate = gate
        self._principal = principal
        # Called when the stream of events has ended.
        self.on_end: Callable[[], None] = _nothing

    async def publish(self, event: ServerEvent) -> None:
        """Nobody publishes here: the events come from the daemon."""
        raise NotImplementedError(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        news = News(
            self._gate,
            self._principal,
            lambda: listener(ResourceUpdated(uri=RECENT_URI)),
            self.on_end,
            door=DOOR,
        )
        unfollow = self._lists.follow(self._principal, lambda: listener(ToolsListChanged()))

        def close() -> None:
            unfollow()
            news.close()

        return close


def _nothing() -> None:
    return None
