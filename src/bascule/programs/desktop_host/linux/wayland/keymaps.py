"""Keys as Wayland has them: numbers of a keyboard, and a map that says what they mean. Pure.

Where a compositor lets us bring a keyboard of our own, its map is the one below, whatever layout the person has: a
chord then means what it says.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from bascule.programs.desktop_host.linux.keys import is_modifier, keysym_name, known_keys
from bascule.programs.desktop_host.ports import NoSuchKey

# The compositor reads the parts of it from the files that every keyboard there is described with.
KEYMAP: Final = (
    'xkb_keymap { xkb_keycodes { include "evdev+aliases(qwerty)" }; xkb_types { include "complete" }; '
    'xkb_compat { include "complete" }; xkb_symbols { include "pc+us+inet(evdev)" }; };'
)
XKB_V1: Final = 1
# An XKB keycode is the kernel's number and this.
_XKB_OFFSET: Final = 8

# The bits that a modifier sets, by its keysym (XKB's real modifiers).
_BITS: Final = {"Shift_L": 1, "Control_L": 4, "Alt_L": 8, "Super_L": 64, "ISO_Level3_Shift": 128}
NUM_LOCK_BIT: Final = 16

_ROWS: Final = (
    (41, "`~"),
    *enumerate(("1!", "2@", "3#", "4$", "5%", "6^", "7&", "8*", "9(", "0)", "-_", "=+"), 2),
    *enumerate(("qQ", "wW", "eE", "rR", "tT", "yY", "uU", "iI", "oO", "pP", "[{", "]}"), 16),
    *enumerate(("aA", "sS", "dD", "fF", "gG", "hH", "jJ", "kK", "lL", ";:", "'\""), 30),
    (43, "\\|"),
    *enumerate(("zZ", "xX", "cC", "vV", "bB", "nN", "mM", ",<", ".>", "/?"), 44),
)
_NAMED: Final = {
    "Escape": 1,
    "BackSpace": 14,
    "Tab": 15,
    "Return": 28,
    "Control_L": 29,
    "Shift_L": 42,
    "Alt_L": 56,
    "space": 57,
    "Caps_Lock": 58,
    **{f"F{number}": 58 + number for number in range(1, 11)},
    "F11": 87,
    "F12": 88,
    **{f"F{number}": 170 + number for number in range(13, 25)},
    "Num_Lock": 69,
    **dict(zip((f"KP_{digit}" for digit in range(10)), (82, 79, 80, 81, 75, 76, 77, 71, 72, 73), strict=True)),
    "KP_Enter": 96,
    "Print": 99,
    "ISO_Level3_Shift": 100,
    "Home": 102,
    "Up": 103,
    "Prior": 104,
    "Left": 105,
    "Right": 106,
    "End": 107,
    "Down": 108,
    "Next": 109,
    "Insert": 110,
    "Delete": 111,
    "Pause": 119,
    "Super_L": 125,
    "Menu": 127,
}
_WORDS: Final = {"plus": "+", "minus": "-"}


class Stroke(NamedTuple):
    """A key to be pressed: its number, and which modifier it is, if it is one."""

    code: int
    modifier: int = 0
    # It means what it should with Num Lock on.
    num_lock: bool = False


class Place(NamedTuple):
    """Where a symbol is on a keyboard."""

    code: int
    shifted: bool = False


Layout = Mapping[str, Place]

OWN_LAYOUT: Final[Layout] = {
    **{each: Place(code, bool(level)) for code, pair in _ROWS for level, each in enumerate(pair)},
    **{name: Place(code) for name, code in _NAMED.items()},
}


def strokes(keys: Sequence[str], layout: Layout = OWN_LAYOUT) -> list[Stroke]:
    """Keys in the order they are pressed; Shift is added where a character needs it."""
    out: list[Stroke] = []
    held = {each.lower() for each in keys}
    for key in keys:
        name = keysym_name(key)
        if name is None:
            raise NoSuchKey(f"no key is called {key!r}; single characters and: {', '.join(known_keys())}")
        name = "space" if name == " " else _WORDS.get(name, name)
        place = layout.get(name)
        if place is None:
            raise NoSuchKey(f"this keyboard has no key for {key!r}: type it with desktop.typeText")
        if place.shifted and not is_modifier(key) and "shift" not in held:
            out.append(Stroke(layout["Shift_L"].code, _BITS["Shift_L"]))
        out.append(Stroke(place.code, _BITS.get(name, 0), name.startswith("KP_") and name != "KP_Enter"))
    return out


_KEYCODE: Final = re.compile(r"<(\w+)>\s*=\s*(\d+)\s*;")
_KEY: Final = re.compile(r"key\s*<(\w+)>\s*\{(.*?)\}\s*;", re.DOTALL)
# What stands before the list of symbols, in brackets as well: "symbols[Group1]= ".
_LABEL: Final = re.compile(r"\w+\[\w+\]\s*=\s*")
_LIST: Final = re.compile(r"\[([^\]]*)\]")
# How XKB writes what we call by its character.
_NAMES: Final = (
    "grave asciitilde exclam at numbersign dollar percent asciicircum ampersand asterisk parenleft parenright minus "
    "underscore equal plus bracketleft braceleft bracketright braceright semicolon apostrophe quotedbl backslash bar "
    "comma less period greater slash question section degree eacute egrave ccedilla agrave ugrave adiaeresis "
    "odiaeresis udiaeresis ssharp mu sterling"
)
_CHARACTERS: Final = "`~!@#$%^&*()-_=+[{]};'\"\\|,<.>/?§°éèçàùäöüßµ£"
_SPELLED: Final = dict(zip(_NAMES.split(" "), _CHARACTERS, strict=True))


def layout_of(keymap: str) -> Layout:
    """What a compositor's keymap (the text form, `xkb_keymap { ... }`) has on which key, plain or with Shift."""
    codes = {name: int(number) - _XKB_OFFSET for name, number in _KEYCODE.findall(keymap)}
    found: dict[str, Place] = {}
    for name, described in _KEY.findall(keymap):
        listed = _LIST.search(_LABEL.sub("", described))
        if name not in codes or listed is None:
            continue
        for level, symbol in enumerate(_symbols(listed[1])[:2]):
            # The first key that has it, and a plain one before a shifted one.
            if symbol not in found or (found[symbol].shifted and not level):
                found[symbol] = Place(codes[name], bool(level))
    return found


def _symbols(text: str) -> list[str]:
    return [_SPELLED.get(each.strip(), each.strip()) for each in text.split(",")]


def bits_of(down: Iterable[Stroke]) -> int:
    bits = 0
    for each in down:
        bits |= each.modifier
    return bits
