"""The table of tools: what the model reads before it decides.

Written once, in `bascule.protocols.tools`; here read from the file that `tools/gen_tools.py` makes of it, and
only when somebody lists or calls: `initialize` does not wait for it.

    TOOLS     every tool as `tools/list` shows it
    BY_NAME   the same by name
    SETS      toolset -> names of its tools
    METHODS   tools that are one method of the house, by name
"""

from __future__ import annotations

import json
import os

from bascule.doors.exits import WrongUsage
from bascule.doors.values import decode

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    TOOLS: list[dict[str, Any]]
    BY_NAME: dict[str, dict[str, Any]]
    SETS: dict[str, list[str]]
    METHODS: dict[str, str]

# Held equal to `protocols.tools` by a test; here so that an option is checked without reading the table.
TOOLSETS = ("agents", "workspace", "desktop", "games")
# What an agent that was not told otherwise sees. Games cost 2,000 tokens in every session, and few agents play.
DEFAULT_TOOLSETS = ("agents", "workspace")

_FILE = os.path.join(os.path.dirname(__file__), "tools.json")


_table: dict[str, Any] = {}


def table() -> dict[str, Any]:
    """The parts above by name; read from the file when the first is wanted."""
    if not _table:
        with open(_FILE, "rb") as file:
            read = decode(file.read())
        _table.update(
            TOOLS=read["tools"],
            BY_NAME={tool["name"]: tool for tool in read["tools"]},
            SETS=read["toolsets"],
            METHODS=read["methods"],
        )
    return _table


def __getattr__(name: str) -> Any:
    if name in {"TOOLS", "BY_NAME", "SETS", "METHODS"}:
        return table()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def toolsets_in(text: str) -> tuple[str, ...]:
    """`agents,workspace` as typed behind --toolset or set in BRIDGE_TOOLSETS."""
    names = tuple(dict.fromkeys(part for word in text.split(",") if (part := word.strip())))
    for name in names:
        if name not in TOOLSETS:
            raise WrongUsage(f"there is no toolset {name!r}; there are {', '.join(TOOLSETS)}")
    if not names:
        raise WrongUsage(f"no toolset is named; there are {', '.join(TOOLSETS)}")
    return names


def visible(toolsets: Collection[str] = TOOLSETS, hidden: Collection[str] = ()) -> list[dict[str, Any]]:
    """The tools of some sets, in the table's order, as `tools/list` shows them."""
    parts = table()
    names = {name for toolset in toolsets for name in parts["SETS"][toolset]}.difference(hidden)
    return [tool for tool in parts["TOOLS"] if tool["name"] in names]


_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "object": dict,
    "array": list,
}


def fault_in(name: str, arguments: Any) -> str | None:
    """What is wrong with the arguments, in words a model can act on; the daemon checks the rest."""
    schema = table()["BY_NAME"][name]["inputSchema"]
    properties: dict[str, Any] = schema["properties"]
    if not isinstance(arguments, dict):
        return f"{name}: arguments must be an object"
    if not _is_text(arguments):
        return f"{name}: a text holds half a surrogate pair; send proper Unicode"
    for key in schema.get("required", ()):
        if key not in arguments:
            return f"{name}: the argument {key} is missing"
    for key, value in arguments.items():
        if key not in properties:
            takes = f"it takes {', '.join(properties)}" if properties else "it takes none"
            return f"{name}: there is no argument {key}; {takes}"
        if problem := _fault_in_value(properties[key], value):
            return f"{name}: {key} {problem}"
    return None


def _is_text(value: Any) -> bool:
    """No string in it that UTF-8 cannot carry: the daemon would refuse the whole frame."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _fault_in_value(schema: dict[str, Any], value: Any) -> str | None:
    kind = schema.get("type")
    # In Python, but not in JSON, true is a number.
    if kind and (not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool))):
        return f"must be of type {kind}"
    if "enum" in schema and value not in schema["enum"]:
        return f"must be one of {', '.join(schema['enum'])}"
    if "items" in schema:
        return next((fault for item in value if (fault := _fault_in_value(schema["items"], item))), None)
    low = schema.get("minimum")
    return f"must be {low} or more" if low is not None and value < low else None
