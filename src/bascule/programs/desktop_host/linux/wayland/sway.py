"""The parts of a session on sway: its own socket for windows, Wayland's for pictures and hands."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from bascule.desktop.capabilities import Capabilities
from bascule.desktop.protocol import STOP_CHORDS
from bascule.foundation.paths import program_file
from bascule.foundation.tasks import Tasks
from bascule.programs.desktop_host.geometry import Rect, around
from bascule.programs.desktop_host.linux.parts import Finding, Hands, Pictures, StopKeys, Windows
from bascule.programs.desktop_host.linux.wayland import sway_ipc
from bascule.programs.desktop_host.linux.wayland.clipboard import WaylandClipboard
from bascule.programs.desktop_host.linux.wayland.connection import Connection, Object
from bascule.programs.desktop_host.linux.wayland.devices import VirtualDevices
from bascule.programs.desktop_host.linux.wayland.hands import Aimed, LiveHands, OneWriteHands, Pointed
from bascule.programs.desktop_host.linux.wayland.screencopy import Output, Screencopy
from bascule.programs.desktop_host.linux.wayland.sway_ipc import SwayIpc
from bascule.programs.desktop_host.linux.wayland.sway_tree import Seen, seen_in
from bascule.programs.desktop_host.linux.wayland.toplevels import Toplevel, Toplevels
from bascule.programs.desktop_host.ports import (
    BackendError,
    Elsewhere,
    NotReachable,
    Onto,
    Shot,
    Window,
)

# A window comes to the front within a millisecond; one that other programs fight for may not.
ACTIVATE_TRIES: Final = 20
# Windows of the same name are told apart by bringing one to the front: as often as this, while others do the same.
NAME_TRIES: Final = 5
_STOP_COMMAND: Final = "nop bascule-stop"
_BINDSYM: Final = re.compile(r"^\s*bindsym\s+((?:--\S+\s+)*)(\S+)", re.MULTILINE)


class _Connected(msgspec.Struct):
    """Everything that ends with the connection."""

    wayland: Connection
    ipc: SwayIpc
    toplevels: Toplevels
    pictures: Screencopy
    hands: OneWriteHands
    clipboard: WaylandClipboard
    # Which toplevel is which window, where it was seen.
    known: dict[int, Toplevel]


class SwayLink:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._now: _Connected | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> _Connected:
        async with self._opening:
            now = self._now
            if now is not None and now.wayland.lost is None and now.ipc.connected:
                return now
            await self.close()
            self._now = await self._connect()
            return self._now

    async def _connect(self) -> _Connected:
        path = sway_ipc.socket_path(self._environment)
        if path is None:
            raise NotReachable("SWAYSOCK is not set, and sway's socket is not in XDG_RUNTIME_DIR")
        ipc = await SwayIpc.open(path)
        try:
            wayland = await Connection.open(self._environment)
        except BaseException:
            ipc.close()
            raise
        try:
            return await self._with(wayland, ipc)
        except BaseException:
            ipc.close()
            wayland.close()
            raise

    async def _with(self, wayland: Connection, ipc: SwayIpc) -> _Connected:
        def bind(interface: str) -> Object:
            found = wayland.bind(interface)
            if found is None:
                raise NotReachable(f"this compositor does not offer {interface}")
            return found

        seat = bind("wl_seat")
        toplevels = Toplevels(wayland, bind("zwlr_foreign_toplevel_manager_v1"), seat)
        devices = VirtualDevices(
            wayland, bind("zwp_virtual_keyboard_manager_v1"), bind("zwlr_virtual_pointer_manager_v1"), seat
        )
        clipboard = WaylandClipboard(wayland, bind("zwlr_data_control_manager_v1"), seat)
        pictures = Screencopy(wayland, bind("zwlr_screencopy_manager_v1"), bind("wl_shm"))
        hands = OneWriteHands(wayland, devices, _Front(self), clipboard)
        await wayland.roundtrip()
        return _Connected(wayland, ipc, toplevels, pictures, hands, clipboard, {})

    async def close(self) -> None:
        if self._now is not None:
            await self._now.clipboard.close()
        if self._now is not None:
            self._now.wayland.close()
            self._now.ipc.close()
            self._now = None

    async def hands(self) -> OneWriteHands:
        return (await self.open()).hands

    async def look(self) -> Seen:
        now = await self.open()
        return seen_in(await now.ipc.ask(sway_ipc.GET_TREE), program_file)

    async def outputs(self) -> list[Output]:
        now = await self.open()
        found = await now.ipc.ask(sway_ipc.GET_OUTPUTS)
        return [
            Output(each["name"], Rect(*(each["rect"][name] for name in ("x", "y", "width", "height"))))
            for each in found
            if each.get("active")
        ]

    async def screen(self) -> Rect:
        return around(each.rect for each in await self.outputs())

    async def toplevel(self, handle: int, seen: Seen) -> Toplevel:
        """Which of the toplevels it is. They have no number in common: one is activated, and sway says what came up."""
        now = await self.open()
        known = now.known.get(handle)
        if known is not None and not known.closed:
            return known
        await now.wayland.roundtrip()
        alike = now.toplevels.named(*seen.names[handle])
        for _ in range(NAME_TRIES):
            for each in alike:
                now.toplevels.activate(each)
                await now.wayland.roundtrip()
                if (await self.look()).focused == handle:
                    now.known = {key: value for key, value in now.known.items() if not value.closed} | {handle: each}
                    return each
        raise Elsewhere(f"which of {len(alike)} windows of that name is meant cannot be told", "focus")


class _Aimed:
    def __init__(self, toplevels: Toplevels, toplevel: Toplevel) -> None:
        self._toplevels = toplevels
        self._toplevel = toplevel

    def activate(self) -> None:
        if self._toplevel.closed:
            raise Elsewhere("the window is closed", "focus")
        self._toplevels.activate(self._toplevel)


class _Front:
    def __init__(self, link: SwayLink) -> None:
        self._link = link

    async def for_keys(self, handle: int) -> Aimed:
        seen = await self._link.look()
        _check_no_prompt(seen)
        if handle not in seen.names:
            raise Elsewhere("the window meant is not shown", "focus")
        return await self._aimed(handle, seen)

    async def windows(self) -> list[Window]:
        return (await self._link.look()).windows

    async def for_pointer(self, x: int, y: int, onto: Onto) -> Pointed:
        seen = await self._link.look()
        _check_no_prompt(seen)
        x, y = onto.follow(x, y, seen.windows)
        above: list[Window] = []
        for window in reversed(seen.windows):
            if not window.outer.contains(x, y):
                continue
            if window.handle in onto.handles or window.pid == onto.pid:
                if above and not (window.floats and all(each.floats for each in above)):
                    # What floats comes above everything else that floats when it is activated; a tile does not.
                    raise Elsewhere("another window covers the element", "covered")
                outputs = [each.rect for each in await self._link.outputs()]
                if not any(each.contains(x, y) for each in outputs):
                    raise Elsewhere("the element is not on the screen any more", "moved")
                return Pointed(await self._aimed(window.handle, seen), window, (x, y), around(outputs))
            above.append(window)
        raise Elsewhere("another window covers the element", "covered")

    async def _aimed(self, handle: int, seen: Seen) -> Aimed:
        toplevel = await self._link.toplevel(handle, seen)
        return _Aimed((await self._link.open()).toplevels, toplevel)


def _check_no_prompt(seen: Seen) -> None:
    """A prompt of layer-shell or a lock screen has the keyboard for itself, whatever window is activated."""
    if seen.focused is None:
        raise Elsewhere("a prompt or a lock screen has the keyboard", "focus")


class SwayWindows:
    def __init__(self, link: SwayLink) -> None:
        self._link = link

    async def windows(self) -> list[Window]:
        return (await self._link.look()).windows

    async def screen(self) -> Rect:
        return await self._link.screen()

    async def activate(self, window: Window) -> bool:
        now = await self._link.open()
        for _ in range(ACTIVATE_TRIES):
            with contextlib.suppress(sway_ipc.Refused):
                await now.ipc.command(f"[con_id={window.handle}] focus")
            if (await self._link.look()).focused == window.handle:
                return True
            await asyncio.sleep(0.005)
        return False


class SwayPictures:
    def __init__(self, link: SwayLink) -> None:
        self._link = link

    async def grab(self, rect: Rect, of: Sequence[Window] = ()) -> Shot:  # noqa: ARG002 - a crop of the screen
        now = await self._link.open()
        return await now.pictures.grab(rect, await self._link.outputs())

    async def probe(self) -> None:
        screen = await self._link.screen()
        if screen.empty:
            raise NotReachable("no output is switched on")
        await self.grab(Rect(screen.x, screen.y, 1, 1))


class SwayStopKeys:
    """A key binding that does nothing but tell us, also while the screen is locked or a program wants all keys."""

    def __init__(self, environment: Mapping[str, str], pressed: Callable[[], None] | None) -> None:
        self._environment = environment
        self._pressed = pressed
        # That it ended is seen in `finding`, whatever ended it.
        self._tasks = Tasks(lambda _name, _error: None)
        self._listening: asyncio.Task[None] | None = None
        self._chord: str | None = None

    def start(self) -> None:
        if self._pressed is not None and (self._listening is None or self._listening.done()):
            self._listening = self._tasks.start(self._listen(self._pressed), "stop keys")

    async def close(self) -> None:
        await self._tasks.close()

    async def _listen(self, pressed: Callable[[], None]) -> None:
        path = sway_ipc.socket_path(self._environment)
        if path is None:
            return
        with contextlib.suppress(BackendError, OSError, EOFError):
            events = await SwayIpc.open(path)
            try:
                await self._bind(path)
                await events.subscribe()
                while True:
                    command = await events.next_binding()
                    if command is None:
                        # The configuration was read again, and what was bound before is forgotten.
                        await self._bind(path)
                    elif command == _STOP_COMMAND:
                        pressed()
            finally:
                self._chord = None
                events.close()

    async def _bind(self, path: str) -> None:
        """Not removed at the end: another host of ours may have bound the same, and it does nothing by itself."""
        self._chord = None
        ipc = await SwayIpc.open(path)
        try:
            config = await ipc.ask(sway_ipc.GET_CONFIG)
            taken = {frozenset(_plain(combo)) for _, combo in _BINDSYM.findall(config.get("config", ""))}
            free = next((each for each in STOP_CHORDS if frozenset(_plain(each)) not in taken), None)
            if free is not None:
                await ipc.command(f"bindsym --locked --inhibited {free.replace('Alt', 'Mod1')} {_STOP_COMMAND}")
                self._chord = free
        finally:
            ipc.close()

    def chord(self) -> str | None:
        return self._chord

    def finding(self) -> Finding | None:
        if self._pressed is None or self._chord is not None:
            return None
        issue = f"The keys that stop everything ({STOP_CHORDS[0]}) could not be bound in sway"
        return Finding(issue, "free them in sway's config; `bascule desktop stop` works without them")


def _plain(chord: str) -> list[str]:
    return [{"mod1": "alt", "control": "ctrl"}.get(each, each) for each in chord.lower().split("+")]


class SwaySession:
    picture_remedy = "switch an output on; `swaymsg -t get_outputs` lists them"
    notes: tuple[str, ...] = ()
    capabilities = Capabilities(
        session="sway", places=True, pictures="crop", keys="held", clicks="held", elements=True, text="field"
    )

    def __init__(self, environment: Mapping[str, str], on_stop_keys: Callable[[], None] | None) -> None:
        link = self._link = SwayLink(environment)
        self.windows: Windows = SwayWindows(link)
        self.pictures: Pictures = SwayPictures(link)
        self.hands: Hands = LiveHands(link.hands)
        self._stop_keys = SwayStopKeys(environment, on_stop_keys)
        self.stop_keys: StopKeys = self._stop_keys

    async def open(self) -> None:
        await self._link.open()
        self._stop_keys.start()

    async def close(self) -> None:
        await self._stop_keys.close()
        await self._link.close()

    async def accessibility_hint(self) -> str | None:
        return None
