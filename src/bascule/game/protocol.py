"""What agents ask of games, and the answers: the daemon's side of the game bridge.

What a mod and the bridge say to each other is GABP, and in `game`.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from bascule.kernel.rows import Params, Result
from gabp.codec import Raw
from gabp.kept import PIECE_BYTES, KeptResult
from gabp.messages import Attention, Resource, StateError

GAME_ID_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,63}$(?!\n)"
# Longer than any name known; the bridge refuses longer ones in a mod's list too.
MAX_TOOL_NAME_CHARS = 256
# A uri with a query; browsers stop at about as much.
MAX_URI_CHARS = 2_048
# Linux takes no longer path.
MAX_PATH_CHARS = 4_096
# Of one reader at one game.
MAX_CHANNELS = 64
# As a tool's name.
MAX_CHANNEL_CHARS = 256
# Of several names in a query string, which takes four times that in all.
MAX_NAMES_CHARS = 1_024
# A screenful of names, and the most that is shown at once.
DEFAULT_TOOLS = 50
MAX_TOOLS_PAGE = 500
# A glance at what happened; and what a program that fell behind takes at once.
DEFAULT_EVENTS = 100
MAX_EVENTS_PAGE = 1_000
# How long `start` and `connect` wait for the game before they answer that it is starting. GABS waits as long.
DEFAULT_START_WAIT_MS = 20_000
MAX_START_WAIT_MS = 60_000
# A tool of a game that takes longer should answer at once and tell its end by an event.
MAX_CALL_MS = 600_000
# A result in one answer, so that it fits the link's frame with its envelope; what is larger is kept as a resource.
MAX_INLINE_BYTES = 1024 * 1024 - 4096
MIN_INLINE_BYTES = 1_024
# Of a resource in one answer.
MAX_READ_CHARS = PIECE_BYTES

GameId = Annotated[str, Meta(pattern=GAME_ID_PATTERN, description="A game of games.toml")]
ToolName = Annotated[str, Meta(min_length=1, max_length=MAX_TOOL_NAME_CHARS)]
Uri = Annotated[str, Meta(min_length=1, max_length=MAX_URI_CHARS)]
Channel = Annotated[str, Meta(min_length=1, max_length=MAX_CHANNEL_CHARS)]
# With commas, which is what a query string can say.
Names = Annotated[str, Meta(max_length=MAX_NAMES_CHARS, description="Names with commas between them")]
Executed = Literal["no", "yes", "unknown"]


class GameState(StrEnum):
    # Not running, as far as we know.
    STOPPED = "stopped"
    # Launched or attached to, not welcomed yet.
    STARTING = "starting"
    LIVE = "live"
    # Was live; the connection is gone and is being made again.
    RECONNECTING = "reconnecting"
    STOPPING = "stopping"
    # It may run, but cannot be reached; `connect` tries again, `stop` ends it.
    FAILED = "failed"


def names_in(names: str) -> list[str]:
    return [name for part in names.split(",") if (name := part.strip())]


# -- games --


class GameParams(Params, frozen=True, kw_only=True):
    game_id: GameId


class GameStartParams(Params, frozen=True, kw_only=True):
    game_id: GameId
    wait_ms: Annotated[int, Meta(ge=0, le=MAX_START_WAIT_MS)] = DEFAULT_START_WAIT_MS


class AttachParams(Params, frozen=True, kw_only=True):
    """A game that somebody else started, and that games.toml does not name."""

    game_id: Annotated[str, Meta(pattern=GAME_ID_PATTERN, description="What to call it from now on")]
    transport: Literal["tcp", "pipe"] = "tcp"
    # The port, or the socket's absolute path; and the 0600 file that holds the game's token.
    address: Annotated[str, Meta(max_length=MAX_PATH_CHARS)] | None = None
    token_file: Annotated[str, Meta(max_length=MAX_PATH_CHARS)] | None = None
    # Or the bridge.json of the program that started it: GABP's own, or that of GABS.
    bridge_file: Annotated[str, Meta(max_length=MAX_PATH_CHARS)] | None = None
    mode: Literal["compat", "strict"] = "compat"
    wait_ms: Annotated[int, Meta(ge=0, le=MAX_START_WAIT_MS)] = DEFAULT_START_WAIT_MS


class GameStatus(Result, frozen=True, kw_only=True):
    game_id: str
    state: GameState
    name: str | None = None
    description: str | None = None
    problem: str | None = None
    pid: int | None = None
    app: str | None = None
    version: str | None = None
    transport: str | None = None
    # Somebody else starts it; we connect to it.
    attached: bool = False
    started_by: str | None = None
    tools: int = 0
    launches: int = 0
    connects: int = 0
    calls_waiting: int = 0
    calls_sent: int = 0
    attention: str | None = None
    # How many events there were: a reader that starts here gets only later ones.
    cursor: int = 0
    notes: list[str] = []


class GamesList(Result, frozen=True, kw_only=True):
    games: list[GameStatus]
    # Why games.toml as it is now is not in force.
    problem: str | None = None


class GameDetails(Result, frozen=True, kw_only=True):
    status: GameStatus
    command: str | None = None
    cwd: str | None = None
    mode: str = "compat"
    call_timeout_ms: int = 0
    # What its mod says it has; nothing while it is not live.
    methods: list[str] = []
    channels: list[str] = []
    extensions: list[str] = []
    # The end of what it printed.
    output: str = ""


# -- tools --


class ToolsParams(Params, frozen=True, kw_only=True):
    game_id: GameId
    # In a name, title or description, in any case.
    query: Annotated[str, Meta(max_length=256)] | None = None
    prefix: Annotated[str, Meta(max_length=MAX_TOOL_NAME_CHARS)] | None = None
    # The name after which to go on.
    cursor: Annotated[str, Meta(max_length=MAX_TOOL_NAME_CHARS)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_TOOLS_PAGE)] = DEFAULT_TOOLS


class ToolView(Result, frozen=True, kw_only=True):
    name: str
    title: str | None = None
    description: str | None = None
    tags: list[str] = []
    deprecated: bool = False
    # Names of what it takes; a `?` behind those that may be left out.
    parameters: list[str] = []
    # What a person's word for this tool is bound to.
    schema_hash: str
    # Whether it was allowed before, as it is now.
    pin: Literal["new", "same", "changed"]
    # Its mod says so: it asks each time.
    destructive: bool = False


class ToolsPage(Result, frozen=True, kw_only=True):
    game_id: str
    tools: list[ToolView]
    total: int
    next_cursor: str | None = None


class ToolParams(Params, frozen=True, kw_only=True):
    game_id: GameId
    tool: ToolName


class ToolDetail(Result, frozen=True, kw_only=True):
    game_id: str
    name: str
    title: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] = {}
    output_schema: dict[str, Any] = {}
    tags: list[str] = []
    deprecated: bool = False
    version: str | None = None
    schema_hash: str


class CallToolParams(Params, frozen=True, kw_only=True):
    game_id: GameId
    tool: ToolName
    arguments: dict[str, Any] = {}
    # The game's own `call_timeout` when left out.
    timeout_ms: Annotated[int, Meta(ge=1, le=MAX_CALL_MS)] | None = None
    # A larger result is kept, and answered as `resource`.
    inline_bytes: Annotated[int, Meta(ge=MIN_INLINE_BYTES, le=MAX_INLINE_BYTES)] = MAX_INLINE_BYTES


class CallToolResult(Result, frozen=True, kw_only=True):
    game_id: str
    tool: str
    # Always `yes` here; an error's details say `no`, `yes` or `unknown`.
    executed: Executed
    # Whatever JSON the tool answered.
    result: Raw | UnsetType = UNSET
    resource: KeptResult | None = None


# -- events --


class GameEventsParams(Params, frozen=True, kw_only=True):
    game_id: GameId
    # After this cursor; 0 is all that is still here.
    since: Annotated[int, Meta(ge=0, le=2**53)] = 0
    # A name that ends in `/*` means all below it; none are all that the game announces.
    channels: Names = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_EVENTS_PAGE)] = DEFAULT_EVENTS
    wait_ms: Annotated[int, Meta(ge=0, le=2**53, description="Wait for one; clamped to 60000")] = 0


class GameStreamParams(Params, frozen=True, kw_only=True):
    game_id: GameId
    # After this cursor, then as they come; only what comes when left out.
    since: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    channels: Names = ""


class GameEvent(Result, frozen=True, kw_only=True):
    """`cursor` counts all events of this game since the daemon started; `seq` is the mod's own, per channel."""

    cursor: int
    channel: str
    at_ms: int
    seq: int | None = None
    payload: Raw | None = None
    # Of this channel, before this one: the mod or the connection dropped them.
    missed: int = 0
    # -32503: what follows is not all there was.
    code: int | None = None
    message: str | None = None


