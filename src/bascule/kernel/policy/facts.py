"""What rules can ask about a call: the commands and paths in its params, and what reading them found."""

from collections.abc import Mapping
from typing import Any

import msgspec

from bascule.kernel.policy.paths import normal
from bascule.kernel.policy.shell.reading import Command, Reading, read
from bascule.kernel.policy.shell.traits import ENVIRONMENT, OPAQUE, TRAITS, steers

# Methods whose params carry a command for the shell.
COMMAND_METHODS = frozenset(["workspace.shell", "processes.start"])
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
    ]
)
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


NOTHING = Facts()


def family_of(method: str) -> str | None:
    return _FAMILIES.get(method)


def facts_of(method: str, params: Any) -> Facts:
    """From the decoded Struct or from plain JSON values, as `explain` and examples have them."""
    if method in COMMAND_METHODS:
        return _of_command(_get(params, "command"), _get(params, "cwd"), _get(params, "env"))
    if method in PATH_METHODS:
        path = _get(params, "path")
        return Facts(paths=(normal(path),)) if isinstance(path, str) else NOTHING
    return NOTHING


def _of_command(command: Any, cwd: Any, env: Any) -> Facts:
    if not isinstance(command, str):
        return Facts(traits=(OPAQUE,), notes=("there is no command to read",))
    variables = {str(name): str(value) for name, value in env.items()} if isinstance(env, Mapping) else {}
    reading = read(command, variables)
    steering = [name for name, value in variables.items() if steers(name, value)]
    found = {*reading.traits, *([ENVIRONMENT] if steering else [])}
    return Facts(
        commands=reading.commands,
        traits=tuple(trait for trait in TRAITS if trait in found),
        paths=_paths(reading, cwd if isinstance(cwd, str) else ""),
        notes=(*reading.notes, *(f"sets {name}, which other programs obey" for name in steering)),
        redirected=reading.redirected,
    )


def _paths(reading: Reading, cwd: str) -> tuple[str, ...]:
    """Each written path from wherever the command may stand: its directory, and those it changes to."""
    changes = [command.words[-1].text for command in reading.commands if command.program in ("cd", "pushd")]
    places = [cwd, *(normal(change, cwd) for change in changes if change)]
    return tuple(dict.fromkeys(normal(path, place) for path in reading.writes for place in places))


def _get(params: Any, name: str) -> Any:
    if isinstance(params, Mapping):
        return params.get(name)
    return getattr(params, name, None)
