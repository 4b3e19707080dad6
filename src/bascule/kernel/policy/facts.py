"""What rules can ask about a call: the commands and paths in its params, and what reading them found."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from bascule.kernel.policy.paths import normal, shell_path
from bascule.kernel.policy.shell.reading import MAX_PLACED, READINGS_KEPT, Command, Reading, read
from bascule.kernel.policy.shell.targets import written
from bascule.kernel.policy.shell.traits import (
    DESTRUCTIVE,
    ENVIRONMENT,
    GROUND,
    OPAQUE,
    OUTSIDE,
    SECRET,
    TRAITS,
    UNPLACED,
    steers,
)
from bascule.kernel.policy.zones import Project, Zone, is_secret

# Longer than any path that a kernel opens (PATH_MAX).
MAX_PATH_CHARS = 4_096
_TOO_LONG = f"a path of more than {MAX_PATH_CHARS} characters, which no kernel opens"
# Codex's: what is written stands in the patch.
_PATCHING = frozenset(["apply_patch", "applypatch"])
_SEPARATED = re.compile(r"[=@:]")

# Methods whose params carry a command for the shell.
COMMAND_METHODS = frozenset(["workspace.shell", "processes.start", "native.shell"])
# Methods whose params name one file or directory.
PATH_METHODS = frozenset(
    [
        "workspace.createFile",
        "workspace.readFile",
        "workspace.editFile",
        "workspace.deleteFile",
        "files.list",
        "files.read",
        "files.write",
        "files.delete",
        "spaces.open",
        "native.write",
        "native.read",
    ]
)
# Methods of tools outside of our sandbox: their params say which project and home they are seen from.
_NATIVE_PREFIX = "native."
# What events call the part of the policy that decided.
_FAMILIES = dict.fromkeys(COMMAND_METHODS, "shell") | dict.fromkeys(PATH_METHODS, "filesystem")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing at all for a method that has neither command nor path."""

    commands: tuple[Command, ...] = ()
    traits: tuple[str, ...] = ()
    # Normalised; those that a command writes are followed through `cwd` and `cd`.
    paths: tuple[str, ...] = ()
    # What is opaque or steers other programs, for the person who is asked.
    notes: tuple[str, ...] = ()
    # The command's own output goes to a file.
    redirected: bool = False
    # Which path made a trait of where it lies, for `{path}` in a rule's words.
    blamed: tuple[tuple[str, str], ...] = ()
    # Folded names of the programs: most rules are about one that is not among them.
    programs: frozenset[str] = frozenset()


NOTHING = Facts()


def family_of(method: str) -> str | None:
    return _FAMILIES.get(method)


def facts_of(method: str, params: Any) -> Facts:
    """From the decoded Struct or from plain JSON values, as `explain` and examples have them."""
    if method.startswith(_NATIVE_PREFIX):
        return _of_native(method, params)
    if method in COMMAND_METHODS:
        return _of_command(_get(params, "command"), _get(params, "cwd"), _get(params, "env"))
    if method in PATH_METHODS:
        path = _get(params, "path")
        if isinstance(path, str) and len(path) > MAX_PATH_CHARS:
            return Facts(traits=(OPAQUE,), notes=(_TOO_LONG,))
        return Facts(paths=(normal(path),)) if isinstance(path, str) else NOTHING
    return NOTHING


def _of_command(command: Any, cwd: Any, env: Any) -> Facts:
    if not isinstance(command, str):
        return Facts(traits=(OPAQUE,), notes=("there is no command to read",))
    variables = {str(name): str(value) for name, value in env.items()} if isinstance(env, Mapping) else {}
    return _of_text(command, cwd if isinstance(cwd, str) else "", tuple(sorted(variables.items())))


# A call is decided, explained, shown and judged once more: its facts are worked out once.
@lru_cache(READINGS_KEPT)
def _of_text(command: str, cwd: str, env: tuple[tuple[str, str], ...]) -> Facts:
    variables = dict(env)
    reading = read(command, variables)
    steering = [name for name, value in variables.items() if steers(name, value)]
    looked = _Looked(reading, cwd)
    paths = dict.fromkeys(shell_path(path, place) for path, place in looked.pairs(reading.writes))
    found = {*reading.traits, *([ENVIRONMENT] if steering else []), *looked.traits}
    return Facts(
        commands=reading.commands,
        traits=tuple(trait for trait in TRAITS if trait in found),
        paths=tuple(paths),
        notes=(*reading.notes, *looked.notes, *(f"sets {name}, which other programs obey" for name in steering)),
        redirected=reading.redirected,
        programs=_programs(reading),
    )


def _programs(reading: Reading) -> frozenset[str]:
    return frozenset(command.program.casefold() for command in reading.commands if command.program is not None)


