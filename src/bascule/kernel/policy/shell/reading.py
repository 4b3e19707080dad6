"""A command line read before it runs: the programs it names, what they do, and what cannot be told."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from shlex import quote

import msgspec

from bascule.kernel.policy.paths import shell_path
from bascule.kernel.policy.shell import assigning, git, interpreters, wrappers
from bascule.kernel.policy.shell.arguments import destroys_behind, destroys_in_text, takes_words
from bascule.kernel.policy.shell.braces import as_bash_reads
from bascule.kernel.policy.shell.fields import ANSWERING, MAX_ALTERNATIVES, Field, Scope, is_answered, known
from bascule.kernel.policy.shell.grammar import parse
from bascule.kernel.policy.shell.inline import deletes_in_code, starts_in_code
from bascule.kernel.policy.shell.looking import only_looks
from bascule.kernel.policy.shell.options import Found, Uncertain
from bascule.kernel.policy.shell.reaching import reaches
from bascule.kernel.policy.shell.second import disagreement
from bascule.kernel.policy.shell.targets import is_unplaced, read_by, takes_data, written
from bascule.kernel.policy.shell.text import (
    MAX_COMMANDS,
    Assignment,
    Budget,
    OverBudget,
    Parsed,
    RawCommand,
    Redirect,
    Unreadable,
    Word,
)
from bascule.kernel.policy.shell.traits import (
    CODE,
    DESTRUCTIVE,
    ENVIRONMENT,
    OPAQUE,
    TRAITS,
    UNPLACED,
    destroys,
    steers,
)
from gabp.text import escaped

# Texts within texts: `sh -c "sh -c ..."`. Each needs one more layer of quoting, which nobody writes by hand.
MAX_TEXTS_DEEP = 6
# Wrappers around one program: `env nice timeout 5 xargs ...`.
MAX_WRAPPERS = 12
# Characters read for one command line, texts within it included: aliases and variables must not multiply the work.
MAX_CHARS_READ = 32 * 1024
# The same line is read for the decision, for the preview and once more before it runs. The largest takes a megabyte.
READINGS_KEPT = 32
# What is looked up for one program, beside its arguments.
STEPS_PER_PROGRAM = 6
# Left for what was found, when taking the text apart took all.
RESERVED_STEPS = 500
# Paths that one line can mean, each seen from everywhere it changes to, at 3 us each. People change directory once or
# twice in a line and name a few dozen files.
MAX_PLACED = 1_000

_DESCRIPTOR = re.compile(r"[0-9]+-?|-")
# The machine's own: nothing that an agent can write.
_SYSTEM_PROGRAMS = ("/bin/", "/sbin/", "/usr/", "/lib/", "/lib64/", "/opt/", "/nix/", "/snap/")
# Of programs that are found by `find` or read from a list, one is many.
_FOR_MANY = ("find -", "fd -", "xargs", "parallel")
_ONE_FILE = frozenset(["rm", "grm"])
# What these run is written in files of the project.
_RUN_TASKS = frozenset(
    ["npm", "pnpm", "yarn", "bun", "tox", "nox", "just", "task", "rake", "mvn", "gradle", "gradlew", "mvnw",
     "ninja", "ant", "scons", "bazel", "cargo", "go"]
)  # fmt: skip
_NO_FILES = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd/1", "/dev/fd/2")


class Command(msgspec.Struct, frozen=True):
    """One program as it would be started."""

    # The base name; None when only running tells.
    program: str | None
    words: tuple[Field, ...]
    # What stands in between: env, xargs, sh -c.
    via: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return " ".join(escaped(field.source) if field.text is None else _shown(field) for field in self.words)


def _shown(field: Field) -> str:
    text = field.text or ""
    if not text.startswith("~") or field.literal:
        return _quoted(text)
    home, slash, rest = text.partition("/")
    return escaped(home) + slash + (_quoted(rest) if rest else "")


def _quoted(text: str) -> str:
    if text.isprintable():
        return quote(text)
    return "$'" + escaped(text.replace("\\", "\\\\").replace("'", "\\'")) + "'"


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. Everything the text could run is here, whether or not it would."""

    text: str
    commands: tuple[Command, ...]
    traits: tuple[str, ...]
    # What is opaque or steers the environment, named.
    notes: tuple[str, ...]
    # Files that the command would execute or interpret: absolute, of a home (`~/x`), or from where it starts. Some may
    # not exist.
    scripts: tuple[str, ...]
    # The same of files that it may load besides, and of patterns (`./x.s*`) of what it runs.
    loads: tuple[str, ...]
    # Why more runs than these files, a sentence each.
    more: tuple[str, ...]
    # Where it changes to, from where it starts.
    places: tuple[str, ...]
    # Files that redirections and everyday programs write, and those that they read.
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    # Every program of it is proven to change nothing.
    only_looks: bool
    # Some output of the text itself goes to a file.
    redirected: bool

    def describe(self) -> str:
        """The parsed command for a person: one line per program, then what could not be read."""
        lines: dict[str, None] = {}
        for command in self.commands:
            line = command.text
            if command.via:
                line += f"   (through {', '.join(command.via)})"
            if command.traits:
                line += f"   [{', '.join(command.traits)}]"
            lines[line] = None
        return "\n".join([*lines, *(f"! {escaped(note)}" for note in self.notes)])


