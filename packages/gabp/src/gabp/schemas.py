"""The published GABP schemas as strict sessions check them: required fields, patterns, and nothing unknown."""

from typing import Any, Final

from gabp import messages
from gabp.json_schema import Schema

_TEXT: Final = {"type": "string", "minLength": 1}
_NAME: Final = {"type": "string", "pattern": "^[a-z][a-z0-9_-]*(/[a-z][a-z0-9_-]*)+$"}
_WORDS: Final = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
_COUNT: Final = {"type": "integer", "minimum": 0}
_SEVERITY: Final = {"enum": ["info", "warning", "error", "fatal"]}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
        "additionalProperties": False,
    }


_CAPABILITIES: Final = _object(
    {},
    {
        "methods": {"type": "array", "items": _NAME, "uniqueItems": True},
        "events": _WORDS,
        "resources": {"type": "array", "items": {"type": "string", "format": "uri"}, "uniqueItems": True},
        "extensions": {
            "type": "object",
            "propertyNames": {"pattern": "^[a-z][a-z0-9_-]*$"},
            "additionalProperties": {"type": "object"},
        },
        "limits": _object(
            {},
            {
                "maxMessageSize": {"type": "integer", "minimum": 1024},
                "maxConcurrentRequests": {"type": "integer", "minimum": 1},
                "requestTimeout": {"type": "integer", "minimum": 1},
            },
        ),
    },
)

_TOOL: Final = _object(
    {
        "name": _NAME,
        "title": _TEXT,
        "description": _TEXT,
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object"},
    },
    {"tags": _WORDS, "deprecated": {"type": "boolean"}, "version": {"type": "string"}},
)

ATTENTION: Final = _object(
    {
        "attentionId": _TEXT,
        "state": {"enum": ["open", "cleared"]},
        "severity": _SEVERITY,
        "blocking": {"type": "boolean"},
        "stateInvalidated": {"type": "boolean"},
        "summary": _TEXT,
        "openedAtSequence": _COUNT,
        "latestSequence": _COUNT,
        "totalUrgentEntries": _COUNT,
    },
    {
        "causalOperationId": {"type": "string"},
        "causalMethod": {"type": "string"},
        "diagnosticsCursor": _COUNT,
        "sample": {
            "type": "array",
            "items": _object(
                {
                    "level": _SEVERITY,
                    "message": _TEXT,
                    "repeatCount": {"type": "integer", "minimum": 1},
                    "latestSequence": _COUNT,
                }
            ),
        },
    },
)
_ATTENTION_OR_NULL: Final = {"anyOf": [{"type": "null"}, ATTENTION]}
_CHANNELS: Final = _object({"channels": {"type": "array", "items": _TEXT, "minItems": 1, "uniqueItems": True}})
_STRINGS: Final = {"type": "array", "items": {"type": "string"}}

_PARAMS: Final[dict[str, dict[str, Any]]] = {
    messages.HELLO: _object(
        {
            "token": {"type": "string", "minLength": messages.MIN_TOKEN_CHARS},
            "bridgeVersion": _TEXT,
            "platform": {"enum": list(messages.PLATFORMS)},
            "launchId": {"type": "string", "format": "uuid"},
        },
        {"clientInfo": _object({}, {"name": {"type": "string"}, "version": {"type": "string"}})},
    ),
    messages.TOOLS_LIST: _object({}, {"filter": _object({}, {"tags": _STRINGS, "namePattern": {"type": "string"}})}),
    messages.TOOLS_CALL: _object({"name": _NAME}, {"arguments": {"type": "object"}}),
    messages.SUBSCRIBE: _CHANNELS,
    messages.UNSUBSCRIBE: _CHANNELS,
    messages.RESOURCES_LIST: _object({}, {"pattern": {"type": "string"}, "namespace": {"type": "string"}}),
    messages.RESOURCES_READ: _object({"uri": {"type": "string", "format": "uri"}}),
    messages.STATE_GET: _object({}, {"components": _STRINGS, "playerId": {"type": "string"}}),
    messages.STATE_SET: _object(
        {"updates": {"type": "object"}}, {"playerId": {"type": "string"}, "validate": {"type": "boolean"}}
    ),
    messages.ATTENTION_CURRENT: _object({}),
    messages.ATTENTION_ACK: _object({"attentionId": _TEXT}),
    messages.TOOLS_CANCEL: _object({"requestId": _TEXT}),
}

_RESULTS: Final[dict[str, dict[str, Any]]] = {
    messages.HELLO: _object(
        {
            "agentId": _TEXT,
            "app": _object({"name": _TEXT, "version": _TEXT}),
            "capabilities": _CAPABILITIES,
            "schemaVersion": {"type": "string", "pattern": "^1\\.\\d+(?:\\.\\d+)?$"},
        },
        {
            "serverInfo": _object(
                {}, {"name": {"type": "string"}, "version": {"type": "string"}, "author": {"type": "string"}}
            )
        },
    ),
    messages.TOOLS_LIST: _object({"tools": {"type": "array", "items": _TOOL}}),
    messages.SUBSCRIBE: _object({"subscribed": _STRINGS}),
    messages.UNSUBSCRIBE: _object({"unsubscribed": _STRINGS}),
    messages.RESOURCES_LIST: _object(
        {
            "resources": {
                "type": "array",
                "items": _object(
                    {"uri": {"type": "string", "format": "uri"}, "name": {"type": "string"}},
                    {"description": {"type": "string"}, "mimeType": {"type": "string"}, "size": _COUNT},
                ),
            }
        }
    ),
    messages.RESOURCES_READ: _object(
        {"content": {}},
        {"mimeType": {"type": "string"}, "encoding": {"enum": ["utf-8", "base64", "ascii", "binary"]}},
    ),
    messages.STATE_GET: _object({"state": {"type": "object"}, "timestamp": _COUNT}),
    messages.STATE_SET: _object(
        {"applied": {"type": "object"}},
        {
            "errors": {
                "type": "array",
                # The one object that the published schemas leave open.
                "items": {
                    "type": "object",
                    "required": ["field", "message"],
                    "properties": {
                        "field": {"type": "string"},
                        "message": {"type": "string"},
                        "code": {"type": "string"},
                    },
                },
            }
        },
    ),
    messages.ATTENTION_CURRENT: _object({"attention": _ATTENTION_OR_NULL}),
    messages.ATTENTION_ACK: _object(
        {"acknowledged": {"type": "boolean"}, "attentionId": _TEXT, "currentAttention": _ATTENTION_OR_NULL}
    ),
    messages.TOOLS_CANCEL: _object({"cancelled": {"type": "boolean"}}),
}

PARAMS: Final[dict[str, Schema]] = {name: Schema(schema, trusted=True) for name, schema in _PARAMS.items()}
RESULTS: Final[dict[str, Schema]] = {name: Schema(schema, trusted=True) for name, schema in _RESULTS.items()}
EVENTS: Final[dict[str, Schema]] = {channel: Schema(ATTENTION, trusted=True) for channel in messages.ATTENTION_CHANNELS}
