"""What a model reads before it decides: one row per MCP tool, for every surface that lists them.

`tools/gen_tools.py` writes the rows to `shim/tools.json`, which `bascule mcp` and `/mcp` both list. Names and
arguments are those of the broker spec, section 6, as far as it has them. Every word here is paid for in every
session of every agent: schemas name what a caller needs and leave the finer checks to the daemon.
"""

from typing import Any

import msgspec

# In the order they are listed. An agent sees only the sets it was started with.
TOOLSETS = ("agents", "workspace", "desktop", "games")

# MCP's own defaults are left out of the list: not read-only, destructive, not idempotent, an open world.
_CLOSED_WORLD = {"openWorldHint": False}
READS = {"readOnlyHint": True, **_CLOSED_WORLD}
ADDS = {"destructiveHint": False, **_CLOSED_WORLD}
SETS = {"destructiveHint": False, "idempotentHint": True, **_CLOSED_WORLD}
ENDS = {"idempotentHint": True, **_CLOSED_WORLD}


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    toolset: str
    title: str
    description: str
    arguments: dict[str, Any]
    required: tuple[str, ...] = ()
    # Properties of the structured result; open, so that a daemon of tomorrow may say more.
    result: dict[str, Any]
    always: tuple[str, ...]
    hints: dict[str, bool]
    # The methods it calls: who may not call one of them does not see the tool.
    uses: tuple[str, ...]
    # A tool that is one method of the house names it and needs no code in the shim.
    method: str | None = None

    def listed(self) -> dict[str, Any]:
        """As `tools/list` shows it."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": _object(self.arguments, self.required) | {"additionalProperties": False},
            "outputSchema": _object(self.result, self.always),
            "annotations": self.hints,
        }


def _object(properties: dict[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
    out = {"type": "object", "properties": properties}
    return {**out, "required": list(required)} if required else out


_STRING = {"type": "string"}
_OBJECT = {"type": "object"}
_COUNT = {"type": "integer", "minimum": 1}
_LIST = {"type": "array"}
_ANY: dict[str, Any] = {}


def _said(kind: dict[str, Any], text: str) -> dict[str, Any]:
    return {**kind, "description": text}


_REPLY = {"ticketId": _STRING, "status": {"enum": ["responded", "pending", "timeout", "cancelled"]}, "payload": _ANY}
_DEADLINE = _said(_COUNT, "Reply deadline (default 30 min)")
_THREAD = _said(_STRING, "Any id; groups messages for show_conversation")

_AGENTS = (
    Tool(
        name="send_message",
        toolset="agents",
        uses=("messages.send", "replies.wait"),
        title="Send message",
        description=(
            "Ask another agent and get its reply. None within 45 s: status `pending` and a ticketId for await_reply. "
            "awaitResponse=false returns at once."
        ),
        arguments={
            "agentId": _said(_STRING, "Handle, see co_workers"),
            "payload": _said(_STRING, "Say what you want back"),
            "timeoutMs": _DEADLINE,
            "awaitResponse": {"type": "boolean", "default": True},
            "metadata": _OBJECT,
            "conversationId": _THREAD,
        },
        required=("agentId", "payload"),
        result=_REPLY,
        always=("ticketId", "status"),
        hints=ADDS,
    ),
    Tool(
        name="await_reply",
        toolset="agents",
        uses=("replies.wait",),
        title="Await reply",
        description="Wait for the reply to a ticket you sent. `pending`: call again. `timeout`: a late reply is kept.",
        arguments={"ticketId": _STRING, "timeoutMs": _said(_COUNT, "Your own patience; a call waits 45 s at most")},
        required=("ticketId",),
        result=_REPLY,
        always=("ticketId", "status"),
        hints=READS,
    ),
    Tool(
        name="wait_for_message",
        toolset="agents",
        uses=("inbox.take", "inbox.ack"),
        title="Wait for message",
        description=(
            "Receive the next message sent to you. Call it when a result has `unread`, or when you are done and "
            "others may need you. Answer with post_reply."
        ),
        arguments={"waitMs": {"type": "integer", "minimum": 0, "description": "Default and most 45000"}},
        result={"status": {"enum": ["message", "empty"]}, "from": _STRING, "ticketId": _STRING, "payload": _ANY},
        always=("status",),
        hints=ADDS,
    ),
    Tool(
        name="post_reply",
        toolset="agents",
        uses=("replies.post",),
        title="Post reply",
        description="Answer a message you received. Needs no shell, unlike bridge-reply.",
        arguments={"ticketId": _STRING, "payload": {"description": "Text or JSON"}, "metadata": _OBJECT},
        required=("ticketId", "payload"),
        result={"status": _STRING, "first": {"type": "boolean"}},
        always=("status",),
        hints=ADDS,
    ),
    Tool(
        name="co_workers",
        toolset="agents",
        uses=("agents.list",),
        title="Co-workers",
        description="Whom you can write to: handle, type, status, directory.",
        arguments={},
        result={"agents": _LIST, "you": _STRING},
        always=("agents", "you"),
        hints=READS,
    ),
    Tool(
        name="list_agents",
        toolset="agents",
        uses=("agents.list",),
        title="List agents",
        description="All agents with full metadata; co_workers is shorter.",
        arguments={"type": _said(_STRING, "e.g. codex"), "status": {"type": "string", "enum": ["online", "offline"]}},
        result={"agents": _LIST, "you": _STRING},
        always=("agents", "you"),
        hints=READS,
    ),
    Tool(
        name="broadcast_message",
        toolset="agents",
        uses=("messages.broadcast",),
        title="Broadcast message",
        description="Send one message to several agents, one ticket each; collect with await_reply.",
        arguments={
            "payload": _STRING,
            "agentIds": {"type": "array", "items": _STRING, "description": "Default: all online"},
            "type": _STRING,
            "timeoutMs": _COUNT,
            "metadata": _OBJECT,
            "conversationId": _STRING,
        },
        required=("payload",),
        result={"tickets": _LIST, "failed": _LIST},
        always=("tickets",),
        hints=ADDS,
    ),
    Tool(
        name="cancel_ticket",
        toolset="agents",
        uses=("tickets.cancel",),
        title="Cancel ticket",
        description="Withdraw a message whose reply nobody needs any more.",
        arguments={"ticketId": _STRING, "reason": _STRING},
        required=("ticketId",),
        result={"ticketId": _STRING, "status": _STRING},
        always=("ticketId", "status"),
        hints=ENDS,
    ),
    Tool(
        name="list_tickets",
        toolset="agents",
        uses=("tickets.list",),
        title="List tickets",
        description="Your messages, sent and received, newest first: states, no texts.",
        arguments={
            "status": {"type": "string", "enum": ["pending", "delivered", "responded", "timeout", "cancelled"]},
            "limit": _COUNT,
        },
        result={"tickets": _LIST},
        always=("tickets",),
        hints=READS,
    ),
    Tool(
        name="show_conversation",
        toolset="agents",
        uses=("conversations.show",),
        title="Show conversation",
        description="Read a conversation again, oldest first, with texts and replies.",
        arguments={"conversationId": _STRING, "limit": _COUNT},
        required=("conversationId",),
        result={"tickets": _LIST},
        always=("tickets",),
        hints=READS,
    ),
    Tool(
        name="register_agent",
        toolset="agents",
        uses=("agents.register",),
        title="Register agent",
        description="Change your handle. You have one already; only when asked to.",
        arguments={
            "agentId": _STRING,
            "type": _STRING,
            "metadata": _OBJECT,
            "heartbeatIntervalMs": {"type": "integer"},
        },
        required=("agentId",),
        result={"agentId": _STRING, "status": _STRING},
        always=("agentId", "status"),
        hints=SETS,
    ),
)

# A bridge adds its rows here, and every surface lists them.
TOOLS: tuple[Tool, ...] = _AGENTS


def table() -> dict[str, Any]:
    """What `shim/tools.json` holds."""
    return {
        "toolsets": {name: [tool.name for tool in TOOLS if tool.toolset == name] for name in TOOLSETS},
        "methods": {tool.name: tool.method for tool in TOOLS if tool.method},
        "tools": [tool.listed() for tool in TOOLS],
    }