def read(text: str, env: Mapping[str, str] | None = None) -> Reading:
    """Read a command line that `sh -c` will run with these variables added. Never raises."""
    return _read(text, tuple(sorted(env.items())) if env else ())


@lru_cache(READINGS_KEPT)
def _read(text: str, env: tuple[tuple[str, str], ...]) -> Reading:
    reader = _Reader()
    scope = Scope([], values={name: (value,) for name, value in env}, budget=reader.budget)
    if "\0" in text:
        reader.opaque("a null byte")
    if not _is_unicode(text):
        reader.opaque("half of a surrogate pair, which programs read differently")
    try:
        reader.text(text, scope, (), 0)
    except RecursionError:
        # The limits are far below Python's own; but the caller may be deep down already.
        reader.opaque("nested too deeply")
    return _reading(text, reader)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_arguments(argv: tuple[str, ...], *, texts: bool) -> Reading:
    """The same for a program that is about to be executed: nothing is left to expand.

    Without `texts`, what a shell would read is left to what it then executes: `sudo x || true` need not run sudo.
    """
    reader = _Reader(texts=texts)
    fields = [known(argument) for argument in argv]
    try:
        reader.run(fields, _Place(RawCommand([], [], []), Scope([], budget=reader.budget), (), 0), (), 0)
    except (_TooMuch, Unreadable) as error:
        reader.opaque(str(error))
    return _reading(" ".join(argv), reader)


def _reading(text: str, reader: "_Reader") -> Reading:
    places = tuple(dict.fromkeys(places_of(reader.commands)))
    scripts = _from_everywhere(reader, dict.fromkeys(reader.scripts), places)
    loads = _from_everywhere(reader, dict.fromkeys(reader.loads), places)
    found = {trait for command in reader.commands for trait in command.traits} | reader.traits
    if DESTRUCTIVE in found and any(_is_lost(command) for command in reader.commands):
        found.add(UNPLACED)
    return Reading(
        text=text,
        commands=tuple(reader.commands),
        traits=tuple(trait for trait in TRAITS if trait in found),
        notes=tuple(dict.fromkeys(reader.notes)),
        scripts=scripts,
        loads=tuple(each for each in loads if each not in scripts),
        more=tuple(dict.fromkeys(reader.more)),
        places=places,
        writes=tuple(dict.fromkeys(reader.writes)),
        reads=tuple(dict.fromkeys(reader.reads)),
        only_looks=reader.only_looks and not reader.redirected and OPAQUE not in found,
        redirected=reader.redirected,
    )


