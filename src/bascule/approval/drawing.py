"""How a question looks to the person: complete, and nothing in it hidden or pretending.

What an agent wants is text that the agent chose. Drawn into a terminal as it is, it could move the cursor, recolour a
minus into a plus, write right to left or be followed by a page of blank lines. So every character that does not stand
for itself is shown as its number, and nothing is left out.
"""

import unicodedata

from bascule.wire.canonical import SHORT_DIGEST_CHARS

# Cc: control, Cf: format (bidi marks, joiners, tags), Cs: half surrogates, Co: private use, Cn: unassigned,
# Zl/Zp: line and paragraph separator.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters that many fonts draw as nothing at all: Hangul fillers, Braille blank, Mongolian vowel separator's kin.
# And our own bracket: what is shown by its name cannot be typed, so two texts never look alike.
_BLANK = frozenset("⟨\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5")
# Combining marks upon one letter: languages need two or three, more of them paint over neighbouring lines.
MAX_MARKS = 4


def visible(text: str) -> str:
    """The text with newlines kept and every other character that has no picture of its own as ⟨U+202E⟩."""
    if text.isascii() and text.isprintable():
        return text
    out: list[str] = []
    marks = 0
    for letter in text:
        if letter == "\n":
            marks = 0
            out.append(letter)
            continue
        kind = unicodedata.category(letter)
        marks = marks + 1 if kind in ("Mn", "Me") else 0
        plain = kind not in _HIDDEN and letter not in _BLANK and marks <= MAX_MARKS
        # The only plain spaces are the common one and the ideographic; the others look like it and are not.
        if plain and (kind != "Zs" or letter in " \u3000"):
            out.append(letter)
        else:
            out.append(_named(letter))
    return "".join(out)


def one_line(text: str, max_chars: int = 200) -> str:
    """For lists and summaries: newlines shown too, and cut with what was cut said."""
    shown = visible(text).replace("\n", _named("\n"))
    if len(shown) <= max_chars:
        return shown
    return f"{shown[:max_chars]}… ({len(text)} characters)"


def digest_line(digest: str) -> str:
    """The beginning of a digest in groups of four, which a person can compare by eye."""
    short = digest[:SHORT_DIGEST_CHARS]
    return " ".join(short[at : at + 4] for at in range(0, len(short), 4))


def _named(letter: str) -> str:
    match letter:
        case "\t":
            # A tab is what a Makefile needs, and looks like spaces that it is not.
            return "⟨TAB⟩"
        case "\n":
            return "⟨LF⟩"
        case "\r":
            return "⟨CR⟩"
        case "\x1b":
            return "⟨ESC⟩"
        case _:
            return f"⟨U+{ord(letter):04X}⟩"
