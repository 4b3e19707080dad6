"""A chord that stops everything, whatever window is in front: for the person whose pointer just moved by itself."""

import contextlib
import itertools
import os
import select
import threading
from collections.abc import Callable
from typing import Any, Final

import Xlib.error
from Xlib import XK, X, display

from bascule.desktop_host.ports import NotReachable

# Four keys that nobody presses by accident and no desktop we know has taken.
CHORD: Final = "Ctrl+Alt+Shift+Escape"
_MODIFIERS: Final = X.ControlMask | X.Mod1Mask | X.ShiftMask
# Caps Lock, Num Lock, Super and AltGr may be down as well, the last two because we hold them.
_BESIDE: Final = (X.LockMask, X.Mod2Mask, X.Mod4Mask, X.Mod5Mask)


class StopKeys:
    """A thread that waits for the chord on a connection of its own."""

    def __init__(self, name: str | None, pressed: Callable[[], None]) -> None:
        try:
            self._display: Any = display.Display(name)
        except (Xlib.error.DisplayError, OSError) as error:
            raise NotReachable(f"no X display: {error}") from error
        self._pressed = pressed
        root = self._display.screen().root
        code = self._display.keysym_to_keycode(XK.string_to_keysym("Escape"))
        refused = Xlib.error.CatchError(Xlib.error.BadAccess)
        for chosen in itertools.product((False, True), repeat=len(_BESIDE)):
            beside = sum(mask for mask, on in zip(_BESIDE, chosen, strict=True) if on)
            root.grab_key(code, _MODIFIERS | beside, False, X.GrabModeAsync, X.GrabModeAsync, onerror=refused)
        self._display.sync()
        # False: another program has the chord.
        self.armed = refused.get_error() is None
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

    def _run(self) -> None:
        with contextlib.suppress(Xlib.error.ConnectionClosedError, OSError):
            while True:
                while self._display.pending_events():
                    if self._display.next_event().type == X.KeyPress:
                        self._pressed()
                readable, _, _ = select.select([self._display.fileno(), self._read], [], [])
                if self._read in readable:
                    return
