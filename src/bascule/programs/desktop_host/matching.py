"""Selectors (contract 4.4) over a tree. Pure. `contains` is case-sensitive; hits come in document order."""

import math
from collections.abc import Iterable

from bascule.desktop.protocol import Near, Selector
from bascule.programs.desktop_host.elements import Element, Tree
from bascule.programs.desktop_host.geometry import Rect


def matches(tree: Tree, selector: Selector) -> list[Element]:
    """All hits; `limit` is the caller's, for `matched` counts them all."""
    hits: Iterable[Element] = tree.elements
    if selector.by_path is not None:
        hits = _at_path(tree, selector.by_path)
    found = [each for each in hits if _holds(each, selector)]
    if selector.near is not None:
        found = _near(tree, found, selector.near)
    if selector.index is not None:
        return found[selector.index : selector.index + 1]
    return found


def first_visible(hits: list[Element]) -> Element | None:
    """Several hits: the first that can be seen; none can be seen: the first."""
    return next((each for each in hits if each.on_screen), hits[0] if hits else None)


def _holds(element: Element, selector: Selector) -> bool:
    if selector.by_role is not None and selector.by_role not in (element.role, element.native_role):
        return False
    if selector.title_contains is not None and selector.title_contains not in element.title:
        return False
    if selector.value_contains is not None and selector.value_contains not in (element.value or ""):
        return False
    if selector.by_rect is not None:
        wanted = Rect(selector.by_rect.x, selector.by_rect.y, selector.by_rect.width, selector.by_rect.height)
        return element.visible.meets(wanted)
    return True


def _at_path(tree: Tree, path: list[int]) -> list[Element]:
    at = 0
    if not tree.elements:
        return []
    for step in path:
        children = tree.elements[at].children
        if step >= len(children):
            return []
        at = children[step]
    return [tree.elements[at]]


def _near(tree: Tree, hits: list[Element], near: Near) -> list[Element]:
    """Those close enough to an anchor, the closest first."""
    anchors = [each for each in matches(tree, near.anchor) if each.on_screen]
    scored: list[tuple[float, int, Element]] = []
    for place, element in enumerate(hits):
        if not element.on_screen:
            continue
        distances = [
            distance
            for anchor in anchors
            if anchor.key != element.key
            and not tree.is_within(anchor, element)
            and (distance := _distance(anchor.visible, element.visible, near.direction)) is not None
        ]
        if distances and min(distances) <= near.max_distance:
            scored.append((min(distances), place, element))
    return [each for _, _, each in sorted(scored, key=lambda one: one[:2])]


def _distance(anchor: Rect, other: Rect, direction: str) -> float | None:
    """Between the nearest edges; None when it is not on that side."""
    sides = {
        "left": other.right <= anchor.x,
        "right": other.x >= anchor.right,
        "above": other.bottom <= anchor.y,
        "below": other.y >= anchor.bottom,
        "any": True,
    }
    if not sides[direction]:
        return None
    dx = max(anchor.x - other.right, other.x - anchor.right, 0)
    dy = max(anchor.y - other.bottom, other.y - anchor.bottom, 0)
    return math.hypot(dx, dy)
