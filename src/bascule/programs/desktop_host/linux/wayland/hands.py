"""`Hands` where one write is carried out in one go: the window to the front and the event into it, together.

Whatever else wants the focus meanwhile comes before both or after both, so the event reaches the window that it is for.
What cannot be held that way is looked at first: a prompt that has the keyboard for itself, a window that covers the
point and cannot be brought below.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import msgspec

from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.clipboard import pieces, wait_shown
from bascule.programs.desktop_host.linux.input import DOUBLE_CLICK_SECONDS, DRAG_STEP_SECONDS, DRAG_STEPS
from bascule.programs.desktop_host.linux.wayland.clipboard import WaylandClipboard
from bascule.programs.desktop_host.linux.wayland.connection import Connection
from bascule.programs.desktop_host.linux.wayland.devices import HOLD
from bascule.programs.desktop_host.linux.wayland.keymaps import Stroke
from bascule.programs.desktop_host.ports import Aborted, Elsewhere, Halt, IsShown, Onto, Pasted, Window

# How often it is looked whether somebody stopped us.
_HALT_SECONDS: Final = 0.01


class Devices(Protocol):
    """Every request is kept until `flush`."""

    def strokes(self, keys: Sequence[str]) -> list[Stroke]: ...

    def press(self, stroke: Stroke) -> None: ...

    def release_keys(self) -> None: ...

    def move(self, x: int, y: int, screen: Rect) -> None: ...

    def button(self, button: int, *, down: bool) -> None: ...

    def wheel(self, direction: str) -> None: ...

    def release_buttons(self) -> None: ...

    def release_all(self) -> None: ...


class Aimed(Protocol):
    """A window that can be brought to the front in the same write."""

    def activate(self) -> None:
        """Kept until `flush`."""


class Pointed(msgspec.Struct, frozen=True):
    """A point of a window, as it was seen."""

    aimed: Aimed
    window: Window
    point: tuple[int, int]
    # Around all outputs.
    screen: Rect


class Front(Protocol):
    async def for_keys(self, handle: int) -> Aimed:
        """Elsewhere: a prompt has the keyboard for itself, or the window is not there any more."""

    async def for_pointer(self, x: int, y: int, onto: Onto) -> Pointed:
        """The window of these that is, or would be, on top there. Elsewhere: another's is."""

    async def windows(self) -> list[Window]: ...


