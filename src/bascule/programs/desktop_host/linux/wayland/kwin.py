"""The parts of a session on KWin (KDE Plasma): scripts and D-Bus for windows and pictures, Wayland for hands."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from bascule.desktop.capabilities import Capabilities
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.bus import Bus, BusError, session_address
from bascule.programs.desktop_host.linux.parts import Hands, Pictures, StopKeys, Windows
from bascule.programs.desktop_host.linux.wayland import connection as wayland_connection
from bascule.programs.desktop_host.linux.wayland import kwin_lender, kwin_pictures
from bascule.programs.desktop_host.linux.wayland.clipboard import WaylandClipboard
from bascule.programs.desktop_host.linux.wayland.connection import Connection, Object
from bascule.programs.desktop_host.linux.wayland.hands import Aimed, LiveHands, OneWriteHands, Pointed
from bascule.programs.desktop_host.linux.wayland.kwin_input import FakeInput
from bascule.programs.desktop_host.linux.wayland.kwin_lender import Lender
from bascule.programs.desktop_host.linux.wayland.kwin_look import Seen
from bascule.programs.desktop_host.linux.wayland.kwin_pictures import Captured
from bascule.programs.desktop_host.linux.wayland.kwin_scripting import Scripting
from bascule.programs.desktop_host.linux.wayland.kwin_stop_keys import KwinStopKeys
from bascule.programs.desktop_host.ports import Elsewhere, NoSuchKey, NotReachable, Onto, Shot, Window

# A window comes to the front within a few milliseconds; one that other programs fight for may not.
ACTIVATE_TRIES: Final = 20
# Before a KWin that hangs is left alone.
CLOSE_SECONDS: Final = 1.0
WHY: Final = "KWin gives this host no pictures, keys and clicks"
# Of org_kde_plasma_window.
_ACTIVE: Final = 1
_SCREEN_SAVER: Final = ("org.freedesktop.ScreenSaver", "/ScreenSaver", "org.freedesktop.ScreenSaver")
_LAYOUTS: Final = ("org.kde.keyboard", "/Layouts", "org.kde.KeyboardLayouts")
_FAKE_INPUT: Final = "org_kde_kwin_fake_input"
_WINDOWS: Final = "org_kde_plasma_window_management"

FULL: Final = Capabilities(
    session="KWin", places=True, pictures="own", keys="held", clicks="held", elements=True, text="field"
)

WITHOUT: Final = msgspec.structs.replace(FULL, pictures="none", keys="none", clicks="none")


class NotGiven(NotReachable):
    """KWin has answered, and does not give it to us."""


class PlasmaWindow(msgspec.Struct, eq=False):
    """A window as it can be activated beside a key, in one write."""

    handle: Object
    gone: bool = False


class _Permitted(msgspec.Struct):
    """What KWin gives to whom it is told to: everything that ends with the connection."""

    wayland: Connection
    manager: Object
    hands: OneWriteHands
    clipboard: WaylandClipboard
    windows: dict[str, PlasmaWindow]

    def plasma_window(self, window_id: str) -> PlasmaWindow:
        known = self.windows.get(window_id)
        if known is None:
            handle = self.wayland.create(self.manager, "get_window_by_uuid", "org_kde_plasma_window", window_id)
            known = self.windows[window_id] = PlasmaWindow(handle)
            handle.handlers["unmapped"] = lambda: self._on_gone(window_id)
        return known

    def _on_gone(self, window_id: str) -> None:
        gone = self.windows.pop(window_id)
        gone.gone = True
        self.wayland.request(gone.handle, "destroy")


class KwinLink:
    def __init__(self, environment: Mapping[str, str], lender: Lender) -> None:
        self._environment = environment
        self._lender = lender
        self._bus: Bus | None = None
        self._scripting: Scripting | None = None
        # The bus once more, by a connection that may ask for pictures.
        self._picture_bus: Bus | None = None
        self._permitted: _Permitted | None = None
        self._opening = asyncio.Lock()

    # -- what everybody may --

    async def bus(self) -> Bus:
        await self.scripting()
        assert self._bus is not None
        return self._bus

    async def scripting(self) -> Scripting:
        async with self._opening:
            if self._bus is not None and self._scripting is not None and self._bus.connected:
                return self._scripting
            try:
                self._bus = await Bus.open(self._address, descriptors=True)
            except BusError as error:
                raise NotReachable(f"the session bus does not answer: {error}") from error
            self._scripting = Scripting(self._bus, self._environment.get("XDG_RUNTIME_DIR"))
            return self._scripting

    @property
    def _address(self) -> str:
        address = session_address(self._environment)
        if address is None:
            raise NotReachable("DBUS_SESSION_BUS_ADDRESS is not set")
        return address

    async def look(self) -> Seen:
        return await (await self.scripting()).look()

    async def locked(self) -> bool:
        """Whether the lock screen is up, and so has every key. Where nobody answers, none is."""
        return bool(await (await self.bus()).maybe(*_SCREEN_SAVER, "GetActive"))

    async def other_layout(self) -> bool:
        """Whether the person has switched to another than the first keyboard layout. With one, nobody answers."""
        return bool(await (await self.bus()).maybe(*_LAYOUTS, "getLayout"))

    # -- what KWin must have been told to give --

    async def permitted(self) -> _Permitted:
        async with self._opening:
            now = self._permitted
            if now is not None and now.wayland.lost is None:
                return now
            await self._forget()
            self._permitted = await self._connect()
            return self._permitted

    async def _connect(self) -> _Permitted:
        if self._lender.there:
            path = os.fsencode(wayland_connection.socket_path(self._environment))
            wayland = await Connection.over(await self._lender.connect(path))
        else:
            # Refused unless the person has told KWin otherwise, and then that is how it is.
            wayland = await Connection.open(self._environment)
        try:
            return await self._with(wayland)
        except BaseException:
            wayland.close()
            raise

    async def _with(self, wayland: Connection) -> _Permitted:
        if not all(wayland.globals.get(each) for each in (_WINDOWS, _FAKE_INPUT)):
            raise NotGiven(WHY)

        def bind(interface: str) -> Object:
            found = wayland.bind(interface)
            if found is None:
                raise NotReachable(f"this compositor does not offer {interface}")
            return found

        seat, manager = bind("wl_seat"), bind(_WINDOWS)
        devices = await FakeInput.plugged_in(wayland, bind(_FAKE_INPUT), seat)
        clipboard = WaylandClipboard(wayland, bind("zwlr_data_control_manager_v1"), seat)
        hands = OneWriteHands(wayland, devices, _Front(self), clipboard)
        await wayland.roundtrip()
        return _Permitted(wayland, manager, hands, clipboard, {})

    async def hands(self) -> OneWriteHands:
        return (await self.permitted()).hands

    async def picture_bus(self) -> Bus:
        if not self._lender.there:
            return await self.bus()
        async with self._opening:
            if self._picture_bus is None or not self._picture_bus.connected:
                sock = await self._lender.connect(kwin_lender.bus_socket(self._address))
                try:
                    self._picture_bus = await Bus.over(sock)
                except BusError as error:
                    raise NotReachable(f"the session bus does not answer: {error}") from error
            return self._picture_bus

    async def _forget(self) -> None:
        if self._permitted is not None:
            await self._permitted.clipboard.close()
            self._permitted.wayland.close()
            self._permitted = None

    async def close(self) -> None:
        await self._forget()
        if self._scripting is not None:
            with contextlib.suppress(BusError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._scripting.unload()
        for each in (self._bus, self._picture_bus):
            if each is not None:
                each.close()
        self._bus = self._picture_bus = self._scripting = None
        self._lender.close()


class _Aimed:
    def __init__(self, wayland: Connection, window: PlasmaWindow) -> None:
        self._wayland = wayland
        self._window = window

    def activate(self) -> None:
        if self._window.gone:
            raise Elsewhere("the window is closed", "focus")
        self._wayland.request(self._window.handle, "set_state", _ACTIVE, _ACTIVE)


class _Front:
    def __init__(self, link: KwinLink) -> None:
        self._link = link

    async def for_keys(self, handle: int) -> Aimed:
        if await self._link.other_layout():
            # What a key means is known of the first one.
            raise NoSuchKey("the keyboard has been switched to another than the first layout: switch it back")
        seen = await self._look()
        if handle not in seen.ids:
            raise Elsewhere("the window meant is not shown", "focus")
        return await self._aimed(handle, seen)

    async def windows(self) -> list[Window]:
        return (await self._link.look()).windows

    async def for_pointer(self, x: int, y: int, onto: Onto) -> Pointed:
        seen = await self._look()
        x, y = onto.follow(x, y, seen.windows)
        if not any(each.contains(x, y) for each in seen.outputs):
            raise Elsewhere("the element is not on the screen any more", "moved")
        above = None
        for window in reversed(seen.windows):
            if not window.outer.contains(x, y):
                continue
            layer = seen.layers[window.handle]
            if window.handle in onto.handles or window.pid == onto.pid:
                if above is not None and above > layer:
                    break
                aimed = await self._aimed(_holder(window, seen).handle, seen)
                return Pointed(aimed, window, (x, y), seen.screen)
            # Activated, a window comes above all others of its layer, and of none that is higher.
            above = layer if above is None else max(above, layer)
        raise Elsewhere("another window covers the element", "covered")

    async def _look(self) -> Seen:
        if await self._link.locked():
            raise Elsewhere("the lock screen has the keyboard", "focus")
        seen = await self._link.look()
        if seen.active is None:
            raise Elsewhere("a prompt has the keyboard", "focus")
        return seen

    async def _aimed(self, handle: int, seen: Seen) -> Aimed:
        now = await self._link.permitted()
        window = now.plasma_window(seen.ids[handle])
        # Whether it is there still, as late as can be asked.
        await now.wayland.roundtrip()
        return _Aimed(now.wayland, window)


def _holder(window: Window, seen: Seen) -> Window:
    """A menu is not activated, but the window that it is of: one that shows a menu is in front of its program's."""
    if not window.popup:
        return window
    own = (each for each in reversed(seen.windows) if each.pid == window.pid and not each.popup)
    found = next(own, None)
    if found is None or not found.active:
        # To activate it would close the menu.
        raise Elsewhere("the menu's window does not have the focus", "focus")
    return found


