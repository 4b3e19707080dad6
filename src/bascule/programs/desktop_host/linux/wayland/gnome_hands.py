"""`Hands` on GNOME: our extension looks where the keys or the click would go, and sends them, in one turn of the shell.

Mutter passes events on by another thread: a window that takes the focus in that moment gets them. So they are checked,
and not held.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal

import msgspec

from bascule.programs.desktop_host.linux.clipboard import pieces, wait_shown
from bascule.programs.desktop_host.linux.input import DOUBLE_CLICK_SECONDS, DRAG_STEP_SECONDS, DRAG_STEPS
from bascule.programs.desktop_host.linux.wayland.gnome_clipboard import GnomeClipboard
from bascule.programs.desktop_host.linux.wayland.gnome_link import GnomeLink
from bascule.programs.desktop_host.linux.wayland.gnome_look import id_of
from bascule.programs.desktop_host.linux.wayland.hands import pause
from bascule.programs.desktop_host.linux.wayland.keymaps import Stroke
from bascule.programs.desktop_host.linux.wayland.seat_keyboard import SeatKeyboard
from bascule.programs.desktop_host.ports import (
    Aborted,
    BackendError,
    Elsewhere,
    Halt,
    IsShown,
    NoSuchKey,
    NotReachable,
    Onto,
    Pasted,
    Window,
)

# A window that was activated is in front, and a modifier that we let go of is up, some turns of the shell later.
TRIES: Final = 30
TRY_SECONDS: Final = 0.02

Event = tuple[str, *tuple[Any, ...]]


class _Answer(msgspec.Struct):
    """Without a reason it was sent."""

    reason: Literal["focus", "covered", "modifier"] | None = None
    why: str = ""
    # The keys mean something else now.
    other_layout: bool = False


class GnomeHands:
    def __init__(
        self, link: GnomeLink, keyboard: Callable[[], Awaitable[SeatKeyboard]], clipboard: GnomeClipboard
    ) -> None:
        self._link = link
        self._keyboard = keyboard
        self._clipboard = clipboard

    async def check_keys(self, keys: Sequence[str]) -> None:
        (await self._keyboard()).strokes(keys)

    async def chord(self, keys: Sequence[str], halt: Halt, window: Window, *, delay: float = 0.0) -> None:
        strokes = (await self._keyboard()).strokes(keys)
        if not delay:
            await self._press(window, halt, [*_down(strokes), *_up(strokes)])
            return
        try:
            for stroke in strokes:
                await self._press(window, halt, _down([stroke]))
                await pause(delay, halt)
        finally:
            await self.release_all()

    async def _press(self, window: Window, halt: Halt, events: Sequence[Event]) -> None:
        await self._act({"window": id_of(window.handle)}, halt, events)

    async def paste(self, text: str, halt: Halt, window: Window, is_shown: IsShown | None = None) -> Pasted:
        """Piece by piece: the text on the clipboard, then Ctrl+V into the window, as any other keys."""
        parts = pieces(text)
        strokes = (await self._keyboard()).strokes(("ctrl", "v"))
        halt.check()
        saved = await self._clipboard.save()
        taken = 0
        try:
            for part in parts:
                await self._clipboard.offer(part)
                try:
                    await self._press(window, halt, [*_down(strokes), *_up(strokes)])
                except Elsewhere:
                    if taken:
                        break
                    raise
                if not await self._clipboard.wait_taken(halt):
                    break
                taken += 1
            if taken == len(parts):
                await wait_shown(is_shown, halt)
        finally:
            # Whatever happened: the person's clipboard is theirs.
            outcome = await asyncio.shield(self._clipboard.restore(saved))
        return Pasted(taken, len(parts), outcome)

    async def click_at(self, x: int, y: int, halt: Halt, onto: Onto, *, button: int = 1, count: int = 1) -> None:
        for turn in range(count):
            if turn:
                await pause(DOUBLE_CLICK_SECONDS, halt)
            await self._at(x, y, halt, onto, [("button", button, True), ("button", button, False)])

    async def scroll_at(self, x: int, y: int, halt: Halt, onto: Onto, *, direction: str, steps: int) -> None:
        for _ in range(steps):
            await self._at(x, y, halt, onto, [("wheel", direction)])

    async def drag(self, start: tuple[int, int], end: tuple[int, int], halt: Halt, onto: Onto) -> None:
        # Where it would be dropped is looked at before it is taken up, and again when it is let go.
        await self._at(*end, halt, onto, [])
        await self._at(*start, halt, onto, [("button", 1, True)])
        try:
            for step in range(1, DRAG_STEPS + 1):
                await pause(DRAG_STEP_SECONDS, halt)
                x, y = (a + (b - a) * step // DRAG_STEPS for a, b in zip(start, end, strict=True))
                await self._at(x, y, halt, onto, [], anywhere=True)
            await pause(DRAG_STEP_SECONDS, halt)
            await self._at(*end, halt, onto, [])
        except (BackendError, Aborted):
            # It is let go in any case: better where it came from than on whatever is below.
            await self._at(*start, Halt(), onto, [], anywhere=True)
            raise
        finally:
            await self.release_all()

    async def _at(
        self, x: int, y: int, halt: Halt, onto: Onto, events: Sequence[Event], *, anywhere: bool = False
    ) -> None:
        """`anywhere`: on the way, whatever lies there."""
        windows = [id_of(each) for each in onto.handles]
        aim = {"at": (x, y), "windows": windows, "pid": onto.pid, "anywhere": anywhere}
        await self._act(aim, halt, [("move", x, y), *events])

    async def _act(self, aim: dict[str, Any], halt: Halt, events: Sequence[Event]) -> None:
        asked = msgspec.json.encode({**aim, "events": events}).decode()
        for turn in range(1, TRIES + 1):
            halt.check()
            answer = _answered(await self._link.ask("Act", "s", asked))
            if answer.other_layout:
                raise NoSuchKey(answer.why)
            if answer.reason is None:
                return
            if turn == TRIES:
                raise Elsewhere(answer.why, answer.reason)
            await asyncio.sleep(TRY_SECONDS)

    async def release_all(self) -> None:
        await self._link.ask("Release")


def _answered(text: Any) -> _Answer:
    try:
        return msgspec.json.decode(text, type=_Answer)
    except (msgspec.DecodeError, TypeError, UnicodeError) as error:
        raise NotReachable("the extension in GNOME's shell answers in a way that is not known") from error


def _down(strokes: Sequence[Stroke]) -> list[Event]:
    return [("key", each.code, True) for each in strokes]


def _up(strokes: Sequence[Stroke]) -> list[Event]:
    return [("key", each.code, False) for each in reversed(strokes)]
