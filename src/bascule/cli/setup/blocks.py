"""A block of ours between two marker lines, in a text that is somebody else's."""

import re

BEGIN = "bascule:begin"
END = "bascule:end"


# `<!-- bascule:begin ... -->` in Markdown, `# bascule:begin ...` in a shell's file.
_MARKER = re.compile(r"(<!--|#) bascule:(begin|end)\b")


class BadBlock(Exception):
    """The markers do not match."""


def set_block(text: str, block: str) -> str:
    """The text with `block` (which has the markers in it), in its old place or at the end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    block = block.rstrip("\n").replace("\n", newline) + newline
    found = _find(text)
    if found is not None:
        return text[: found[0]] + block + text[found[1] :]
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    return text + gap + block


def remove_block(text: str) -> str:
    found = _find(text)
    if found is None:
        return text
    before, after = text[: found[0]], text[found[1] :]
    # One empty line set it apart.
    for gap in ("\r\n\r\n", "\n\n"):
        if before.endswith(gap) and not after:
            before = before[: -len(gap) // 2]
            break
    return before + after


def _is_marker(line: str, word: str) -> bool:
    """A line that is nothing but our comment: somebody's sentence about the markers is theirs."""
    return _MARKER.match(line.strip()) is not None and word in line.split()[1]


def _find(text: str) -> tuple[int, int] | None:
    lines = text.splitlines(keepends=True)
    begins = [number for number, line in enumerate(lines) if _is_marker(line, BEGIN)]
    ends = [number for number, line in enumerate(lines) if _is_marker(line, END)]
    if not begins and not ends:
        return None
    if len(begins) != 1 or len(ends) != 1 or ends[0] < begins[0]:
        raise BadBlock(f"its `{BEGIN}` and `{END}` lines do not match; remove them by hand")
    start = sum(map(len, lines[: begins[0]]))
    return start, start + sum(map(len, lines[begins[0] : ends[0] + 1]))