class KwinWindows:
    def __init__(self, link: KwinLink) -> None:
        self._link = link

    async def windows(self) -> list[Window]:
        return (await self._link.look()).windows

    async def screen(self) -> Rect:
        return (await self._link.look()).screen

    async def activate(self, window: Window) -> bool:
        scripting = await self._link.scripting()
        seen = await scripting.look()
        for _ in range(ACTIVATE_TRIES):
            if seen.active == window.handle:
                return True
            if window.handle not in seen.ids or seen.prompt or await self._link.locked():
                # KWin would take the keyboard from a prompt; that is the person's to do.
                return False
            seen = await scripting.look(activated=seen.ids[window.handle])
        return seen.active == window.handle


class KwinPictures:
    def __init__(self, link: KwinLink) -> None:
        self._link = link

    async def grab(self, rect: Rect, of: Sequence[Window] = ()) -> Shot:
        bus = await self._link.picture_bus()
        if not of:
            return await kwin_pictures.capture_area(bus, rect)
        seen = await self._link.look()
        # One that has closed meanwhile is not in it.
        there = [
            Captured(seen.ids[each.handle], each.outer, (each.outer, each.rect, seen.buffers[each.handle]))
            for each in of
            if each.handle in seen.ids
        ]
        # Where KWin puts something of its own around a window, a crop of the screen shows it where it is.
        return await kwin_pictures.capture_windows(bus, rect, there) or await kwin_pictures.capture_area(bus, rect)

    async def probe(self) -> None:
        screen = (await self._link.look()).screen
        await self.grab(Rect(screen.x, screen.y, 1, 1))


class KwinSession:
    picture_remedy = kwin_lender.REMEDY
    notes: tuple[str, ...] = ()
    # With the permission that `bascule desktop kwin install` gives.
    capabilities = FULL

    def __init__(self, environment: Mapping[str, str], on_stop_keys: Callable[[], None] | None) -> None:
        lender = Lender(environment)
        link = self._link = KwinLink(environment, lender)
        self.windows: Windows = KwinWindows(link)
        self.pictures: Pictures = KwinPictures(link)
        self.hands: Hands = LiveHands(link.hands)
        self._stop_keys = KwinStopKeys(on_stop_keys)
        self.stop_keys: StopKeys = self._stop_keys
        self.capabilities = FULL if lender.there else WITHOUT

    async def open(self) -> None:
        await self._stop_keys.bind(await self._link.bus())
        try:
            await self._link.permitted()
        except NotGiven:
            # As on any compositor that gives nothing, but that we know where windows are.
            self.capabilities = WITHOUT
        else:
            self.capabilities = FULL

    async def close(self) -> None:
        await self._stop_keys.close()
        await self._link.close()

    async def accessibility_hint(self) -> str | None:
        return None
