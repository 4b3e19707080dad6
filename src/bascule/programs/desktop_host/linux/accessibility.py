"""The accessibility bus: which programs are on it, what is in their windows, what changes there."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final

import msgspec
from dbus_fast import Message, MessageType, Variant

from bascule.desktop import roles
from bascule.programs.desktop_host.elements import Element, Key
from bascule.programs.desktop_host.geometry import NOWHERE, Rect
from bascule.programs.desktop_host.linux.bus import DBUS, PROPERTIES, Bus, BusError, BusLost
from bascule.programs.desktop_host.linux.toolkits import PLAIN, SLOWEST, Quirks, is_class_name, quirks_of
from bascule.programs.desktop_host.ports import Pace

ATSPI: Final = "org.a11y.atspi."
ACCESSIBLE: Final = ATSPI + "Accessible"
COMPONENT: Final = ATSPI + "Component"
TEXT: Final = ATSPI + "Text"
VALUE: Final = ATSPI + "Value"
REGISTRY: Final = ATSPI + "Registry"
ROOT: Final = "/org/a11y/atspi/accessible/root"
SCREEN_COORDINATES: Final = 0

# A spreadsheet claims 2^30 children; no window shows this many at once.
MAX_CHILDREN: Final = 5_000
# Objects of one program that are kept while its tree is put together. The bulk answer comes in any order, so that it
# must be read whole before it can be cut.
MAX_READ: Final = 200_000
# What of a text is read as an element's value; a document is read by other means.
MAX_VALUE_CHARS: Final = 16_384
MAX_NAME_CHARS: Final = 2_048
# A program that does not answer one question in this time does not answer: it is stopped, or hangs.
ANSWER_SECONDS: Final = 2.0
# How long a program may take to say what toolkit it is made with.
INTRODUCTION_SECONDS: Final = 1.0

# What programs tell us while somebody waits for a change. Before the first RegisterEvent GTK 3 has no cache at all.
_EVENTS: Final = (
    "object:children-changed",
    "object:state-changed",
    "object:property-change",
    "object:text-changed",
    "window",
)
_SIGNALS: Final = "type='signal',path_namespace='/org/a11y/atspi',interface='org.a11y.atspi.Event.{}'"

_STATE_NAMES: Final = (
    "invalid|active|armed|busy|checked|collapsed|defunct|editable|enabled|expandable|expanded|focusable|focused|"
    "has tooltip|horizontal|iconified|modal|multi line|multiselectable|opaque|pressed|resizable|selectable|selected|"
    "sensitive|showing|single line|stale|transient|vertical|visible|manages descendants|indeterminate|required|"
    "truncated|animated|invalid entry|supports autocompletion|selectable text|default|visited|checkable|has popup|"
    "read only"
)
_STATES: Final = _STATE_NAMES.split("|")
_MULTI_LINE: Final = 17
# Of an object in Cache.GetItems: itself, application, parent, place, number of children, interfaces, name, role,
# description, states.
_ITEM_FIELDS: Final = 10
# In the place of each object that is inside a text.
_OBJECT: Final = "\ufffc"
_PADDED: Final = re.compile("([\U00010000-\U0010ffff])\ufeff")
_CHECKABLE: Final = frozenset({"AXCheckBox", "AXRadioButton"})

# Program's bus name, path of the object, kind of event ("StateChanged:checked").
Listener = Callable[[str, str, str], None]


class Program(msgspec.Struct, kw_only=True):
    """A program on the accessibility bus."""

    bus_name: str
    pid: int
    quirks: Quirks | None = None


class Node(msgspec.Struct, gc=False):
    """What the bus said of one object."""

    path: str
    parent: str
    index: int
    # How many children it says it has; None: not asked yet, -1: it does not know.
    count: int | None
    interfaces: frozenset[str]
    name: str
    role: int
    states: int
    description: str = ""


class Reading(msgspec.Struct):
    """A program's objects as far as they could be read in time."""

    nodes: dict[str, Node]
    partial: set[str]


@lru_cache(maxsize=4_096)
def state_names(bits: int) -> frozenset[str]:
    return frozenset(name for at, name in enumerate(_STATES) if bits >> at & 1)


