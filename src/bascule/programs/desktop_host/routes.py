"""Routes (contract 4.3): which window a request means. Pure, over the list of windows there are."""

import re
import re._constants as sre  # type: ignore[import-not-found] # the standard library's own, without stubs
import re._parser as parser  # type: ignore[import-not-found] # as above
import warnings
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from bascule.desktop.errors import Code, DesktopError, invalid, not_found
from bascule.desktop.protocol import MAX_PATTERN_CHARS, Route, RouteApp
from bascule.programs.desktop_host.ports import Window

# What of a title is compared; with three repeats the worst pattern then costs 50 ms.
MAX_TITLE_CHARS: Final = 160
MAX_REPEATS: Final = 3
# A repeat that may run at least this long counts.
_LONG_REPEAT: Final = 8
_REPEATS: Final = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)

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


class Routed(msgspec.Struct, frozen=True):
    """The window meant, and all windows of its program, that one first, popups last."""

    window: Window
    windows: tuple[Window, ...]
    # A pattern named the window: the program's others are not meant.
    exact: bool

    @property
    def searched(self) -> tuple[Window, ...]:
        return (self.window,) if self.exact else tuple(each for each in self.windows if not each.popup)


def is_kept_out(window: Window, keep_out: Sequence[str]) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for name in window.names for pattern in keep_out)


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
        raise DesktopError(
            Code.APP_FORBIDDEN, f"{window.bundle_id} is never seen into nor acted in", bundleId=window.bundle_id
        )
    others = [each for each in usual if each.pid == window.pid and each is not window]
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
        forbidden = [each for each in windows if is_kept_out(each, keep_out)]
        windows = titled(windows, pattern, None, keep_out)
        if not windows and named and forbidden:
            # It was named: that it is kept out is said whatever its title is.
            return forbidden
        if not windows:
            raise not_found("no window's title matches route.window.titlePattern", reason="route")
    return windows


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern that cannot be made to run for long: Python's matcher backtracks, and a peer writes the pattern."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise invalid(f"a title pattern has at most {MAX_PATTERN_CHARS} characters")
    try:
        with warnings.catch_warnings():
            # What Python may read otherwise one day ("[[") is refused today.
            warnings.simplefilter("error")
            repeats = _repeats(parser.parse(pattern), nested=False)
            found = re.compile(pattern)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise invalid(f"the title pattern is not a regular expression: {error}") from None
    if repeats > MAX_REPEATS:
        raise invalid(f"a title pattern has at most {MAX_REPEATS} open repeats such as .*")
    return found


def _repeats(tree: Any, *, nested: bool) -> int:
    count = 0
    for operation, argument in tree:
        inside = nested
        parts: list[Any] = []
        if operation in _REPEATS:
            low, high, body = argument
            if high == sre.MAXREPEAT or high - low >= _LONG_REPEAT:
                if nested:
                    raise invalid("a title pattern may not repeat a repeat, such as (a+)+")
                count, inside = count + 1, True
            parts = [body]
        elif operation is sre.BRANCH:
            parts = list(argument[1])
            if nested:
                raise invalid("a title pattern may not repeat alternatives, such as (a|b)*")
        elif isinstance(argument, tuple):
            parts = [each for each in argument if isinstance(each, parser.SubPattern)]
        elif isinstance(argument, parser.SubPattern):
            parts = [argument]
        count += sum(_repeats(each, nested=inside) for each in parts)
    return count
