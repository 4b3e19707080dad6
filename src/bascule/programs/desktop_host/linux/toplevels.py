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


def _distance(rect: Rect, window: Window, *, relative: bool) -> int:
    target = Rect(0, 0, window.rect.width, window.rect.height) if relative else window.rect
    return sum(abs(a - b) for a, b in zip(rect, target, strict=True)) if rect != NOWHERE else sys.maxsize