class OneWriteHands:
    def __init__(self, connection: Connection, devices: Devices, front: Front, clipboard: WaylandClipboard) -> None:
        self._connection = connection
        self._devices = devices
        self._front = front
        self._clipboard = clipboard

    # -- keys --

    async def check_keys(self, keys: Sequence[str]) -> None:
        self._devices.strokes(keys)

    async def chord(self, keys: Sequence[str], halt: Halt, window: Window, *, delay: float = 0.0) -> None:
        strokes = self._devices.strokes(keys)
        halt.check()
        if not delay:
            aimed = await self._front.for_keys(window.handle)
            halt.check()
            self._type(aimed, strokes)
            await self._connection.roundtrip()
            return
        try:
            for stroke in strokes:
                aimed = await self._front.for_keys(window.handle)
                halt.check()
                aimed.activate()
                self._devices.press(stroke)
                self._connection.flush()
                await pause(delay, halt)
        finally:
            await self.release_all()

    def _type(self, aimed: Aimed, strokes: Sequence[Stroke]) -> None:
        aimed.activate()
        for stroke in strokes:
            self._devices.press(stroke)
        self._devices.release_keys()
        self._connection.flush()

    async def paste(self, text: str, halt: Halt, window: Window, is_shown: IsShown | None = None) -> Pasted:
        """Piece by piece; the text on the clipboard, the window to the front and Ctrl+V are one write."""
        parts = pieces(text)
        strokes = self._devices.strokes(("ctrl", "v"))
        halt.check()
        saved = await self._clipboard.save()
        taken = 0
        try:
            for part in parts:
                halt.check()
                try:
                    aimed = await self._front.for_keys(window.handle)
                except Elsewhere:
                    if taken:
                        break
                    raise
                halt.check()
                self._clipboard.offer(part)
                self._type(aimed, strokes)
                if not await self._clipboard.wait_taken(halt):
                    break
                taken += 1
            if taken == len(parts):
                await wait_shown(is_shown, halt)
        finally:
            # Whatever happened: the person's clipboard is theirs.
            outcome = await asyncio.shield(self._clipboard.restore(saved))
        return Pasted(taken, len(parts), outcome)

    # -- pointer --

    async def click_at(self, x: int, y: int, halt: Halt, onto: Onto, *, button: int = 1, count: int = 1) -> None:
        at: Pointed | None = None
        try:
            for turn in range(count):
                if turn:
                    await pause(DOUBLE_CLICK_SECONDS, halt)
                if at is None or at.window.popup:
                    at = await self._front.for_pointer(x, y, onto)
                    halt.check()
                    at.aimed.activate()
                    self._devices.move(*at.point, at.screen)
                    # A menu does not move by itself, and any button chooses.
                    if not at.window.popup and onto.is_moving((x, y), at.point):
                        await self._hold(at)
                elif await self._now(at) is None:
                    raise Elsewhere("the window is closed", "focus")
                halt.check()
                self._devices.button(button, down=True)
                self._devices.button(button, down=False)
                self._connection.flush()
        finally:
            # Only now: toolkits count clicks, and another button between two makes them single ones.
            self._devices.release_buttons()
            self._connection.flush()
        await self._connection.roundtrip()

    async def _hold(self, at: Pointed) -> None:
        """A window may have been moved since it was looked at, and so another part of it be below the pointer.

        The pointer is tied to what is below it by now, and only then it is looked again: where the window is where it
        was, the part is the one that was meant, and whatever moves later takes the pointer's events with it. Only where
        the window moves: some programs take any button for a click.
        """
        self._devices.button(HOLD, down=True)
        await self._connection.roundtrip()
        now = await self._now(at)
        if now is None or (now.rect, now.outer) != (at.window.rect, at.window.outer):
            raise Elsewhere("the window was moved in that moment", "moved")

    async def _now(self, at: Pointed) -> Window | None:
        return next((each for each in await self._front.windows() if each.handle == at.window.handle), None)

    async def scroll_at(self, x: int, y: int, halt: Halt, onto: Onto, *, direction: str, steps: int) -> None:
        for _ in range(steps):
            at = await self._front.for_pointer(x, y, onto)
            halt.check()
            at.aimed.activate()
            self._devices.move(*at.point, at.screen)
            self._devices.wheel(direction)
            self._connection.flush()
        await self._connection.roundtrip()

    async def drag(self, start: tuple[int, int], end: tuple[int, int], halt: Halt, onto: Onto) -> None:
        at = await self._front.for_pointer(*start, onto)
        # Where it would be dropped is looked at before it is taken up, and again when it is let go.
        await self._front.for_pointer(*end, onto)
        halt.check()
        # It stays on the pointer from here on, whatever moves.
        start, end = at.point, (end[0] + at.point[0] - start[0], end[1] + at.point[1] - start[1])
        onto = msgspec.structs.replace(onto, judged=None)
        screen = at.screen
        at.aimed.activate()
        self._devices.move(*start, screen)
        self._devices.button(1, down=True)
        self._connection.flush()
        try:
            for step in range(1, DRAG_STEPS + 1):
                await pause(DRAG_STEP_SECONDS, halt)
                x, y = (a + (b - a) * step // DRAG_STEPS for a, b in zip(start, end, strict=True))
                self._devices.move(x, y, screen)
                self._connection.flush()
            await pause(DRAG_STEP_SECONDS, halt)
            await self._front.for_pointer(*end, onto)
            halt.check()
        except (Elsewhere, Aborted):
            # It is let go in any case: better where it came from than on whatever is below.
            self._devices.move(*start, screen)
            raise
        finally:
            await self.release_all()

    async def release_all(self) -> None:
        self._devices.release_all()
        await self._connection.roundtrip()


class LiveHands:
    """Those of the connection that there is now."""

    def __init__(self, hands: Callable[[], Awaitable[OneWriteHands]]) -> None:
        self._hands = hands

    async def click_at(self, x: int, y: int, halt: Halt, onto: Onto, *, button: int = 1, count: int = 1) -> None:
        await (await self._hands()).click_at(x, y, halt, onto, button=button, count=count)

    async def scroll_at(self, x: int, y: int, halt: Halt, onto: Onto, *, direction: str, steps: int) -> None:
        await (await self._hands()).scroll_at(x, y, halt, onto, direction=direction, steps=steps)

    async def drag(self, start: tuple[int, int], end: tuple[int, int], halt: Halt, onto: Onto) -> None:
        await (await self._hands()).drag(start, end, halt, onto)

    async def chord(self, keys: Sequence[str], halt: Halt, window: Window, *, delay: float = 0.0) -> None:
        await (await self._hands()).chord(keys, halt, window, delay=delay)

    async def check_keys(self, keys: Sequence[str]) -> None:
        await (await self._hands()).check_keys(keys)

    async def paste(self, text: str, halt: Halt, window: Window, is_shown: IsShown | None = None) -> Pasted:
        return await (await self._hands()).paste(text, halt, window, is_shown)

    async def release_all(self) -> None:
        await (await self._hands()).release_all()


async def pause(seconds: float, halt: Halt) -> None:
    """Sleep, unless stopped."""
    end = asyncio.get_running_loop().time() + seconds
    while (left := end - asyncio.get_running_loop().time()) > 0:
        halt.check()
        await asyncio.sleep(min(left, _HALT_SECONDS))
    halt.check()
