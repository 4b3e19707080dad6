"""Which accessible top level is which window: the bus and the X server know nothing of each other. Pure."""

import sys
from collections.abc import Sequence

from bascule.programs.desktop_host.elements import Element, Key
from bascule.programs.desktop_host.geometry import NOWHERE, Rect
from bascule.programs.desktop_host.ports import Window


def assigned(tops: Sequence[Element], windows: Sequence[Window], *, relative: bool) -> dict[int, Key]:
    """Which top level is which window: by title, then by place. A message box may call itself otherwise."""
    found: dict[int, Key] = {}
    left = list(tops)
    for alike in (lambda top, window: top.title == window.title, lambda top, _window: not top.rect.empty):
        for window in windows:
            same = [each for each in left if alike(each, window)] if window.handle not in found else []
            if same:
                best = min(same, key=lambda each: _distance(each.rect, window, relative=relative))
                found[window.handle] = best.key
                left.remove(best)
    return found


def origin(window: Window, top: Rect, inside: Sequence[Rect]) -> tuple[int, int]:
    """Where the numbers of a placeless window begin on the screen, by comparing the size that its top level says.

    GTK 4 and Qt count from the corner of what they draw in, or from that of a frame that they draw themselves; GTK 3
    from the corner of its buffer, with the shadow around the frame. `inside`: its children, which begin where the frame
    does.
    """
    for place in (window.rect, window.outer):
        if top[2:] == place[2:]:
            return place[:2]
    wider, higher = top.width - window.rect.width, top.height - window.rect.height
    if wider >= 0 and higher >= 0:
        parts = [each for each in inside if not each.empty]
        x = min((each.x - top.x for each in parts), default=wider // 2)
        y = min((each.y - top.y for each in parts), default=higher // 2)
        if 0 <= x <= wider and 0 <= y <= higher:
            return window.rect.x - x, window.rect.y - y
        return window.rect.x - wider // 2, window.rect.y - higher // 2
    if wider <= 0 and higher <= 0:
        # Its own frame: the same at both sides and below, the rest is the title bar.
        side = -wider // 2
        return window.rect.x + side, window.rect.y - higher - side
    return window.rect[:2]


def _distance(rect: Rect, window: Window, *, relative: bool) -> int:
    target = Rect(0, 0, window.rect.width, window.rect.height) if relative else window.rect
    return sum(abs(a - b) for a, b in zip(rect, target, strict=True)) if rect != NOWHERE else sys.maxsize


def believed(window: Window, top: Rect) -> Rect:
    """Where a program that says places on the screen has its window. It hears that it was moved a moment later.

    Its top level has the size of the window, or of the frame around it. One that has neither is where it is seen.
    """
    if top[2:] == window.rect[2:]:
        return top
    if top[2:] == window.outer[2:]:
        return window.rect.moved(top.x - window.outer.x, top.y - window.outer.y)
    return window.rect


def inside_corner(window: Window, inside: Rect) -> tuple[int, int]:
    """Where on the screen the inside of an X window begins that its own program decorates.

    GTK 4 counts from the corner of what a window holds, and `inside` has the size of that. The X window is larger by
    what GTK draws around it: a shadow, where there is a compositor, and a border, which is the same on all sides.
    """
    left, right, top, bottom = window.shadow
    across = window.rect.width - left - right - inside.width
    down = window.rect.height - top - bottom - inside.height
    return window.rect.x + left + max(0, across) // 2, window.rect.y + top + max(0, down) // 2