class _Looked:
    """Paths seen from wherever a command may stand: its directory, and those it changes to. So many and no more."""

    def __init__(self, reading: Reading, cwd: str) -> None:
        self._places = [cwd, *(shell_path(change, cwd) for change in reading.places if change)]
        self._left = MAX_PLACED
        self.traits: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()

    def pairs(self, paths: Iterable[str]) -> list[tuple[str, str]]:
        distinct = list(dict.fromkeys(paths))
        if any(len(path) > MAX_PATH_CHARS for path in distinct):
            self.traits = (OPAQUE,)
            self.notes = (_TOO_LONG,)
            distinct = [path for path in distinct if len(path) <= MAX_PATH_CHARS]
        if len(distinct) * len(self._places) > self._left:
            self.traits = (OPAQUE,)
            self.notes = (f"more than {MAX_PLACED} paths, seen from where it changes to",)
            return []
        self._left -= len(distinct) * len(self._places)
        return [(path, place) for path in distinct for place in self._places]


# -- tools outside of the sandbox -----------------------------------------------------------------


def _of_native(method: str, params: Any) -> Facts:
    root = _get(params, "root")
    if method not in COMMAND_METHODS | PATH_METHODS or not isinstance(root, str):
        return NOTHING
    home, cwd = _get(params, "home"), _get(params, "cwd")
    place = cwd if isinstance(cwd, str) and cwd else root
    known_home = home if isinstance(home, str) else ""
    if method in COMMAND_METHODS:
        command = _get(params, "command")
        patched = tuple(path for path in _get(params, "writes") or () if isinstance(path, str))
        return _of_native_command(command if isinstance(command, str) else None, root, known_home, place, patched)
    project = Project(root, known_home)
    paths = [project.absolute(path, place) for path in _get(params, "paths") or () if isinstance(path, str)]
    writes, reads = (paths, []) if method == "native.write" else ([], paths)
    blamed = _blamed(project, writes, reads)
    return Facts(
        paths=tuple(project.shown(path) for path in writes),
        traits=tuple(trait for trait in TRAITS if trait in blamed),
        blamed=tuple(blamed.items()),
    )


@lru_cache(READINGS_KEPT)
def _of_native_command(command: str | None, root: str, home: str, cwd: str, patched: tuple[str, ...]) -> Facts:
    if command is None:
        return Facts(traits=(OPAQUE,), notes=("there is no command to read",))
    project = Project(root, home)
    reading = read(command)
    looked = _Looked(reading, cwd)
    # What it deletes first: that is what may be denied.
    deleted = _everywhere(project, looked, _deleted(reading))
    writes = _everywhere(project, looked, [*reading.writes, *patched])
    # A secret is one whichever program is given it: every word is looked at.
    words = [*reading.reads, *(path for each in reading.commands for path in _named_paths(each))]
    blamed = _blamed(project, writes, _everywhere(project, looked, words))
    for target in deleted:
        if target == project.root:
            blamed.setdefault(GROUND, target)
    found = {*reading.traits, *blamed, *looked.traits}
    if not patched and not _PATCHING.isdisjoint(_programs(reading)):
        found.add(UNPLACED)
    return Facts(
        commands=reading.commands,
        traits=tuple(trait for trait in TRAITS if trait in found),
        paths=tuple(dict.fromkeys(project.shown(path) for path in writes)),
        notes=(*reading.notes, *looked.notes),
        redirected=reading.redirected,
        blamed=tuple(blamed.items()),
        programs=_programs(reading),
    )


def _everywhere(project: Project, looked: _Looked, paths: Iterable[str]) -> list[str]:
    """Each path from wherever the command may stand."""
    return list(dict.fromkeys(project.absolute(path, place) for path, place in looked.pairs(paths)))


def _deleted(reading: Reading) -> list[str]:
    """What is deleted whole. The project itself among them takes its history with it, which no checkpoint holds."""
    return [
        path
        for command in reading.commands
        if command.program in ("rm", "grm", "srm") and DESTRUCTIVE in command.traits
        for path in written(command.program, list(command.words[1:]))
    ]


def _named_paths(command: Command) -> list[str]:
    """Words that may name a file: as they are, after `=`, and after `@`."""
    found: list[str] = []
    for word in command.words[1:]:
        if word.path is None or len(word.path) > MAX_PATH_CHARS or "\n" in word.path:
            continue
        found.extend(part for part in (word.path, *_SEPARATED.split(word.path)[1:]) if part)
    return found


def _blamed(project: Project, writes: list[str], reads: list[str]) -> dict[str, str]:
    """The traits of where paths lie, each with the first path that has it."""
    blamed: dict[str, str] = {}
    for path in writes:
        zone = project.zone(path)
        if zone is Zone.GROUND:
            blamed.setdefault(GROUND, path)
        elif zone is Zone.OUTSIDE:
            blamed.setdefault(OUTSIDE, path)
    for path in reads:
        if is_secret(path):
            blamed.setdefault(SECRET, path)
    return blamed


def _get(params: Any, name: str) -> Any:
    if isinstance(params, Mapping):
        return params.get(name)
    return getattr(params, name, None)
