"""The shortest way from one list of lines to another (Myers 1986), as far as it can be afforded.

`difflib` is quadratic and worse on hostile input. Here the cost grows with the number of differences, and beyond a
budget the middle of the two texts is simply replaced: still a true diff, only a longer one.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T", str, bytes)


class Change(NamedTuple):
    """Lines `old_start:old_end` become `new_start:new_end`."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


class Budget:
    """Steps that all comparisons of one answer may take together; a million are about half a second."""

    def __init__(self, steps: int = 1_500_000) -> None:
        self.left = steps


def changes(old: Sequence[T], new: Sequence[T], budget: Budget) -> list[Change]:
    start = 0
    shorter = min(len(old), len(new))
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    middle_old, middle_new = old[start : len(old) - end], new[start : len(new) - end]
    if not middle_old and not middle_new:
        return []
    found = _shortest(middle_old, middle_new, budget) if middle_old and middle_new else None
    if found is None:
        found = [Change(0, len(middle_old), 0, len(middle_new))]
    return [Change(*(start + number for number in change)) for change in found]


def _shortest(old: Sequence[T], new: Sequence[T], budget: Budget) -> list[Change] | None:
    """None when the budget does not suffice."""
    # How far in `old` a path of d differences gets, on each of the diagonals -d, -d+2, ..., d, where a diagonal is
    # the number of old lines passed less that of new ones.
    furthest = array("q", [0])
    history: list[array[int]] = []
    for differences in range(len(old) + len(new) + 1):
        budget.left -= differences + 1
        if budget.left < 0:
            return None
        history.append(furthest)
        reached = array("q")
        for at in range(differences + 1):
            x = furthest[at] if _down(furthest, at, differences) else furthest[at - 1] + 1
            y = x - (2 * at - differences)
            begun = x
            while x < len(old) and y < len(new) and old[x] == new[y]:
                x, y = x + 1, y + 1
            budget.left -= x - begun
            reached.append(x)
            if x >= len(old) and y >= len(new):
                return _trace(history, len(old), len(new))
        furthest = reached
    return None


def _down(furthest: "array[int]", at: int, differences: int) -> bool:
    """Whether the path came by adding a new line rather than by dropping an old one."""
    return at == 0 or (at != differences and furthest[at - 1] < furthest[at])


def _trace(history: "list[array[int]]", x: int, y: int) -> list[Change]:
    """Back along the path, gathering neighbouring steps into changes."""
    found: list[Change] = []
    for differences in range(len(history) - 1, 0, -1):
        furthest = history[differences]
        diagonal = x - y
        at = (diagonal + differences) // 2
        if _down(furthest, at, differences):
            x = furthest[at]
            y = x - diagonal - 1
            step = Change(x, x, y, y + 1)
        else:
            x = furthest[at - 1]
            y = x - diagonal + 1
            step = Change(x, x + 1, y, y)
        if found and (found[-1].old_start, found[-1].new_start) == (step.old_end, step.new_end):
            last = found.pop()
            step = Change(step.old_start, last.old_end, step.new_start, last.new_end)
        found.append(step)
    found.reverse()
    return found


def merge_lines(base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, str]:
    """What `theirs` changed in `base`, done to `ours`, line by line; or which lines of `ours` both have changed."""
    old, mine, its = (text.split(b"\n") for text in (base, ours, theirs))
    if any(b"\0" in text for text in (base, ours, theirs)):
        return b"", "is not text"
    budget = Budget()
    left, right = changes(old, mine, budget), changes(old, its, budget)
    merged: list[bytes] = []
    # Where `merged` has come to in `old`, and how far `ours` is ahead of it.
    at = ahead = 0
    while left or right:
        # The next changes that touch each other, on both sides.
        start = min(side[0].old_start for side in (left, right) if side)
        end = start
        both: tuple[list[Change], list[Change]] = ([], [])
        grew = True
        while grew:
            grew = False
            for side, taken in zip((left, right), both, strict=True):
                while side and side[0].old_start <= end:
                    taken.append(side.pop(0))
                    end = max(end, taken[-1].old_end)
                    grew = True
        merged += old[at:start]
        texts = [_changed(old[start:end], taken, start, new) for taken, new in zip(both, (mine, its), strict=True)]
        if both[0] and both[1] and texts[0] != texts[1]:
            first = start + ahead + 1
            last = max(first, end + ahead)
            which = f"lines {first} to {last} were" if last > first else f"line {first} was"
            return b"", f"{which} changed by both"
        merged += texts[0] if both[0] else texts[1]
        ahead += sum((each.new_end - each.new_start) - (each.old_end - each.old_start) for each in both[0])
        at = end
    return b"\n".join(merged + old[at:]), ""


def _changed(old: Sequence[bytes], taken: Sequence[Change], start: int, new: Sequence[bytes]) -> list[bytes]:
    """A stretch of the old text that begins at `start`, with these changes made in it."""
    text: list[bytes] = []
    at = 0
    for each in taken:
        text += old[at : each.old_start - start]
        text += new[each.new_start : each.new_end]
        at = each.old_end - start
    return text + list(old[at:])
