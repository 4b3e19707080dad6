"""A program's options, as far as they tell where the next program's name stands."""

import re
from collections.abc import Iterator

import msgspec

from bascule.kernel.policy.shell.fields import Field, unknown

_DESCRIPTOR = re.compile(r"/dev/fd/|/proc/[^/]+/fd/")


# What find puts its files in the place of.
FOUND = "{}"


class Uncertain(Exception):
    """Where the next program's name stands depends on what is not known before running."""


class Option(msgspec.Struct, frozen=True):
    # As written without dashes: "n", "kill-after".
    name: str
    value: Field | None


class Found(msgspec.Struct):
    """What stands behind a program: other programs, texts for a shell, files it runs."""

    commands: list[tuple[list[Field], str]] = msgspec.field(default_factory=list)
    texts: list[tuple[str, str]] = msgspec.field(default_factory=list)
    opaque: list[str] = msgspec.field(default_factory=list)
    scripts: list[str] = msgspec.field(default_factory=list)
    # Files that it may load, and patterns of such; why it runs more than those.
    loads: list[str] = msgspec.field(default_factory=list)
    more: list[str] = msgspec.field(default_factory=list)
    # Code in another language that stands in the arguments.
    code: list[str] = msgspec.field(default_factory=list)
    assignments: list[tuple[str, Field | None]] = msgspec.field(default_factory=list)
    aliases: list[tuple[str, str]] = msgspec.field(default_factory=list)
    # It takes commands or code from its standard input; the string says what for.
    reads: str | None = None
    # That code is for a shell, so that a constant can be read.
    reads_shell: bool = False
    # Variables may have been changed by what is not known.
    taints: bool = False

    def command(self, fields: list[Field], via: str) -> None:
        if fields:
            self.commands.append((fields, via))

    def text(self, field: Field, via: str) -> None:
        """A text that a shell will run."""
        if field.text is None or field.differs:
            self.opaque.append(f"{via} of {field.source}, which is not known before it runs")
        else:
            self.texts.append((field.text, via))

    def joined(self, fields: list[Field], via: str) -> None:
        """Arguments that are put together with blanks and given to a shell."""
        if not fields:
            return
        texts = [field.text for field in fields if field.certain and not field.differs]
        if len(texts) == len(fields):
            self.texts.append((" ".join(text for text in texts if text is not None), via))
        else:
            self.opaque.append(f"{via} of {' '.join(field.source for field in fields)}")

    def script(self, field: Field, via: str) -> None:
        if field.text is None:
            self.opaque.append(f"{via} of {field.source}, which is not known before it runs")
            self.more.append(f"{via} runs {field.source}, which is not known before it runs")
        elif field.text in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
            self.reads = via
        elif _DESCRIPTOR.match(field.text):
            self.opaque.append(f"{via} runs what comes through {field.text}")
        elif not field.pattern:
            self.scripts.append(field.text)
        else:
            self.more.append(f"{via} runs whichever files {field.source} stands for by then")
            if field.source != FOUND:
                self.loads.append(field.text)


def options(
    args: list[Field], short: str = "", long: tuple[str, ...] = (), *, mixed: bool = False
) -> tuple[list[Option], list[Field]]:
    """The options, and the operands.

    `short` are the letters and `long` the names that take a value from the next argument. Unless `mixed`, everything
    after the first operand belongs to the program named there.
    """
    found: list[Option] = []
    operands: list[Field] = []
    rest = iter(args)
    for field in rest:
        text = field.text
        if text is None and (begun := _begun(field, short)) is not None:
            found.append(begun)
            continue
        if text is None or (field.pattern and text.startswith("-")):
            if field.base is None and not mixed:
                raise Uncertain(field.source)
            operands.append(field)
        elif text == "--":
            operands.extend(rest)
            break
        elif len(text) < 2 or not text.startswith("-"):
            operands.append(field)
        elif text.startswith("--"):
            found.append(_long(text[2:], long, rest))
            continue
        else:
            found.extend(_cluster(text[1:], short, rest, field))
            continue
        if not mixed:
            operands.extend(rest)
            break
    return found, operands


_LONG_BEGUN = re.compile(r"--([A-Za-z][A-Za-z0-9-]*)=")


def _begun(field: Field, short: str) -> Option | None:
    """An option whose name is written out and whose value is not: `-F"$x"`, `--file="$x"`."""
    source = field.source
    if field.splits or not source.startswith("-"):
        return None
    if long := _LONG_BEGUN.match(source):
        return Option(long.group(1), unknown(source[long.end() :]))
    return Option(source[1], unknown(source[2:])) if source[1:2] in short and source[1:2] else None


def _long(text: str, long: tuple[str, ...], rest: Iterator[Field]) -> Option:
    name, equals, value = text.partition("=")
    if equals:
        return Option(name, Field(value, value))
    # GNU programs take every beginning of a name that is unique.
    if name and any(full.startswith(name) for full in long):
        return Option(name, next(rest, None))
    return Option(name, None)


def _cluster(letters: str, short: str, rest: Iterator[Field], field: Field) -> Iterator[Option]:
    at = min((place for letter in short if (place := letters.find(letter)) >= 0), default=len(letters))
    # Said twice, a letter without a value says nothing more.
    for letter in dict.fromkeys(letters[:at]):
        yield Option(letter, None)
    if at < len(letters):
        value = letters[at + 1 :]
        yield Option(letters[at], Field(value, value, differs=field.differs) if value else next(rest, None))


def value_of(found: list[Option], *names: str) -> list[Field]:
    """The values of all options of these names; a long name also when it is cut short."""
    return [
        option.value
        for option in found
        if option.value is not None
        and any(option.name == name or (len(option.name) > 2 and name.startswith(option.name)) for name in names)
    ]


def has(found: list[Option], *names: str) -> bool:
    return any(
        option.name == name or (len(option.name) > 2 and name.startswith(option.name))
        for option in found
        for name in names
    )


def from_input(source: str = "what comes on its input") -> Field:
    return unknown(source, splits=True)
