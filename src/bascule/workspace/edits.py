"""What an edit means: the ladder that finds `oldContent`, and the words for when it cannot be found.

`oldContent` must stand exactly once. When it does not stand there to the letter, a rung below is tried: other line
endings, other space at the ends of lines, the whole block indented otherwise. Each rung is taken only when it finds
one place; two are an error, because a wrong guess in somebody's file is worse than a second try. All edits apply or
none, each to what the ones before it left.

Pure, and bounded: text and edits come from an agent, and the answer is computed while others wait.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import msgspec

from bascule.workspace.closest import closest_lines

EXACT = "exact"
LINE_ENDINGS = "line-endings"
TRAILING_SPACE = "trailing-space"
INDENT = "indent"

# Places named in "matches several places"; more do not help to choose.
MAX_PLACES = 10
# All searching of one message, in characters of text: a hundred edits of the largest file.
MAX_SEARCHED_CHARS = 1_000_000_000
# The same for the tolerant rungs, where a line costs as much as fifty characters: about a second.
MAX_TOLERANT_COST = 60_000_000
_LINE_COST = 50
# Places that look alike but for their indent.
MAX_ALIKE = 1_000
# Lines compared with their indent, over all of those.
MAX_INDENT_LINES = 1_000_000
# A newContent as short as `}` stands everywhere and proves nothing.
MIN_APPLIED_CHARS = 8

_BOM = "\ufeff"
_BLANK = " \t"


class Edit(Protocol):
    @property
    def old_content(self) -> str: ...

    @property
    def new_content(self) -> str: ...


class Applied(msgspec.Struct, frozen=True):
    text: str
    # How each edit was found, in order.
    rungs: tuple[str, ...]


class EditFault(Exception):
    """No edit was applied; the message says which one failed, why, and what to send instead."""


def edit_bytes(data: bytes, edits: Sequence[Edit]) -> tuple[bytes, tuple[str, ...]]:
    """The edited file, and how each edit was found."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EditFault(
            f"the file is not UTF-8 text (byte {error.start:,}); read it as base64 and write it whole with createFile"
        ) from None
    applied = apply_edits(text, edits)
    try:
        return applied.text.encode("utf-8"), applied.rungs
    except UnicodeEncodeError:
        raise EditFault("newContent is not valid Unicode (a lone surrogate)") from None


def apply_edits(text: str, edits: Sequence[Edit]) -> Applied:
    # A byte order mark stays where it is, whether or not an edit that quotes the first line has it.
    bom, text = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    ladder = _Ladder(len(edits))
    rungs: list[str] = []
    for edit in edits:
        old, new = edit.old_content, edit.new_content
        if bom and old.startswith(_BOM):
            old, new = old[1:], new.removeprefix(_BOM)
        text, rung = ladder.apply(text, old, new)
        rungs.append(rung)
    return Applied(bom + text, tuple(rungs))


class _Found(msgspec.Struct, frozen=True):
    start: int
    end: int
    new: str