def _is_lost(command: Command) -> bool:
    """`cd` to where nobody knows: what is relative is there from then on."""
    if command.program not in ("cd", "pushd", "popd"):
        return False
    return any(word.text is None or word.text == "-" for word in command.words[1:]) or command.program == "popd"


def places_of(commands: Sequence[Command]) -> list[str]:
    """Where the commands change to; `cd` alone goes home."""
    return [
        (command.words[-1].path or "") if len(command.words) > 1 else "~"
        for command in commands
        if command.program in ("cd", "pushd")
    ]


def _from_everywhere(reader: "_Reader", files: Collection[str], places: Sequence[str]) -> tuple[str, ...]:
    """Files seen from where the command starts; after `cd` from there as well, since only running tells which."""
    changes = ["", *(change for change in places if change)]
    if len(files) * len(changes) > MAX_PLACED:
        reader.opaque(f"files it runs in more than {MAX_PLACED} places")
        changes = [""]
    return tuple(dict.fromkeys(_of_process(shell_path(file, place)) for place in changes for file in files))


def _of_process(path: str) -> str:
    """`/proc/self/cwd/x.sh` is x.sh, wherever the process is."""
    for name in ("/proc/self/", "/proc/thread-self/"):
        if path.startswith(name + "cwd/"):
            return path.removeprefix(name + "cwd/")
        if path.startswith(name + "root/"):
            return "/" + path.removeprefix(name + "root/")
    return path


class _TooMuch(Exception):
    """A limit on the whole reading; what was found until then stays."""


