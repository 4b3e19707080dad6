"""A Wayland compositor that tells us nothing: windows are what programs say of themselves on the accessibility bus.

Their elements can be read and waited for, pressed and set by their own programs, which needs neither focus nor place.
Where a window is and what lies over it is not known, and there are no pictures, keys and clicks.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

import msgspec

from bascule.desktop.capabilities import Capabilities
from bascule.foundation.paths import program_file
from bascule.programs.desktop_host.elements import Key
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.parts import Finding, Hands, Pictures, StopKeys, Windows
from bascule.programs.desktop_host.ports import NotReachable, Window

WHY: Final = "this Wayland compositor gives this host no pictures, keys and clicks"
REMEDY: Final = (
    "log in to sway, to KDE, to GNOME or to an Xorg session; here elements are read, pressed and set, and nothing else"
)
# Windows that were seen and are not there any more are forgotten beyond this.
MAX_KNOWN: Final = 4_096
# No screen is larger; how large this one is nobody says.
_EVERYWHERE: Final = Rect(0, 0, 16_384, 16_384)


class Top(msgspec.Struct, frozen=True):
    """A top level as its program describes it."""

    key: Key
    pid: int
    title: str
    active: bool
    rect: Rect


class BareWindows:
    def __init__(self) -> None:
        # Given by whoever reads trees: the two need each other.
        self.tops: Callable[[], Awaitable[list[Top]]] = _nobody
        self._handles: dict[Key, int] = {}
        self._next = 1

    async def windows(self) -> list[Window]:
        tops = await self.tops()
        # Nobody knows the order; the one that has the focus is in front.
        tops.sort(key=lambda each: each.active)
        files = await asyncio.to_thread(lambda: {each.pid: program_file(each.pid) for each in tops})
        return [self._window(each, files[each.pid]) for each in tops]

    def _window(self, top: Top, program: str | None) -> Window:
        if top.key not in self._handles:
            if len(self._handles) >= MAX_KNOWN:
                del self._handles[next(iter(self._handles))]
            self._handles[top.key] = self._next
            self._next += 1
        name = (program or "unknown").rpartition("/")[2]
        rect = Rect(0, 0, max(1, top.rect.width), max(1, top.rect.height))
        return Window(
            handle=self._handles[top.key],
            pid=top.pid,
            bundle_id=name,
            names=frozenset({name}),
            program=program,
            title=top.title,
            rect=rect,
            outer=rect,
            active=top.active,
            placeless=True,
        )

    async def screen(self) -> Rect:
        return _EVERYWHERE

    async def activate(self, window: Window) -> bool:  # noqa: ARG002 - nobody can
        return False


async def _nobody() -> list[Top]:
    raise NotReachable("nobody reads windows yet")


async def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise NotReachable(WHY)


class NoPictures:
    grab = probe = staticmethod(_refuse)


class NoHands:
    click_at = scroll_at = drag = chord = check_keys = paste = staticmethod(_refuse)

    async def release_all(self) -> None:
        """Nothing was ever pressed."""


class NoStopKeys:
    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted

    def chord(self) -> str | None:
        return None

    def finding(self) -> Finding | None:
        if not self._wanted:
            return None
        return Finding(
            "No keys stop everything in this session",
            "stop with `bascule desktop stop`; bind it to a key in the settings of the desktop",
        )


class BareSession:
    picture_remedy = REMEDY
    notes: tuple[str, ...] = ()
    capabilities = Capabilities(
        session="Wayland", places=False, pictures="none", keys="none", clicks="none", elements=True, text="field"
    )

    def __init__(self, on_stop_keys: Callable[[], None] | None) -> None:
        self.bare_windows = BareWindows()
        self.windows: Windows = self.bare_windows
        self.pictures: Pictures = NoPictures()
        self.hands: Hands = NoHands()
        self.stop_keys: StopKeys = NoStopKeys(wanted=on_stop_keys is not None)

    async def open(self) -> None:
        """There is nothing to connect to."""

    async def close(self) -> None:
        """Nothing was opened."""

    async def accessibility_hint(self) -> str | None:
        return None
