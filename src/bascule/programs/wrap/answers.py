"""What of a program's screen is its answer: the lines that are new, without our own text, prompts and frames.

Pure: lines in, text out. The lines are those of an emulator, scrollback included, before the message was typed and
after the program came to rest.
"""

import re
from collections.abc import Sequence

from bascule.programs.wrap.profiles import Profile

# Of a line that holds our echo behind a prompt, at least this much must be ours; two letters may be anybody's.
_MIN_ECHO_CHARS = 3


def answer(
    before: Sequence[str], after: Sequence[str], typed: str, profile: Profile, sentinel: str | None = None
) -> str:
    """The new text; empty when there is none."""
    above, below = _stayed(before, after)
    lines = _spoken(after[above : len(after) - below], typed, moved=bool(before) and not above)
    if sentinel is not None:
        ends = next((number for number, line in enumerate(lines) if sentinel in line), None)
        if ends is not None:
            lines = [*lines[:ends], lines[ends].partition(sentinel)[0]]
    noise = [pattern for pattern in (profile.answer_prompt, *profile.answer_skip) if pattern is not None]
    kept = [line.rstrip() for line in lines if not _is_noise(line, noise)]
    while kept and not kept[0]:
        kept.pop(0)
    while kept and not kept[-1]:
        kept.pop()
    return "\n".join(kept)


def has_printed(before: Sequence[str], after: Sequence[str], typed: str, sentinel: str) -> bool:
    """Whether the program printed the sentinel, not only the typed text: the message may have named it."""
    above, _ = _stayed(before, after)
    # What stayed below counts here: the last answer's may have stood at the very same place.
    return any(sentinel in line for line in _spoken(after[above:], typed, moved=bool(before) and not above))


def _is_noise(line: str, patterns: Sequence[re.Pattern[str]]) -> bool:
    text = line.rstrip()
    return bool(text) and any(pattern.search(line) or pattern.search(text) for pattern in patterns)


def _stayed(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """How many lines above and below are as they were: an input box and a status line are drawn again."""
    above = 0
    while above < min(len(before), len(after)) and before[above] == after[above]:
        above += 1
    below = 0
    while below < min(len(before), len(after)) - above and before[-1 - below] == after[-1 - below]:
        below += 1
    return above, below


def _spoken(lines: Sequence[str], typed: str, *, moved: bool) -> list[str]:
    """What comes after our own text. Where everything has moved, what was said before that text is old."""
    for start in range(len(lines) if moved else 1):
        rest = list(lines[start:])
        spoken = _without_echo(rest, typed)
        if len(spoken) < len(rest):
            return spoken
    return list(lines)


def _without_echo(lines: list[str], typed: str) -> list[str]:
    """Our own text is shown first, folded by the program and with its prompt before it; spaces mean nothing then."""
    left = "".join(typed.split())
    at = 0
    while at < len(lines) and left:
        shown = "".join(lines[at].split())
        ours = _echo_in(shown, left)
        if shown and not ours:
            break
        left = left[ours:]
        at += 1
    # Without a whole echo nothing was recognised, and nothing may be cut.
    return lines[at:] if not left else lines


def _echo_in(shown: str, left: str) -> int:
    """How many characters of our text this line ends with."""
    if left.startswith(shown):
        return len(shown)
    for start in range(1, len(shown)):
        rest = shown[start:]
        if left.startswith(rest) and len(rest) >= min(_MIN_ECHO_CHARS, len(left)):
            return len(rest)
    return 0