class _Reader:
    def __init__(self, *, texts: bool = True) -> None:
        self._reads_texts = texts
        self.budget = Budget()
        self._reserved = RESERVED_STEPS
        self.commands: list[Command] = []
        self.traits: set[str] = set()
        self.notes: list[str] = []
        self.scripts: list[str] = []
        self.loads: list[str] = []
        self.more: list[str] = []
        self.writes: list[str] = []
        self.reads: list[str] = []
        self.only_looks = True
        self.redirected = False
        self._chars = 0
        self._seen: set[tuple[tuple[Field, ...], tuple[str, ...]]] = set()
        self._aliases: dict[str, str] = {}

    def opaque(self, note: str) -> None:
        self.traits.add(OPAQUE)
        self.notes.append(note)

    def text(self, text: str, outer: Scope, via: tuple[str, ...], depth: int) -> None:
        """Read one text; a text within it comes back here."""
        if not self._reads_texts:
            return
        self._chars += len(text)
        if depth > MAX_TEXTS_DEEP:
            self.opaque(f"texts within texts, more than {MAX_TEXTS_DEEP} deep")
            return
        if self._chars > MAX_CHARS_READ:
            self.opaque(f"more than {MAX_CHARS_READ} characters to read in all")
            return
        parsed = parse(text, self.budget)
        for note in parsed.notes:
            self.opaque(note)
        self._compare(text, parsed)
        scope = _scope(parsed, outer)
        if any(_feeds_the_shell(raw) for raw in parsed.commands):
            for raw in parsed.commands:
                raw.piped = True
        try:
            self._commands(parsed.commands, scope, via, depth)
        except (_TooMuch, Unreadable) as error:
            self.opaque(str(error))

    def _compare(self, text: str, parsed: Parsed) -> None:
        try:
            if not parsed.notes and (difference := disagreement(text, parsed)) is not None:
                self.opaque(difference)
        except OverBudget as error:
            self.opaque(str(error))
        if self.budget.left <= 0:
            # What was found first is looked at all the same, once: a denial should not become a question.
            self.budget.left, self._reserved = self._reserved, 0

    def _commands(self, commands: list[RawCommand], scope: Scope, via: tuple[str, ...], depth: int) -> None:
        before: set[tuple[bool, tuple[str, ...]]] = set()
        for raw in commands:
            key = (raw.piped, tuple(word.source for word in raw.words))
            # Said twice in one text, it is the same command.
            if raw.plain and key in before and not self._aliases:
                continue
            before.add(key)
            self._command(raw, _Place(raw, scope, via, depth))

    def _command(self, raw: RawCommand, place: "_Place") -> None:
        for redirect in raw.redirects:
            self._redirect(redirect, place.scope)
        for assignment in (*raw.assignments, *assigning.declared(raw)):
            self._assigned(assignment, place.scope, for_one=bool(raw.words))
        try:
            for words in (raw.words, as_bash_reads(raw.words, self.budget)):
                for fields in _variants(words or [], place.scope):
                    self.run(fields, place, place.via, 0)
        except Uncertain as error:
            self.opaque(f"too many possibilities for {error}")

    def _assigned(self, assignment: Assignment, scope: Scope, *, for_one: bool) -> None:
        name = assignment.name
        if name == "IFS" and for_one:
            # `IFS= read x`: for that command alone.
            return
        values: Sequence[str | None] = [None]
        if assignment.value is not None:
            values = scope.texts(assignment.value) or [_search_path(assignment.value, name, scope)]
        if not name:
            self._steered("a variable whose name is not known before it runs")
        elif any(steers(name, value) for value in values):
            self._steered(f"{name}, which other programs obey")

    def _steered(self, what: str) -> None:
        self.traits.add(ENVIRONMENT)
        self.notes.append(f"sets {what}")

    def _redirect(self, redirect: Redirect, scope: Scope) -> None:
        if redirect.operator == "<":
            self.reads.extend(text for text in scope.possible(redirect.target) if text)
        if not redirect.is_write and redirect.operator != ">&":
            return
        for text in scope.possible(redirect.target):
            if redirect.operator == ">&" and text is not None and _DESCRIPTOR.fullmatch(text):
                continue
            if text in _NO_FILES:
                continue
            self.redirected = True
            if text is not None:
                self.writes.append(text)
            elif is_answered(redirect.target):
                self._unplaced(f"writes to {redirect.target.source}, which is not known before it runs")

    def _unplaced(self, note: str) -> None:
        self.traits.add(UNPLACED)
        self.notes.append(note)

    def run(self, fields: list[Field], place: "_Place", via: tuple[str, ...], wrapped: int) -> None:
        """One program with its arguments, and what it would run in turn."""
        if len(self.commands) >= MAX_COMMANDS:
            raise _TooMuch(f"more than {MAX_COMMANDS} commands")
        if wrapped > MAX_WRAPPERS:
            self.opaque(f"more than {MAX_WRAPPERS} wrappers around one program")
            return
        self.budget.spend(STEPS_PER_PROGRAM + len(fields))
        handler = self._handler(fields)
        if handler is None and not self._aliases:
            # Said twice, it is the same program; what reads its input may be fed differently each time.
            key = (tuple(fields), via)
            if key in self._seen:
                return
            self._seen.add(key)
        name = self._name(fields[0])
        args = fields[1:]
        traits = _traits(name, args)
        if name is not None and DESTRUCTIVE not in traits:
            traits = (*self._hidden(name, fields, place, via, knows=handler is not None), *traits)
        self.commands.append(Command(name, tuple(fields), via, traits))
        if name is None:
            return
        self._files(name, fields[0].text, args)
        if name in self._aliases:
            self._aliased(name, args, place, via)
        if handler is None:
            return
        found = Found()
        try:
            handler(args, found)
        except Uncertain as error:
            unknown = f"what {name} runs depends on {error}, which is not known before it runs"
            self.opaque(unknown)
            self.more.append(unknown)
        self._behind(found, name, place, via, wrapped)

    def _files(self, name: str, first: str | None, args: list[Field]) -> None:
        """What the program itself writes, reads and is."""
        self.writes.extend(written(name, args))
        self.reads.extend(read_by(name, args))
        self.only_looks = self.only_looks and "/" not in (first or "/") and only_looks(name, args)
        if first is not None and "/" in first and not first.startswith(_SYSTEM_PROGRAMS):
            self.scripts.append(first)
        if name in _RUN_TASKS:
            self.more.append(f"{name} runs what files of the project say")

    def _hidden(
        self, name: str, fields: list[Field], place: "_Place", via: tuple[str, ...], *, knows: bool
    ) -> tuple[str, ...]:
        """What destroys all the same: one file that is many, or words behind a program that is not known."""
        if name in _ONE_FILE and via and via[-1].startswith(_FOR_MANY):
            return (DESTRUCTIVE,)
        if knows or takes_words(name):
            return ()
        if destroys_behind(fields[1:]) or (not takes_data(name) and _is_given(place.raw.input, destroys_in_text)):
            self.notes.append(f"{name} is given what deletes or overwrites, and may run it")
            return DESTRUCTIVE, UNPLACED
        return ()

    def _handler(self, fields: list[Field]) -> wrappers.Handler | None:
        name = fields[0].text if fields[0].text is not None else fields[0].base
        return None if name is None or fields[0].pattern else handler_of(name.rpartition("/")[2])

    def _name(self, field: Field) -> str | None:
        if field.text is None:
            if field.base is None:
                self.opaque(f"the program {field.source} is not known before it runs")
            return field.base
        if field.pattern:
            self.opaque(f"the program {field.source} is a pattern")
            return None
        if "{}" in field.text:
            self.opaque(f"the program {field.source} is filled in later")
            return None
        return field.text.rpartition("/")[2]

    def _aliased(self, name: str, args: list[Field], place: "_Place", via: tuple[str, ...]) -> None:
        value = self._aliases.pop(name)
        rest = " ".join(field.source if field.text is None else quote(field.text) for field in args)
        self.text(f"{value} {rest}", place.scope, (*via, f"alias {name}"), place.depth + 1)
        self._aliases[name] = value

    def _behind(self, found: Found, name: str, place: "_Place", via: tuple[str, ...], wrapped: int) -> None:
        for note in found.opaque:
            self.opaque(note)
        for code in found.code:
            self._code(name, code)
        self.scripts.extend(found.scripts)
        self.loads.extend(found.loads)
        self.more.extend(found.more)
        self._aliases.update(found.aliases)
        for variable, value in found.assignments:
            if steers(variable, value.text if value is not None else None):
                self._steered(f"{variable}, which other programs obey")
        for fields, how in found.commands:
            self.run(fields, place, (*via, how), wrapped + 1)
        for text, how in found.texts:
            self.text(text, place.scope, (*via, how), place.depth + 1)
        if found.reads is not None:
            self._input(found, name, place, via)

    def _code(self, name: str, code: str) -> None:
        self.traits.add(CODE)
        starts = starts_in_code(code)
        deletes = deletes_in_code(code) or (starts and destroys_in_text(code))
        if deletes:
            self.traits.add(DESTRUCTIVE)
        if deletes or starts:
            self._unplaced(f"{name} runs code that deletes files or starts programs")

    def _input(self, found: Found, name: str, place: "_Place", via: tuple[str, ...]) -> None:
        """Commands or code from standard input: a here-document can be read, a pipe cannot."""
        source = place.raw.input
        if source is None:
            if place.raw.piped:
                self.opaque(f"{name} runs what a pipe brings")
                self.more.append(f"{name} runs what a pipe brings")
                # `cat x.sh | sh`: what is read before is what may come.
                self.loads.extend(self.reads)
        elif source.operator == "<&":
            self.opaque(f"{name} runs what comes through descriptor {source.target.source}")
        elif source.body is not None:
            texts = place.scope.texts(source.body)
            if not found.reads_shell:
                self._code(name, source.body.source)
            if found.reads_shell and texts is None:
                self.opaque(f"{name} runs a text that is not known before it runs")
            for text in (texts or ()) if found.reads_shell else ():
                self.text(text, place.scope, (*via, f"{name} <<"), place.depth + 1)
        else:
            for file in place.scope.possible(source.target):
                if file is None:
                    self.opaque(f"{name} runs {source.target.source}, which is not known before it runs")
                else:
                    self.scripts.append(file)


