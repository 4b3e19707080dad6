"""A keyboard and a pointer of our own (virtual-keyboard, wlr-virtual-pointer). Every request is kept until `flush`."""

import os
import time
from collections.abc import Sequence
from typing import Final

from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.wayland.connection import Connection, Object
from bascule.programs.desktop_host.linux.wayland.keymaps import (
    KEYMAP,
    NUM_LOCK_BIT,
    OWN_LAYOUT,
    XKB_V1,
    Stroke,
    bits_of,
    strokes,
)

# A button that no mouse has and few programs know. While it is down, a compositor sends the pointer's events to the
# window, and the point in it, where it went down, wherever the window goes.
HOLD: Final = 0
# Of linux/input-event-codes.h: left, middle, right; and a number between those of gamepads and of tablets.
BUTTONS: Final = {1: 0x110, 2: 0x112, 3: 0x111, HOLD: 0x13F}
# Axis and sign. A step of a real wheel is 15 of the units that toolkits scroll by.
WHEEL: Final = {"up": (0, -1), "down": (0, 1), "left": (1, -1), "right": (1, 1)}
STEP_UNITS: Final = 15.0
_SOURCE_WHEEL: Final = 0


class VirtualDevices:
    def __init__(self, connection: Connection, keyboards: Object, pointers: Object, seat: Object) -> None:
        self._connection = connection
        self._keyboard = connection.create(keyboards, "create_virtual_keyboard", "zwp_virtual_keyboard_v1", seat)
        self._pointer = connection.create(pointers, "create_virtual_pointer", "zwlr_virtual_pointer_v1", seat)
        self._down: list[Stroke] = []
        self._buttons: list[int] = []
        text = KEYMAP.encode() + b"\0"
        descriptor = os.memfd_create("bascule-keymap", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, text)
            connection.request(self._keyboard, "keymap", XKB_V1, descriptor, len(text))
            connection.flush()
        finally:
            os.close(descriptor)

    @staticmethod
    def strokes(keys: Sequence[str]) -> list[Stroke]:
        return strokes(keys, OWN_LAYOUT)

    def press(self, stroke: Stroke) -> None:
        self._down.append(stroke)
        if stroke.num_lock:
            self._modifiers(locked=NUM_LOCK_BIT)
        self._connection.request(self._keyboard, "key", _now(), stroke.code, 1)
        if stroke.modifier:
            self._modifiers()

    def release_keys(self) -> None:
        while self._down:
            stroke = self._down.pop()
            self._connection.request(self._keyboard, "key", _now(), stroke.code, 0)
            if stroke.modifier or stroke.num_lock:
                self._modifiers()

    def _modifiers(self, locked: int = 0) -> None:
        """Nobody derives them from the keys of a virtual keyboard."""
        self._connection.request(self._keyboard, "modifiers", bits_of(self._down), 0, locked, 0)

    def move(self, x: int, y: int, screen: Rect) -> None:
        at = (x - screen.x, y - screen.y)
        self._connection.request(self._pointer, "motion_absolute", _now(), *at, screen.width, screen.height)
        self._connection.request(self._pointer, "frame")

    def button(self, button: int, *, down: bool) -> None:
        if down:
            self._buttons.append(button)
        elif button in self._buttons:
            self._buttons.remove(button)
        self._connection.request(self._pointer, "button", _now(), BUTTONS[button], int(down))
        self._connection.request(self._pointer, "frame")

    def wheel(self, direction: str) -> None:
        axis, sign = WHEEL[direction]
        self._connection.request(self._pointer, "axis_source", _SOURCE_WHEEL)
        self._connection.request(self._pointer, "axis_discrete", _now(), axis, sign * STEP_UNITS, sign)
        self._connection.request(self._pointer, "frame")

    def release_buttons(self) -> None:
        for button in tuple(self._buttons):
            self.button(button, down=False)

    def release_all(self) -> None:
        self.release_buttons()
        self.release_keys()


def _now() -> int:
    """Milliseconds, as events have them: from any beginning, in 32 bits."""
    return time.monotonic_ns() // 1_000_000 & 0xFFFF_FFFF
