"""Keys that are not for the app in front but for the desktop itself: launchers, switchers, lockers, screenshots.

A window manager takes them before any program does. A yes to one app is none to those.
"""

from collections.abc import Sequence
from typing import Final

_SUPER: Final = frozenset({"super", "win", "meta"})
_CTRL: Final = frozenset({"ctrl", "control", "cmd", "command"})
_ALT: Final = frozenset({"alt", "option"})
# Alone or with anything.
_ALWAYS: Final = frozenset({"print", "pause"})
# With Alt: switching and closing windows, running a program by its name.
_WITH_ALT: Final = frozenset({"tab", "space", "esc", "escape", *(f"f{number}" for number in range(1, 25))})


def reach_beyond(keys: Sequence[str]) -> bool:
    """As the usual desktops have them; a wrong guess only asks more often."""
    pressed = {key.lower() for key in keys}
    alt = bool(pressed & _ALT)
    return bool(pressed & (_SUPER | _ALWAYS) or (alt and pressed & (_CTRL | _WITH_ALT)))