def _is_given(source: Redirect | None, check: Callable[[str], bool]) -> bool:
    """Whether a here-document or a here-string says it."""
    return source is not None and source.body is not None and check(source.body.source)


class _Place(msgspec.Struct):
    """Where a command stands: its redirections, the variables around it, and how deep."""

    raw: RawCommand
    scope: Scope
    via: tuple[str, ...]
    depth: int


def _traits(name: str | None, args: list[Field]) -> tuple[str, ...]:
    if name is None:
        return (OPAQUE,)
    return (
        *((DESTRUCTIVE,) if destroys(name, args) else ()),
        *reaches(name, args),
        *((UNPLACED,) if is_unplaced(name, args) else ()),
    )


def _search_path(word: Word, name: str, scope: Scope) -> str | None:
    """`PYTHONPATH="$PWD/src:$PYTHONPATH"`: the workspace's own directories before what there was."""
    text = ""
    for part in word.parts:
        if part.kind == "fixed":
            text += part.text
        elif part.kind == "variable" and part.text == "PWD" and not scope.assigned("PWD"):
            text += "."
        elif part.text != name and not part.text.startswith(f"${{{name}:+"):
            return None
    return text.strip(":")


def _feeds_the_shell(raw: RawCommand) -> bool:
    """`exec < file`: from then on every reader of standard input reads that."""
    return len(raw.words) == 1 and raw.words[0].source.endswith("exec") and raw.input is not None


