"""Regular expressions of strangers, tried only when their worst case is short.

Python's matcher tries alternatives one after the other, and a pattern like `(a+)+$` makes it try 2^n of them: one tool
schema would stop the bridge for good. The worst case of a pattern is read from its parse tree before it is used.
"""

import re
import re._constants as ops  # type: ignore[import-not-found]  # the standard library's own parser, without stubs
import re._parser as parser  # type: ignore[import-not-found]  # without stubs, as above
import warnings
from functools import lru_cache
from typing import Any, Final

# Steps of the matcher: about 10 ms.
MAX_COST = 1_000_000
MAX_PATTERN_CHARS = 1_000
# Longer texts are for the game itself to judge.
MAX_TEXT_CHARS = 10_000

_REPEATS: Final = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)
_LEAVES: Final = (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN, ops.AT, ops.CATEGORY, ops.RANGE)


class _Wild(Exception):
    """Nested repeats, look-around, back references: no bound worth having."""


def search(pattern: str, text: str) -> bool | None:
    """Whether it is found; None when it is not tried, or is no pattern."""
    if len(text) > MAX_TEXT_CHARS:
        return None
    compiled = _compiled(pattern)
    if compiled is None:
        return None
    expression, loops, factor, anchored = compiled
    # Each repeat that can take any number of characters multiplies the ways to cut the text; so does each place to
    # begin at.
    if factor * max(len(text), 1) ** (loops + (0 if anchored else 1)) > MAX_COST:
        return None
    return expression.search(text) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> tuple[re.Pattern[str], int, int, bool] | None:
    if len(pattern) > MAX_PATTERN_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = parser.parse(pattern)
            loops, factor = _worst(tree, inside=False)
            return re.compile(pattern), loops, factor, _is_anchored(tree)
    except (re.error, _Wild, RecursionError, OverflowError):
        return None


def _is_anchored(tree: Any) -> bool:
    return len(tree) > 0 and tree[0][0] is ops.AT and tree[0][1] in (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING)


def _worst(tree: Any, *, inside: bool) -> tuple[int, int]:
    """How many repeats of any length there are, and how many ways there are through the rest."""
    loops, factor = 0, 1
    for op, detail in tree:
        if op in _LEAVES:
            continue
        if op in _REPEATS:
            inner_loops, inner_factor = _repeat(*detail, inside=inside)
        elif op is ops.SUBPATTERN:
            inner_loops, inner_factor = _worst(detail[-1], inside=inside)
        elif op is ops.BRANCH and not inside:
            ways = [_worst(branch, inside=False) for branch in detail[1]]
            inner_loops = max(each for each, _ in ways)
            inner_factor = sum(each for _, each in ways)
        else:
            raise _Wild
        loops += inner_loops
        factor *= inner_factor
    return loops, factor


def _repeat(least: int, most: Any, body: Any, *, inside: bool) -> tuple[int, int]:
    if least == most:
        return _worst(body, inside=inside or least > 1)
    if inside:
        # (a?){30} has 2^30 ways through it, (a+)+ as many as there are cuts.
        raise _Wild
    several = int(most) > 1
    loops, factor = _worst(body, inside=several)
    return (loops + 1, factor) if several else (loops, factor + 1)
