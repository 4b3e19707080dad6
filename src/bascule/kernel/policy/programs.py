"""Deny rules as they are enforced when programs are really executed."""

from collections.abc import Callable, Collection, Sequence

import msgspec

from bascule.kernel.policy.commands import prefix_of, restricts
from bascule.kernel.policy.shell.fields import known
from bascule.kernel.policy.shell.reading import Command, handler_of, read_arguments
from bascule.kernel.policy.shell.wrappers import is_multicall

# Arguments looked at for one program: a rule's prefix and a wrapper's options stand at the beginning.
MAX_ARGUMENTS = 256


class ProgramRule(msgspec.Struct, frozen=True):
    """A program, by name, that may not be executed; with words, only when its arguments begin so."""

    rule: str
    name: str
    words: tuple[str, ...] = ()
    reason: str = ""


class ProgramRules(msgspec.Struct, frozen=True):
    """What the supervisor of a sandbox enforces; a changed policy is a new object."""

    denied: tuple[ProgramRule, ...] = ()


def judge(
    rules: ProgramRules,
    path: str,
    argv: Sequence[str],
    same_file: Callable[[str], Collection[str]],
) -> ProgramRule | None:
    """The rule that forbids executing `path` with `argv`; None when none does.

    `path` is the real path of the file, links followed. `same_file(path)` gives names of denied programs that are
    the very same file: a hard link under another name is still that program. What argv shows behind the program is
    judged too (`env sudo`, `busybox sudo`, the dynamic loader), because not all of it is an exec of its own. The text
    of `sh -c` is not, except where one file is shell and programs: what a shell executes is judged when it does, and
    what it does not execute (`sudo x || true`) is no reason to stop the rest.
    """
    if not rules.denied:
        return None
    base = path.rpartition("/")[2]
    called = argv[0].rpartition("/")[2] if argv else base
    # One file that is many programs is none of them by its identity: where `su` is a link to busybox, so is `sh`.
    names = {base, called} if is_multicall(base) else {base, *same_file(path)}
    args = tuple(argv[1:MAX_ARGUMENTS])
    commands = [Command(name, (known(name), *map(known, args))) for name in sorted(names)]
    commands.extend(_behind(called if is_multicall(base) else base, args, texts=is_multicall(base)))
    return _first(rules, commands)


def _first(rules: ProgramRules, commands: list[Command]) -> ProgramRule | None:
    for denied in rules.denied:
        prefix = prefix_of(" ".join((denied.name, *denied.words)))
        if any(restricts(prefix, command) for command in commands):
            return denied
    return None


def _behind(name: str, args: tuple[str, ...], *, texts: bool) -> tuple[Command, ...]:
    """What the arguments of a program name as programs: nothing, for most programs."""
    if handler_of(name) is None:
        return ()
    return read_arguments((name, *args), texts=texts).commands[1:]