class EventPage(Result, frozen=True, kw_only=True):
    events: list[GameEvent]
    # Where to go on from.
    cursor: int
    # Channels that the game does not have (yet); they are asked for again at every connect.
    unknown: list[str] = []


class UnsubscribeParams(Params, frozen=True, kw_only=True):
    game_id: GameId
    # None are all of the caller's.
    channels: Annotated[list[Channel], Meta(max_length=MAX_CHANNELS)] = []


class Subscribed(Result, frozen=True, kw_only=True):
    game_id: str
    # What the caller still hears.
    channels: list[str]


# -- resources --


class ResourcesParams(Params, frozen=True, kw_only=True):
    game_id: GameId
    pattern: Annotated[str, Meta(max_length=MAX_URI_CHARS)] | None = None
    namespace: Annotated[str, Meta(max_length=256)] | None = None


class ResourcesPage(Result, frozen=True, kw_only=True):
    game_id: str
    resources: list[Resource]


class ResourceParams(Params, frozen=True, kw_only=True):
    game_id: GameId
    uri: Uri
    offset: Annotated[int, Meta(ge=0, le=2**53)] = 0
    # Characters, or bytes of a large result; what is not text is cut as JSON text.
    limit: Annotated[int, Meta(ge=1, le=MAX_READ_CHARS)] = MAX_READ_CHARS


