"""From words to fields: what a command's arguments will be, as far as that is certain before it runs."""

from collections.abc import Sequence
from itertools import product

import msgspec

from bascule.kernel.policy.shell.braces import expanded
from bascule.kernel.policy.shell.text import Assignment, Budget, Part, Word

# Alternatives looked at for one command line: two variables of four values each. Over it: opaque.
MAX_ALTERNATIVES = 16
# A variable set from a variable set from ...: a longer chain is no help to anyone.
MAX_CHAIN = 8

_GLOBS = frozenset("*?[")
# Substitutions whose answer is one path without blanks on any machine a person would use.
_PATH_SUBSTITUTIONS = frozenset(["$(git rev-parse --show-toplevel)", "$(npm bin)", "$(npm prefix)", "$(go env GOPATH)"])
# Variables that every shell starts with. Their values are written as paths of ours: `~` is the home, wherever it is,
# and `.` the directory that the command starts in.
HOME = "~"
_STARTED_WITH = {"HOME": HOME, "PWD": "."}
# A new temporary file's name has nothing in it that matters.
_TEMPORARY = "/tmp/tmp.XXXXXXXXXX"  # noqa: S108 - compared, not made
# The same for substitutions.
_ANSWERS = {
    "$(pwd)": ".",
    "`pwd`": ".",
    "$(mktemp)": _TEMPORARY,
    "$(mktemp -d)": _TEMPORARY,
    "`mktemp -d`": _TEMPORARY,
}
# A function of one of these names would answer something else.
ANSWERING = frozenset(["pwd", "mktemp", "cd"])


class Field(msgspec.Struct, frozen=True):
    """One argument. `text` is None when only running tells."""

    text: str | None
    source: str
    # Unquoted `*`, `?`, `[` or braces: the shell may put other words in its place.
    pattern: bool = False
    # It may become several words, or none.
    splits: bool = False
    # sh and bash disagree on its value.
    differs: bool = False
    # What stands after the last `/` when all before it is one unknown path.
    base: str | None = None
    # It begins with a `~` in quotes: a name like any other. Every other `~` at the beginning is a home.
    literal: bool = False
    # It begins with what a command answers.
    answered: bool = False

    @property
    def path(self) -> str | None:
        """As a path that does not lose which `~` is a home."""
        return f"./{self.text}" if self.literal else self.text

    @property
    def certain(self) -> bool:
        return self.text is not None and not self.pattern

    def __str__(self) -> str:
        return self.source if self.text is None else self.text


def known(text: str) -> Field:
    return Field(text, text)


def unknown(source: str, *, splits: bool = False) -> Field:
    return Field(None, source, splits=splits)


