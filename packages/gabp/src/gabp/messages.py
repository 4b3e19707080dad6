"""GABP 1.0 and 1.1 on the wire: what each method takes and answers.

These Structs read what real peers send, so much is optional here that the published schemas require;
`gabp.schemas` has those schemas, and strict sessions check them first. What we send fills everything they require.
"""

from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gabp.codec import Raw

SCHEMA_VERSION: Final = "1.0"
# transport.md 7.1: "Implementations SHOULD support messages up to 1MB in size".
MAX_MESSAGE_BYTES = 1024 * 1024
# What a bridge takes of a mod: pictures and whole worlds come as results of several MiB (Lib.GAB has no limit).
MAX_RECEIVE_BYTES = 16 * 1024 * 1024
# Above that and up to this a bridge skips a message. Nobody means to send more: such a length is a broken writer.
MAX_SKIPPED_BYTES = 1024 * 1024 * 1024
# transport.md 7.2: "Recommended limit: 10 concurrent bridge connections".
MAX_CONNECTIONS = 10
# security.md 3.2: at least 128 bits, 32 hex characters; we write 256 bits.
TOKEN_BYTES = 32
MIN_TOKEN_CHARS = 32

HELLO: Final = "session/hello"
# How a mod made with our SDK names itself in its welcome.
OUR_SERVER_NAME: Final = "bascule.mod"
TOOLS_LIST: Final = "tools/list"
TOOLS_CALL: Final = "tools/call"
SUBSCRIBE: Final = "events/subscribe"
UNSUBSCRIBE: Final = "events/unsubscribe"
RESOURCES_LIST: Final = "resources/list"
RESOURCES_READ: Final = "resources/read"
STATE_GET: Final = "state/get"
STATE_SET: Final = "state/set"
ATTENTION_CURRENT: Final = "attention/current"
ATTENTION_ACK: Final = "attention/ack"

# Ours, announced under capabilities.extensions: the protocol has neither cancellation, progress nor a change event.
CANCELLATION: Final = "cancellation"
PROGRESS: Final = "progress"
CHANGES: Final = "changes"
TOOLS_CANCEL: Final = "tools/cancel"
PROGRESS_CHANNEL: Final = "tools/progress"
CHANGES_CHANNEL: Final = "tools/changed"
EXTENSIONS: Final[dict[str, dict[str, Any]]] = {
    CANCELLATION: {"method": TOOLS_CANCEL},
    PROGRESS: {"channel": PROGRESS_CHANNEL},
    CHANGES: {"channel": CHANGES_CHANNEL},
}

ATTENTION_OPENED: Final = "attention/opened"
ATTENTION_UPDATED: Final = "attention/updated"
ATTENTION_CLEARED: Final = "attention/cleared"
ATTENTION_CHANNELS: Final = (ATTENTION_OPENED, ATTENTION_UPDATED, ATTENTION_CLEARED)

PLATFORMS: Final = ("windows", "macos", "linux")


def platform_name(sys_platform: str) -> str:
    """The schema's word for it: GABS sends Go's `darwin`, others Python's `win32`."""
    if sys_platform.startswith("win"):
        return "windows"
    return "macos" if sys_platform == "darwin" else "linux"


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Unknown fields are let through: peers are known to send extras, and strict sessions check the schema."""


# -- session --------------------------------------------------------------------------------------


class ClientInfo(_Wire, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    version: str | UnsetType = UNSET


class HelloParams(_Wire, frozen=True, kw_only=True):
    token: str
    bridge_version: str = ""
    platform: str = ""
    launch_id: str | None = None
    client_info: ClientInfo | UnsetType = UNSET

    def __repr__(self) -> str:
        """Without the token: what is printed ends up in logs."""
        return f"HelloParams(bridge_version={self.bridge_version!r}, platform={self.platform!r}, token=...)"


class App(_Wire, frozen=True, kw_only=True):
    name: str = ""
    version: str = ""


class ServerInfo(_Wire, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    author: str | UnsetType = UNSET


class Limits(_Wire, frozen=True, kw_only=True):
    # Bytes.
    max_message_size: int | UnsetType = UNSET
    max_concurrent_requests: int | UnsetType = UNSET
    # Seconds.
    request_timeout: int | UnsetType = UNSET


class Capabilities(_Wire, frozen=True, kw_only=True):
    methods: list[str] | UnsetType = UNSET
    events: list[str] | UnsetType = UNSET
    resources: list[str] | UnsetType = UNSET
    extensions: dict[str, dict[str, Any]] | UnsetType = UNSET
    limits: Limits | UnsetType = UNSET


class Observed(_Wire, frozen=True, kw_only=True):
    """What of its launch context reached the game: GABS's own addition, sent only when GABS asks for it."""

    argv: list[str]
    cwd: str
    env_values: dict[str, str]
    env_absent: list[str]


class Welcome(_Wire, frozen=True, kw_only=True):
    agent_id: str = ""
    app: App = App()
    capabilities: Capabilities = Capabilities()
    schema_version: str = ""
    server_info: ServerInfo | UnsetType = UNSET
    observed: Observed | UnsetType = UNSET

    def extension(self, name: str) -> dict[str, Any] | None:
        extensions = self.capabilities.extensions
        return extensions.get(name) if isinstance(extensions, dict) else None


# -- tools ----------------------------------------------------------------------------------------


class ToolFilter(_Wire, frozen=True, kw_only=True):
    tags: list[str] | UnsetType = UNSET
    # A glob.
    name_pattern: str | UnsetType = UNSET


class ToolsListParams(_Wire, frozen=True, kw_only=True):
    filter: ToolFilter | UnsetType = UNSET


