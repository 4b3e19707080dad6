"""A chord that stops everything, whatever window is in front: for the person whose pointer just moved by itself.

Two ways, because each alone has a hole. A grab of the chord keeps it from the program in front; but while a menu or a
screen locker has the keyboard, no grab of anybody else's is served. Raw events come all the same (XInput 2.1).
"""

import contextlib
import itertools
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import Xlib.error
from Xlib import XK, X, display
from Xlib.ext import xinput
from Xlib.ext.ge import GenericEventCode

from bascule.desktop.protocol import STOP_CHORDS
from bascule.programs.desktop_host.ports import NotReachable

# Of every chord; its last key differs.
_HELD: Final = (("Control_L", "Control_R"), ("Alt_L", "Alt_R"), ("Shift_L", "Shift_R"))
_MODIFIERS: Final = X.ControlMask | X.Mod1Mask | X.ShiftMask
# Caps Lock, Num Lock, Super and AltGr may be down as well, the last two because we hold them.
_BESIDE: Final = (X.LockMask, X.Mod2Mask, X.Mod4Mask, X.Mod5Mask)
# Both ways tell of one chord, and a key that is held repeats itself.
ONCE_SECONDS: Final = 1.0


class StopKeys:
    """A thread that waits for the chord on a connection of its own."""

    def __init__(self, name: str | None, pressed: Callable[[], None]) -> None:
        try:
            self._display: Any = display.Display(name)
        except (Xlib.error.DisplayError, OSError) as error:
            raise NotReachable(f"no X display: {error}") from error
        self._display.set_error_handler(lambda *_: None)
        self._pressed = pressed
        self._pressed_at = float("-inf")
        root = self._display.screen().root
        free = next((chord for chord in STOP_CHORDS if self._grab(root, _last_key(chord))), None)
        self._listen(root)
        # False: other programs have all of them. They are heard all the same, beside whatever those do with them.
        self.armed = free is not None
        self.chord = free or STOP_CHORDS[0]
        self._read, self._write = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="bascule-stop-keys", daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.write(self._write, b".")
        self._thread.join()
        os.close(self._read)
        os.close(self._write)
        with contextlib.suppress(Xlib.error.ConnectionClosedError, OSError):
            self._display.close()

    def _grab(self, root: Any, key: str) -> bool:
        code = self._display.keysym_to_keycode(XK.string_to_keysym(key))
        refused = Xlib.error.CatchError(Xlib.error.BadAccess)
        for chosen in itertools.product((False, True), repeat=len(_BESIDE)):
            beside = sum(mask for mask, on in zip(_BESIDE, chosen, strict=True) if on)
            root.grab_key(code, _MODIFIERS | beside, False, X.GrabModeAsync, X.GrabModeAsync, onerror=refused)
        self._display.sync()
        if refused.get_error() is None:
            return True
        root.ungrab_key(code, X.AnyModifier)
        self._display.sync()
        return False

    def _listen(self, root: Any) -> None:
        """That a key went down, anywhere; which one is not read."""
        if not self._display.query_extension("XInputExtension"):
            return
        with contextlib.suppress(Xlib.error.XError):
            # XI 2.1 "Changes in version 2.1: RawEvents are sent regardless of the grab state"; to those who say it.
            xinput.XIQueryVersion(
                display=self._display.display,
                opcode=self._display.display.get_extension_major(xinput.extname),
                major_version=2,
                minor_version=2,
            )
            root.xinput_select_events([(xinput.AllMasterDevices, xinput.RawKeyPressMask)])
            self._display.sync()

    def _run(self) -> None:
        with contextlib.suppress(Xlib.error.ConnectionClosedError, OSError):
            while True:
                while self._display.pending_events():
                    kind = self._display.next_event().type
                    if kind == X.KeyPress or (kind == GenericEventCode and self._is_down()):
                        self._once()
                readable, _, _ = select.select([self._display.fileno(), self._read], [], [])
                if self._read in readable:
                    return

    def _once(self) -> None:
        now = time.monotonic()
        if now - self._pressed_at >= ONCE_SECONDS:
            self._pressed()
        self._pressed_at = now

    def _is_down(self) -> bool:
        held = self._display.query_keymap()

        def down(name: str) -> bool:
            code = self._display.keysym_to_keycode(XK.string_to_keysym(name))
            return bool(code) and bool(held[code // 8] >> code % 8 & 1)

        # All of them, also one that another program has: it may be a host of ours, and then both stop.
        return any(down(_last_key(each)) for each in STOP_CHORDS) and all(any(map(down, names)) for names in _HELD)


def _last_key(chord: str) -> str:
    return chord.rpartition("+")[2]
