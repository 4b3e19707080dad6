"""Text on its way into somebody's terminal, as bytes.

What another agent wrote must arrive as text and nothing else: an escape sequence would press keys, end the paste
it came in (`ESC [ 201 ~`) or answer a question; a carriage return would submit the line before its end.
"""

from __future__ import annotations

from bascule.foundation.text import typeable

BEGIN_PASTE = b"\x1b[200~"
END_PASTE = b"\x1b[201~"
# The Enter key of every terminal. Sent by itself: a newline within typed text is part of the text to many programs.
ENTER = b"\r"


def as_bytes(text: str) -> bytes:
    """UTF-8; half a surrogate pair, which JSON can bring, is no character and is replaced."""
    return text.encode("utf-8", "replace")


def pasted(text: str) -> bytes:
    """As a terminal would deliver it to a program that asked for bracketed paste. Never with the Enter behind it."""
    return BEGIN_PASTE + as_bytes(typeable(text)) + END_PASTE
