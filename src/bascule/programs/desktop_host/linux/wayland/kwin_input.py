"""KWin's fake input: keys and the pointer, to whom it is given. Every request is kept until `flush`.

Keys have the numbers of the person's own keyboard, so what they mean is read off the layout that KWin has.
"""

from collections.abc import Sequence
from typing import Final

from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.wayland.connection import Connection, Object
from bascule.programs.desktop_host.linux.wayland.devices import BUTTONS, STEP_UNITS, WHEEL
from bascule.programs.desktop_host.linux.wayland.keymaps import Stroke
from bascule.programs.desktop_host.linux.wayland.seat_keyboard import SeatKeyboard

# Of linux/input-event-codes.h: Ctrl, Shift, Alt and Super of both sides, AltGr, and Caps Lock, which some have as
# another Ctrl; a lock is not changed by being let go of.
_MODIFIERS: Final = (29, 97, 42, 54, 56, 100, 125, 126, 58)
# KEY_UNKNOWN: no layout has anything there.
_NOTHING: Final = 240


class FakeInput:
    def __init__(self, connection: Connection, device: Object, keyboard: SeatKeyboard) -> None:
        self._connection = connection
        self._device = device
        self._keyboard = keyboard
        self._down: list[Stroke] = []
        self._buttons: list[int] = []

    @classmethod
    async def plugged_in(cls, connection: Connection, device: Object, seat: Object) -> "FakeInput":
        """The seat has a keyboard from then on, and with it a layout."""
        connection.request(device, "authenticate", "Bascule", "agents use this desktop, as far as you let them")
        return cls(connection, device, await SeatKeyboard.found(connection, seat))

    def strokes(self, keys: Sequence[str]) -> list[Stroke]:
        return self._keyboard.strokes(keys)

    def release_modifiers(self) -> None:
        """Whoever holds them: there is one keyboard, and what is down on it would join our keys.

        The person's finger is still on the key, and KWin has it as up until it is pressed again.
        """
        # A modifier that is let go of before anything else was pressed may be a shortcut: Meta opens the launcher.
        for down in (1, 0):
            self._connection.request(self._device, "keyboard_key", _NOTHING, down)
        for code in _MODIFIERS:
            self._connection.request(self._device, "keyboard_key", code, 0)

    def press(self, stroke: Stroke) -> None:
        if not self._down:
            self.release_modifiers()
        self._down.append(stroke)
        self._connection.request(self._device, "keyboard_key", stroke.code, 1)

    def release_keys(self) -> None:
        while self._down:
            self._connection.request(self._device, "keyboard_key", self._down.pop().code, 0)

    def move(self, x: int, y: int, _screen: Rect) -> None:
        self._connection.request(self._device, "pointer_motion_absolute", float(x), float(y))

    def button(self, button: int, *, down: bool) -> None:
        if down:
            self._buttons.append(button)
        elif button in self._buttons:
            self._buttons.remove(button)
        self._connection.request(self._device, "button", BUTTONS[button], int(down))

    def wheel(self, direction: str) -> None:
        axis, sign = WHEEL[direction]
        self._connection.request(self._device, "axis", axis, sign * STEP_UNITS)

    def release_buttons(self) -> None:
        for button in tuple(self._buttons):
            self.button(button, down=False)

    def release_all(self) -> None:
        self.release_buttons()
        self.release_keys()
