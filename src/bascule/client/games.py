"""A game as a program plays it: start it, call its tools, follow what happens in it.

    async with Client.connect(agent="Jerry", register=True) as client:
        burrow = client.game("burrow")
        await burrow.start()
        print(await burrow.call("burrow/look"))
        async for event in burrow.events(["burrow/*"]):
            print(event.channel, event.payload)

`SyncGame` is the same, blocking. A tool that fails raises: `details["executed"]` of the error says whether it ran.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from bascule.admin.protocol import StatusResult
from bascule.client.durations import Duration
from bascule.client.feeds import Feed
from bascule.client.happened import GameFeed, Happened, HappenedPage
from bascule.client.playing import Playing
from bascule.client.spaces import Reader
from bascule.client.steps import Program, Request
from bascule.game.protocol import (
    DEFAULT_EVENTS,
    Acknowledged,
    GameDetails,
    GameStatus,
    ResourceContent,
    StateChanged,
    ToolDetail,
    ToolView,
)
from bascule.kernel.rows import Nothing
from gabp.messages import Attention, Resource

if TYPE_CHECKING:
    from bascule.client.blocking import BlockingConnection
    from bascule.client.connection import Connection


class Game:
    """One game, for asyncio. Made by `Client.game`."""

    def __init__(
        self,
        game_id: str,
        playing: Playing,
        do: Callable[[Program[Any]], Coroutine[Any, Any, Any]],
        stream: "Callable[[Callable[[Connection], Coroutine[Any, Any, Request]], Feed[Any]], Reader[Any]]",
    ) -> None:
        self.game_id = game_id
        self._playing = playing
        self._do = do
        self._stream = stream

    async def status(self) -> GameStatus:
        status: GameStatus = await self._do(self._playing.status())
        return status

    async def show(self) -> GameDetails:
        """How it is set up, what its mod offers, what it printed."""
        details: GameDetails = await self._do(self._playing.show())
        return details

    async def start(self, *, wait: Duration | None = None) -> GameStatus:
        """Start it, or attach to it; answers when it is live, has failed, or takes longer than `wait` (20 s)."""
        status: GameStatus = await self._do(self._playing.start(wait))
        return status

    async def connect(self, *, wait: Duration | None = None) -> GameStatus:
        """Try again to reach it."""
        status: GameStatus = await self._do(self._playing.connect(wait))
        return status

    async def stop(self) -> GameStatus:
        """Ask it to end; let go of one that somebody else started."""
        status: GameStatus = await self._do(self._playing.stop())
        return status

    async def kill(self) -> GameStatus:
        status: GameStatus = await self._do(self._playing.kill())
        return status

    async def tools(self, *, query: str | None = None, prefix: str | None = None) -> list[ToolView]:
        found: list[ToolView] = await self._do(self._playing.tools(query, prefix))
        return found

    async def tool(self, name: str) -> ToolDetail:
        """One tool, with its schemas."""
        detail: ToolDetail = await self._do(self._playing.tool(name))
        return detail

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109 - of the tool
    ) -> Any:
        """What the tool answers, as plain values. Without `timeout` the game's own `call_timeout` counts."""
        return await self._do(self._playing.call(tool, arguments, timeout))

    async def events(self, channels: Iterable[str] = (), *, since: int | None = None) -> AsyncIterator[Happened]:
        """What happens, as it does; after the cursor `since` first. No channels are all that the game announces.

        It outlives restarts of the game and of the daemon. `code` -32503 says that what follows is not all there was.
        """
        feed, channels = GameFeed(since), tuple(channels)

        async def opening(connection: "Connection") -> Request:
            status: StatusResult = await connection.request("daemon.status", Nothing(), StatusResult)
            after = feed.opens((status.pid, status.started_at))
            if after is None:
                after = feed.begins((await connection.request(*self._playing.now())).cursor)
            return self._playing.following(after, channels)

        with closing(self._stream(opening, feed)) as reader:
            while (event := await reader.next()) is not None:
                yield event

    async def page(
        self, channels: Iterable[str] = (), *, since: int = 0, limit: int = DEFAULT_EVENTS, wait: Duration = 0
    ) -> HappenedPage:
        """What came after a cursor, and where to go on; `wait` for one if there is none."""
        page: HappenedPage = await self._do(self._playing.page(since, channels, limit, wait))
        return page

    async def resources(self, *, pattern: str | None = None, namespace: str | None = None) -> list[Resource]:
        listed: list[Resource] = await self._do(self._playing.resources(pattern, namespace))
        return listed

    async def read_resource(self, uri: str) -> ResourceContent:
        content: ResourceContent = await self._do(self._playing.read(uri))
        return content

    async def state(self, components: Iterable[str] = (), *, player_id: str | None = None) -> dict[str, Any]:
        return dict((await self._do(self._playing.state(components, player_id))).state)

    async def set_state(
        self, updates: Mapping[str, Any], *, player_id: str | None = None, validate: bool = False
    ) -> StateChanged:
        """Change it; `validate` only looks whether it could be."""
        changed: StateChanged = await self._do(self._playing.set_state(updates, player_id, validate=validate))
        return changed

    async def attention(self) -> Attention | None:
        """What the game wants looked at before anything else is done."""
        attention: Attention | None = await self._do(self._playing.attention())
        return attention

    async def acknowledge(self, attention_id: str) -> Acknowledged:
        answer: Acknowledged = await self._do(self._playing.acknowledge(attention_id))
        return answer