@lru_cache(maxsize=1_024)
def _interfaces(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(names)


class Accessibility:
    """Reading. Acting on an element is `actions`."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self._programs: dict[str, Program] = {}
        self._listeners: set[Listener] = set()
        # The bus counts: a rule that is added twice and removed once stays, and every event of every program with it.
        self._matching = asyncio.Lock()
        self._matched = False
        bus.listen(self._on_message)

    @classmethod
    async def open(cls, address: str) -> "Accessibility":
        self = cls(await Bus.open(address))
        for event in _EVENTS:
            await self.bus.call(
                REGISTRY, "/org/a11y/atspi/registry", REGISTRY, "RegisterEvent", "sass", (event, [], "")
            )
        return self

    # -- programs --

    async def programs(self) -> list[Program]:
        children = await self.bus.call(REGISTRY, ROOT, ACCESSIBLE, "GetChildren")
        names = list(dict.fromkeys(name for name, _ in children or ()))
        for name in set(self._programs) - set(names):
            del self._programs[name]
            self.bus.forget(name)
        for name in names:
            if name not in self._programs:
                # The bus itself answers this, so a frozen program costs nothing here.
                pid = await self.bus.maybe(
                    DBUS, "/org/freedesktop/DBus", DBUS, "GetConnectionUnixProcessID", "s", (name,)
                )
                if pid is not None:
                    self._programs[name] = Program(bus_name=name, pid=int(pid))
        return [self._programs[name] for name in names if name in self._programs]

    async def quirks(self, program: Program) -> Quirks:
        if program.quirks is None:
            try:
                async with asyncio.timeout(INTRODUCTION_SECONDS):
                    application = ATSPI + "Application"
                    toolkit = await self.bus.prop(program.bus_name, ROOT, application, "ToolkitName")
                    version = await self.bus.prop(program.bus_name, ROOT, application, "Version")
            except TimeoutError:
                return PLAIN
            program.quirks = quirks_of(str(toolkit or ""), str(version or ""))
        return program.quirks

    def known(self, name: str | None) -> Program | None:
        """As `programs` last found it."""
        return self._programs.get(name or "")

    def pace_of(self, name: str | None) -> Pace:
        program = self.known(name)
        return program.quirks.pace if program is not None and program.quirks is not None else SLOWEST

    # -- objects --

    async def read(self, program: Program, *, deadline: float, max_nodes: int) -> Reading:
        """All objects of a program, in bulk where it offers that, one by one where its bulk answer has holes."""
        reading = Reading({}, set())
        if not await self._answers(program.bus_name):
            reading.partial.add("unresponsive")
            return reading
        quirks = await self.quirks(program)
        try:
            async with asyncio.timeout_at(deadline):
                if quirks.bulk:
                    await self._read_cache(program.bus_name, reading)
                await self._fill_holes(program.bus_name, reading, max_nodes)
                if quirks.names_missing:
                    await self._read_names(program.bus_name, reading)
        except TimeoutError:
            reading.partial.add("time" if len(reading.nodes) > 1 else "unresponsive")
        return reading

    async def _answers(self, name: str) -> bool:
        """A stopped program is told apart from a large one by the smallest question there is."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self.bus.maybe(name, ROOT, ACCESSIBLE, "GetRole")
        except TimeoutError:
            return False
        return True

    async def _read_cache(self, name: str, reading: Reading) -> None:
        items = await self.bus.maybe(name, "/org/a11y/atspi/cache", ATSPI + "Cache", "GetItems")
        nodes = reading.nodes
        for item in items or ():
            if len(item) != _ITEM_FIELDS:
                # The old signature, which some toolkits have and most leave empty: walked instead.
                return
            (_, path), _, (_, parent), index, count, interfaces, title, role, description, states = item
            if len(nodes) >= MAX_READ:
                reading.partial.add("nodes")
                return
            bits = states[0] | states[1] << 32
            known = _interfaces(tuple(interfaces))
            nodes[path] = Node(path, parent, index, count, known, title, role, bits, description)

    async def _fill_holes(self, name: str, reading: Reading, max_nodes: int) -> None:
        nodes = reading.nodes
        if ROOT not in nodes and (root := await self._node(name, ROOT, "", 0)):
            nodes[ROOT] = root
        known: dict[str, int] = {}
        for node in nodes.values():
            known[node.parent] = known.get(node.parent, 0) + 1
        todo = [each for each in nodes.values() if each.count is None or 0 <= each.count != known.get(each.path, 0)]
        while todo:
            found = await self._children(name, reading, todo)
            room = max(0, max_nodes - len(nodes))
            if len(found) > room:
                reading.partial.add("nodes")
            places = list(found.items())[:room]
            new = await asyncio.gather(*(self._node(name, path, *place) for path, place in places))
            todo = [each for each in new if each is not None]
            nodes.update((each.path, each) for each in todo)

    async def _children(self, name: str, reading: Reading, parents: list[Node]) -> dict[str, tuple[str, int]]:
        """Paths not known yet, each with its parent and its place there."""
        asked = [each for each in parents if (each.count or 0) <= MAX_CHILDREN]
        if len(asked) < len(parents):
            reading.partial.add("children")
        answers = await asyncio.gather(*(self.bus.maybe(name, each.path, ACCESSIBLE, "GetChildren") for each in asked))
        found: dict[str, tuple[str, int]] = {}
        for parent, children in zip(asked, answers, strict=True):
            for index, (owner, path) in enumerate(children or ()):
                if path.endswith("/null"):
                    continue
                if owner != name:
                    # A program may name any other's window as its child; whose it is decides who may see it.
                    reading.partial.add("embedded")
                elif path not in reading.nodes:
                    found.setdefault(path, (parent.path, index))
        return found

    async def _node(self, name: str, path: str, parent: str, index: int) -> Node | None:
        role, title, states, interfaces, count = await asyncio.gather(
            self.bus.maybe(name, path, ACCESSIBLE, "GetRole"),
            self.bus.prop(name, path, ACCESSIBLE, "Name"),
            self.bus.maybe(name, path, ACCESSIBLE, "GetState"),
            self.bus.maybe(name, path, ACCESSIBLE, "GetInterfaces"),
            self.bus.prop(name, path, ACCESSIBLE, "ChildCount"),
        )
        if role is None:
            return None
        bits = states[0] | states[1] << 32 if states else 0
        known = _interfaces(tuple(interfaces or ()))
        return Node(path, parent, index, count, known, title or "", role, bits)

    async def _read_names(self, name: str, reading: Reading) -> None:
        nameless = [node for node in reading.nodes.values() if not node.name and node.states >> 25 & 1]

        async def read(node: Node) -> None:
            node.name = await self.bus.prop(name, node.path, ACCESSIBLE, "Name") or ""

        await asyncio.gather(*map(read, nameless))

    async def node(self, key: Key) -> Node | None:
        """One object as it is now; None when it is gone."""
        return await self._node(key.program, key.path, "", 0)

    async def extents(self, key: Key) -> Rect:
        found = await self.bus.maybe(key.program, key.path, COMPONENT, "GetExtents", "u", (SCREEN_COORDINATES,))
        return Rect(*found) if found else NOWHERE

    async def value(self, element: Element, quirks: Quirks) -> str | None:
        """Its text, its number, or whether it is checked; never what is in a password field."""
        interfaces = element.native
        name, path = element.key
        if element.secret:
            return None
        if element.role in _CHECKABLE:
            return "1" if "checked" in element.states else "0"
        if element.role == "AXStaticText":
            return element.title or None
        if VALUE in interfaces and element.role != "AXIncrementor":
            number = await self.bus.prop(name, path, VALUE, "CurrentValue")
            return None if number is None else f"{number:g}"
        if TEXT in interfaces and element.role in roles.TYPED_INTO:
            return await self.text(element.key, quirks)
        return None

    async def title(self, element: Element, quirks: Quirks) -> str:
        """Its name, or the text that it has in the place of one, without what is inside it."""
        if not is_unnamed_text(element, quirks):
            return element.title
        text = await self.text(element.key, quirks) or ""
        return " ".join(text.replace(_OBJECT, " ").split())[:MAX_NAME_CHARS]

    async def text(self, key: Key, quirks: Quirks) -> str | None:
        end = -1
        if quirks.text_needs_end:
            end = await self.bus.prop(key.program, key.path, TEXT, "CharacterCount") or 0
        end = min(end, MAX_VALUE_CHARS) if end >= 0 else end
        text = await self.bus.maybe(key.program, key.path, TEXT, "GetText", "ii", (0, end))
        if text is None:
            return None
        plain = _PADDED.sub(r"\1", str(text)) if quirks.text_padded else str(text)
        return plain[:MAX_VALUE_CHARS]

    # -- changes --

    @contextlib.asynccontextmanager
    async def listening(self, listener: Listener) -> AsyncIterator[None]:
        """Hear of every change in every program while inside."""
        self._listeners.add(listener)
        try:
            await self._match()
            yield
        finally:
            self._listeners.discard(listener)
            with contextlib.suppress(BusError):
                await asyncio.shield(self._match())

    async def _match(self) -> None:
        """Hear of changes while somebody listens, and not otherwise."""
        async with self._matching:
            wanted = bool(self._listeners)
            if wanted == self._matched or not self.bus.connected:
                return
            for kind in ("Object", "Window"):
                await self.bus.match(_SIGNALS.format(kind), on=wanted)
            self._matched = wanted

    def _on_message(self, message: Message) -> None:
        if message.message_type is not MessageType.SIGNAL or not self._listeners:
            return
        if not (message.interface or "").startswith(ATSPI + "Event."):
            return
        detail = message.body[0] if message.body else ""
        for listener in tuple(self._listeners):
            listener(message.sender or "", message.path or "", f"{message.member}:{detail}")


def is_unnamed_text(element: Element, quirks: Quirks) -> bool:
    """A field is not: what is in it is its value, and what is in a password field is not read."""
    if not quirks.text_unnamed or element.title or element.secret or element.role in roles.TYPED_INTO:
        return False
    return TEXT in element.native and "showing" in element.states


def has_value(element: Element) -> bool:
    return element.role in roles.TYPED_INTO or element.role in (
        "AXCheckBox",
        "AXRadioButton",
        "AXStaticText",
        "AXSlider",
        "AXProgressIndicator",
        "AXLevelIndicator",
        "AXScrollBar",
    )


async def bus_address(session: str | None, root_property: str | None) -> str:
    """Where the accessibility bus is: the session bus starts it and says so; X11's root window may know it too."""
    if session is not None:
        try:
            bus = await Bus.open(session)
            try:
                address = await bus.call("org.a11y.Bus", "/org/a11y/bus", "org.a11y.Bus", "GetAddress")
            finally:
                bus.close()
            if address:
                return str(address)
        except BusError:
            if root_property is None:
                raise
    if root_property is None:
        raise BusLost("no session bus: DBUS_SESSION_BUS_ADDRESS is not set")
    return root_property


async def enable(session: str, *, on: bool) -> bool | None:
    """Set `org.a11y.Status.IsEnabled`, which Qt 6 and Firefox look at; what it was before, None if nobody said."""
    bus = await Bus.open(session)
    try:
        was = await bus.prop("org.a11y.Bus", "/org/a11y/bus", "org.a11y.Status", "IsEnabled")
        if was is not None and bool(was) != on:
            arguments = ("org.a11y.Status", "IsEnabled", Variant("b", on))
            await bus.maybe("org.a11y.Bus", "/org/a11y/bus", PROPERTIES, "Set", "ssv", arguments)
        return None if was is None else bool(was)
    finally:
        bus.close()


def elements_of(program: Program, quirks: Quirks, nodes: Iterable[Node]) -> Iterator[tuple[Element, Key | None]]:
    """Elements with their parents, siblings in their order."""
    for node in sorted(nodes, key=lambda each: each.index):
        native = roles.native_role(node.role)
        role = roles.ax_role(native)
        bits = node.states
        if node.parent == ROOT and node.path != ROOT and role not in roles.WINDOWS:
            # Qt calls a plain top-level window "filler".
            role = "AXWindow"
        elif native == "text" and not bits >> _MULTI_LINE & 1:
            # One role for both; a Mac has two.
            role = "AXTextField"
        if not quirks.showing and bits >> 30 & 1:
            bits |= 1 << 25
        parent = Key(program.bus_name, node.parent) if node.path != ROOT and node.parent else None
        element = Element(
            key=Key(program.bus_name, node.path),
            role=role,
            native_role=native,
            title="" if quirks.class_names and is_class_name(node.name) else node.name[:MAX_NAME_CHARS],
            description=node.description[:MAX_NAME_CHARS],
            states=state_names(bits),
            native=node.interfaces,
        )
        yield element, parent
