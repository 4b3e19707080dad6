"""Text that a program, an agent or a file chose, made fit for its readers. One rule for every view.

Drawn as it is, such text could move the cursor, recolour a minus into a plus, write right to left, or hold words that
nobody sees. So a letter that draws nothing, or changes how its neighbours look, is hidden no longer: `visible` and
`one_line` name it in brackets (⟨ESC⟩, ⟨U+202E⟩) for people; `escaped` writes it with a backslash, for a word inside a
message that is drawn later. Nothing is left out. `typeable` is for text that is typed into a terminal program: there a
control character would be a key, and is removed.

Letters of right-to-left scripts stay as they are: they are ordinary text.
"""

from __future__ import annotations

import re
import unicodedata

# Default_Ignorable_Code_Point of Unicode 17: drawn as nothing by a font that does not know better. Python's
# `unicodedata` does not have this property. Variation selectors are among them (FE00, E0100).
DEFAULT_IGNORABLE = (
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
# Assigned, not ignorable by the standard, and still an empty place: Braille blank, the object that is not there,
# Khitan filler, the musical null notehead, Egyptian blanks (which Unicode 15 knows and 14 does not).
_BLANK = frozenset((0x2800, 0xFFFC, 0x16FE4, 0x1D159, 0x13441, 0x13442))
# Cc: control, Cf: format (bidi marks, joiners, tags), Cs: half surrogates, Co: private use, Cn: unassigned, Z*: line
# and paragraph separator, and every space but the common one, which the others look like.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
# Combining marks upon one letter: languages need two or three, more of them paint over neighbouring lines.
MAX_MARKS = 4
# Our own bracket is named as well: what is shown by its name cannot be typed, so two texts never look alike.
_BRACKET = "⟨"
# What a mark may not be drawn upon: spaces, our brackets and bars, and ASCII signs, which our own words use around the
# text. A stroke upon the minus of a diff makes it a plus.
_NO_BASE = r"\s⟩│─!-/:-@\[-`{-~"
_NAMES = {"\t": "TAB", "\n": "LF", "\r": "CR", "\x1b": "ESC"}
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}

# What a terminal program could take for a key: C0 without tab and newline, DEL, C1 (U+009B is the same as `ESC [`),
# and the two separators that some programs read as line ends.
_KEYS = dict.fromkeys([*(code for code in range(0x20) if chr(code) not in "\t\n"), *range(0x7F, 0xA0), 0x2028, 0x2029])
# One row of a wide screen; a notice that wraps is read as a paragraph.
MAX_LINE_CHARS = 400


def is_plain(text: str) -> bool:
    """Whether every letter of it stands for itself, on one line."""
    if text.isascii():
        return text.isprintable()
    return not any(map(_is_hidden, set(text)))


def visible(text: str, *, keep: str = "\n\t", drawn: bool = False) -> str:
    """For people: every hidden letter, but those in `keep`, by its name in brackets.

    `drawn` is for text that the daemon has made visible before: its brackets stay as they are.
    """
    if text.isascii() and text.isprintable():
        return text
    letters = set(text)
    hidden = {letter for letter in letters if _is_hidden(letter) and letter not in keep}
    if not drawn and _BRACKET in letters:
        hidden.add(_BRACKET)
    out = text.translate({ord(letter): _named(letter) for letter in hidden}) if hidden else text
    marks = "".join(letter for letter in letters - hidden if unicodedata.category(letter) in ("Mn", "Me"))
    if marks:
        # A mark without a letter of its own would be drawn upon ours.
        out = re.sub(f"(?<![^{_NO_BASE}])[{marks}]+|(?<=[{marks}]{{{MAX_MARKS}}})[{marks}]+", _all_named, out)
    return out


def one_line(text: str, max_chars: int | None = None, *, drawn: bool = False) -> str:
    """For lists, tables and headers: line breaks and tabs by name too, and cut with what was cut said."""
    shown = visible(text, keep="", drawn=drawn)
    if max_chars is None or len(shown) <= max_chars:
        return shown
    return f"{shown[:max_chars]}… ({len(text)} characters)"


def rows(line: str, columns: int) -> list[str]:
    """One line cut where a terminal of so many columns would wrap it, or earlier.

    A row that the terminal begins by itself has nothing of ours in front of it: padded with spaces, text would stand
    there like words of ours.
    """
    if line.isascii():
        return [line[at : at + columns] for at in range(0, len(line), columns)] or [""]
    found, start, width = [], 0, 0
    for at, letter in enumerate(line):
        # A: wide in the terminals of some languages.
        wide = 2 if unicodedata.east_asian_width(letter) in "WFA" else 1
        if width + wide > columns and at > start:
            found.append(line[start:at])
            start, width = at, 0
        width += wide
    return [*found, line[start:]]


def escaped(text: str) -> str:
    """For a word in a message: on one line, every hidden letter as a backslash escape."""
    if is_plain(text):
        return text
    return text.translate({ord(letter): _escape(letter) for letter in set(text) if _is_hidden(letter)})


def typeable(text: str) -> str:
    """The text without anything that a terminal program could take for a key."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_KEYS)


def typeable_line(text: str) -> str:
    """The same as one row: what breaks lines or completes words becomes a space."""
    words = typeable(text).replace("\t", " ").replace("\n", " ")
    return words if len(words) <= MAX_LINE_CHARS else words[: MAX_LINE_CHARS - 1] + "…"


def _is_hidden(letter: str) -> bool:
    if letter == " ":
        return False
    if unicodedata.category(letter) in _HIDDEN:
        return True
    code = ord(letter)
    return code in _BLANK or any(first <= code <= last for first, last in DEFAULT_IGNORABLE)


def _named(letter: str) -> str:
    return f"⟨{_NAMES.get(letter) or f'U+{ord(letter):04X}'}⟩"


def _all_named(found: re.Match[str]) -> str:
    return "".join(map(_named, found[0]))


def _escape(letter: str) -> str:
    code = ord(letter)
    if code < 0x100:
        return _SHORT.get(letter) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
