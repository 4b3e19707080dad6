"""Routes (contract 4.3): which window a request means. Pure, over the list of windows there are."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from bascule.desktop.errors import Code, DesktopError, invalid, not_found
from bascule.desktop.protocol import Route, RouteApp
from bascule.programs.desktop_host.ports import Window
from bascule.programs.desktop_host.title_patterns import MAX_TITLE_CHARS, compiled

# Never seen into, never acted in, whatever anybody approves: where passwords are kept and asked for, and ourselves.
KEEP_OUT: Final = (
    "*keepass*",
    "*bitwarden*",
    "*1password*",
    "*enpass*",
    "*proton*pass*",
    "*seahorse*",
    "*gcr-prompter*",
    "*pinentry*",
    "*polkit*",
    "*kwalletmanager*",
    "*gnome-screensaver*",
    "*xscreensaver*",
    "bascule*",
)
# How the console's pages end their titles, with what a browser puts behind: "(3) Approvals · Bascule - Chromium". The
# program is the browser's, so the title is all there is to know it by.
_CONSOLE_TITLE: Final = re.compile(r" \u00b7 Bascule(?:$| [-\u2013\u2014] )")


class Routed(msgspec.Struct, frozen=True):
    """The window meant, and all windows of its program, that one first, popups last."""

    window: Window
    windows: tuple[Window, ...]
    # A pattern named the window: the program's others are not meant.
    exact: bool

    @property
    def searched(self) -> tuple[Window, ...]:
        return (self.window,) if self.exact else tuple(each for each in self.windows if not each.popup)


def is_console(window: Window) -> bool:
    """A tab of Bascule's own console is in front, in whichever browser."""
    return _CONSOLE_TITLE.search(window.title) is not None


def is_kept_out(window: Window, keep_out: Sequence[str]) -> bool:
    return is_console(window) or any(
        fnmatchcase(name.lower(), pattern) for name in window.names | window.process_names for pattern in keep_out
    )


def resolve(windows: Sequence[Window], route: Route | None, keep_out: Sequence[str] = KEEP_OUT) -> Routed:
    """`windows` from the lowest to the topmost."""
    usual = [each for each in reversed(windows) if not each.popup]
    usual.sort(key=lambda each: not each.active)
    meant = usual
    if route is not None and route.app is not None:
        app = route.app
        meant = of_app(meant, app)
        if not meant:
            raise not_found(f"no window of {app.bundle_id or app.pid!r} is open", reason="route")
    else:
        front = next((each for each in usual if each.active), None)
        if front is None and (route is None or route.window is None):
            raise not_found("no window is in front: name one with route", reason="route")
        if route is None or route.window is None:
            meant = [front] if front is not None else []
    if route is not None and route.window is not None:
        meant = _windows_meant(meant, route, keep_out)
    window = meant[0]
    if is_kept_out(window, keep_out):
        what = "Bascule's console" if is_console(window) else window.bundle_id
        raise DesktopError(Code.APP_FORBIDDEN, f"{what} is never seen into nor acted in", bundleId=window.bundle_id)
    # Of a browser one window may be kept out and the others not.
    others = [
        each for each in usual if each.pid == window.pid and each is not window and not is_kept_out(each, keep_out)
    ]
    popups = [each for each in windows if each.popup and each.pid == window.pid]
    exact = route is not None and route.window is not None
    return Routed(window, (window, *others, *popups), exact)


def window_id_of(window: Window) -> str:
    return f"w:{window.handle:x}"


def of_app(windows: Sequence[Window], app: RouteApp) -> list[Window]:
    if app.bundle_id is None and app.pid is None:
        raise invalid("route.app needs bundleId or pid")
    return [
        each
        for each in windows
        if (app.bundle_id is None or app.bundle_id in each.names) and app.pid in (None, each.pid)
    ]


def titled(
    windows: Sequence[Window], pattern: re.Pattern[str], app: RouteApp | None, keep_out: Sequence[str]
) -> list[Window]:
    """Windows whose titles match, of one app if it is named. Of what is kept out, nobody is told even the title:
    whether a pattern matches tells it, letter by letter."""
    return [
        each
        for each in (windows if app is None else of_app(windows, app))
        if not each.popup and not is_kept_out(each, keep_out) and pattern.search(each.title[:MAX_TITLE_CHARS])
    ]


def _windows_meant(windows: list[Window], route: Route, keep_out: Sequence[str]) -> list[Window]:
    window, named = route.window, route.app is not None
    assert window is not None
    if window.window_id is None and window.title_pattern is None:
        raise invalid("route.window needs titlePattern or windowId")
    if window.window_id is not None:
        windows = [each for each in windows if window_id_of(each) == window.window_id]
        named = True
        if not windows:
            raise not_found(f"the window {window.window_id} is closed, or of another app", reason="route")
    if window.title_pattern is not None:
        pattern = compiled(window.title_pattern)
        if named and windows and all(is_kept_out(each, keep_out) for each in windows):
            # It was named: that it is kept out is said whatever its title is. Said only where the others do not match,
            # it would tell their titles, letter by letter.
            return windows
        windows = titled(windows, pattern, None, keep_out)
        if not windows:
            raise not_found("no window's title matches route.window.titlePattern", reason="route")
    return windows
