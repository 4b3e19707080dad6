"""Text that a program, an agent or a file chose, made fit for its readers. One rule for every view.

Drawn as it is, such text could move the cursor, recolour a minus into a plus, write right to left, or hold words that
nobody sees. So a letter that draws nothing, or changes how its neighbours look, is hidden no longer: `visible` and
`one_line` name it in brackets (⟨ESC⟩, ⟨U+202E⟩) for people. Nothing is left out. `gabp.text` says which letters these
are, and escapes them with a backslash for a word inside a message that is drawn later. `typeable` is for text that is
typed into a terminal program: there a control character would be a key, and is removed.

Letters of right-to-left scripts stay as they are: they are ordinary text.
"""

from __future__ import annotations

import re
import unicodedata

# Combining marks upon one letter: languages need two or three, more of them paint over neighbouring lines.
MAX_MARKS = 4
# Our own bracket is named as well: what is shown by its name cannot be typed, so two texts never look alike.
_BRACKET = "⟨"
# What a mark may not be drawn upon: spaces, our brackets and bars, and ASCII signs, which our own words use around the
# text. A stroke upon the minus of a diff makes it a plus.
_NO_BASE = r"\s⟩│─!-/:-@\[-`{-~"
_NAMES = {"\t": "TAB", "\n": "LF", "\r": "CR", "\x1b": "ESC"}

# What a terminal program could take for a key: C0 without tab and newline, DEL, C1 (U+009B is the same as `ESC [`),
# and the two separators that some programs read as line ends.
_KEYS = dict.fromkeys([*(code for code in range(0x20) if chr(code) not in "\t\n"), *range(0x7F, 0xA0), 0x2028, 0x2029])
# One row of a wide screen; a notice that wraps is read as a paragraph.
MAX_LINE_CHARS = 400
SHORT_ID_CHARS = 8


def visible(text: str, *, keep: str = "\n\t", already_visible: bool = False) -> str:
    """For people: every hidden letter, but those in `keep`, by its name in brackets.

    `already_visible` is for text that the daemon has made visible before: its brackets stay as they are.
    """
    if text.isascii() and (text.isprintable() or text.translate(dict.fromkeys(map(ord, keep))).isprintable()):
        return text
    # Late: helpers start with little, and what they show is nearly always plain.
    from gabp.text import is_hidden  # noqa: PLC0415 - see above

    letters = set(text)
    hidden = {letter for letter in letters if is_hidden(letter) and letter not in keep}
    if not already_visible and _BRACKET in letters:
        hidden.add(_BRACKET)
    out = text.translate({ord(letter): _named(letter) for letter in hidden}) if hidden else text
    marks = "".join(letter for letter in letters - hidden if unicodedata.category(letter) in ("Mn", "Me"))
    if marks:
        # A mark without a letter of its own would be drawn upon ours.
        out = re.sub(f"(?<![^{_NO_BASE}])[{marks}]+|(?<=[{marks}]{{{MAX_MARKS}}})[{marks}]+", _all_named, out)
    return out


def short_id(name: str) -> str:
    """The end of an id. Its beginning may be a time: two sessions of one minute would look alike."""
    return name[-SHORT_ID_CHARS:]


def one_line(text: str, max_chars: int | None = None, *, already_visible: bool = False) -> str:
    """For lists, tables and headers: line breaks and tabs by name too; a cut text ends with its length."""
    shown = visible(text, keep="", already_visible=already_visible)
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


def typeable(text: str) -> str:
    """The text without anything that a terminal program could take for a key."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_KEYS)


def typeable_line(text: str) -> str:
    """The same as one row: what breaks lines or completes words becomes a space."""
    words = typeable(text).replace("\t", " ").replace("\n", " ")
    return words if len(words) <= MAX_LINE_CHARS else words[: MAX_LINE_CHARS - 1] + "…"


def _named(letter: str) -> str:
    return f"⟨{_NAMES.get(letter) or f'U+{ord(letter):04X}'}⟩"


def _all_named(found: re.Match[str]) -> str:
    return "".join(map(_named, found[0]))
