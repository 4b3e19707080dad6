"""Patterns for window titles: regular expressions of a peer, compiled only when their worst case is short.

Python's matcher backtracks, and `(a+)+$` makes it try 2^n ways. So the ways through a pattern are counted before it is
used: `loops`, the open repeats that follow each other (each may end at any character of the title), `ways`, the product
of all other choices, and `steps`, the length of one way. A repeat of a choice is refused.
"""

import re
import warnings
from typing import Final, NamedTuple

from bascule.desktop.errors import DesktopError, invalid
from bascule.desktop.protocol import MAX_PATTERN_CHARS

# What of a title is compared. With it the worst pattern takes seconds, and what people write microseconds.
MAX_TITLE_CHARS: Final = 160
# Ways times steps through a pattern of no, one, two and three open repeats: all cost about as much.
MAX_WORK: Final = (200_000, 20_000, 1_000, 64)
MAX_REPEATS: Final = len(MAX_WORK) - 1
# Two ways, repeated so often, are more than MAX_WORK.
_MAX_DOUBLINGS: Final = MAX_WORK[0].bit_length()
# A repeat that may run at least this long is an open one.
_LONG_REPEAT: Final = 8

_TOKEN: Final = re.compile(
    r"""
      \\.                                                # an escape
    | \[\^?\]?(?:\\.|[^\]\\])*\]                         # a set: a bracket that comes first belongs to it
    | \((?:\?(?:P=\w+\)|[aimsuL]+\)                      # what looks like a group and holds nothing
            |P<\w+>|:|=|!|<=|<!|>|[aimsuL]*(?:-[ims]+)?:))?
    | (?:[*+?]|\{(?=[0-9,])(?P<low>[0-9]*)(?P<comma>,(?P<high>[0-9]*))?\})[?+]?
    | .                                                  # |, ) and plain characters
    """,
    re.VERBOSE | re.DOTALL,
)


class _Cost(NamedTuple):
    loops: int = 0
    ways: int = 1
    steps: int = 1

    @property
    def fixed(self) -> bool:
        """There is one way through it."""
        return self.loops == 0 and self.ways == 1


_ATOM: Final = _Cost()


def compiled(pattern: str) -> re.Pattern[str]:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise invalid(f"a title pattern has at most {MAX_PATTERN_CHARS} characters")
    try:
        with warnings.catch_warnings():
            # What Python may read otherwise one day ("[[") is refused today.
            warnings.simplefilter("error")
            found = re.compile(pattern)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise invalid(f"the title pattern is not a regular expression: {error}") from None
    cost = _cost(pattern)
    if cost.loops > MAX_REPEATS:
        raise invalid(f"a title pattern has at most {MAX_REPEATS} open repeats such as .*")
    if cost.ways * cost.steps > MAX_WORK[cost.loops]:
        raise _too_much_work()
    return found


def _cost(pattern: str) -> _Cost:
    """Of a pattern that Python compiles."""
    # One list per open group: its alternatives, each a list of what follows one another.
    groups: list[list[list[_Cost]]] = [[[]]]
    for token in _TOKEN.finditer(pattern):
        text = token.group()
        last = groups[-1][-1]
        if text == "|":
            groups[-1].append([])
        elif text == ")":
            closed = groups.pop()
            groups[-1][-1].append(_either(closed))
        elif text.startswith("(?") and text.endswith(")"):
            last.append(_ATOM)
        elif text == "(" and pattern.startswith("?", token.end()):
            raise invalid("a title pattern has plain groups, such as (?:...) and (?P<name>...), or looks around")
        elif text[0] == "(":
            groups.append([[]])
        elif text[0] in "*+?" or (text[0] == "{" and len(text) > 1):
            last.append(_repeated(last.pop(), *_bounds(token)))
        else:
            last.append(_ATOM)
    return _either(groups.pop())


def _bounds(token: re.Match[str]) -> tuple[int, int]:
    text, endless = token.group(), MAX_TITLE_CHARS
    match text[0]:
        case "*":
            return 0, endless
        case "+":
            return 1, endless
        case "?":
            return 0, 1
    low = int(token["low"] or 0)
    if token["comma"] is None:
        return low, low
    return low, int(token["high"]) if token["high"] else low + endless


def _repeated(each: _Cost, low: int, high: int) -> _Cost:
    is_open = high - low >= _LONG_REPEAT
    # A repeat of what matches nothing goes round as often as it must.
    steps = each.steps * max(low if is_open else high, 1)
    if high == 1:
        return _Cost(each.loops, each.ways + 1 - low, steps)
    if each.fixed:
        return _Cost(1, 1, steps) if is_open else _Cost(0, high - low + 1, steps)
    if is_open:
        what = "a repeat, such as (a+)+" if each.loops else "alternatives, such as (a|b)* or (a?b)*"
        raise invalid(f"a title pattern may not repeat {what}")
    if each.ways > MAX_WORK[0] or (each.ways > 1 and high > _MAX_DOUBLINGS):
        # Also so that the numbers stay small here.
        raise _too_much_work()
    return _Cost(each.loops * high, each.ways**high * (high - low + 1), steps)


def _either(alternatives: list[list[_Cost]]) -> _Cost:
    costs = [_sequence(each) for each in alternatives]
    return _Cost(max(each.loops for each in costs), sum(each.ways for each in costs), max(each.steps for each in costs))


def _sequence(parts: list[_Cost]) -> _Cost:
    # To enter it is a step: an empty group can be repeated.
    loops, ways, steps = 0, 1, 1
    for each in parts:
        loops, ways, steps = loops + each.loops, ways * each.ways, steps + each.steps
    return _Cost(loops, ways, steps)


def _too_much_work() -> DesktopError:
    return invalid(
        "a title pattern has too many choices, such as (a?){20}, or too long repeats, such as (ab){9999}: "
        "write what the title begins with instead"
    )