class SyncGame:
    """One game, blocking. Made by `SyncClient.game`."""

    def __init__(
        self,
        game_id: str,
        playing: Playing,
        do: Callable[[Program[Any]], Any],
        stream: "Callable[[Callable[[BlockingConnection], Request], Feed[Any]], Iterator[Any]]",
    ) -> None:
        self.game_id = game_id
        self._playing = playing
        self._do = do
        self._stream = stream

    def status(self) -> GameStatus:
        status: GameStatus = self._do(self._playing.status())
        return status

    def show(self) -> GameDetails:
        details: GameDetails = self._do(self._playing.show())
        return details

    def start(self, *, wait: Duration | None = None) -> GameStatus:
        status: GameStatus = self._do(self._playing.start(wait))
        return status

    def connect(self, *, wait: Duration | None = None) -> GameStatus:
        status: GameStatus = self._do(self._playing.connect(wait))
        return status

    def stop(self) -> GameStatus:
        status: GameStatus = self._do(self._playing.stop())
        return status

    def kill(self) -> GameStatus:
        status: GameStatus = self._do(self._playing.kill())
        return status

    def tools(self, *, query: str | None = None, prefix: str | None = None) -> list[ToolView]:
        found: list[ToolView] = self._do(self._playing.tools(query, prefix))
        return found

    def tool(self, name: str) -> ToolDetail:
        detail: ToolDetail = self._do(self._playing.tool(name))
        return detail

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout: Duration | None = None) -> Any:
        return self._do(self._playing.call(tool, arguments, timeout))

    def events(self, channels: Iterable[str] = (), *, since: int | None = None) -> Iterator[Happened]:
        """What happens, as it does; see `Game.events`."""
        feed, channels = GameFeed(since), tuple(channels)

        def opening(connection: "BlockingConnection") -> Request:
            status: StatusResult = connection.request("daemon.status", Nothing(), StatusResult)
            after = feed.opens((status.pid, status.started_at))
            if after is None:
                after = feed.begins(connection.request(*self._playing.now()).cursor)
            return self._playing.following(after, channels)

        return self._stream(opening, feed)

    def page(
        self, channels: Iterable[str] = (), *, since: int = 0, limit: int = DEFAULT_EVENTS, wait: Duration = 0
    ) -> HappenedPage:
        page: HappenedPage = self._do(self._playing.page(since, channels, limit, wait))
        return page

    def resources(self, *, pattern: str | None = None, namespace: str | None = None) -> list[Resource]:
        listed: list[Resource] = self._do(self._playing.resources(pattern, namespace))
        return listed

    def read_resource(self, uri: str) -> ResourceContent:
        content: ResourceContent = self._do(self._playing.read(uri))
        return content

    def state(self, components: Iterable[str] = (), *, player_id: str | None = None) -> dict[str, Any]:
        return dict(self._do(self._playing.state(components, player_id)).state)

    def set_state(
        self, updates: Mapping[str, Any], *, player_id: str | None = None, validate: bool = False
    ) -> StateChanged:
        changed: StateChanged = self._do(self._playing.set_state(updates, player_id, validate=validate))
        return changed

    def attention(self) -> Attention | None:
        attention: Attention | None = self._do(self._playing.attention())
        return attention

    def acknowledge(self, attention_id: str) -> Acknowledged:
        answer: Acknowledged = self._do(self._playing.acknowledge(attention_id))
        return answer
