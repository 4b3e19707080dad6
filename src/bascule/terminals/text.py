"""Text on its way into somebody's terminal.

What another agent wrote must arrive as text and nothing else: an escape sequence would press keys, end the paste
it came in (`ESC [ 201 ~`) or answer a question; a carriage return would submit the line before its end.
"""

from __future__ import annotations

# C0 without tab and newline, DEL, and C1: in a terminal U+009B is the same as `ESC [`, and reading programs decode it.
_C0 = [code for code in range(0x20) if chr(code) not in "\t\n"]
_GONE = dict.fromkeys([*_C0, *range(0x7F, 0xA0)])
# Both are line ends to some program that draws or reads lines.
_GONE.update(dict.fromkeys([0x2028, 0x2029]))
# One row of a wide screen; a notice that wraps is read as a paragraph.
MAX_LINE_CHARS = 400

BEGIN_PASTE = b"\x1b[200~"
END_PASTE = b"\x1b[201~"
# The Enter key of every terminal. Sent by itself: a newline within typed text is part of the text to many programs.
ENTER = b"\r"


def typeable(text: str) -> str:
    """The text without anything that a terminal program could take for a key."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_GONE)


def one_line(text: str) -> str:
    """The same as one row: what breaks lines or completes words becomes a space."""
    words = typeable(text).replace("\t", " ").replace("\n", " ")
    return words if len(words) <= MAX_LINE_CHARS else words[: MAX_LINE_CHARS - 1] + "…"


def as_bytes(text: str) -> bytes:
    """UTF-8; half a surrogate pair, which JSON can bring, is no character and is replaced."""
    return text.encode("utf-8", "replace")


def pasted(text: str) -> bytes:
    """As a terminal would deliver it to a program that asked for bracketed paste. Never with the Enter behind it."""
    return BEGIN_PASTE + as_bytes(typeable(text)) + END_PASTE
