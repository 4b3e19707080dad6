"""Patterns for window titles: regular expressions of a peer, compiled only when their worst case is short.

Python's matcher backtracks, and `(a+)+$` makes it try 2^n ways. So the ways through a pattern are counted before it is
used: `loops`, the open repeats that follow each other (each may end at any character of the title), and `ways`, the
product of all other choices. A repeat of a choice is refused.
"""

import re
import warnings
from typing import Final, NamedTuple

from bascule.desktop.errors import DesktopError, invalid
from bascule.desktop.protocol import MAX_PATTERN_CHARS

# What of a title is compared; with three repeats the worst pattern then costs 50 ms.
MAX_TITLE_CHARS: Final = 160
# How many ways there may be through a pattern of no, one, two and three open repeats: all cost about as much.
MAX_WAYS: Final = (32_000, 1_600, 80, 4)
MAX_REPEATS: Final = len(MAX_WAYS) - 1
# A repeat that may run at least this long is an open one.
_LONG_REPEAT: Final = 8

_TOKEN: Final = re.compile(
    r"""
      \\.                                                # an escape
    | \[\^?\]?(?:\\.|[^\]\\])*\]                         # a set: a bracket that comes first belongs to it
    | \((?:\?(?:P=\w+\)|[aimsuL]+\)                      # what looks like a group and holds nothing
            |P<\w+>|:|=|!|<=|<!|>|[aimsuL]*(?:-[ims]+)?:))?
    | (?:[*+?]|\{(?=[\d,])(?P<low>\d*)(?P<comma>,(?P<high>\d*))?\})[?+]?
    | .                                                  # |, ) and plain characters
    """,
    re.VERBOSE | re.DOTALL,
)


class _Cost(NamedTuple):
    loops: int = 0
    ways: int = 1


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
    loops, ways = _cost(pattern)
    if loops > MAX_REPEATS:
        raise invalid(f"a title pattern has at most {MAX_REPEATS} open repeats such as .*")
    if ways > MAX_WAYS[loops]:
        raise _too_many_ways()
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
    if high == 1:
        return _Cost(each.loops, each.ways + 1 - low)
    if each == _ATOM:
        return _Cost(1, 1) if high - low >= _LONG_REPEAT else _Cost(0, high - low + 1)
    if high - low >= _LONG_REPEAT:
        what = "a repeat, such as (a+)+" if each.loops else "alternatives, such as (a|b)* or (a?b)*"
        raise invalid(f"a title pattern may not repeat {what}")
    if each.ways > 1 and 2**high > MAX_WAYS[0]:
        raise _too_many_ways()
    return _Cost(each.loops * high, each.ways**high * (high - low + 1))


def _either(alternatives: list[list[_Cost]]) -> _Cost:
    costs = [_sequence(each) for each in alternatives]
    return _Cost(max(each.loops for each in costs), sum(each.ways for each in costs))


def _sequence(parts: list[_Cost]) -> _Cost:
    loops, ways = 0, 1
    for each in parts:
        loops, ways = loops + each.loops, ways * each.ways
    return _Cost(loops, ways)


def _too_many_ways() -> DesktopError:
    return invalid("a title pattern has too many choices, such as (a?){9}: write what the title begins with instead")
