"""Names of keys, for people and models, as X11 keysyms. Pure data."""

from typing import Final

# The contract's `cmd` is the Mac's key for what Ctrl does here; `super` is the real one.
MODIFIERS: Final = {
    "cmd": "Control_L",
    "command": "Control_L",
    "ctrl": "Control_L",
    "control": "Control_L",
    "shift": "Shift_L",
    "alt": "Alt_L",
    "option": "Alt_L",
    "altgr": "ISO_Level3_Shift",
    "super": "Super_L",
    "win": "Super_L",
    "meta": "Super_L",
}
_NAMED: Final = {
    "enter": "Return",
    "return": "Return",
    "tab": "Tab",
    "space": "space",
    "esc": "Escape",
    "escape": "Escape",
    "backspace": "BackSpace",
    # On a Mac's keyboard "delete" is what others call backspace; here it is the key that says Delete.
    "delete": "Delete",
    "del": "Delete",
    "insert": "Insert",
    "home": "Home",
    "end": "End",
    "pageup": "Prior",
    "pagedown": "Next",
    "up": "Up",
    "down": "Down",
    "left": "Left",
    "right": "Right",
    "menu": "Menu",
    "print": "Print",
    "pause": "Pause",
    "capslock": "Caps_Lock",
    "numlock": "Num_Lock",
    "plus": "plus",
    "minus": "minus",
    **{f"f{number}": f"F{number}" for number in range(1, 25)},
    **{f"num{digit}": f"KP_{digit}" for digit in range(10)},
    "numenter": "KP_Enter",
}


def keysym_name(key: str) -> str | None:
    """`enter` -> `Return`, `cmd` -> `Control_L`; a single character is itself; None for no key we know."""
    lower = key.lower()
    found = MODIFIERS.get(lower) or _NAMED.get(lower)
    if found is not None:
        return found
    return key if len(key) == 1 and key.isprintable() else None


def is_modifier(key: str) -> bool:
    return key.lower() in MODIFIERS


def known_keys() -> list[str]:
    return sorted({*MODIFIERS, *_NAMED})