class ResourceContent(Result, frozen=True, kw_only=True):
    game_id: str
    uri: str
    content: Any
    mime_type: str | None = None
    encoding: str | None = None
    # There is more from here on.
    next_offset: int | None = None


# -- state and attention --


class GetStateParams(Params, frozen=True, kw_only=True):
    game_id: GameId
    components: Names = ""
    player_id: str | None = None


class GameStateView(Result, frozen=True, kw_only=True):
    game_id: str
    state: dict[str, Any]
    # Unix seconds, by the game's clock.
    timestamp: int = 0


class SetStateParams(Params, frozen=True, kw_only=True):
    game_id: GameId
    updates: Annotated[dict[str, Any], Meta(min_length=1, max_length=1_000)]
    player_id: str | None = None
    # Look only, change nothing.
    validate: bool = False


class StateChanged(Result, frozen=True, kw_only=True):
    game_id: str
    applied: dict[str, Any]
    errors: list[StateError] = []


class AttentionView(Result, frozen=True, kw_only=True, omit_defaults=False):
    game_id: str
    attention: Attention | None


class AcknowledgeParams(Params, frozen=True, kw_only=True):
    game_id: GameId
    attention_id: Annotated[str, Meta(min_length=1, max_length=256)]


class Acknowledged(Result, frozen=True, kw_only=True):
    game_id: str
    acknowledged: bool
    attention_id: str
    # What else the game wants looked at.
    attention: Attention | None = None
