"""What a mod offers: tools, resources, parts of its state, event channels. Filled by the game, read by the I/O."""

import threading
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from msgspec import UnsetType

from bascule_mod.schemas import BadTool
from bascule_mod.things import Component, ResourceEntry
from bascule_mod.tools import ToolEntry
from gabp import messages
from gabp.envelopes import MAX_NAME_CHARS

# The bridge reads names and schemas of all of them; the largest mod known has 123.
MAX_TOOLS = 2_000


class Registry:
    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called when what bridges were told is no longer true."""
        self._lock = threading.Lock()
        self._changed = changed
        self.tools: dict[str, ToolEntry] = {}
        self.resources: dict[str, ResourceEntry] = {}
        self.components: dict[str, Component] = {}
        # The last number given to each channel's events.
        self.channels: dict[str, int] = dict.fromkeys(
            (*messages.ATTENTION_CHANNELS, messages.PROGRESS_CHANNEL, messages.CHANGES_CHANNEL), -1
        )

    def add_tool(self, entry: ToolEntry) -> None:
        with self._lock:
            if entry.name in self.tools:
                raise BadTool(f"there is a tool {entry.name} already; give one of them another name")
            if len(self.tools) >= MAX_TOOLS:
                raise BadTool(f"a mod has at most {MAX_TOOLS} tools")
            # A new dict, so that the I/O thread never meets one that changes under its hands.
            self.tools = {**self.tools, entry.name: entry}
        self._changed()

    def remove_tool(self, name: str) -> None:
        with self._lock:
            self.tools = {each: entry for each, entry in self.tools.items() if each != name}
        self._changed()

    def add_resource(self, entry: ResourceEntry) -> None:
        with self._lock:
            self.resources = {**self.resources, entry.uri: entry}
        self._changed()

    def add_component(self, component: Component) -> None:
        with self._lock:
            self.components = {**self.components, component.name: component}

    def add_channel(self, name: str) -> None:
        if not 0 < len(name) <= MAX_NAME_CHARS or name.endswith("/*"):
            raise BadTool(f"{name[:60]!r} is not a channel name: 1 to {MAX_NAME_CHARS} characters, like enemy/spawned")
        with self._lock:
            if name in self.channels:
                return
            self.channels = {**self.channels, name: -1}
        self._changed()

    def next_seq(self, channel: str) -> int:
        with self._lock:
            seq = self.channels[channel] + 1
            self.channels[channel] = seq
            return seq

    # -- for answers --

    def listed_tools(self, wanted: messages.ToolFilter | UnsetType) -> list[messages.Tool]:
        tools = [entry.listed for entry in self.tools.values()]
        if isinstance(wanted, messages.ToolFilter):
            if isinstance(wanted.tags, list):
                asked = set(wanted.tags)
                tools = [each for each in tools if isinstance(each.tags, list) and asked.issubset(each.tags)]
            if isinstance(wanted.name_pattern, str):
                tools = [each for each in tools if fnmatchcase(each.name, wanted.name_pattern)]
        return tools

    def listed_resources(self, params: messages.ResourcesListParams) -> list[messages.Resource]:
        found = [entry.listed for entry in self.resources.values()]
        if isinstance(params.namespace, str):
            found = [each for each in found if each.uri.startswith(f"gabp://{params.namespace}/")]
        if isinstance(params.pattern, str):
            found = [each for each in found if fnmatchcase(each.uri, params.pattern)]
        return found

    def capabilities(self, limits: messages.Limits, extensions: dict[str, dict[str, Any]]) -> messages.Capabilities:
        return messages.Capabilities(
            methods=sorted(messages.METHODS),
            events=sorted(self.channels),
            resources=sorted(self.resources),
            extensions=extensions,
            limits=limits,
        )
