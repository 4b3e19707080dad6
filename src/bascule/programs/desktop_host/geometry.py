"""Rectangles on the screen, in pixels from its top left corner."""

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple


class Rect(NamedTuple):
    x: int
    y: int
    width: int
    height: int

    @property
    def empty(self) -> bool:
        return self.width <= 0 or self.height <= 0

    @property
    def right(self) -> int:
        return self.x + self.width

    @property
    def bottom(self) -> int:
        return self.y + self.height

    @property
    def centre(self) -> tuple[int, int]:
        return self.x + self.width // 2, self.y + self.height // 2

    def moved(self, dx: int, dy: int) -> "Rect":
        return Rect(self.x + dx, self.y + dy, self.width, self.height)

    def grown(self, by: int) -> "Rect":
        return Rect(self.x - by, self.y - by, self.width + 2 * by, self.height + 2 * by)

    def contains(self, x: int, y: int) -> bool:
        return self.x <= x < self.right and self.y <= y < self.bottom

    def within(self, other: "Rect") -> "Rect":
        """What of this one lies in the other; empty if nothing does."""
        x, y = max(self.x, other.x), max(self.y, other.y)
        return Rect(x, y, max(0, min(self.right, other.right) - x), max(0, min(self.bottom, other.bottom) - y))

    def joined(self, other: "Rect") -> "Rect":
        """The smallest one that holds both."""
        if self.empty:
            return other
        if other.empty:
            return self
        x, y = min(self.x, other.x), min(self.y, other.y)
        return Rect(x, y, max(self.right, other.right) - x, max(self.bottom, other.bottom) - y)

    def meets(self, other: "Rect") -> bool:
        return not self.within(other).empty


NOWHERE = Rect(0, 0, 0, 0)


def around(rects: Iterable[Rect]) -> Rect:
    """The smallest one that holds them all."""
    return reduce(Rect.joined, rects, NOWHERE)
