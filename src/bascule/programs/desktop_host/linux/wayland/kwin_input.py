"""KWin's fake input: keys and the pointer, to whom it is given. Every request is kept until `flush`.

Keys have the numbers of the person's own keyboard, so what they mean is read off the layout that KWin has.
"""

import os
from collections.abc import Sequence
from typing import Final

from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.wayland.connection import Connection, Object
from bascule.programs.desktop_host.linux.wayland.devices import BUTTONS, STEP_UNITS, WHEEL
from bascule.programs.desktop_host.linux.wayland.keymaps import OWN_LAYOUT, Layout, Stroke, layout_of, strokes
from bascule.programs.desktop_host.ports import NoSuchKey, NotReachable

_KEYBOARD_CAPABILITY: Final = 2
# A keymap of four layouts has about a hundred thousand.
MAX_KEYMAP_BYTES: Final = 4 * 1024 * 1024


class FakeInput:
    def __init__(self, connection: Connection, device: Object, layout: Layout) -> None:
        self._connection = connection
        self._device = device
        self._layout = layout
        self._down: list[Stroke] = []
        self._buttons: list[int] = []

    @classmethod
    async def plugged_in(cls, connection: Connection, device: Object, seat: Object) -> "FakeInput":
        """The seat has a keyboard from then on, and with it a layout."""
        capabilities = 0
        keymap = ""

        def on_capabilities(value: int) -> None:
            nonlocal capabilities
            capabilities = value

        def on_keymap(_format: int, descriptor: int, size: int) -> None:
            nonlocal keymap
            keymap = _read(descriptor, size)

        seat.handlers["capabilities"] = on_capabilities
        connection.request(device, "authenticate", "Bascule", "agents use this desktop, as far as you let them")
        await connection.roundtrip()
        if not capabilities & _KEYBOARD_CAPABILITY:
            raise NotReachable("KWin's seat has no keyboard")
        keyboard = connection.create(seat, "get_keyboard", "wl_keyboard")
        keyboard.handlers["keymap"] = on_keymap
        await connection.roundtrip()
        if not keymap:
            raise NotReachable("KWin does not say which keyboard layout there is")
        made = cls(connection, device, layout_of(keymap))
        keyboard.handlers["keymap"] = made._on_keymap
        return made

    def _on_keymap(self, _format: int, descriptor: int, size: int) -> None:
        """The person has chosen other layouts."""
        self._layout = layout_of(_read(descriptor, size))

    def strokes(self, keys: Sequence[str]) -> list[Stroke]:
        found = strokes(keys, {**_named(OWN_LAYOUT), **self._layout})
        if any(each.num_lock for each in found):
            raise NoSuchKey("what the number pad means depends on Num Lock here: give the digit itself")
        return found

    def press(self, stroke: Stroke) -> None:
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


def _named(layout: Layout) -> Layout:
    """Keys that are where they are on every keyboard: Escape, Return, the arrows."""
    return {name: place for name, place in layout.items() if len(name) > 1}


def _read(descriptor: int, size: int) -> str:
    try:
        return os.pread(descriptor, min(size, MAX_KEYMAP_BYTES), 0).rstrip(b"\0").decode("utf-8", "replace")
    finally:
        os.close(descriptor)
