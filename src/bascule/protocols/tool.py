"""One row of the table of MCP tools, and the words its schemas are made of."""

from typing import Any

import msgspec

# MCP's own defaults are left out of the list: not read-only, destructive, not idempotent, an open world.
_CLOSED_WORLD = {"openWorldHint": False}
READS = {"readOnlyHint": True, **_CLOSED_WORLD}
ADDS = {"destructiveHint": False, **_CLOSED_WORLD}
SETS = {"destructiveHint": False, "idempotentHint": True, **_CLOSED_WORLD}
ENDS = {"idempotentHint": True, **_CLOSED_WORLD}
# May do anything that the policy lets it.
ACTS = {"destructiveHint": True, **_CLOSED_WORLD}


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


STRING = {"type": "string"}
OBJECT = {"type": "object"}
COUNT = {"type": "integer", "minimum": 1}
LIST = {"type": "array"}
ANY: dict[str, Any] = {}


def said(kind: dict[str, Any], text: str) -> dict[str, Any]:
    return {**kind, "description": text}
