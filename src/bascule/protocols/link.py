"""Link: our own framed JSON-RPC over the daemon's unix socket, for client, shim and wrapper.

Frames are `Content-Length: N\\r\\n\\r\\n` + JSON. The first frame is the request `hello`; it may be sent
again on the same connection to act as somebody else (after registering, for example). Method names are
dispatch's. `$/cancel {"id"}` withdraws a request that waits. Streams open with `inbox.stream` or
`events.stream`; their items are notifications `inbox.item` and `events.item` whose params are
`{"stream": <id of the opening request>, "item": ...}`, and `$/cancel` of that id closes them.
"""

from typing import Any

import msgspec

from bascule.protocols.methods import Params, Result

# Raised when a frame, a method's shape or a meaning changes so that old peers would misread it.
PROTOCOL_VERSION = 1
# Messages handed to one inbox stream and not yet acknowledged.
CREDIT_WINDOW = 32
# A payload of 1 MiB with JSON escapes and envelope around it.
MAX_LINK_FRAME_BYTES = 8 * 1024 * 1024

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


class StreamItem(msgspec.Struct, frozen=True, kw_only=True):
    stream: Any
    item: Any


def mismatch_sentence(theirs: str, ours: str) -> str:
    """The one sentence both sides say when helper, shim or client and daemon do not match."""
    return (
        f"this program is Bascule {theirs} and the running daemon is {ours}: "
        "restart the daemon with `bascule down && bascule up -d`, or reinstall so that both match"
    )
