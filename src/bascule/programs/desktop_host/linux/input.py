"""Keys and pointer through XTest. Every event is preceded by a look at `Halt`; what is down is known and let go.

A dialog that comes up between a look at the screen and a key would get the key, a password prompt the text. So where
an event goes is asked in the same breath in which it is sent, while the server serves nobody else.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from Xlib import XK, X
from Xlib.ext import xtest

from bascule.programs.desktop_host.linux.keys import is_modifier, keysym_name, known_keys
from bascule.programs.desktop_host.linux.x11 import X11
from bascule.programs.desktop_host.ports import Aborted, Elsewhere, Halt, NoSuchKey, Onto

# Between the clicks of a double click: below every toolkit's limit, above their bounce filters.
DOUBLE_CLICK_SECONDS: Final = 0.06
# A drag is seen as one only when the pointer is seen on its way.
DRAG_STEPS: Final = 12
DRAG_STEP_SECONDS: Final = 0.01
# Window managers say which window is in front a little before or after they give it the focus.
FOCUS_SECONDS: Final = 0.3
# The last of the buttons that XTest has; few programs do anything with it.
HOLD: Final = 10
_BUTTONS: Final = (1, 2, 3, HOLD)
_WHEEL: Final = {"up": 4, "down": 5, "left": 6, "right": 7}


class Input:
    """Used by the X thread alone, except `release_all`, which the thread runs as well."""

    def __init__(self, x11: X11) -> None:
        self._x11 = x11
        self._display: Any = x11.display
        self._keys_down: list[int] = []
        self._buttons_down: list[int] = []
        if not self._display.query_extension("XTEST"):
            raise NoSuchKey("the X server has no XTEST extension: nothing can be typed or clicked")
        self._release_stale_keys()

    def chord(self, keys: Sequence[str], halt: Halt, window: int, delay: float = 0.0) -> None:
        codes = list(self._codes(keys))
        end = time.monotonic() + FOCUS_SECONDS
        while (self._x11.held_modifiers() or not self._x11.has_focus(window)) and time.monotonic() < end:
            halt.pause(0.005)
        with self._released():
            for code in codes:
                halt.check()
                with self._x11.undisturbed():
                    if not self._x11.has_focus(window):
                        raise Elsewhere("the focus is not inside the window meant", "focus")
                    if not self._keys_down and self._x11.held_modifiers():
                        raise Elsewhere("a modifier key is held down, and would join the keys", "modifier")
                    self._key(code, down=True)
                if delay:
                    halt.pause(delay)

    def check(self, keys: Sequence[str]) -> None:
        """Raises NoSuchKey where `chord` would."""
        list(self._codes(keys))

    def click(self, x: int, y: int, halt: Halt, onto: Onto, *, button: int = 1, count: int = 1) -> None:
        with self._released():
            halt.check()
            self._activate(onto, halt)
            self._move(x, y)
            for turn in range(count):
                if turn:
                    halt.pause(DOUBLE_CLICK_SECONDS)
                halt.check()
                with self._only(x, y, onto) as (*at, is_window):
                    self._point_at(*at)
                    if not turn and is_window and onto.is_moving((x, y), (at[0], at[1])):
                        self._hold()
                    self._button(button, down=True)
                    self._button(button, down=False)
                    if turn == count - 1 and HOLD in self._buttons_down:
                        # Only now: toolkits count clicks, and another button between two makes them single ones.
                        self._button(HOLD, down=False)

    def scroll(self, x: int, y: int, halt: Halt, onto: Onto, *, direction: str, steps: int) -> None:
        halt.check()
        self._move(x, y)
        for _ in range(steps):
            halt.check()
            with self._only(x, y, onto) as (*at, _):
                self._point_at(*at)
                self._button(_WHEEL[direction], down=True)
                self._button(_WHEEL[direction], down=False)

    def drag(self, start: tuple[int, int], end: tuple[int, int], halt: Halt, onto: Onto) -> None:
        with self._released():
            halt.check()
            self._move(*start)
            with self._only(*start, onto) as (x, y, _):
                self._point_at(x, y)
                self._button(1, down=True)
            # It stays on the pointer from here on, whatever moves.
            start, end = (x, y), (end[0] + x - start[0], end[1] + y - start[1])
            onto = msgspec.structs.replace(onto, judged=None)
            try:
                for step in range(1, DRAG_STEPS + 1):
                    halt.pause(DRAG_STEP_SECONDS)
                    self._move(*(a + (b - a) * step // DRAG_STEPS for a, b in zip(start, end, strict=True)))
                halt.pause(DRAG_STEP_SECONDS)
                with self._only(*end, onto):
                    self._button(1, down=False)
            except (Elsewhere, Aborted):
                # It is let go in any case: better where it came from than on whatever is below.
                self._move(*start)
                raise

    def release_all(self) -> None:
        for button in reversed(self._buttons_down):
            xtest.fake_input(self._display, X.ButtonRelease, button)
        for code in reversed(self._keys_down):
            xtest.fake_input(self._display, X.KeyRelease, code)
        self._buttons_down.clear()
        self._keys_down.clear()
        self._display.sync()

    def _release_stale_keys(self) -> None:
        """A host that was killed could not let go of its keys, and the server keeps them down for ever.

        Only what XTest pressed: the person's own keyboard is another device, and the server keeps them apart.
        """
        for button in _BUTTONS:
            xtest.fake_input(self._display, X.ButtonRelease, button)
        for code in range(self._display.display.info.min_keycode, self._display.display.info.max_keycode + 1):
            xtest.fake_input(self._display, X.KeyRelease, code)
        self._display.sync()

    @contextmanager
    def _only(self, x: int, y: int, onto: Onto) -> Iterator[tuple[int, int, bool]]:
        """Where the point is by now: it moves with the window that it was judged in. And whether it is in a window that
        was named, or in a popup."""
        with self._x11.undisturbed():
            if onto.judged is not None:
                x, y = onto.judged.follow(x, y, self._x11.place(onto.judged.handle))
            if not self._x11.screen().contains(x, y):
                raise Elsewhere("the element is not on the screen any more", "moved")
            found = self._x11.on_top(x, y, onto.pid, onto.handles)
            if found is None:
                raise Elsewhere("another window covers the element", "covered")
            yield x, y, found == "window"

    def _point_at(self, x: int, y: int) -> None:
        """The window, or the person's hand, may have moved since the pointer was brought there."""
        if self._x11.pointer() != (x, y):
            xtest.fake_input(self._display, X.MotionNotify, x=x, y=y)

    def _hold(self) -> None:
        """Window managers take the click that brings a window to the front, and give it back a moment later: to what is
        there by then. While another button is down they do not, and it goes to what is there now.

        Only where the window moves: some programs take any button for a click. And not in a menu: it has all clicks for
        itself, and any button chooses.
        """
        self._button(HOLD, down=True)

    def _activate(self, onto: Onto, halt: Halt) -> None:
        """As the window manager does when it takes the click."""
        if onto.judged is None or self._x11.active() in (0, onto.judged.handle):
            return
        self._x11.activate(onto.judged.handle)
        end = time.monotonic() + FOCUS_SECONDS
        while self._x11.active() != onto.judged.handle and time.monotonic() < end:
            halt.pause(0.005)

    @contextmanager
    def _released(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.release_all()

    def _codes(self, keys: Sequence[str]) -> Iterator[int]:
        """Keycodes in the order they are pressed; Shift is added where the layout needs it for a character."""
        for key in keys:
            name = keysym_name(key)
            if name is None:
                raise NoSuchKey(f"no key is called {key!r}; single characters and: {', '.join(known_keys())}")
            keysym = XK.string_to_keysym(name) or _keysym_of(name)
            code, level = self._find(keysym)
            if not code:
                raise NoSuchKey(f"this keyboard has no key for {key!r}: type it with desktop.typeText")
            if level == 1 and not is_modifier(key) and "shift" not in (each.lower() for each in keys):
                yield self._find(XK.string_to_keysym("Shift_L"))[0]
            yield code

    def _find(self, keysym: int) -> tuple[int, int]:
        for code, level in self._display.keysym_to_keycodes(keysym):
            if level in (0, 1):
                return int(code), int(level)
        return 0, 0

    def _key(self, code: int, *, down: bool) -> None:
        if down:
            self._keys_down.append(code)
        xtest.fake_input(self._display, X.KeyPress if down else X.KeyRelease, code)
        self._display.sync()

    def _button(self, button: int, *, down: bool) -> None:
        if down:
            self._buttons_down.append(button)
        elif button in self._buttons_down:
            self._buttons_down.remove(button)
        xtest.fake_input(self._display, X.ButtonPress if down else X.ButtonRelease, button)
        self._display.sync()

    def _move(self, x: int, y: int) -> None:
        xtest.fake_input(self._display, X.MotionNotify, x=x, y=y)
        self._display.sync()
        # The server delivers crossing events first; a button sent with the motion may find the old window.
        time.sleep(0.002)


def _keysym_of(character: str) -> int:
    """Latin-1 characters are their own keysyms; others are their code point with a mark (X11 appendix A)."""
    point = ord(character)
    return point if point < 0x100 else 0x0100_0000 | point
