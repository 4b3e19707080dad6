"""Where the secrets are in a window that has not changed: a picture alone then needs no second reading of the window.

What was found in a window holds for a picture of the same pixels, as long as its program reports no change. A password
field that appears changes the pixels, or its program reports it, or nobody sees it.
"""

import asyncio
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from bascule.foundation.tasks import Tasks
from bascule.programs.desktop_host.elements import Element
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.ports import BackendError, Desktop, Shot, Window
from bascule.programs.desktop_host.redaction import Typed

# Pictures whose places are kept: a blinking caret alone makes two of one window.
MAX_PICTURES: Final = 16
# Every event of every program is read while places are kept, so not for longer than this after the last picture.
KEPT_SECONDS: Final = 30.0
# How long the bus may take to say that it will report changes.
LISTEN_SECONDS: Final = 1.0


class Taken(msgspec.Struct, frozen=True):
    """Pixels of windows of one program, and what lay over them."""

    area: Rect
    stacked: list[Window]
    shown: list[Window]
    shot: Shot


class _Known(msgspec.Struct, frozen=True):
    places: tuple[Rect, ...]
    # How many changes its program had reported, and how many texts had been typed by then.
    changes: int
    typed: int


class KnownPlaces:
    def __init__(self, desktop: Desktop, typed: Typed) -> None:
        self._desktop = desktop
        self._typed = typed
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        # How many changes each program has reported since we listen.
        self._changes: dict[str, int] = {}
        self._tasks = Tasks(lambda _name, _error: None)
        self._task: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()
        self._asked = asyncio.Event()

    async def close(self) -> None:
        await self._tasks.close()

    async def listen(self) -> dict[str, int]:
        """From here on changes are counted; how many there were of each program until now."""
        self._asked.set()
        if self._task is None or self._task.done():
            self._task = self._tasks.start(self._listen(), "desktop.places")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LISTEN_SECONDS):
                await self._listening.wait()
        return dict(self._changes)

    async def get(self, name: bytes, window: Window) -> tuple[Rect, ...] | None:
        known, root = self._known.get(name), self._desktop.root_of(window)
        if known is None or root is None:
            return None
        try:
            # What it has reported comes before its answer.
            there = await self._desktop.refreshed(Element(key=root, role="", native_role=""))
        except BackendError:
            return None
        changes = self._changes.get(self._desktop.program_of(window) or "", 0)
        if there is None or name not in self._known or (known.changes, known.typed) != (changes, self._typed.count):
            return None
        self._known.move_to_end(name)
        return known.places

    def keep(self, name: bytes, window: Window, places: Sequence[Rect], before: dict[str, int]) -> None:
        """`before`: what `listen` said before the window was read. A change since then may be another secret."""
        program = self._desktop.program_of(window) or ""
        changes = self._changes.get(program, 0)
        if not self._listening.is_set() or not program or changes != before.get(program, 0):
            return
        self._known[name] = _Known(tuple(places), changes, self._typed.count)
        self._known.move_to_end(name)
        while len(self._known) > MAX_PICTURES:
            self._known.popitem(last=False)

    async def _listen(self) -> None:
        try:
            async with self._desktop.changes(self._on_change):
                self._listening.set()
                while True:
                    self._asked.clear()
                    async with asyncio.timeout(KEPT_SECONDS):
                        await self._asked.wait()
        except (TimeoutError, BackendError):
            # Nobody asks any more, or the bus is gone: the next picture begins anew.
            return
        finally:
            self._listening.clear()
            self._known.clear()
            self._changes.clear()

    def _on_change(self, program: str, _kind: str) -> None:
        self._changes[program] = self._changes.get(program, 0) + 1


def name_of(taken: Taken, *, exact: bool) -> bytes:
    """The same for two pictures only if they show the same."""
    digest = hashlib.blake2b(taken.shot.pixels, digest_size=32)
    digest.update(msgspec.msgpack.encode((taken.area, taken.stacked, taken.shown, taken.shot.alone, exact)))
    return digest.digest()