def handler_of(name: str) -> wrappers.Handler | None:
    """How to find what a program would run; None when it runs nothing by its arguments."""
    if name == "git":
        return git.git
    return wrappers.handler_of(name) or interpreters.handler_of(name)


def _scope(parsed: Parsed, outer: Scope) -> Scope:
    assignments = list(parsed.assignments)
    certain = True
    for raw in parsed.commands:
        if raw.plain and not assigning.may_set(raw):
            continue
        assignments.extend(raw.assignments)
        assignments.extend(assigning.declared(raw))
        assignments.extend(assigning.read_into(raw))
        certain = certain and not assigning.evaluates(raw) and not assigning.sets_separators(raw)
    certain = certain and ANSWERING.isdisjoint(parsed.functions)
    scope = Scope(assignments, outer)
    scope.certain = scope.certain and certain
    return scope


def _variants(words: list[Word], scope: Scope) -> Iterator[list[Field]]:
    """The argument lists a command may have. All of them are looked at where they decide what runs."""
    for at, word in enumerate(words):
        heads = scope.alternatives([word])
        if heads is None or at > MAX_ALTERNATIVES:
            raise Uncertain(word.source)
        for head in heads:
            if not head:
                continue
            name = (head[0].text or head[0].base or "").rpartition("/")[2]
            rests = _rests(words[at + 1 :], scope, decides=handler_of(name) is not None)
            if rests is None:
                raise Uncertain(" ".join(word.source for word in words))
            for rest in rests:
                yield [*head, *rest]
        if all(heads):
            return


def _rests(words: list[Word], scope: Scope, *, decides: bool) -> list[list[Field]] | None:
    """The arguments behind a program; None when there are too many and they decide what runs."""
    if decides:
        return scope.alternatives(words)
    single = scope.single(words)
    # What it names as a file may be in a variable.
    return [single, *(rest for rest in scope.likely(words) or () if rest != single)]
