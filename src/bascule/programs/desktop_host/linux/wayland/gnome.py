"""The parts of a session on GNOME: our extension in its shell, or AT-SPI alone where that is not installed."""

import asyncio
import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from dbus_fast import Message, MessageType
from PIL import Image

from bascule.desktop.capabilities import Capabilities
from bascule.desktop.gnome import BUS_NAME
from bascule.desktop.protocol import STOP_CHORDS
from bascule.foundation.paths import program_file
from bascule.foundation.tasks import Tasks
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.bus import DBUS, Bus
from bascule.programs.desktop_host.linux.parts import Finding
from bascule.programs.desktop_host.linux.wayland.bare import BareSession, BareWindows
from bascule.programs.desktop_host.linux.wayland.connection import Connection
from bascule.programs.desktop_host.linux.wayland.gnome_clipboard import GnomeClipboard
from bascule.programs.desktop_host.linux.wayland.gnome_hands import GnomeHands
from bascule.programs.desktop_host.linux.wayland.gnome_link import REMEDY, GnomeLink, NotThere
from bascule.programs.desktop_host.linux.wayland.gnome_look import id_of, seen_in
from bascule.programs.desktop_host.linux.wayland.kwin_look import Seen
from bascule.programs.desktop_host.linux.wayland.kwin_pictures import Captured, put_together
from bascule.programs.desktop_host.linux.wayland.seat_keyboard import SeatKeyboard
from bascule.programs.desktop_host.ports import BackendError, NotReachable, Shot, Window

# The overview, if it is open, goes in a third of a second; on a processor alone in a whole one.
ACTIVATE_TRIES: Final = 150
ACTIVATE_SECONDS: Final = 0.02
# The seat has a keyboard some turns after the extension has made one.
KEYBOARD_TRIES: Final = 50
KEYBOARD_SECONDS: Final = 0.02

FULL: Final = Capabilities(
    session="GNOME", places=True, pictures="own", keys="checked", clicks="checked", elements=True, text="field"
)
WITHOUT: Final = msgspec.structs.replace(BareSession.capabilities, session="GNOME")


