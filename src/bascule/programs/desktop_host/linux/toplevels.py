"""Which accessible top level is which window: the bus and the X server know nothing of each other. Pure."""

import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from bascule.programs.desktop_host.elements import Element, Key
from bascule.programs.desktop_host.geometry import NOWHERE, Rect
from bascule.programs.desktop_host.ports import Window

# What a desktop's settings offer.
SCALES: Final = (1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0)
# What a size may be wrong by that was a number of a scaled program's.
ROUNDED_OFF: Final = 3
# That GTK 4 draws around what a window holds: 5 pixels, and more in some themes.
MAX_BORDER: Final = 12


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
            # Firefox counts from the corner of its buffer as well, and says where in it its window begins.
            return place.x - top.x, place.y - top.y
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


class Scaled(NamedTuple):
    """From the numbers of a program that has a scale to the screen's: on X11 only programs know of scales."""

    factor: float = 1.0
    x: float = 0.0
    y: float = 0.0

    def on_screen(self, rect: Rect) -> Rect:
        if self == UNSCALED or rect == NOWHERE:
            return rect
        left, top = round(rect.x * self.factor + self.x), round(rect.y * self.factor + self.y)
        return Rect(left, top, round(rect.width * self.factor), round(rect.height * self.factor))

    def in_program(self, x: int, y: int) -> tuple[int, int]:
        return round((x - self.x) / self.factor), round((y - self.y) / self.factor)


UNSCALED: Final = Scaled()


def scaled(window: Window, top: Rect, *, relative: bool) -> Scaled:
    """By the size that its top level says: it is that of the window or of the frame around it, or a part of it.

    `relative`: the size of what is inside a border, which is the same on all sides.
    """
    if window.placeless or top.empty:
        return UNSCALED
    left, right, above, below = window.shadow
    for factor in SCALES:
        if relative:
            across = window.rect.width - left - right - top.width * factor
            down = window.rect.height - above - below - top.height * factor
            if -factor <= across <= 2 * MAX_BORDER * factor and abs(across - down) <= factor:
                return Scaled(factor)
            continue
        for place in (window.rect, window.outer):
            if max(abs(top.width * factor - place.width), abs(top.height * factor - place.height)) < factor:
                return Scaled(factor, place.x - top.x * factor, place.y - top.y * factor) if factor > 1 else UNSCALED
    return UNSCALED


def believed(window: Window, top: Rect) -> Rect:
    """Where a program that says places on the screen has its window. It hears that it was moved a moment later.

    Its top level has the size of the window, or of the frame around it. One that has neither is where it is seen.
    """
    for off in (0, ROUNDED_OFF):
        for place in (window.rect, window.outer):
            if max(abs(top.width - place.width), abs(top.height - place.height)) <= off:
                return window.rect.moved(top.x - place.x, top.y - place.y)
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
