"""What a command line is made of, once it is taken apart."""

from typing import Literal

import msgspec

# Nesting of lists, substitutions and compound commands. People stop at five; every level costs stack.
MAX_DEPTH = 40
# Commands in one text. More than 4096 characters can hold without tricks, so padding a line with `:;` does not turn
# a denial into a question.
MAX_COMMANDS = 2_048
# Commands in one pipeline, and here-documents in one text: nobody writes more by hand.
MAX_PIPELINE = 64
MAX_HEREDOCS = 32
# What reading one command line may cost, texts within it included. A step is a word, a command, a value of a variable
# or 32 characters, at 1 to 3 us: ten milliseconds of the event loop, which all other callers wait for. As many
# commands as 4096 characters can hold take most of it.
MAX_STEPS = 4_400
# The other parser takes this many characters a step.
CHARS_PER_SECOND_STEP = 2
# A line is read this much at a time by loops of ours that look at each character.
CHARS_PER_STEP = 32


class Unreadable(Exception):
    """The text cannot be taken apart with certainty; the message names the part."""


class OverBudget(Unreadable):
    """Reading on would hold up everybody else."""


class Budget:
    """Steps that are left for one command line; shared by all that reads it."""

    __slots__ = ("left",)

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise OverBudget("more than can be read in the time that others wait")

    def spend_chars(self, count: int) -> None:
        self.spend(1 + count // CHARS_PER_STEP)


class Part(msgspec.Struct, frozen=True):
    """A piece of a word: fixed text, a variable, or what only running tells.

    fixed: `text` is the value. variable: `text` is the name; `default` is what stands after `:-` or `:=`.
    dynamic: `text` is the source.
    """

    kind: Literal["fixed", "variable", "dynamic"]
    text: str
    quoted: bool = False
    default: "Word | None" = None


class Word(msgspec.Struct, frozen=True):
    parts: tuple[Part, ...]
    # As written.
    source: str
    # Offset in the whole text; -1 inside a text that was put together (backquotes, here-documents).
    start: int = -1
    # True when sh and bash give it different values: $'...' with escapes.
    differs: bool = False

    @property
    def bare(self) -> str | None:
        """The text of an unquoted, constant word: what a reserved word or an operator-like name must be."""
        if len(self.parts) == 1 and self.parts[0].kind == "fixed" and not self.parts[0].quoted:
            return self.parts[0].text
        return None


class Redirect(msgspec.Struct):
    operator: str
    target: Word
    # The content, when the operator is a here-document (read after the line that names it) or a here-string.
    body: Word | None = None
    descriptor: int | None = None

    @property
    def is_input(self) -> bool:
        return self.operator in ("<", "<<", "<<-", "<<<", "<>", "<&") and self.descriptor in (None, 0)

    @property
    def is_write(self) -> bool:
        return self.operator in (">", ">>", ">|", "<>", "&>", "&>>")


class Assignment(msgspec.Struct, frozen=True):
    """`value` is None when it is not a constant's place: an array, `read`, an unknown loop."""

    name: str
    value: Word | None
    # One of a loop's words: split and matched with files before it is assigned.
    listed: bool = False


class RawCommand(msgspec.Struct):
    """One simple command as it stands in the text, nothing expanded."""

    words: list[Word]
    assignments: list[Assignment]
    redirects: list[Redirect]
    # Its standard input is a pipe.
    piped: bool = False
    # Nothing but words that every shell reads as they stand.
    plain: bool = False

    @property
    def input(self) -> Redirect | None:
        for redirect in reversed(self.redirects):
            if redirect.is_input:
                return redirect
        return None


class Parsed(msgspec.Struct):
    """All simple commands of a text, those inside substitutions and bodies included, in the order they were met."""

    commands: list[RawCommand] = msgspec.field(default_factory=list)
    # Set outside of commands: by loops.
    assignments: list[Assignment] = msgspec.field(default_factory=list)
    functions: set[str] = msgspec.field(default_factory=set)
    # What was not understood.
    notes: list[str] = msgspec.field(default_factory=list)
    heredocs: int = 0
    budget: Budget = msgspec.field(default_factory=Budget)
    # Characters in long stretches of quoted text, which no parser has to take apart.
    bulk: int = 0
    # Stretches of the text whose commands have no place in it: backquotes, here-documents, arithmetic.
    unplaced: list[tuple[int, int]] = msgspec.field(default_factory=list)

    def add(self, command: RawCommand) -> None:
        if len(self.commands) >= MAX_COMMANDS:
            raise Unreadable(f"more than {MAX_COMMANDS} commands")
        self.commands.append(command)
