"""The lines of a file that look most like a block which is not in it, as a small diff.

Comparing everything with everything is quadratic, and both texts come from an agent: so a cheap count picks two
places, and only those are compared in earnest.
"""

from difflib import SequenceMatcher

# Beyond, the rest is not looked at, and the answer says so.
MAX_LINES = 20_000
MAX_WANTED = 40
# A line's share in the comparison, and what is shown of it.
MAX_LINE_CHARS = 200
MAX_COMPARED_CHARS = 1_000
# Below, showing it would mislead.
MIN_RATIO = 0.4
# Lines that get a real comparison after the cheap one.
_FINALISTS = 20


def closest_lines(text: str, old: str) -> str | None:
    """The place as a diff from `old` to what the file has, with its line numbers; None when nothing is alike."""
    lines, cut = _lines(text, MAX_LINES)
    wanted, _ = _lines(old, MAX_WANTED)
    ranked = sorted(
        ((_ratio(wanted, lines[start : start + len(wanted)]), -start) for start in _candidates(lines, wanted)),
        reverse=True,
    )
    if not ranked or ranked[0][0] < MIN_RATIO:
        return None
    start = -ranked[0][1]
    there = lines[start : start + len(wanted)]
    note = f"\n(only the first {MAX_LINES:,} lines were compared)" if cut else ""
    return f"@@ - oldContent, + lines {start + 1} to {start + len(there)} of the file @@\n{_diff(wanted, there)}{note}"


def _lines(text: str, limit: int) -> tuple[list[str], bool]:
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n", limit)
    cut = len(lines) > limit
    return [_shorten(line) for line in lines[:limit]], cut


def _shorten(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else line[:MAX_LINE_CHARS] + "..."


def _candidates(lines: list[str], wanted: list[str]) -> set[int]:
    return {start for start in (_most_equal_lines(lines, wanted), _most_alike_line(lines, wanted)) if start is not None}


def _most_equal_lines(lines: list[str], wanted: list[str]) -> int | None:
    """The window with the most lines of the block in it; a long line says more than a brace."""
    weights = {line.strip(): len(line.strip()) for line in wanted}
    scores = [weights.get(line.strip(), 0) for line in lines]
    size = min(len(wanted), len(lines))
    score = sum(scores[:size])
    best, best_at = score, 0
    for start in range(1, len(lines) - size + 1):
        score += scores[start + size - 1] - scores[start - 1]
        if score > best:
            best, best_at = score, start
    return best_at if best else None


def _most_alike_line(lines: list[str], wanted: list[str]) -> int | None:
    """The window around the line that is most like the longest one of the block."""
    number, longest = max(enumerate(wanted), key=lambda pair: len(pair[1].strip()))
    pieces = _pieces(longest)
    if not pieces:
        return None
    shares = [(len(pieces & _pieces(line)), -index) for index, line in enumerate(lines)]
    finalists = [-index for share, index in sorted(shares, reverse=True)[:_FINALISTS] if share]
    if not finalists:
        return None
    best = max(finalists, key=lambda index: (_ratio([longest], [lines[index]]), -index))
    return max(0, min(best - number, len(lines) - len(wanted)))


def _pieces(line: str) -> set[str]:
    line = line.strip()
    return {line[at : at + 3] for at in range(max(1, len(line) - 2))} if line else set()


def _ratio(ours: list[str], theirs: list[str]) -> float:
    first = "\n".join(line.strip() for line in ours)[:MAX_COMPARED_CHARS]
    second = "\n".join(line.strip() for line in theirs)[:MAX_COMPARED_CHARS]
    return SequenceMatcher(None, first, second).ratio()


def _diff(wanted: list[str], there: list[str]) -> str:
    if [line.split() for line in wanted] == [line.split() for line in there]:
        legend = "\n(only white space differs: \\t is a tab, · a space at the end of a line)"
        wanted, there = [_visible(line) for line in wanted], [_visible(line) for line in there]
    else:
        legend = ""
    shown: list[str] = []
    for tag, from_old, to_old, from_new, to_new in SequenceMatcher(None, wanted, there, autojunk=False).get_opcodes():
        if tag == "equal":
            shown += [f" {line}" for line in wanted[from_old:to_old]]
        else:
            shown += [f"-{line}" for line in wanted[from_old:to_old]]
            shown += [f"+{line}" for line in there[from_new:to_new]]
    return "\n".join(shown) + legend


def _visible(line: str) -> str:
    body = line.rstrip(" ")
    return body.replace("\t", "\\t") + "·" * (len(line) - len(body))
