"""The table of tools: what the model reads before it decides.

Names and arguments are those of the broker spec, section 6; `wait_for_message` is ours.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from typing import Any

_HANDLE = {"type": "string", "description": "An agent's handle, e.g. Jerry", "minLength": 1, "maxLength": 64}
_TICKET = {"type": "string", "description": "The ticket's id", "minLength": 1, "maxLength": 128}
_METADATA = {"type": "object", "description": "Anything further, passed on as it is"}
_TIMEOUT = {"type": "integer", "minimum": 1, "maximum": 604_800_000}
_STATUS = {"type": "string"}
_UNREAD = {"type": "integer", "description": "Messages waiting for you: call wait_for_message"}
_YOU = {"type": "string", "description": "Your own handle"}
_ANY: dict[str, Any] = {}


def _object(properties: dict[str, Any], required: tuple[str, ...] = (), *, closed: bool = True) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "object", "properties": properties, "required": list(required)}
    if closed:
        out["additionalProperties"] = False
    return out


def _result(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    """Open: a daemon of tomorrow may say more."""
    return _object({**properties, "unread": _UNREAD, "you": _YOU}, required, closed=False)


_REPLY = _result(
    ("ticketId", "status"),
    ticketId=_TICKET,
    status={**_STATUS, "enum": ["responded", "pending", "timeout", "cancelled"]},
    payload=_ANY,
    latencyMs={"type": "integer"},
    ticketStatus={**_STATUS, "description": "pending: not read yet; delivered: read, not answered"},
    agentStatus={**_STATUS, "description": "offline: the message waits in its inbox"},
    note={"type": "string"},
    next={"type": "string", "description": "The tool to call next"},
    **{"from": {"type": "string", "description": "Verified sender of the reply"}},
)


def _tool(  # noqa: PLR0917 - a row of the table below, in its columns
    name: str,
    title: str,
    description: str,
    arguments: dict[str, Any],
    result: dict[str, Any],
    hints: tuple[bool, bool],
) -> dict[str, Any]:
    read_only, idempotent = hints
    return {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": arguments,
        "outputSchema": result,
        "annotations": {
            "title": title,
            "readOnlyHint": read_only,
            "destructiveHint": False,
            "idempotentHint": idempotent,
            "openWorldHint": False,
        },
    }


TOOLS: list[dict[str, Any]] = [
    _tool(
        "send_message",
        "Send a message to an agent",
        "Send a message to another agent and wait for its reply. Returns the reply, or after 45 s status "
        "`pending` with a ticketId: then call await_reply. Set awaitResponse to false to go on meanwhile.",
        _object(
            {
                "agentId": _HANDLE,
                "payload": {"type": "string", "description": "The message. Say what you want back."},
                "timeoutMs": {**_TIMEOUT, "description": "When a reply is too late (default 30 minutes)"},
                "awaitResponse": {"type": "boolean", "default": True, "description": "Wait for the reply"},
                "metadata": _METADATA,
            },
            ("agentId", "payload"),
        ),
        _REPLY,
        (False, False),
    ),
    _tool(
        "await_reply",
        "Wait for a reply",
        "Wait for the reply to a message you sent. Status `pending`: call it again. Status `timeout`: the "
        "time is over; a late reply is still kept.",
        _object(
            {
                "ticketId": _TICKET,
                "timeoutMs": {**_TIMEOUT, "description": "How long you want to wait (at most 45 s per call)"},
            },
            ("ticketId",),
        ),
        _REPLY,
        (True, True),
    ),
    _tool(
        "wait_for_message",
        "Wait for a message to you",
        "Receive the next message that another agent sent to you, waiting up to 45 s. Call it when a result "
        "has `unread`, or when you are done and others may need you. Answer with post_reply.",
        _object(
            {
                "waitMs": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "How long to wait (default and most 45000)",
                }
            }
        ),
        _result(
            ("status",),
            status={**_STATUS, "enum": ["message", "empty"]},
            ticketId=_TICKET,
            payload=_ANY,
            metadata={"type": "object"},
            expectReply={"type": "boolean"},
            replyBy={"type": "string"},
            note={"type": "string"},
            next={"type": "string", "description": "The tool to call next"},
            **{"from": {"type": "string", "description": "Verified sender"}},
        ),
        (False, False),
    ),
    _tool(
        "post_reply",
        "Answer a message",
        "Answer a message you received, by its ticketId. Works where the shell command bridge-reply cannot "
        "(a sandbox without sockets).",
        _object(
            {
                "ticketId": _TICKET,
                "payload": {"description": "The answer: text, or any JSON"},
                "metadata": {"type": "object", "description": 'For example {"status":"completed"}'},
            },
            ("ticketId", "payload"),
        ),
        _result(
            ("ticketId", "status"),
            ticketId=_TICKET,
            status=_STATUS,
            first={
                "type": "boolean",
                "description": "False: an earlier reply stands, yours is kept behind it",
            },
            late={"type": "boolean"},
        ),
        (False, False),
    ),
    _tool(
        "list_agents",
        "List agents",
        "List the agents you can write to: handle, type, online or offline, directory. `you` is yourself.",
        _object(
            {
                "type": {"type": "string", "description": "Only this kind, e.g. codex"},
                "status": {"type": "string", "enum": ["online", "offline"]},
            }
        ),
        _result(("agents",), agents={"type": "array", "items": {"type": "object"}}),
        (True, True),
    ),
    _tool(
        "register_agent",
        "Choose your handle",
        "Take another handle for yourself. You have one already (list_agents says which): call this only "
        "when you were asked to be known under a certain name.",
        _object(
            {
                "agentId": _HANDLE,
                "type": {"type": "string", "minLength": 1, "maxLength": 64},
                "metadata": _METADATA,
                "heartbeatIntervalMs": {"type": "integer", "minimum": 100, "maximum": 86_400_000},
            },
            ("agentId",),
        ),
        _result(("agentId", "status"), agentId=_HANDLE, status=_STATUS),
        (False, True),
    ),
]
BY_NAME: dict[str, dict[str, Any]] = {tool["name"]: tool for tool in TOOLS}

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "object": dict,
    "array": list,
}


def fault_in(name: str, arguments: Any) -> str | None:
    """What is wrong with the arguments, in words a model can act on; the daemon checks the rest."""
    schema = BY_NAME[name]["inputSchema"]
    properties: dict[str, Any] = schema["properties"]
    if not isinstance(arguments, dict):
        return f"{name}: arguments must be an object"
    for key in schema["required"]:
        if key not in arguments:
            return f"{name}: the argument {key} is missing"
    for key, value in arguments.items():
        if key not in properties:
            return f"{name}: there is no argument {key}; it takes {', '.join(properties)}"
        if problem := _fault_in_value(properties[key], value):
            return f"{name}: {key} {problem}"
    return None


def _fault_in_value(schema: dict[str, Any], value: Any) -> str | None:
    kind = schema.get("type")
    # In Python, but not in JSON, true is a number.
    if kind and (not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool))):
        return f"must be of type {kind}"
    if "enum" in schema and value not in schema["enum"]:
        return f"must be one of {', '.join(schema['enum'])}"
    size = len(value) if isinstance(value, str) else value
    low = schema.get("minLength", schema.get("minimum"))
    high = schema.get("maxLength", schema.get("maximum"))
    if (low is not None and size < low) or (high is not None and size > high):
        return f"must be between {low} and {high if high is not None else 'any'}"
    return None
