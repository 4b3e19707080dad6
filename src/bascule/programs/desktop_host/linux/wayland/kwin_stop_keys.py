"""Stop keys by KDE's global shortcuts (kglobalaccel): they need no permission, and work whatever has the focus."""

import asyncio
from collections.abc import Callable
from typing import Final

from dbus_fast import Message, MessageType

from bascule.desktop.protocol import STOP_CHORDS
from bascule.foundation.tasks import Tasks
from bascule.programs.desktop_host.linux.bus import DBUS, Bus, BusError
from bascule.programs.desktop_host.linux.parts import Finding

_NAME: Final = "org.kde.kglobalaccel"
_PATH: Final = "/kglobalaccel"
_INTERFACE: Final = "org.kde.KGlobalAccel"
_COMPONENT: Final = "org.kde.kglobalaccel.Component"
# Component and action, as programs call them and as people read them.
_ACTION: Final = ("bascule", "stop", "Bascule", "Stop what agents do on this desktop")
# Of Qt's key codes.
_CODES: Final = {
    "shift": 0x02000000,
    "ctrl": 0x04000000,
    "alt": 0x08000000,
    "escape": 0x01000000,
    "f12": 0x0100003B,
}
# The shortcut is there now; what was stored of it before does not count.
_PRESENT, _NOT_STORED = 2, 4
ANSWER_SECONDS: Final = 5.0


def code_of(chord: str) -> int:
    return sum(_CODES[each] for each in chord.lower().split("+"))


class KwinStopKeys:
    def __init__(self, pressed: Callable[[], None] | None) -> None:
        self._pressed = pressed
        self._bus: Bus | None = None
        self._chord: str | None = None
        # That it failed is seen in `finding`, whatever failed.
        self._tasks = Tasks(lambda _name, _error: None)

    async def close(self) -> None:
        await self._tasks.close()

    async def bind(self, bus: Bus) -> None:
        """Not let go at the end: another host of ours may have bound the same, and it does nothing by itself."""
        if self._pressed is None or (self._bus is bus and self._chord is not None):
            return
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if self._bus is not bus:
                    self._chord, self._bus = None, bus
                    bus.listen(self._on_message)
                    await bus.match(f"type='signal',sender='{_NAME}',interface='{_COMPONENT}'", on=True)
                    await bus.match(f"type='signal',sender='{DBUS}',member='NameOwnerChanged',arg0='{_NAME}'", on=True)
                await bus.call(_NAME, _PATH, _INTERFACE, "doRegister", "as", (list(_ACTION),))
                for chord in STOP_CHORDS:
                    wanted = code_of(chord)
                    words = (list(_ACTION), [wanted], _PRESENT | _NOT_STORED)
                    granted = await bus.call(_NAME, _PATH, _INTERFACE, "setShortcut", "asaiu", words)
                    if wanted in (granted or ()):
                        self._chord = chord
                        return
        except (BusError, TimeoutError):
            # `finding` says that there are none.
            return

    def _on_message(self, message: Message) -> None:
        if (
            message.message_type is MessageType.SIGNAL
            and message.interface == _COMPONENT
            and message.member == "globalShortcutPressed"
            and tuple(message.body[:2]) == _ACTION[:2]
            and self._pressed is not None
        ):
            self._pressed()
        elif message.sender == DBUS and message.member == "NameOwnerChanged" and message.body[0] == _NAME:
            # KWin was started again, and has forgotten them.
            self._chord = None
            if message.body[2] and self._bus is not None:
                self._tasks.start(self.bind(self._bus), "stop keys")

    def chord(self) -> str | None:
        return self._chord if self._bus is not None and self._bus.connected else None

    def finding(self) -> Finding | None:
        if self._pressed is None or self.chord() is not None:
            return None
        issue = f"The keys that stop everything ({STOP_CHORDS[0]}) could not be bound in KDE's global shortcuts"
        return Finding(issue, "free them in System Settings, Shortcuts; `bascule desktop stop` works without them")