class Scope:
    """What variables may hold: every constant that is anywhere assigned to them, or nobody knows."""

    def __init__(
        self,
        assignments: list[Assignment],
        outer: "Scope | None" = None,
        values: dict[str, tuple[str, ...]] | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.budget: Budget = budget or (outer.budget if outer is not None else Budget())
        self._assigned: dict[str, list[Assignment]] = {}
        for assignment in assignments:
            self._assigned.setdefault(assignment.name, []).append(assignment)
        self._outer = outer
        self._values = values or {}
        # What was worked out; a line may use one variable a thousand times.
        self._cache: dict[str, tuple[str, ...] | None] = {}
        # After `eval` or `.` of what is not known any variable may be anything.
        self.certain: bool = outer.certain if outer else True

    def assigned(self, name: str) -> bool:
        return (
            name in self._assigned or name in self._values or (self._outer is not None and self._outer.assigned(name))
        )

    def values(self, name: str, chain: int = 0) -> tuple[str, ...] | None:
        """All it may hold, unset included; None when that is not known."""
        if name in self._cache and self.certain:
            return self._cache[name]
        # While it is worked out it is not known: a variable that is set from itself has no end.
        self._cache[name] = None
        self._cache[name] = found = self._values_of(name, chain)
        return found

    def _values_of(self, name: str, chain: int) -> tuple[str, ...] | None:
        if not self.certain or chain > MAX_CHAIN or not self.assigned(name) or name == "IFS":
            return None
        found = [""]
        if self._outer is not None and self._outer.assigned(name):
            outer = self._outer.values(name, chain + 1)
            if outer is None:
                return None
            found.extend(outer)
        found.extend(self._values.get(name, ()))
        for assignment in self._assigned.get(name, ()):
            self.budget.spend()
            inner = self._assignable(assignment, chain + 1)
            if inner is None:
                return None
            found.extend(inner)
        distinct = tuple(dict.fromkeys(found))
        return distinct if len(distinct) <= MAX_ALTERNATIVES else None

    def _assignable(self, assignment: Assignment, chain: int) -> list[str] | None:
        word = assignment.value
        if word is None:
            return None
        if not assignment.listed:
            return self.texts(word, chain)
        # As sh has it and as bash does.
        words = dict.fromkeys([word, *expanded(word, self.budget)])
        listed = [field.text for each in words for fields in self._fields(each, chain) for field in fields]
        return None if None in listed else [text for text in listed if text is not None]

    def possible(self, word: Word) -> Sequence[str | None]:
        """Its values, or the one that nobody knows."""
        return self.texts(word) or [None]

    def texts(self, word: Word, chain: int = 0) -> list[str] | None:
        """All values of a word where it is not split: in an assignment, in quotes, in a here-document."""
        choices = []
        for part in word.parts:
            choice = self._choices(part, chain)
            if choice is None:
                return None
            choices.append(choice)
        count = 1
        for choice in choices:
            count *= len(choice)
        if count > MAX_ALTERNATIVES or word.differs:
            return None
        self.budget.spend(1 + count * len(choices) // 8)
        return ["".join(pieces) for pieces in product(*choices)]

    def _choices(self, part: Part, chain: int) -> tuple[str, ...] | None:
        if part.kind == "fixed":
            return (part.text,)
        if part.kind == "dynamic":
            answer = _ANSWERS.get(part.text) if self.certain else None
            return None if answer is None else (answer,)
        if part.text in _STARTED_WITH and self.certain and not self.assigned(part.text):
            return (_STARTED_WITH[part.text],)
        if part.default is None:
            return self.values(part.text, chain)
        default = self.texts(part.default, chain + 1)
        if default is None:
            return None
        if not self.assigned(part.text):
            return tuple(default)
        values = self.values(part.text, chain)
        return None if values is None else tuple(dict.fromkeys((*values, *default)))

    # -- fields -----------------------------------------------------------------------------------

    def likely(self, words: list[Word]) -> list[list[Field]] | None:
        """The same without what is only there because a variable may be unset; None when it says nothing more."""
        several = False
        found: list[list[Field]] = [[]]
        for word in words:
            choices = self._fields(word)
            if len(choices) > 1:
                unset = self._where_unset(word)
                choices = [fields for fields in choices if fields not in unset] or choices
                several = True
            if len(found) * len(choices) > MAX_ALTERNATIVES:
                return None
            self.budget.spend(len(found) * len(choices))
            found = [[*before, *fields] for before in found for fields in choices]
        return found if several else None

    def _where_unset(self, word: Word) -> list[list[Field]]:
        if any(part.kind == "variable" and part.default is not None for part in word.parts):
            return []
        empty = tuple(part.text if part.kind == "fixed" else "" for part in word.parts)
        return [_split(word, empty)]

    def alternatives(self, words: list[Word]) -> list[list[Field]] | None:
        """Every list of arguments the words may become; None when there are too many."""
        found: list[list[Field]] = [[]]
        for word in words:
            choices = self._fields(word)
            if len(choices) == 1:
                for before in found:
                    before.extend(choices[0])
                continue
            if len(found) * len(choices) > MAX_ALTERNATIVES:
                return None
            self.budget.spend(len(found) * len(choices) * (1 + len(found[0]) // 8))
            found = [[*before, *fields] for before in found for fields in choices]
        return found

    def single(self, words: list[Word]) -> list[Field]:
        """One list of arguments, with what has several values unknown."""
        found: list[Field] = []
        for word in words:
            choices = self._fields(word)
            if len(choices) == 2 and not choices[0]:
                # Unset or one value: as an argument that no program depends on, the value.
                choices = choices[1:]
            found.extend(choices[0] if len(choices) == 1 else [unknown(word.source, splits=True)])
        return found

    def _fields(self, word: Word, chain: int = 0) -> list[list[Field]]:
        if all(part.kind == "fixed" for part in word.parts):
            return [[self._fixed(word)]]
        if self._is_lost_home(word):
            return [[self._unknown(word)]]
        choices = [self._choices(part, chain) for part in word.parts]
        count = 1
        for choice in choices:
            count *= 1 if choice is None else len(choice)
        if None in choices or count > MAX_ALTERNATIVES:
            return [[self._unknown(word)]]
        self.budget.spend(count * len(choices))
        found: list[list[Field]] = []
        for pieces in product(*(choice for choice in choices if choice is not None)):
            fields = _split(word, pieces)
            if fields not in found:
                found.append(fields)
        # An unset variable in quotes is an empty argument: no program, and no option of one.
        nonempty = [fields for fields in found if len(fields) != 1 or fields[0].text]
        return nonempty or found

    def _fixed(self, word: Word) -> Field:
        if self._is_lost_home(word):
            return self._unknown(word)
        text = "".join(part.text for part in word.parts)
        unquoted = "".join("\0" if part.quoted else part.text for part in word.parts)
        return Field(
            text, word.source, pattern=_is_pattern(unquoted), differs=word.differs, literal=_has_quoted_tilde(word)
        )

    def _is_lost_home(self, word: Word) -> bool:
        """`~` after the text has set HOME, and `~+`, which shells read differently."""
        first = word.parts[0] if word.parts else None
        if first is None or first.kind != "fixed" or first.quoted or not first.text.startswith("~"):
            return False
        return self.assigned("HOME") or first.text.startswith(("~+", "~-"))

    def _unknown(self, word: Word) -> Field:
        splits = any(not part.quoted and self._may_split(part) for part in word.parts)
        base = None
        tail = []
        for part in reversed(word.parts):
            if part.kind != "fixed" or (not part.quoted and _is_pattern(part.text)):
                break
            tail.append(part.text)
        end = "".join(reversed(tail))
        if "/" in end and not splits:
            base = end.rpartition("/")[2] or None
        return Field(None, word.source, splits=splits, base=base, answered=is_answered(word))

    def _may_split(self, part: Part) -> bool:
        if part.kind == "fixed":
            return _is_pattern(part.text)
        if part.kind == "variable":
            # From the environment it started with: set by the machine's owner, not by this text.
            return self.assigned(part.text) or not self.certain or part.default is not None
        return part.text not in _PATH_SUBSTITUTIONS and part.text not in _ANSWERS


def is_answered(word: Word) -> bool:
    """Whether it begins with what a command answers: a path that may lead anywhere."""
    first = next((part for part in word.parts if part.text or part.kind != "fixed"), None)
    return (
        first is not None
        and first.kind == "dynamic"
        and first.text.startswith(("$(", "`"))
        and not first.text.startswith("$((")
        and first.text not in _PATH_SUBSTITUTIONS
        and first.text not in _ANSWERS
    )


def _is_pattern(text: str) -> bool:
    if not _GLOBS.isdisjoint(text):
        return "*" in text or "?" in text or ("[" in text and "]" in text)
    return "{" in text and "}" in text and ("," in text or ".." in text)


def _split(word: Word, pieces: tuple[str, ...]) -> list[Field]:
    """Word splitting: blanks in the value of an unquoted variable separate arguments."""
    fields: list[str] = []
    patterns: list[bool] = []
    joins = False
    for part, piece in zip(word.parts, pieces, strict=True):
        literal = part.kind == "fixed" or part.quoted
        steps = [piece] if literal else piece.split()
        if not literal and piece[:1].isspace():
            joins = False
        for number, step in enumerate(steps):
            if joins and number == 0:
                fields[-1] += step
            else:
                fields.append(step)
                patterns.append(False)
            # A loop's variable holds what a pattern found, quoted or not.
            patterns[-1] = patterns[-1] or ((not part.quoted or part.kind == "variable") and _is_pattern(step))
            joins = True
        if not literal and piece[-1:].isspace():
            joins = False
    literal = _has_quoted_tilde(word)
    return [
        Field(text, text, pattern, literal=literal and number == 0 and text.startswith("~"))
        for number, (text, pattern) in enumerate(zip(fields, patterns, strict=True))
    ]


def _has_quoted_tilde(word: Word) -> bool:
    quoted = [part.text for part in word.parts if part.text or part.quoted]
    first = word.parts[0] if word.parts else None
    return first is not None and first.kind == "fixed" and first.quoted and "".join(quoted).startswith("~")
