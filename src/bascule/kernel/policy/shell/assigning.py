"""Variables that commands set: `export`, `read`, `printf -v` and their like."""

import re

from bascule.kernel.policy.shell.text import Assignment, Part, RawCommand, Word

_DECLARING = frozenset(["export", "declare", "typeset", "local", "readonly"])
_READING = frozenset(["read", "mapfile", "readarray", "getopts", "let", "printf", "unset", "wait"])
# After these any variable may hold anything, because what they run is not part of the text.
_EVALUATING = frozenset(["eval", "source", "."])
_SETTING = _DECLARING | _READING | frozenset(["command", "builtin"])
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+)?=", re.DOTALL)


def may_set(command: RawCommand) -> bool:
    """Whether a command of plain words sets variables at all: a quick look."""
    first = command.words[0].source
    return first in _SETTING or any(word.source in _EVALUATING for word in command.words)


def evaluates(command: RawCommand) -> bool:
    """Whether something in it may set variables that the text does not name."""
    return any(_constant(word) in _EVALUATING for word in command.words)


def sets_separators(command: RawCommand) -> bool:
    """IFS, for more than the one `read` it stands before: words are then split where nobody expects it."""
    own = any(assignment.name == "IFS" for assignment in command.assignments)
    lasting = not command.words or _constant(command.words[0]) != "read"
    return (own and lasting) or any(assignment.name == "IFS" for assignment in declared(command))


def declared(command: RawCommand) -> list[Assignment]:
    """What `export` and its like set, with values where they are written out."""
    at = _place(command, _DECLARING)
    if at is None:
        return []
    found = []
    refers = False
    for word in command.words[at + 1 :]:
        text = _constant(word)
        # `declare -n x=y` makes x another name of y.
        refers = refers or (text is not None and text.startswith("-") and "n" in text)
        first = word.parts[0] if word.parts else None
        if first is None or first.kind != "fixed":
            # `export $(cat .env)`: a name that only running tells.
            found.append(Assignment("", None))
            continue
        text = "".join(part.text for part in word.parts) if _constant(word) is not None else first.text
        if assigned := _ASSIGNED.match(text):
            value = None if assigned.group(2) or refers else _after(word, assigned.end())
            found.append(Assignment(assigned.group(1), value))
    return found


def read_into(command: RawCommand) -> list[Assignment]:
    """Names whose values come from elsewhere: every word that could be a name, to be safe."""
    at = _place(command, _READING)
    if at is None:
        return []
    return [
        Assignment(name.group(), None)
        for word in command.words[at + 1 :]
        if (text := _constant(word)) is not None
        for name in _NAME.finditer(text)
    ]


def _place(command: RawCommand, names: frozenset[str]) -> int | None:
    """Where one of the names stands as the command, `command` and `builtin` before it or not."""
    for at, word in enumerate(command.words[:3]):
        text = _constant(word)
        if text in names:
            return at
        if text not in ("command", "builtin"):
            return None
    return None


def _constant(word: Word) -> str | None:
    if len(word.parts) == 1:
        part = word.parts[0]
        return part.text if part.kind == "fixed" else None
    if any(part.kind != "fixed" for part in word.parts):
        return None
    return "".join(part.text for part in word.parts)


def _after(word: Word, count: int) -> Word:
    """The word without its first characters, which are fixed."""
    parts: list[Part] = []
    for part in word.parts:
        if count >= len(part.text) and part.kind == "fixed":
            count -= len(part.text)
            continue
        parts.append(Part("fixed", part.text[count:], part.quoted) if part.kind == "fixed" else part)
        count = 0
    return Word(tuple(parts), word.source, differs=word.differs)
