"""A game's tools as the mod lists them: read one by one, each with the digest it is pinned by."""

import difflib
from typing import Any

import msgspec

from bascule.wire.canonical import digest
from gabp import messages
from gabp.codec import BadJson, Raw, decode, decoder, encode
from gabp.errors import ErrorCode, GameError
from gabp.json_schema import Schema
from gabp.text import is_plain
from gabp.words import DESTRUCTIVE, MAX_SCHEMA_BYTES, bounded_tool

# The largest mod known has 123; a list beyond this is a fault or an attack.
MAX_TOOLS = 2_000
MAX_TOOL_NAME_CHARS = 256
# Of one tool in a list of tools; its schemas name the rest.
MAX_LISTED_PARAMETERS = 20

_tool = decoder(messages.Tool)


class KnownTool(msgspec.Struct, frozen=True):
    tool: messages.Tool
    # Over everything a person or a model reads of it: when this changes, what was allowed is no longer what it was.
    schema_hash: str
    schema: Schema

    @property
    def is_destructive(self) -> bool:
        """As its mod calls it."""
        tags = self.tool.tags
        return isinstance(tags, list) and DESTRUCTIVE in tags

    @property
    def parameters(self) -> list[str]:
        """Their names, for a list: a `?` behind what may be left out."""
        schema = self.tool.input_schema
        properties, required = schema.get("properties"), schema.get("required")
        names = list(properties)[:MAX_LISTED_PARAMETERS] if isinstance(properties, dict) else []
        needed = required if isinstance(required, list) else []
        return [name if name in needed else f"{name}?" for name in names if is_plain(name)]


class Catalog:
    """All tools of one session. Never changed: a new listing is a new catalog."""

    def __init__(self, listed: list[Raw]) -> None:
        self.tools: dict[str, KnownTool] = {}
        # What was left out, and why; for the log and for `games show`.
        self.notes: list[str] = []
        for number, text in enumerate(listed[:MAX_TOOLS]):
            self._add(number, text)
        if len(listed) > MAX_TOOLS:
            self.notes.append(f"{len(listed) - MAX_TOOLS} tools beyond the first {MAX_TOOLS} are left out")
        # Of all of them together: the same as long as no tool comes, goes or changes.
        self.digest = digest({name: known.schema_hash for name, known in self.tools.items()})

    def _add(self, number: int, text: Raw) -> None:
        try:
            tool = _tool.decode(text)
            whole: Any = decode(text)
        except BadJson as bad:
            self.notes.append(f"tool {number} is none: {bad.message}")
            return
        name = tool.name
        if not 0 < len(name) <= MAX_TOOL_NAME_CHARS or not is_plain(name):
            self.notes.append(f"tool {number} has no usable name")
        elif name in self.tools:
            self.notes.append(f"tool {name} is listed twice; the first one counts")
        elif max(len(encode(each)) for each in (tool.input_schema, tool.output_schema)) > MAX_SCHEMA_BYTES:
            self.notes.append(f"tool {name} is left out: one of its schemas is larger than {MAX_SCHEMA_BYTES} bytes")
        else:
            self.tools[name] = KnownTool(bounded_tool(tool), digest(whole), Schema(tool.input_schema))

    def find(self, name: str) -> KnownTool:
        found = self.tools.get(name)
        if found is None:
            # Never one that destroys: a name that was mistyped must not lead there.
            safe = [each for each, known in self.tools.items() if not known.is_destructive]
            near = difflib.get_close_matches(name[:MAX_TOOL_NAME_CHARS], safe, n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else f"; the game has {len(self.tools)} tools"
            raise GameError(ErrorCode.TOOL_NOT_FOUND, f"no tool {name[:100]!r}{hint}", {"similar": near})
        return found


def check_arguments(known: KnownTool, arguments: Any) -> None:
    """Before it is sent: an agent learns more from a sentence of ours than from most mods."""
    problems = known.schema.problems(arguments) if type(arguments) is dict else ["arguments: must be an object"]
    if problems:
        raise GameError(
            ErrorCode.INVALID_PARAMS,
            f"{known.tool.name} was not called: {'; '.join(problems)}",
            {"executed": False, "problems": problems, "inputSchema": known.tool.input_schema},
        )
