"""The clipboard on GNOME: Mutter asks us for it while it is ours; our extension says what was there and puts it back.

Mutter's interface is the one of remote desktops. The session is never started: nobody is shown that somebody sees the
screen, because nobody does.
"""

import asyncio
import os
from typing import Final

import msgspec
from dbus_fast import Message, MessageType, Variant

from bascule.foundation.tasks import Tasks
from bascule.programs.desktop_host.linux.bus import Bus, BusError
from bascule.programs.desktop_host.linux.clipboard import HALT_SECONDS, SAVE_SECONDS, TAKE_SECONDS, Fetches
from bascule.programs.desktop_host.linux.wayland.clipboard import (
    SECRET_HINT,
    TEXT_TYPES,
    write_all,
)
from bascule.programs.desktop_host.linux.wayland.gnome_link import GnomeLink, owner_of
from bascule.programs.desktop_host.ports import Clipboard as Outcome
from bascule.programs.desktop_host.ports import Halt, NotReachable

_NAME: Final = "org.gnome.Mutter.RemoteDesktop"
_PATH: Final = "/org/gnome/Mutter/RemoteDesktop"
_SESSION: Final = f"{_NAME}.Session"
# Mutter keeps a copy of every text that comes to the clipboard: it reads ours at once, before anybody pastes.
KEEPER_SECONDS: Final = 1.0


class Saved(msgspec.Struct, frozen=True):
    """What was there, in one type. `lost`: there was more, or something we could not take."""

    kind: str = ""
    data: bytes = b""
    lost: bool = False


class GnomeClipboard:
    def __init__(self, link: GnomeLink) -> None:
        self._link = link
        self._bus: Bus | None = None
        self._owner: str | None = None
        self._session = ""
        self._content = b""
        self._fetches = Fetches()
        # Who asked and did not get it asks again, or shows nothing.
        self._sending = Tasks(lambda _name, _error: None)

    async def close(self) -> None:
        await self._sending.close()

    async def _opened(self) -> Bus:
        bus = await self._link.bus()
        if self._bus is not bus:
            self._owner = await owner_of(bus, _NAME)
            if self._owner is None:
                raise NotReachable(f"GNOME's compositor does not offer {_NAME}")
            session = await bus.call(self._owner, _PATH, _NAME, "CreateSession")
            await bus.call(self._owner, session, _SESSION, "EnableClipboard", "a{sv}", ({},))
            await bus.match(f"type='signal',sender='{self._owner}',path='{session}'", on=True)
            bus.listen(self._on_message)
            self._bus, self._session = bus, session
        return bus

    # -- what is there --

    async def save(self) -> Saved:
        try:
            async with asyncio.timeout(SAVE_SECONDS):
                types, kind, data = await self._link.ask("Clipboard")
        except TimeoutError:
            return Saved(lost=True)
        # Of a picture or of formatted text one type is kept of several.
        alone = all(each in TEXT_TYPES for each in types) or len(types) == 1
        return Saved(kind, bytes(data), lost=bool(types) and (not data or not alone))

    async def restore(self, saved: Saved) -> Outcome:
        # Left alone, Mutter would go on offering its copy of ours.
        await self._link.ask("SetClipboard", "(say)", [saved.kind or TEXT_TYPES[0], saved.data])
        self._content = b""
        return "lost" if saved.lost else "restored" if saved.data else "empty"

    # -- what we put there --

    async def offer(self, text: str) -> None:
        try:
            bus = await self._opened()
            self._content = text.encode()
            self._fetches = Fetches()
            types = Variant("as", [*TEXT_TYPES, SECRET_HINT])
            await bus.call(str(self._owner), self._session, _SESSION, "SetSelection", "a{sv}", ({"mime-types": types},))
        except BusError as error:
            raise NotReachable(f"GNOME's clipboard cannot be used: {error}") from error
        await self._wait(KEEPER_SECONDS, None)
        self._fetches = Fetches()

    def _on_message(self, message: Message) -> None:
        if (
            message.message_type is MessageType.SIGNAL
            and message.member == "SelectionTransfer"
            and message.sender == self._owner
            and message.path == self._session
        ):
            self._sending.start(self._send(*message.body), "clipboard")

    async def _send(self, kind: str, serial: int) -> None:
        if self._bus is None or self._owner is None:
            return
        call = (self._owner, self._session, _SESSION)
        descriptor = await self._bus.descriptor(*call, "SelectionWrite", "u", (serial,))
        text = kind in TEXT_TYPES
        try:
            os.set_blocking(descriptor, False)
            async with asyncio.timeout(TAKE_SECONDS):
                await write_all(descriptor, self._content if text else b"secret")
        finally:
            os.close(descriptor)
        await self._bus.call(*call, "SelectionWriteDone", "ub", (serial, True))
        if text:
            # Read to the end; GTK 3 would drop what is still in the pipe when the clipboard changes hands.
            self._fetches.note()

    async def wait_taken(self, halt: Halt) -> bool:
        """Whether somebody fetched the text since it was offered."""
        return await self._wait(TAKE_SECONDS, halt)

    async def _wait(self, seconds: float, halt: Halt | None) -> bool:
        while (over := self._fetches.over(seconds)) is None:
            if halt is not None:
                halt.check()
            await asyncio.sleep(HALT_SECONDS)
        return over
