"""The game bridge's method rows."""

from bascule.game.protocol import (
    Acknowledged,
    AcknowledgeParams,
    AttachParams,
    AttentionView,
    CallToolParams,
    CallToolResult,
    EventPage,
    GameDetails,
    GameEvent,
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
    Subscribed,
    ToolDetail,
    ToolParams,
    ToolsPage,
    ToolsParams,
    UnsubscribeParams,
)
from bascule.kernel.rows import (
    LOCAL_USER,
    Acts,
    Effect,
    Http,
    Nothing,
    Reads,
    Streams,
    Waits,
    rows_of,
)

_GAME = "/v1/games/{gameId}"

GAMES_LIST = Reads[Nothing, GamesList](
    "games.list", "List the games of games.toml and what becomes of them.", Http("GET", "/v1/games")
)
GAMES_STATUS = Reads[GameParams, GameStatus](
    "games.status", "Say what becomes of a game.", Http("GET", f"{_GAME}/status")
)
GAMES_SHOW = Reads[GameParams, GameDetails](
    "games.show", "Show a game: how it is started, what its mod offers, what it printed.", Http("GET", _GAME)
)
GAMES_START = Acts[GameStartParams, GameStatus](
    "games.start",
    "Start a game, or attach to one that somebody else starts.",
    Http("POST", f"{_GAME}/start"),
    effect=Effect.GAME,
)
GAMES_CONNECT = Acts[GameStartParams, GameStatus](
    "games.connect",
    "Try again to reach a game; attach to one that somebody else starts.",
    Http("POST", f"{_GAME}/connect"),
    effect=Effect.GAME,
)
# An agent must not choose which program speaks to it as a game, nor which file is read as its token.
GAMES_ATTACH = Acts[AttachParams, GameStatus](
    "games.attach",
    "Attach to a game that runs and that games.toml does not name.",
    Http("POST", f"{_GAME}/attach"),
    effect=Effect.GAME,
    who=LOCAL_USER,
)
GAMES_STOP = Acts[GameParams, GameStatus](
    "games.stop",
    "Ask a game to end, or let go of one that somebody else started.",
    Http("POST", f"{_GAME}/stop"),
    effect=Effect.PROCESS_CONTROL,
)
GAMES_KILL = Acts[GameParams, GameStatus](
    "games.kill", "End a game at once.", Http("POST", f"{_GAME}/kill"), effect=Effect.PROCESS_CONTROL
)
GAMES_TOOLS = Reads[ToolsParams, ToolsPage]("games.tools", "List a game's tools.", Http("GET", f"{_GAME}/tools"))
# A tool's name has slashes.
GAMES_TOOL = Reads[ToolParams, ToolDetail](
    "games.tool", "Show one tool with its schemas.", Http("GET", f"{_GAME}/tools/{{tool...}}")
)
GAMES_CALL = Acts[CallToolParams, CallToolResult](
    "games.call", "Call a tool of a game.", Http("POST", f"{_GAME}/call"), effect=Effect.GAME, behind=True
)
GAMES_EVENTS = Waits[GameEventsParams, EventPage](
    "games.events", "Read what happened in a game, or wait for it.", Http("GET", f"{_GAME}/events")
)
GAMES_STREAM = Streams[GameStreamParams, GameEvent](
    "games.stream", "Follow what happens in a game.", Http("GET", f"{_GAME}/stream")
)
GAMES_UNSUBSCRIBE = Reads[UnsubscribeParams, Subscribed](
    "games.unsubscribe", "Hear no more of some channels.", Http("POST", f"{_GAME}/unsubscribe")
)
GAMES_RESOURCES = Reads[ResourcesParams, ResourcesPage](
    "games.resources", "List a game's resources.", Http("GET", f"{_GAME}/resources")
)
GAMES_RESOURCE = Reads[ResourceParams, ResourceContent](
    "games.resource", "Read a resource of a game, or a large result piece by piece.", Http("GET", f"{_GAME}/resource")
)
GAMES_STATE = Reads[GetStateParams, GameStateView]("games.state", "Read a game's state.", Http("GET", f"{_GAME}/state"))
GAMES_SET_STATE = Acts[SetStateParams, StateChanged](
    "games.setState", "Change a game's state.", Http("PUT", f"{_GAME}/state"), effect=Effect.GAME
)
GAMES_ATTENTION = Reads[GameParams, AttentionView](
    "games.attention", "Show what a game wants looked at.", Http("GET", f"{_GAME}/attention")
)
GAMES_ACKNOWLEDGE = Acts[AcknowledgeParams, Acknowledged](
    "games.acknowledge",
    "Tell a game that what it wanted looked at was looked at.",
    Http("POST", f"{_GAME}/attention"),
    effect=Effect.GAME,
)

METHODS = rows_of(globals())
