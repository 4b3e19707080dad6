"""What must not be read off the evidence: typed text, and whatever shows it. Pure.

The texts are kept in memory, to find them again in later windows; only lengths and keyed digests are written.
"""

import hashlib
import hmac
import secrets
from collections import deque
from collections.abc import Iterable
from typing import Final

from bascule.programs.desktop_host.elements import Element, Tree
from bascule.programs.desktop_host.geometry import Rect

# Shorter texts ("ok", "7") are everywhere; blanking those would blank the screen.
MIN_CHARS: Final = 4
MAX_TEXTS: Final = 64
# Of a long text this much from its start is looked for, line by line.
MAX_LINES: Final = 50
# Of a text and of each line. What is read of an element is cut, so that a longer one would never be found in it.
MAX_NEEDLE_CHARS: Final = 256

REDACTED: Final = "[redacted]"


class Typed:
    """The texts that were typed since the host started."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._needles: deque[frozenset[str]] = deque(maxlen=MAX_TEXTS)
        self._all: frozenset[str] = frozenset()
        # How many there were.
        self.count = 0

    def __bool__(self) -> bool:
        return bool(self._needles)

    def remember(self, text: str) -> None:
        parts = (text, *text.splitlines()[:MAX_LINES])
        starts = (each.strip()[:MAX_NEEDLE_CHARS].strip() for each in parts)
        needles = frozenset(each for each in starts if len(each) >= MIN_CHARS)
        if needles:
            self._needles.append(needles)
            self.count += 1
            # Each one once: they are looked for in every word of every window.
            self._all = frozenset().union(*self._needles)

    def digest(self, text: str) -> str:
        """Equal texts can be told apart from different ones, within this life; nothing else can."""
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()[:16]

    def shown_in(self, text: str | None) -> bool:
        if not text or not self._needles:
            return False
        return any(needle in text for needle in self._all)

    def shown_by(self, element: Element) -> bool:
        return any(self.shown_in(each) for each in (element.title, element.value, element.description))

    def places(self, tree: Tree) -> list[Rect]:
        """What to blank: every password field, and every element that shows a typed text."""
        return [each.rect for each in tree.elements if not each.rect.empty and (each.secret or self.shown_by(each))]


def clean(text: str | None, typed: Typed) -> str | None:
    return REDACTED if typed.shown_in(text) else text


def hidden(elements: Iterable[Element], typed: Typed) -> frozenset[tuple[str, str]]:
    """The elements whose words are left out."""
    return frozenset(each.key for each in elements if each.secret or typed.shown_by(each))
