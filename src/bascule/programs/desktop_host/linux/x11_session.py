"""The parts of a session on an X server: one thread for X11, one for the clipboard, one for the stop keys."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec
import Xlib.error

from bascule.desktop.capabilities import Capabilities
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux import stop_keys
from bascule.programs.desktop_host.linux.clipboard import ClipboardThread, pieces, wait_shown
from bascule.programs.desktop_host.linux.input import Input
from bascule.programs.desktop_host.linux.parts import Finding, Hands, Pictures, StopKeys, Windows
from bascule.programs.desktop_host.linux.screen import Screen
from bascule.programs.desktop_host.linux.x11 import X11
from bascule.programs.desktop_host.ports import (
    AppGone,
    Elsewhere,
    Halt,
    IsShown,
    NotReachable,
    Onto,
    Pasted,
    Shot,
    Window,
)

# A window manager takes a few milliseconds to bring a window to the front.
ACTIVATE_SECONDS: Final = 2.0
# A chord with its pauses takes five seconds at most; everything else milliseconds.
X11_SECONDS: Final = 15.0

T = TypeVar("T")


class X11Link:
    """The connections, made at the first use and again when the server was lost."""

    def __init__(self, environment: Mapping[str, str], on_stop_keys: Callable[[], None] | None) -> None:
        self._environment = environment
        # Called on another thread when the person presses the chord that stops everything.
        self._on_stop_keys = on_stop_keys
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bascule-x11")
        self._opening = asyncio.Lock()
        self._x11: X11 | None = None
        self.xwayland = False
        self.input: Input | None = None
        self.shots: Screen | None = None
        self.clipboard: ClipboardThread | None = None
        self.stop_keys: stop_keys.StopKeys | None = None

    async def open(self) -> X11:
        async with self._opening:
            return self._x11 or await self._connect()

    async def _connect(self) -> X11:
        name = self._environment.get("DISPLAY")
        if not name:
            raise NotReachable("DISPLAY is not set")

        def start() -> X11:
            x11 = X11(name)
            self.xwayland = x11.is_xwayland()
            self.input, self.shots = Input(x11), Screen(name, xwayland=self.xwayland)
            return x11

        x11 = await self.run(start)
        # After the server was lost theirs are gone as well, and the keys that stop everything with them.
        for helper in (self.clipboard, self.stop_keys):
            if helper is not None:
                await asyncio.to_thread(helper.close)
        self.clipboard = self.stop_keys = None
        self.clipboard = await asyncio.to_thread(ClipboardThread, name, keeps=True)
        if self._on_stop_keys is not None:
            self.stop_keys = await asyncio.to_thread(stop_keys.StopKeys, name, self._on_stop_keys)
        self._x11 = x11
        return x11

    async def close(self) -> None:
        for helper in (self.clipboard, self.stop_keys):
            if helper is not None:
                await asyncio.to_thread(helper.close)
        for each in (self.shots, self._x11):
            if each is not None:
                with contextlib.suppress(Xlib.error.ConnectionClosedError, OSError):
                    await asyncio.get_running_loop().run_in_executor(self._thread, each.close)
        self._thread.shutdown()

    async def run(self, act: Callable[[], T]) -> T:
        """On the thread that has the connection."""
        try:
            async with asyncio.timeout(X11_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._thread, act)
        except TimeoutError:
            raise NotReachable(f"the X server does not answer within {X11_SECONDS:.0f} s") from None
        except (Xlib.error.ConnectionClosedError, OSError) as error:
            self._x11 = None
            raise NotReachable(f"the X server is gone: {error}") from error
        except Xlib.error.XError as error:
            raise AppGone("the window is gone") from error


class X11Windows:
    def __init__(self, link: X11Link) -> None:
        self._link = link

    async def windows(self) -> list[Window]:
        x11 = await self._link.open()
        found = await self._link.run(x11.windows)
        if any(each.active for each in found) or await self._link.run(x11.has_window_manager):
            # A window manager that names none means it: the focus is nowhere, or in a Wayland window.
            return found
        # Without a window manager nobody says which is in front: the topmost is the best guess.
        tops = [each for each in found if not each.popup]
        return [msgspec.structs.replace(each, active=bool(tops) and each is tops[-1]) for each in found]

    async def screen(self) -> Rect:
        x11 = await self._link.open()
        return await self._link.run(x11.screen)

    async def activate(self, window: Window) -> bool:
        x11 = await self._link.open()
        await self._link.run(lambda: x11.activate(window.handle))
        end = asyncio.get_running_loop().time() + ACTIVATE_SECONDS
        while await self._link.run(x11.active) != window.handle:
            if asyncio.get_running_loop().time() > end:
                return False
            await asyncio.sleep(0.005)
        return True


class X11Pictures:
    def __init__(self, link: X11Link, windows: Windows) -> None:
        self._link = link
        self._windows = windows

    async def grab(self, rect: Rect, of: Sequence[Window] = ()) -> Shot:  # noqa: ARG002 - a crop of the screen
        await self._link.open()
        assert self._link.shots is not None
        shots = self._link.shots
        return await self._link.run(lambda: shots.grab(rect))

    async def probe(self) -> None:
        await self._link.open()
        # One pixel of Xwayland may be black by chance; the whole screen is not.
        await self.grab(await self._windows.screen() if self._link.xwayland else Rect(0, 0, 1, 1))


class X11Hands:
    def __init__(self, link: X11Link) -> None:
        self._link = link

    async def click_at(self, x: int, y: int, halt: Halt, onto: Onto, *, button: int = 1, count: int = 1) -> None:
        await self._with_input(lambda each: each.click(x, y, halt, onto, button=button, count=count))

    async def scroll_at(self, x: int, y: int, halt: Halt, onto: Onto, *, direction: str, steps: int) -> None:
        await self._with_input(lambda each: each.scroll(x, y, halt, onto, direction=direction, steps=steps))

    async def drag(self, start: tuple[int, int], end: tuple[int, int], halt: Halt, onto: Onto) -> None:
        await self._with_input(lambda each: each.drag(start, end, halt, onto))

    async def chord(self, keys: Sequence[str], halt: Halt, window: Window, *, delay: float = 0.0) -> None:
        await self._with_input(lambda each: each.chord(keys, halt, window.handle, delay))

    async def check_keys(self, keys: Sequence[str]) -> None:
        await self._with_input(lambda each: each.check(keys))

    async def release_all(self) -> None:
        if self._link.input is not None:
            await self._with_input(Input.release_all)

    async def _with_input(self, act: Callable[[Input], None]) -> None:
        await self._link.open()
        assert self._link.input is not None
        given = self._link.input
        await self._link.run(lambda: act(given))

    async def paste(self, text: str, halt: Halt, window: Window, is_shown: IsShown | None = None) -> Pasted:
        """Piece by piece, as long as the focus stays where it belongs."""
        await self._link.open()
        clipboard = self._link.clipboard
        assert clipboard is not None
        parts = pieces(text)
        saved = await asyncio.to_thread(clipboard.save)
        taken = 0
        offering: asyncio.Future[None] | None = None
        try:
            for part in parts:
                halt.check()
                offering = asyncio.ensure_future(asyncio.to_thread(clipboard.offer, part, window.pid))
                await asyncio.shield(offering)
                try:
                    await self.chord(("ctrl", "v"), halt, window)
                except Elsewhere:
                    if taken:
                        break
                    raise
                if not await asyncio.to_thread(clipboard.wait_taken, halt):
                    break
                taken += 1
            if taken == len(parts):
                await wait_shown(is_shown, halt)
        finally:
            # Whatever happened: the person's clipboard is theirs. An offer that is still on its way would come after
            # what is given back, so it is waited for.
            if offering is not None and not offering.done():
                await asyncio.wait([offering])
            outcome = await asyncio.shield(asyncio.to_thread(clipboard.restore, saved))
        return Pasted(taken, len(parts), outcome)


class X11StopKeys:
    def __init__(self, link: X11Link) -> None:
        self._link = link

    def chord(self) -> str | None:
        keys = self._link.stop_keys
        return keys.chord if keys is not None and keys.armed and not self._link.xwayland else None

    def finding(self) -> Finding | None:
        keys = self._link.stop_keys
        if keys is not None and self._link.xwayland:
            issue = f"The keys that stop everything ({keys.chord}) work only while an X11 window has the focus"
            return Finding(issue, "stop with `bascule desktop stop`; bind it to a key in the settings of the desktop")
        if keys is not None and not keys.armed:
            issue = f"The keys that stop everything ({keys.chord}) belong to another program"
            return Finding(issue, "free them in the desktop's settings; `bascule desktop stop` works without them")
        return None


class X11Session:
    picture_remedy = "set DISPLAY (and XAUTHORITY) to the X server of the desktop"
    notes: tuple[str, ...] = ()
    capabilities = Capabilities(
        session="X11", places=True, pictures="crop", keys="held", clicks="held", elements=True, text="paste"
    )

    def __init__(self, environment: Mapping[str, str], on_stop_keys: Callable[[], None] | None) -> None:
        link = self._link = X11Link(environment, on_stop_keys)
        self.windows: Windows = X11Windows(link)
        self.pictures: Pictures = X11Pictures(link, self.windows)
        self.hands: Hands = X11Hands(link)
        self.stop_keys: StopKeys = X11StopKeys(link)
        if environment.get("WAYLAND_DISPLAY"):
            self.picture_remedy = "this host captures X11 screens: log in to an Xorg session"
            if environment.get("DISPLAY"):
                self.notes = ("a Wayland session: windows of Xwayland only; log in to an Xorg session for the rest",)

    async def open(self) -> None:
        await self._link.open()

    async def close(self) -> None:
        await self._link.close()

    async def accessibility_hint(self) -> str | None:
        x11 = await self._link.open()
        return await self._link.run(lambda: x11.root_text("AT_SPI_BUS"))
