"""Letters that nobody sees, or that act: which they are, and how a word with them stands in a message.

A name that a peer chose could move the cursor of a terminal, write right to left, or look like another name. `escaped`
writes such letters with a backslash. Standard library only.
"""

from __future__ import annotations

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
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def is_plain(text: str) -> bool:
    """Whether every letter of it stands for itself, on one line."""
    if text.isascii():
        return text.isprintable()
    return not any(map(is_hidden, set(text)))


def escaped(text: str) -> str:
    """For a word in a message: on one line, every hidden letter as a backslash escape."""
    if is_plain(text):
        return text
    return text.translate({ord(letter): _escape(letter) for letter in set(text) if is_hidden(letter)})


def is_hidden(letter: str) -> bool:
    """Whether it draws nothing, or changes how its neighbours are drawn."""
    if letter == " ":
        return False
    if unicodedata.category(letter) in _HIDDEN:
        return True
    code = ord(letter)
    return code in _BLANK or any(first <= code <= last for first, last in DEFAULT_IGNORABLE)


def _escape(letter: str) -> str:
    code = ord(letter)
    if code < 0x100:
        return _SHORT.get(letter) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
