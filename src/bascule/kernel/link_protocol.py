"""Link: our own framed JSON-RPC over the daemon's unix socket, for client, stdio program and wrapper.

Frames are `Content-Length: N\\r\\n\\r\\n` + JSON. The first frame is the request `hello`; it may be sent
again on the same connection to act as another agent (after registering, for example). Method names are
the gate's. `$/cancel {"id"}` withdraws a request that waits. Streams open with `inbox.stream` or
`events.stream`; their items are notifications `inbox.item` and `events.item` whose params are
`{"stream": <id of the opening request>, "item": ...}`, and `$/cancel` of that id closes them.

MCP is carried, not spoken, by the stdio program; a carrier has no rows, and its principal is the connection's:

    mcp.open     request: what the session is; once per connection, as an agent
    mcp.request  request: one MCP request with the id of its call and the time left; answered with the MCP answer, and
                 with `confirm` where `mcp.done` is wanted
    mcp.message  notification, both ways: MCP notifications
    mcp.answer   notification: what the client answered to a request that came as `mcp.message`
    mcp.done     notification: the client has the bytes of the answer; only now is a message acknowledged
    mcp.become   notification to the program: register and say hello under another name; `mcp.became` answers it
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from bascule.foundation.ids import BROADCAST_ID_PATTERN
from bascule.kernel.rows import Params, Result

# Messages handed to one inbox stream and not yet acknowledged.
CREDIT_WINDOW = 32

# JSON-RPC's own codes (-32700, -32600, -32601, -32602, -32603) for broken envelopes; this one for all
# errors of the house, whose name is in `data.code`.
HOUSE_ERROR = -32000


class HelloParams(Params, frozen=True, kw_only=True):
    protocol: int
    version: str
    token: str | None = None


class HelloResult(Result, frozen=True, kw_only=True):
    protocol: int
    version: str
    principal: str


class McpOpen(Params, frozen=True, kw_only=True):
    toolsets: list[str]
    # Tools of these sets that are not to be seen.
    hidden: list[str] = []
    trust: str
    # Where the client was started.
    directory: str | None = None
    # The reply deadline of messages that name none.
    default_timeout_ms: Annotated[int, Meta(ge=1)] | None = None
    # The client opens pages for its user: elicitation by URL.
    opens_pages: bool = False
    # The client fills forms in: elicitation by form, asked for by a request.
    fills_forms: bool = False


class McpMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A request of MCP, as the client wrote it."""

    id: int | str
    method: str
    params: dict[str, Any] = {}


class McpRequest(Params, frozen=True, kw_only=True):
    # The same when a call is repeated on another connection.
    call: Annotated[str, Meta(pattern=BROADCAST_ID_PATTERN)]
    # Of the time that a call may take; less when it is repeated.
    left_ms: Annotated[int, Meta(ge=0)]
    # The handle that the client knows itself by; another one is named in the result.
    named: str | None = None
    # It was sent before: what it has notified of since is not known.
    again: bool = False
    message: McpMessage


class McpDone(Params, frozen=True, kw_only=True):
    call: str


class McpNotification(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    params: dict[str, Any] = {}


class McpNotified(Params, frozen=True, kw_only=True):
    message: McpNotification


class McpFilled(msgspec.Struct, frozen=True, kw_only=True):
    """The client's answer to a request of ours."""

    id: int | str
    result: dict[str, Any] = {}


class McpAnswered(Params, frozen=True, kw_only=True):
    message: McpFilled


class McpBecame(Params, frozen=True, kw_only=True):
    number: int
    # What agents.register answered, or the error that it was refused with.
    result: dict[str, Any] = {}
    error: dict[str, Any] | None = None


class StreamItem(msgspec.Struct, frozen=True, kw_only=True):
    stream: Any
    item: Any


def mismatch_sentence(theirs: str, ours: str) -> str:
    """The one sentence both sides say when helper, stdio program or client and daemon do not match."""
    return (
        f"this program is Bascule {theirs} and the running daemon is {ours}: "
        "restart the daemon with `bascule down && bascule up -d`, or reinstall so that both match"
    )
