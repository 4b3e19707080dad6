"""What can be done to an element through its own program: press, focus, set. A `True` from it proves nothing."""

import math
from typing import Final

from dbus_fast import Variant

from bascule.desktop import roles
from bascule.programs.desktop_host.elements import Element, Key
from bascule.programs.desktop_host.linux.accessibility import (
    ATSPI,
    COMPONENT,
    SCREEN_COORDINATES,
    TEXT,
    VALUE,
    Accessibility,
)
from bascule.programs.desktop_host.linux.bus import PROPERTIES, BusError, Gone
from bascule.programs.desktop_host.linux.toolkits import Quirks

_ACTION: Final = ATSPI + "Action"
_EDITABLE: Final = ATSPI + "EditableText"
# What a click means, by the names toolkits give it. An entry's "activate" is Enter, not a click, and GTK 4's labels
# offer "clipboard.copy": a name that is not here is not a click.
_PRESS: Final = ("click", "press", "toggle", "activate", "jump", "select", "invoke", "dodefault", "open")
# Chromium's actions have no names; Firefox has one although it says it has none.
_MAX_DESCENT: Final = 64


class Actions:
    def __init__(self, accessibility: Accessibility) -> None:
        self._a11y = accessibility
        self._bus = accessibility.bus

    async def press(self, element: Element) -> bool:
        """False: it has no action that is a click."""
        if _ACTION not in element.native or element.role in roles.TYPED_INTO - {"AXComboBox"}:
            return False
        name, path = element.key
        offered = await self._bus.maybe(name, path, _ACTION, "GetActions") or []
        index = self._press_index([each[0] for each in offered])
        if index is None:
            return False
        try:
            return bool(await self._bus.call(name, path, _ACTION, "DoAction", "i", (index,)))
        except Gone:
            # It went away while it acted: whether it acted is not known, so nothing else is tried.
            raise
        except BusError:
            # GTK 4's check boxes have an index 0 and no action behind it.
            return False

    @staticmethod
    def _press_index(names: list[str]) -> int | None:
        if not any(names):
            return 0 if len(names) != 0 else None
        plain = ["".join(filter(str.isalpha, each.lower())) for each in names]
        return next((plain.index(each) for each in _PRESS if each in plain), None)

    async def focus(self, element: Element) -> bool:
        if COMPONENT not in element.native:
            return False
        return bool(await self._bus.maybe(*element.key, COMPONENT, "GrabFocus"))

    async def caret_to_end(self, element: Element) -> None:
        if TEXT not in element.native:
            return
        name, path = element.key
        if await self._bus.maybe(name, path, TEXT, "GetNSelections"):
            count = await self._bus.prop(name, path, TEXT, "CharacterCount") or 0
            await self._bus.maybe(name, path, TEXT, "RemoveSelection", "i", (0,))
            await self._bus.maybe(name, path, TEXT, "SetCaretOffset", "i", (count,))

    async def set_value(self, element: Element, value: str | float) -> bool:
        name, path = element.key
        if VALUE in element.native and not isinstance(value, str):
            if not math.isfinite(value):
                return False
            arguments = (VALUE, "CurrentValue", Variant("d", float(value)))
            await self._bus.call(name, path, PROPERTIES, "Set", "ssv", arguments)
            return True
        if _EDITABLE in element.native and isinstance(value, str):
            return bool(await self._bus.maybe(name, path, _EDITABLE, "SetTextContents", "s", (value,)))
        return False

    async def insert(self, element: Element, text: str, quirks: Quirks, *, clear: bool) -> bool:
        """Put a text where the caret is, or behind what is there, with or without the focus. False: it cannot."""
        if _EDITABLE not in element.native or TEXT not in element.native or quirks.text_unit is None:
            return False
        name, path = element.key
        if clear:
            done = await self._bus.maybe(name, path, _EDITABLE, "SetTextContents", "s", (text,))
            await self._caret_behind(element, 0, 0)
            return bool(done)
        before = at = await self._bus.prop(name, path, TEXT, "CharacterCount")
        if before is None:
            return False
        if "focused" in element.states:
            if await self._bus.maybe(name, path, TEXT, "GetNSelections"):
                # A paste would replace it.
                return False
            caret = await self._bus.prop(name, path, TEXT, "CaretOffset")
            at = caret if caret is not None and 0 <= caret <= at else at
        length = len(text.encode()) if quirks.text_unit == "bytes" else len(text.encode("utf-16-le")) // 2
        done = await self._bus.maybe(name, path, _EDITABLE, "InsertText", "isi", (at, text, length))
        await self._caret_behind(element, at, before)
        return bool(done)

    async def _caret_behind(self, element: Element, at: int, before: int) -> None:
        """Behind what was put there: what is typed next goes on. `before`: how many characters there were."""
        name, path = element.key
        now = await self._bus.prop(name, path, TEXT, "CharacterCount") or 0
        await self._bus.maybe(name, path, TEXT, "SetCaretOffset", "i", (at + max(0, now - before),))

    async def element_at(self, window: Key, x: int, y: int) -> Key | None:
        """The deepest element there, as the program itself finds it. Each answer is of the next level only."""
        name, at = window
        seen = {at}
        for _ in range(_MAX_DESCENT):
            arguments = (x, y, SCREEN_COORDINATES)
            found = await self._bus.maybe(name, at, COMPONENT, "GetAccessibleAtPoint", "iiu", arguments)
            if not found or found[0] != name or found[1].endswith("/null") or found[1] in seen:
                break
            at = found[1]
            seen.add(at)
        return None if at == window.path else Key(name, at)