class Shell:
    """The extension, where it runs; whether it did is remembered, so that a locked screen is not taken for another."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.link = GnomeLink(environment)
        self.there = False
        self._environment = environment
        self._wayland: Connection | None = None
        self._keyboard: SeatKeyboard | None = None

    async def open(self) -> None:
        try:
            await self.link.open()
        except NotThere:
            if self.there:
                raise
        else:
            self.there = True

    async def look(self) -> Seen:
        return seen_in(await self.link.ask("Look"), program_file)

    async def keyboard(self) -> SeatKeyboard:
        """What the keys mean; the extension presses them."""
        if self._keyboard is not None and self._wayland is not None and self._wayland.lost is None:
            return self._keyboard
        await self.link.open()
        self._wayland = await Connection.open(self._environment)
        for _ in range(KEYBOARD_TRIES):
            seat = self._wayland.bind("wl_seat")
            if seat is None:
                break
            with contextlib.suppress(NotReachable):
                self._keyboard = await SeatKeyboard.found(self._wayland, seat)
                return self._keyboard
            await asyncio.sleep(KEYBOARD_SECONDS)
        raise NotReachable("GNOME's seat has no keyboard")

    def close(self) -> None:
        if self._wayland is not None:
            self._wayland.close()
        self.link.close()


class GnomeWindows:
    def __init__(self, shell: Shell, bare: BareWindows) -> None:
        self._shell = shell
        self._bare = bare

    async def windows(self) -> list[Window]:
        return (await self._shell.look()).windows if self._shell.there else await self._bare.windows()

    async def screen(self) -> Rect:
        return (await self._shell.look()).screen if self._shell.there else await self._bare.screen()

    async def activate(self, window: Window) -> bool:
        if not self._shell.there:
            return await self._bare.activate(window)
        for _ in range(ACTIVATE_TRIES):
            if await self._shell.link.ask("Activate", "s", id_of(window.handle)):
                return True
            await asyncio.sleep(ACTIVATE_SECONDS)
        return False


class GnomePictures:
    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def grab(self, rect: Rect, of: Sequence[Window] = ()) -> Shot:
        if of:
            seen = await self._shell.look()
            there = [
                Captured(seen.ids[each.handle], each.outer, (each.outer, each.rect, seen.buffers[each.handle]))
                for each in of
                if each.handle in seen.ids
            ]
            if (shot := await put_together(rect, there, self._window)) is not None:
                return shot
        # Where the shell puts something of its own around a window, a crop of the screen shows it where it is.
        image = await _image(await self._shell.link.ask("Picture", "(iiii)", list(rect)))
        if image.size != (rect.width, rect.height):
            # A screen with a scale has more pixels than the numbers of its windows say.
            image = image.resize((rect.width, rect.height), Image.Resampling.BILINEAR)
        return Shot(rect=rect, pixels=image.tobytes("raw", "BGRX"))

    async def _window(self, window: Captured) -> Image.Image | None:
        data = await self._shell.link.ask("WindowPicture", "s", window.id)
        return await _image(data) if data else None

    async def probe(self) -> None:
        await self.grab(Rect(0, 0, 1, 1))


async def _image(data: Any) -> Image.Image:
    def decoded() -> Image.Image:
        with Image.open(io.BytesIO(bytes(data)), formats=("PNG",)) as image:
            return image.convert("RGB")

    try:
        return await asyncio.to_thread(decoded)
    except (OSError, ValueError, TypeError) as error:
        raise NotReachable(f"the screen cannot be captured: GNOME's shell gives no picture ({error})") from error


class GnomeStopKeys:
    """Taken by the extension, which says so when they are pressed, whatever has the focus."""

    def __init__(self, shell: Shell, pressed: Callable[[], None] | None) -> None:
        self._shell = shell
        self._pressed = pressed
        self._bus: Bus | None = None
        self._chord: str | None = None
        # That it failed is seen in `finding`, whatever failed.
        self._tasks = Tasks(lambda _name, _error: None)

    async def close(self) -> None:
        await self._tasks.close()

    async def bind(self) -> None:
        bus = await self._shell.link.bus()
        if self._pressed is None or (self._bus is bus and self._chord is not None):
            return
        if self._bus is not bus:
            self._chord, self._bus = None, bus
            bus.listen(self._on_message)
            await bus.match(f"type='signal',sender='{DBUS}',member='NameOwnerChanged',arg0='{BUS_NAME}'", on=True)
        self._chord = await self._shell.link.ask("StopKeys", "as", list(STOP_CHORDS)) or None

    async def _bind_again(self) -> None:
        with contextlib.suppress(BackendError):
            await self.bind()

    def _on_message(self, message: Message) -> None:
        if message.message_type is not MessageType.SIGNAL:
            return
        if message.interface == BUS_NAME and message.member == "StopPressed":
            if self._shell.link.is_shell(message.sender) and self._pressed is not None:
                self._pressed()
        elif message.sender == DBUS and message.member == "NameOwnerChanged" and message.body[0] == BUS_NAME:
            # Switched off, as it is while the screen is locked, or on again.
            self._chord = None
            if message.body[2]:
                self._tasks.start(self._bind_again(), "stop keys")

    def chord(self) -> str | None:
        return self._chord if self._bus is not None and self._bus.connected else None

    def finding(self) -> Finding | None:
        if self._pressed is None or self.chord() is not None:
            return None
        if not self._shell.there:
            return Finding("No keys stop everything in this session", f"stop with `bascule desktop stop`; {REMEDY}")
        issue = f"The keys that stop everything ({' and '.join(STOP_CHORDS)}) could not be bound in GNOME's shell"
        return Finding(issue, "free them in Settings, Keyboard; `bascule desktop stop` works without them")


class GnomeSession(BareSession):
    picture_remedy = REMEDY
    # With the extension that `bascule desktop gnome install` installs.
    capabilities = FULL

    def __init__(self, environment: Mapping[str, str], on_stop_keys: Callable[[], None] | None) -> None:
        super().__init__(on_stop_keys)
        shell = self._shell = Shell(environment)
        self.windows = GnomeWindows(shell, self.bare_windows)
        self.pictures = GnomePictures(shell)
        self._clipboard = GnomeClipboard(shell.link)
        self.hands = GnomeHands(shell.link, shell.keyboard, self._clipboard)
        self._stop_keys = GnomeStopKeys(shell, on_stop_keys)
        self.stop_keys = self._stop_keys
        self.capabilities = WITHOUT

    async def open(self) -> None:
        await self._shell.open()
        if self._shell.there:
            self.capabilities = FULL
            await self._stop_keys.bind()

    async def close(self) -> None:
        await self._stop_keys.close()
        await self._clipboard.close()
        self._shell.close()
