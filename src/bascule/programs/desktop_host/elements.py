"""What is in a window: elements in document order, with what of each is on screen. Pure."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from bascule.desktop import roles
from bascule.programs.desktop_host.geometry import NOWHERE, Rect


class Key(NamedTuple):
    """What an element is to its backend, for as long as it lives: on Linux the program's bus name and the path."""

    program: str
    path: str


class Element(msgspec.Struct, kw_only=True, gc=False):
    """A node of the accessibility tree. Filled while it is read, not changed after."""

    key: Key
    role: str
    native_role: str
    title: str = ""
    value: str | None = None
    description: str = ""
    # Names of the states that hold: "checked", "focused", "enabled", ...
    states: frozenset[str] = frozenset()
    rect: Rect = NOWHERE
    # What the ancestors leave to be seen of it; toolkits' own flags are not to be believed.
    visible: Rect = NOWHERE
    depth: int = 0
    # Places in the tree's list; -1 for the root.
    parent: int = -1
    children: list[int] = msgspec.field(default_factory=list)
    # What the backend needs to act on it, opaque to the rest.
    native: Any = None

    @property
    def secret(self) -> bool:
        return self.role == roles.SECRET

    @property
    def on_screen(self) -> bool:
        return not self.visible.empty


class Tree(msgspec.Struct, kw_only=True):
    """A window's elements in document order; the first is the application."""

    elements: list[Element]
    # Why it is not all there: "depth", "nodes", "time", "children", "unresponsive". Empty: it is complete.
    partial: tuple[str, ...] = ()

    def ancestors(self, element: Element) -> Iterator[Element]:
        at = element.parent
        while at >= 0:
            yield self.elements[at]
            at = self.elements[at].parent

    def is_within(self, element: Element, other: Element) -> bool:
        """Whether it is the other one, or inside it."""
        return element.key == other.key or any(each.key == other.key for each in self.ancestors(element))

    def by_key(self, key: Key) -> Element | None:
        return next((each for each in self.elements if each.key == key), None)


def arrange(nodes: Iterable[tuple[Element, Key | None]], root: Key, *, max_depth: int, max_nodes: int) -> Tree:
    """Elements with their parents' keys, siblings in order, as a tree in document order from `root` down.

    What a program sends may have cycles, two parents or none: each element is taken once, from the root down, or not.
    """
    elements: dict[Key, Element] = {}
    children: dict[Key, list[Key]] = {}
    for element, parent in nodes:
        elements[element.key] = element
        if parent is not None and parent != element.key:
            children.setdefault(parent, []).append(element.key)
    out: list[Element] = []
    partial: set[str] = set()
    stack: list[tuple[Key, int, int]] = [(root, -1, 0)] if root in elements else []
    seen: set[Key] = set()
    while stack:
        key, parent_at, depth = stack.pop()
        if key in seen:
            continue
        if depth > max_depth:
            partial.add("depth")
            continue
        if len(out) >= max_nodes:
            partial.add("nodes")
            break
        seen.add(key)
        element = elements[key]
        element.depth, element.parent, element.children = depth, parent_at, []
        if parent_at >= 0:
            out[parent_at].children.append(len(out))
        at = len(out)
        out.append(element)
        stack.extend((child, at, depth + 1) for child in reversed(children.get(key, ())) if child in elements)
    return Tree(elements=out, partial=tuple(sorted(partial)))


def cut(tree: Tree, *, max_depth: int, max_nodes: int) -> Tree:
    """The first elements of it in document order, none deeper; the tree itself if that is all of it."""
    deep = any(each.depth > max_depth for each in tree.elements)
    kept: list[Element] = []
    places: dict[int, int] = {}
    more = False
    for at, element in enumerate(tree.elements):
        if element.depth > max_depth:
            continue
        if len(kept) >= max_nodes:
            more = True
            break
        places[at] = len(kept)
        parent = places[element.parent] if element.parent >= 0 else -1
        kept.append(msgspec.structs.replace(element, parent=parent, children=[]))
        if parent >= 0:
            kept[parent].children.append(len(kept) - 1)
    if not deep and not more:
        return tree
    partial = {*tree.partial, *(["depth"] if deep else []), *(["nodes"] if more else [])}
    return Tree(elements=kept, partial=tuple(sorted(partial)))


def clip(tree: Tree, screen: Rect) -> None:
    """What can be seen of each: its rectangle within those of its ancestors.

    Toolkits' flags differ: GTK 4 never says that something shows, Qt says it of what is scrolled out of view.
    """
    for element in tree.elements:
        around = screen
        if element.parent >= 0 and element.role not in roles.POPUPS:
            parent = tree.elements[element.parent]
            if parent.role in roles.POPUPS - roles.WINDOWS or parent.role == roles.APPLICATION:
                # A menu's items are drawn in a window of their own.
                around = screen
            elif not parent.rect.empty:
                around = parent.visible
            else:
                around = _first_with_rect(tree, parent, screen)
        shown = not element.rect.empty and "showing" in element.states
        element.visible = element.rect.within(around) if shown else NOWHERE


def _first_with_rect(tree: Tree, element: Element, screen: Rect) -> Rect:
    for each in tree.ancestors(element):
        if not each.rect.empty:
            return each.visible
    return screen