class _Ladder:
    def __init__(self, edits: int) -> None:
        self._edits = edits
        self._number = 0
        self._searched = 0
        self._tolerant = 0
        self._tried: list[str] = []

    def apply(self, text: str, old: str, new: str) -> tuple[str, str]:
        self._number += 1
        self._tried = [EXACT]
        if not old:
            raise self._fault("oldContent is empty; quote the lines next to where newContent belongs")
        self._searched += len(text)
        if self._searched > MAX_SEARCHED_CHARS:
            raise self._fault("too many edits for a file of this size in one operation; send them in several")
        found, rung = self._exact(text, old, new)
        # What is only white space stands in a hundred places as soon as anything about it is forgiven.
        if found is None and old.strip():
            found, rung = self._forgiving(text, old, new)
        if found is None:
            raise self._fault(self._missing(text, old, new))
        return text[: found.start] + found.new + text[found.end :], rung

    def _exact(self, text: str, old: str, new: str) -> tuple[_Found | None, str]:
        places = _places(text, old)
        if not places:
            return None, EXACT
        if len(places) > 1:
            raise self._several(text, places)
        start = places[0]
        if "\n" in new and "\n" not in old and "\r" not in new and _ending(text) == "\r\n":
            # Nothing in the edit says that this file should get a second kind of line ending.
            return _Found(start, start + len(old), new.replace("\n", "\r\n")), LINE_ENDINGS
        return _Found(start, start + len(old), new), EXACT

    def _forgiving(self, text: str, old: str, new: str) -> tuple[_Found | None, str]:
        self._tolerant += len(text) + _LINE_COST * text.count("\n")
        if self._tolerant > MAX_TOLERANT_COST:
            self._tried.append("nothing else: the file is too large for that")
            return None, EXACT
        lines = _Lines(text)
        endings = "\r\n" in text or "\r\n" in old
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        if endings:
            self._tried.append(LINE_ENDINGS)
            found = self._other_endings(lines, old, new)
            if found is not None:
                return found, LINE_ENDINGS
        self._tried.append(TRAILING_SPACE)
        found = self._other_ends(lines, old, new)
        if found is not None:
            return found, TRAILING_SPACE
        self._tried.append(INDENT)
        return self._other_indent(lines, old, new), INDENT

    def _other_endings(self, lines: "_Lines", old: str, new: str) -> _Found | None:
        plain = "\n".join(lines.lines)
        places = _places(plain, old)
        if len(places) > 1:
            raise self._several(plain, places)
        if not places:
            return None
        start, end = lines.original(places[0]), lines.original(places[0] + len(old))
        return _Found(start, end, lines.dress(new, start, end))

    def _other_ends(self, lines: "_Lines", old: str, new: str) -> _Found | None:
        wanted = [line.rstrip(_BLANK) for line in _split(old)]
        numbers = _windows([line.rstrip(_BLANK) for line in lines.lines], wanted)
        if len(numbers) > 1:
            raise self._several_lines(numbers)
        return lines.window(numbers[0], len(wanted), old, new) if numbers else None

    def _other_indent(self, lines: "_Lines", old: str, new: str) -> _Found | None:
        wanted = _split(old)
        stripped = [line.strip(_BLANK) for line in lines.lines]
        alike = _windows(stripped, [line.strip(_BLANK) for line in wanted], MAX_ALIKE)
        if len(alike) > MAX_ALIKE or len(alike) * len(wanted) > MAX_INDENT_LINES:
            raise self._fault("too many places look like oldContent; add lines around it that stand only once")
        fitting: list[tuple[int, str]] = []
        for number in alike:
            shifted = _shift(wanted, lines.lines[number : number + len(wanted)], new)
            if shifted is not None:
                fitting.append((number, shifted))
        if len(fitting) > 1:
            raise self._several_lines([number for number, _ in fitting])
        return lines.window(fitting[0][0], len(wanted), old, fitting[0][1]) if fitting else None

    # -- words ------------------------------------------------------------------------------------

    def _missing(self, text: str, old: str, new: str) -> str:
        tried = ", ".join(self._tried)
        applied = text.find(new) if len(new.strip()) >= MIN_APPLIED_CHARS else -1
        if applied >= 0:
            return (
                f"oldContent is not in the file, but newContent is, at line {_line_of(text, applied)}: "
                "this edit is already applied; leave it out"
            )
        near = closest_lines(text, old)
        sentence = f"oldContent is not in the file (tried: {tried})"
        if near is None:
            return f"{sentence}, and nothing in it is like it; read the file again"
        return f"{sentence}; the closest lines are\n{near}"

    def _several(self, text: str, places: list[int]) -> EditFault:
        numbers, line, before = [], 1, 0
        for place in places:
            line += text.count("\n", before, place)
            before = place
            numbers.append(line)
        return self._several_lines([number - 1 for number in numbers])

    def _several_lines(self, numbers: list[int]) -> EditFault:
        shown = ", ".join(str(number + 1) for number in numbers[:MAX_PLACES])
        more = len(numbers) > MAX_PLACES
        count = f"more than {MAX_PLACES}" if more else str(len(numbers))
        rung = "" if self._tried == [EXACT] else f" when {self._tried[-1]} is forgiven"
        return self._fault(
            f"oldContent matches {count} places{rung} (lines {shown}{', ...' if more else ''}); "
            "add more lines of context so that it matches exactly one"
        )

    def _fault(self, sentence: str) -> EditFault:
        nothing = "" if self._edits == 1 else " (no edit was applied)"
        return EditFault(f"edit {self._number} of {self._edits}: {sentence}{nothing}")


