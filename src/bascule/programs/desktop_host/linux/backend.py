"""`ports.Desktop` on Linux, put together from its parts: AT-SPI for what is in windows, and the session's own four."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec
import Xlib.error

from bascule.desktop.capabilities import Capabilities, Trust
from bascule.desktop.protocol import Permission
from bascule.programs.desktop_host.elements import Element, Key, Tree
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux import programs
from bascule.programs.desktop_host.linux.held_only import HeldOnly
from bascule.programs.desktop_host.linux.parts import Finding, Session
from bascule.programs.desktop_host.linux.sessions import session_of
from bascule.programs.desktop_host.linux.trees import Trees
from bascule.programs.desktop_host.linux.wayland.bare import BareSession
from bascule.programs.desktop_host.ports import (
    BackendError,
    Changed,
    Halt,
    IsShown,
    Onto,
    Pace,
    Pasted,
    Shot,
    Status,
    Window,
)


class LinuxDesktop:
    """Opened and closed once; what is lost is found again at the next use."""

    def __init__(
        self,
        environment: dict[str, str] | None = None,
        on_stop_keys: Callable[[], None] | None = None,
        *,
        trust: Trust = "checked",
    ) -> None:
        """`on_stop_keys`: called, maybe on another thread, when the person presses the chord that stops everything."""
        given = dict(os.environ) if environment is None else environment
        session = session_of(given, on_stop_keys)
        self._session: Session = session if trust == "checked" else HeldOnly(session)
        self._trees = Trees(given, self._session.windows, self._session.accessibility_hint)
        if isinstance(session, BareSession):
            session.bare_windows.tops = self._trees.tops

    # -- life --

    async def open(self) -> None:
        await self._session.open()
        await self._trees.accessibility()

    async def close(self) -> None:
        with contextlib.suppress(BackendError, Xlib.error.XError, OSError):
            await self.release_all()
        await self._trees.close()
        await self._session.close()

    async def status(self) -> Status:
        found: list[Finding] = []
        accessibility: Permission = "granted"
        screen: Permission = "granted"
        try:
            await self._trees.accessibility()
        except BackendError as error:
            accessibility = "denied"
            remedy = programs.bus_remedy(self._trees.session_bus)
            found.append(Finding(f"Accessibility permission denied: {error}", remedy))
        try:
            await self._session.pictures.probe()
        except BackendError as error:
            screen = "denied"
            found.append(Finding(f"Screen Recording permission denied: {error}", self._session.picture_remedy))
        keys = self._session.stop_keys
        if (finding := keys.finding()) is not None:
            found.append(finding)
        return Status(
            accessibility=accessibility,
            screen_recording=screen,
            issues=tuple(each.issue for each in found),
            remedies=tuple(each.remedy for each in found),
            notes=self._session.notes,
            stop_keys=keys.chord(),
            capabilities=await self._capabilities(accessibility, screen),
        )

    async def _capabilities(self, accessibility: Permission, screen: Permission) -> Capabilities:
        can = self._session.capabilities
        if accessibility != "granted":
            can = msgspec.structs.replace(can, elements=False)
        if screen != "granted" and self.has_pictures:
            # Where there should be pictures, nothing is done without one.
            can = msgspec.structs.replace(can, pictures="none", keys="none", clicks="none", text="none")
        try:
            await self._session.open()
        except BackendError:
            can = msgspec.structs.replace(can, places=False)
        return can

    async def unreadable(self) -> list[str]:
        on_bus = await self._trees.pids()
        found: dict[int, Window] = {each.pid: each for each in await self.windows() if not each.popup and each.pid}
        out = []
        for pid, window in sorted(found.items()):
            known = pid in on_bus
            why = await asyncio.to_thread(programs.why_unreadable, pid, window.program, on_bus=known)
            if why is not None:
                out.append(f"{window.bundle_id} (process {pid}): {why}")
        return out

    # -- windows, pictures --

    async def windows(self) -> list[Window]:
        found = await self._session.windows.windows()
        names: dict[int, frozenset[str]] = {}
        for each in found:
            names[each.pid] = names.get(each.pid, frozenset()) | each.names
        # 0 is a process that is not known.
        return [msgspec.structs.replace(each, process_names=names[each.pid]) if each.pid else each for each in found]

    async def screen(self) -> Rect:
        return await self._session.windows.screen()

    async def activate(self, window: Window) -> bool:
        return await self._session.windows.activate(window)

    async def grab(self, rect: Rect, of: Sequence[Window] = ()) -> Shot:
        return await self._session.pictures.grab(rect, of)

    # -- what is in windows --

    def root_of(self, window: Window) -> Key | None:
        return self._trees.root_of(window)

    def program_of(self, window: Window) -> str | None:
        return self._trees.program_of(window)

    def pace_of(self, program: str | None) -> Pace:
        return self._trees.pace_of(program)

    async def tree(
        self, windows: Sequence[Window], *, seconds: float, max_depth: int, max_nodes: int, values: bool = True
    ) -> Tree:
        return await self._trees.tree(windows, seconds=seconds, max_depth=max_depth, max_nodes=max_nodes, values=values)

    async def refreshed(self, element: Element) -> Element | None:
        return await self._trees.refreshed(element)

    async def steady(self, element: Element, window: Window) -> tuple[Rect, Rect] | None:
        return await self._trees.steady(element, window)

    async def element_at(self, window: Window, x: int, y: int) -> Key | None:
        return await self._trees.element_at(window, x, y)

    async def press(self, element: Element) -> bool:
        return await self._trees.press(element)

    async def focus(self, element: Element) -> bool:
        return await self._trees.focus(element)

    async def caret_to_end(self, element: Element) -> None:
        await self._trees.caret_to_end(element)

    async def set_value(self, element: Element, value: str | float) -> bool:
        return await self._trees.set_value(element, value)

    @property
    def has_pictures(self) -> bool:
        return self._session.capabilities.pictures != "none"

    @property
    def has_hands(self) -> bool:
        return self._session.capabilities.keys != "none"

    @property
    def holds(self) -> bool:
        return "checked" not in (self._session.capabilities.keys, self._session.capabilities.clicks)

    @property
    def inserts(self) -> bool:
        return self._session.capabilities.text == "field"

    async def insert(self, element: Element, text: str, *, clear: bool) -> bool:
        return await self._trees.insert(element, text, clear=clear)

    def changes(self, on_change: Changed) -> AbstractAsyncContextManager[None]:
        return self._trees.changes(on_change)

    # -- hands --

    async def click_at(self, x: int, y: int, halt: Halt, onto: Onto, *, button: int = 1, count: int = 1) -> None:
        await self._session.hands.click_at(x, y, halt, onto, button=button, count=count)

    async def scroll_at(self, x: int, y: int, halt: Halt, onto: Onto, *, direction: str, steps: int) -> None:
        await self._session.hands.scroll_at(x, y, halt, onto, direction=direction, steps=steps)

    async def drag(self, start: tuple[int, int], end: tuple[int, int], halt: Halt, onto: Onto) -> None:
        await self._session.hands.drag(start, end, halt, onto)

    async def chord(self, keys: Sequence[str], halt: Halt, window: Window, *, delay: float = 0.0) -> None:
        await self._session.hands.chord(keys, halt, window, delay=delay)

    async def check_keys(self, keys: Sequence[str]) -> None:
        await self._session.hands.check_keys(keys)

    async def paste(self, text: str, halt: Halt, window: Window, is_shown: IsShown | None = None) -> Pasted:
        return await self._session.hands.paste(text, halt, window, is_shown)

    async def release_all(self) -> None:
        await self._session.hands.release_all()
