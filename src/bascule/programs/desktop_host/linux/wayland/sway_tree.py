"""sway's tree of containers as windows. Pure: JSON values in, windows out."""

import os
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from bascule.programs.desktop_host.geometry import NOWHERE, Rect
from bascule.programs.desktop_host.ports import Window

# A tree that a program could make deeper than this is not read to its end.
MAX_DEPTH: Final = 64
MAX_WINDOWS: Final = 500
MAX_TITLE_CHARS: Final = 512


class Seen(msgspec.Struct, frozen=True):
    """One look at sway."""

    # From the lowest to the topmost.
    windows: list[Window]
    # The toplevel's name to other Wayland programs, by the window's handle: title and app id.
    names: dict[int, tuple[str, str]]
    # The container that has the keyboard; None: nobody's window has, so a prompt or a lock screen does.
    focused: int | None


def seen_in(tree: Any, program_of: Callable[[int], str | None]) -> Seen:
    windows: list[Window] = []
    names: dict[int, tuple[str, str]] = {}
    for node in list(_views(tree))[:MAX_WINDOWS]:
        window = _window(node, program_of)
        windows.append(window)
        names[window.handle] = (window.title, _app_id(node))
    return Seen(windows, names, _focused(tree, 0))


def _views(node: Any, depth: int = 0) -> Iterator[Any]:
    """What is shown, from the lowest to the topmost: tiles, what floats above them, what fills the screen."""
    if depth > MAX_DEPTH:
        return
    if node.get("pid") and not node.get("nodes"):
        if node.get("visible"):
            yield node
        return
    children = [*node.get("nodes", ()), *node.get("floating_nodes", ())]
    for child in sorted(children, key=lambda each: bool(each.get("fullscreen_mode"))):
        yield from _views(child, depth + 1)


def _focused(node: Any, depth: int) -> int | None:
    if node.get("focused") and node.get("type") != "output":
        return int(node["id"])
    if depth > MAX_DEPTH:
        return None
    for child in (*node.get("nodes", ()), *node.get("floating_nodes", ())):
        if (found := _focused(child, depth + 1)) is not None:
            return found
    return None


def _window(node: Any, program_of: Callable[[int], str | None]) -> Window:
    pid = int(node["pid"])
    program = program_of(pid)
    properties = node.get("window_properties") or {}
    names = [node.get("app_id"), properties.get("class"), properties.get("instance"), os.path.basename(program or "")]
    known = list(dict.fromkeys(each for each in names if each))
    rect, inner, title_bar = (_rect(node.get(each)) for each in ("rect", "window_rect", "deco_rect"))
    content = rect if inner.empty else Rect(rect.x + inner.x, rect.y + inner.y, inner.width, inner.height)
    return Window(
        handle=int(node["id"]),
        pid=pid,
        bundle_id=known[0] if known else "unknown",
        names=frozenset(known),
        program=program,
        title=(node.get("name") or "")[:MAX_TITLE_CHARS],
        rect=content,
        # The title bar lies above what sway calls the window.
        outer=Rect(rect.x, rect.y - title_bar.height, rect.width, rect.height + title_bar.height),
        active=bool(node.get("focused")),
        placeless=node.get("shell") != "xwayland",
        floats=node.get("type") == "floating_con" and not node.get("fullscreen_mode"),
    )


def _app_id(node: Any) -> str:
    return str(node.get("app_id") or (node.get("window_properties") or {}).get("class") or "")


def _rect(value: Any) -> Rect:
    return Rect(*(int(value[name]) for name in ("x", "y", "width", "height"))) if value else NOWHERE