class Tool(_Wire, frozen=True, kw_only=True):
    name: str
    title: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] = {}
    output_schema: dict[str, Any] = {}
    tags: list[str] | UnsetType = UNSET
    deprecated: bool | UnsetType = UNSET
    version: str | UnsetType | None = UNSET


class ToolsListResult(_Wire, frozen=True, kw_only=True):
    # Each read by itself: one tool that is none must not hide the others.
    tools: list[Raw]


class ToolsCallParams(_Wire, frozen=True, kw_only=True):
    name: str
    arguments: Raw | UnsetType = UNSET
    # What GABS sends in place of `arguments`.
    parameters: Raw | UnsetType = UNSET


class ToolsCancelParams(_Wire, frozen=True, kw_only=True):
    request_id: str


class ToolsCancelResult(_Wire, frozen=True, kw_only=True):
    cancelled: bool


class Progress(_Wire, frozen=True, kw_only=True):
    request_id: str
    progress: float
    total: float | UnsetType = UNSET
    message: str | UnsetType = UNSET


# -- events ---------------------------------------------------------------------------------------


class ChannelsParams(_Wire, frozen=True, kw_only=True):
    channels: list[str]


class SubscribeResult(_Wire, frozen=True, kw_only=True):
    subscribed: list[str] = []


class UnsubscribeResult(_Wire, frozen=True, kw_only=True):
    unsubscribed: list[str] = []


# -- resources ------------------------------------------------------------------------------------


class ResourcesListParams(_Wire, frozen=True, kw_only=True):
    pattern: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET


class Resource(_Wire, frozen=True, kw_only=True):
    uri: str
    name: str = ""
    description: str | UnsetType | None = UNSET
    mime_type: str | UnsetType | None = UNSET
    size: int | UnsetType | None = UNSET


class ResourcesListResult(_Wire, frozen=True, kw_only=True):
    resources: list[Resource]


class ResourcesReadParams(_Wire, frozen=True, kw_only=True):
    uri: str


class ResourcesReadResult(_Wire, frozen=True, kw_only=True):
    content: Any
    mime_type: str | UnsetType | None = UNSET
    encoding: str | UnsetType | None = UNSET


# -- state ----------------------------------------------------------------------------------------


class StateGetParams(_Wire, frozen=True, kw_only=True):
    components: list[str] | UnsetType = UNSET
    player_id: str | UnsetType = UNSET


class StateGetResult(_Wire, frozen=True, kw_only=True):
    state: dict[str, Any]
    # Unix seconds.
    timestamp: int = 0


class StateSetParams(_Wire, frozen=True, kw_only=True):
    updates: dict[str, Raw]
    player_id: str | UnsetType = UNSET
    # true: look only, change nothing.
    validate: bool | UnsetType = UNSET


class StateError(_Wire, frozen=True, kw_only=True):
    field: str
    message: str
    code: str | UnsetType = UNSET


class StateSetResult(_Wire, frozen=True, kw_only=True):
    applied: dict[str, Any]
    errors: list[StateError] | UnsetType = UNSET


# -- attention ------------------------------------------------------------------------------------

Severity = Literal["info", "warning", "error", "fatal"]


class AttentionSample(_Wire, frozen=True, kw_only=True):
    level: Severity
    message: str
    repeat_count: int = 1
    latest_sequence: int = 0


class Attention(_Wire, frozen=True, kw_only=True):
    """Something the game wants looked at. While a blocking one is open, calls that act are not executed."""

    attention_id: str
    state: Literal["open", "cleared"]
    severity: Severity = "warning"
    # Left out it counts as true: what acts is held back rather than run on a state nobody has looked at.
    blocking: bool = True
    state_invalidated: bool = False
    summary: str = ""
    opened_at_sequence: int = 0
    latest_sequence: int = 0
    total_urgent_entries: int = 0
    causal_operation_id: str | UnsetType | None = UNSET
    causal_method: str | UnsetType | None = UNSET
    diagnostics_cursor: int | UnsetType | None = UNSET
    sample: list[AttentionSample] | UnsetType = UNSET


class NoParams(_Wire, frozen=True, kw_only=True):
    """A method without parameters."""


class AttentionCurrentResult(_Wire, frozen=True, kw_only=True):
    attention: Attention | None = None


class AttentionAckParams(_Wire, frozen=True, kw_only=True):
    attention_id: str


class AttentionAckResult(_Wire, frozen=True, kw_only=True):
    acknowledged: bool
    attention_id: str = ""
    current_attention: Attention | None = None


# -- the methods ----------------------------------------------------------------------------------


class Method(msgspec.Struct, frozen=True):
    """What a method takes and answers. A result of `None` is any JSON."""

    params: type[msgspec.Struct]
    result: type[msgspec.Struct] | None


METHODS: Final[dict[str, Method]] = {
    HELLO: Method(HelloParams, Welcome),
    TOOLS_LIST: Method(ToolsListParams, ToolsListResult),
    TOOLS_CALL: Method(ToolsCallParams, None),
    SUBSCRIBE: Method(ChannelsParams, SubscribeResult),
    UNSUBSCRIBE: Method(ChannelsParams, UnsubscribeResult),
    RESOURCES_LIST: Method(ResourcesListParams, ResourcesListResult),
    RESOURCES_READ: Method(ResourcesReadParams, ResourcesReadResult),
    STATE_GET: Method(StateGetParams, StateGetResult),
    STATE_SET: Method(StateSetParams, StateSetResult),
    ATTENTION_CURRENT: Method(NoParams, AttentionCurrentResult),
    ATTENTION_ACK: Method(AttentionAckParams, AttentionAckResult),
    TOOLS_CANCEL: Method(ToolsCancelParams, ToolsCancelResult),
}
