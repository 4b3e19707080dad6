"""The person's own keyboard layout, as a seat of the compositor has it: which key to press for what.

For compositors that let us press keys of that keyboard, and bring none of our own.
"""

import os
from collections.abc import Sequence
from typing import Final

from bascule.programs.desktop_host.linux.wayland.connection import Connection, Object
from bascule.programs.desktop_host.linux.wayland.keymaps import OWN_LAYOUT, Layout, Stroke, layout_of, strokes
from bascule.programs.desktop_host.ports import NoSuchKey, NotReachable

_KEYBOARD_CAPABILITY: Final = 2
# A keymap of four layouts has about a hundred thousand.
MAX_KEYMAP_BYTES: Final = 4 * 1024 * 1024


class SeatKeyboard:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @classmethod
    async def found(cls, connection: Connection, seat: Object) -> "SeatKeyboard":
        capabilities = 0
        keymap = ""

        def on_capabilities(value: int) -> None:
            nonlocal capabilities
            capabilities = value

        def on_keymap(_format: int, descriptor: int, size: int) -> None:
            nonlocal keymap
            keymap = _read(descriptor, size)

        seat.handlers["capabilities"] = on_capabilities
        await connection.roundtrip()
        if not capabilities & _KEYBOARD_CAPABILITY:
            raise NotReachable("the compositor's seat has no keyboard")
        keyboard = connection.create(seat, "get_keyboard", "wl_keyboard")
        keyboard.handlers["keymap"] = on_keymap
        await connection.roundtrip()
        if not keymap:
            raise NotReachable("the compositor does not say which keyboard layout there is")
        made = cls(layout_of(keymap))
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


def _named(layout: Layout) -> Layout:
    """Keys that are where they are on every keyboard: Escape, Return, the arrows."""
    return {name: place for name, place in layout.items() if len(name) > 1}


def _read(descriptor: int, size: int) -> str:
    try:
        return os.pread(descriptor, min(size, MAX_KEYMAP_BYTES), 0).rstrip(b"\0").decode("utf-8", "replace")
    finally:
        os.close(descriptor)