class _Lines:
    """A text by its lines, without their endings, and where each begins in the original."""

    def __init__(self, text: str) -> None:
        self.text = text
        raw = text.split("\n")
        self.lines = [line.removesuffix("\r") for line in raw]
        # A carriage return at the very end ends nothing.
        self.lines[-1] = raw[-1]
        self.starts = list(accumulate((len(line) + 1 for line in raw), initial=0))
        self._plain = list(accumulate((len(line) + 1 for line in self.lines), initial=0))

    def original(self, offset: int) -> int:
        """An offset in the lines joined by newlines, as one in the original text."""
        line = bisect_right(self._plain, offset) - 1
        return self.starts[line] + offset - self._plain[line]

    def window(self, number: int, count: int, old: str, new: str) -> _Found:
        """The place of whole lines, with or without the last line's ending as `old` had it."""
        start = self.starts[number]
        last = number + count - 1
        end = self.starts[last] + len(self.lines[last])
        if old.endswith("\n"):
            if last + 1 < len(self.lines):
                end = self.starts[last + 1]
            else:
                # The file does not end its last line, and is left so.
                new = new.removesuffix("\n")
        return _Found(start, end, self.dress(new, start, end))

    def dress(self, new: str, start: int, end: int) -> str:
        """With the line endings of what it replaces, or else of the file."""
        ending = _ending(self.text[start:end]) or _ending(self.text)
        return new.replace("\n", "\r\n") if ending == "\r\n" else new


def _ending(text: str) -> str | None:
    """The one line ending of a text; None when it has none, or both."""
    newlines, pairs = text.count("\n"), text.count("\r\n")
    if not newlines or 0 < pairs < newlines:
        return None
    return "\r\n" if pairs else "\n"


def _places(text: str, old: str) -> list[int]:
    """Where it stands, overlapping places too: `aa` stands twice in `aaa`."""
    places: list[int] = []
    at = text.find(old)
    while at >= 0 and len(places) <= MAX_PLACES:
        # A newline that belongs to a carriage return is half a line ending: replacing it would leave the other half.
        if not (_pair(text, at) or _pair(text, at + len(old))):
            places.append(at)
        at = text.find(old, at + 1)
    return places


def _pair(text: str, at: int) -> bool:
    return text[at - 1 : at + 1] == "\r\n"


def _split(block: str) -> list[str]:
    return block.removesuffix("\n").split("\n")


def _windows(lines: list[str], wanted: list[str], limit: int = MAX_PLACES) -> list[int]:
    """Numbers of lines where the wanted ones follow one another, one more than `limit` at most.

    Searched as one text: that is linear, where comparing window by window is not.
    """
    text, old = "\n" + "\n".join(lines) + "\n", "\n" + "\n".join(wanted) + "\n"
    numbers: list[int] = []
    number = before = 0
    at = text.find(old)
    while at >= 0 and len(numbers) <= limit:
        number += text.count("\n", before, at)
        before = at
        numbers.append(number)
        at = text.find(old, at + 1)
    return numbers


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(_BLANK))]


def _shift(wanted: list[str], there: list[str], new: str) -> str | None:
    """`new` moved as the lines of the file are against the wanted ones; None when they are not moved alike."""
    shift: tuple[bool, str] | None = None
    for line, found in zip(wanted, there, strict=True):
        if not line.strip(_BLANK):
            continue
        ours, theirs = _indent_of(line), _indent_of(found)
        if theirs.endswith(ours):
            this = (True, theirs[: len(theirs) - len(ours)])
        elif ours.endswith(theirs):
            this = (False, ours[: len(ours) - len(theirs)])
        else:
            return None
        if shift is not None and this != shift:
            return None
        shift = this
    if shift is None:
        return None
    deeper, by = shift
    lines = new.split("\n")
    if deeper:
        return "\n".join(by + line if line.strip(_BLANK) else line for line in lines)
    if any(line.strip(_BLANK) and not line.startswith(by) for line in lines):
        return None
    return "\n".join(line.removeprefix(by) for line in lines)


def _line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
