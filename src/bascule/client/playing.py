"""What a client can do in a game, as programs: see `verbs` for how they are carried out.

Calls are never repeated by themselves: a connection lost under one is `OutcomeUnknown`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

import msgspec
from msgspec import UNSET

from bascule.client.durations import Duration, milliseconds, seconds
from bascule.client.happened import HappenedPage
from bascule.client.spaces import absolute
from bascule.client.steps import Program, Request
from bascule.client.verbs import Verbs
from bascule.game.protocol import (
    MAX_TOOLS_PAGE,
    Acknowledged,
    AcknowledgeParams,
    AttachParams,
    AttentionView,
    CallToolParams,
    CallToolResult,
    GameDetails,
    GameEventsParams,
    GameParams,
    GamesList,
    GameStartParams,
    GameStateView,
    GameStatus,
    GameStreamParams,
    GetStateParams,
    ResourceContent,
    ResourceParams,
    ResourcesPage,
    ResourcesParams,
    SetStateParams,
    StateChanged,
    ToolDetail,
    ToolParams,
    ToolsPage,
    ToolsParams,
    ToolView,
)
from bascule.kernel.rows import Nothing
from gabp.codec import decode
from gabp.messages import Attention, Resource


def list_games(verbs: Verbs) -> Program[GamesList]:
    return verbs.call("games.list", Nothing(), GamesList)


class AttachOptions(TypedDict, total=False):
    """Either `bridge_file`, or one of `port` and `socket` with `token_file`."""

    # The bridge.json of the program that started the game: GABP's own, or that of GABS.
    bridge_file: str
    port: int
    socket: str
    # A 0600 file with the game's token in it.
    token_file: str
    strict: bool
    wait: Duration


def attach(verbs: Verbs, game_id: str, options: AttachOptions) -> Program[GameStatus]:
    return verbs.call("games.attach", attach_params(game_id, options), GameStatus)


def attach_params(game_id: str, options: AttachOptions) -> AttachParams:
    """Paths become absolute: the daemon has another working directory than the caller."""
    where: dict[str, Any] = {
        name: absolute(str(path)) for name in ("bridge_file", "token_file") if (path := options.get(name)) is not None
    }
    if "socket" in options:
        where |= {"transport": "pipe", "address": absolute(options["socket"])}
    elif "port" in options:
        where["address"] = str(options["port"])
    if "wait" in options:
        where["wait_ms"] = _ms(options["wait"])
    return AttachParams(game_id=game_id, mode="strict" if options.get("strict") else "compat", **where)


class Playing:
    """Programs for one game."""

    def __init__(self, verbs: Verbs, game_id: str) -> None:
        self._verbs = verbs
        self._game_id = game_id

    # -- its life --

    def status(self) -> Program[GameStatus]:
        return self._verbs.call("games.status", self._it(), GameStatus)

    def show(self) -> Program[GameDetails]:
        return self._verbs.call("games.show", self._it(), GameDetails)

    def start(self, wait: Duration | None) -> Program[GameStatus]:
        return self._verbs.call("games.start", self._starting(wait), GameStatus)

    def connect(self, wait: Duration | None) -> Program[GameStatus]:
        return self._verbs.call("games.connect", self._starting(wait), GameStatus)

    def stop(self) -> Program[GameStatus]:
        return self._verbs.call("games.stop", self._it(), GameStatus)

    def kill(self) -> Program[GameStatus]:
        return self._verbs.call("games.kill", self._it(), GameStatus)

    # -- its tools --

    def tools(self, query: str | None, prefix: str | None) -> Program[list[ToolView]]:
        """All of them, page by page."""
        found: list[ToolView] = []
        cursor: str | None = None
        while True:
            params = ToolsParams(game_id=self._game_id, query=query, prefix=prefix, cursor=cursor, limit=MAX_TOOLS_PAGE)
            page: ToolsPage = yield from self._verbs.call("games.tools", params, ToolsPage)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return found

    def tool(self, name: str) -> Program[ToolDetail]:
        return self._verbs.call("games.tool", ToolParams(game_id=self._game_id, tool=name), ToolDetail)

    def call(self, tool: str, arguments: Mapping[str, Any] | None, timeout: Duration | None) -> Program[Any]:
        """What the tool answered; a result too large for one answer is fetched piece by piece."""
        params = CallToolParams(
            game_id=self._game_id,
            tool=tool,
            arguments=dict(arguments or {}),
            timeout_ms=None if timeout is None else milliseconds(timeout),
        )
        answer: CallToolResult = yield from self._verbs.call("games.call", params, CallToolResult)
        if answer.resource is not None:
            content = yield from self.read(answer.resource.uri)
            return decode(content.content.encode())
        return None if answer.result is UNSET else decode(answer.result)

    # -- what happens in it --

    def page(self, since: int, channels: Iterable[str], limit: int, wait: Duration) -> Program[HappenedPage]:
        params = GameEventsParams(
            game_id=self._game_id,
            since=since,
            channels=",".join(channels),
            limit=limit,
            wait_ms=_ms(wait),
        )
        return self._verbs.call("games.events", params, HappenedPage)

    def now(self) -> tuple[str, GameParams, type[GameStatus]]:
        """Asked before a stream is opened, for the cursor to begin at."""
        return "games.status", self._it(), GameStatus

    def following(self, since: int | None, channels: Iterable[str]) -> Request:
        params = GameStreamParams(game_id=self._game_id, since=since, channels=",".join(channels))
        return Request("games.stream", params, Any)

    # -- what can be read and set --

    def resources(self, pattern: str | None, namespace: str | None) -> Program[list[Resource]]:
        params = ResourcesParams(game_id=self._game_id, pattern=pattern, namespace=namespace)
        page: ResourcesPage = yield from self._verbs.call("games.resources", params, ResourcesPage)
        return page.resources

    def read(self, uri: str) -> Program[ResourceContent]:
        """All of it: pieces are text, and are put together."""
        whole: ResourceContent | None = None
        offset: int | None = 0
        while offset is not None:
            params = ResourceParams(game_id=self._game_id, uri=uri, offset=offset)
            piece: ResourceContent = yield from self._verbs.call("games.resource", params, ResourceContent)
            content = piece.content if whole is None else whole.content + piece.content
            whole = msgspec.structs.replace(piece, content=content)
            offset = piece.next_offset
        assert whole is not None
        return whole

    def state(self, components: Iterable[str], player_id: str | None) -> Program[GameStateView]:
        params = GetStateParams(game_id=self._game_id, components=",".join(components), player_id=player_id)
        return self._verbs.call("games.state", params, GameStateView)

    def set_state(self, updates: Mapping[str, Any], player_id: str | None, *, validate: bool) -> Program[StateChanged]:
        params = SetStateParams(game_id=self._game_id, updates=dict(updates), player_id=player_id, validate=validate)
        return self._verbs.call("games.setState", params, StateChanged)

    def attention(self) -> Program[Attention | None]:
        view: AttentionView = yield from self._verbs.call("games.attention", self._it(), AttentionView)
        return view.attention

    def acknowledge(self, attention_id: str) -> Program[Acknowledged]:
        params = AcknowledgeParams(game_id=self._game_id, attention_id=attention_id)
        return self._verbs.call("games.acknowledge", params, Acknowledged)

    def _it(self) -> GameParams:
        return GameParams(game_id=self._game_id)

    def _starting(self, wait: Duration | None) -> GameStartParams:
        if wait is None:
            return GameStartParams(game_id=self._game_id)
        return GameStartParams(game_id=self._game_id, wait_ms=_ms(wait))


def _ms(duration: Duration) -> int:
    return round(seconds(duration) * 1000)
