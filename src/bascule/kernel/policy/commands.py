"""A command prefix, as rules write it: `sudo`, `git push`, `rm -rf`.

The program is compared by its base name, further words are globs. How widely it matches depends on what for:

- to restrict, `rm -rf` also means `rm -fr`, `rm -r -f` and `rm x -rf`, and `git push` also `git -C dir push`; a word
  that is not known before running matches, because what is not known is never a permission;
- to allow, every word must stand there as written, and the program must not come from the workspace.
"""

import re
from functools import lru_cache

import msgspec

from bascule.kernel.policy.globs import glob_matches
from bascule.kernel.policy.shell.fields import Field
from bascule.kernel.policy.shell.git import subcommand
from bascule.kernel.policy.shell.options import Uncertain, options
from bascule.kernel.policy.shell.reading import Command

# Longer than any prefix that a person wants to read in a rule.
MAX_PREFIX_WORDS = 16
_CLUSTER = re.compile(r"-[A-Za-z]{1,5}")
_SYSTEM_PLACES = frozenset(["", "/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin"])


class Prefix(msgspec.Struct, frozen=True):
    program: str
    words: tuple[str, ...]
    # Most rules name programs as they are; comparing is then all there is to do.
    folded: str
    is_glob: bool


@lru_cache(1_024)
def prefix_of(text: str) -> Prefix:
    program, *words = text.split()
    return Prefix(program, tuple(words), program.casefold(), any(letter in program for letter in "*?["))


def restricts(prefix: Prefix, command: Command) -> bool:
    """Whether a rule that asks or denies means this command."""
    if command.program is None:
        return False
    program = command.program.casefold()
    if program != prefix.folded and not (prefix.is_glob and glob_matches(program, prefix.folded)):
        return False
    args = list(command.words[1:])
    return not prefix.words or _stands(prefix.words, args) or _means(prefix, args)


def allows(prefix: Prefix, command: Command) -> bool:
    """Whether a rule that allows was written for this command."""
    first = command.words[0].text
    if command.program is None or first is None or not glob_matches(command.program, prefix.program):
        return False
    if first.rpartition("/")[0] not in _SYSTEM_PLACES:
        return False
    args = command.words[1 : 1 + len(prefix.words)]
    return len(args) == len(prefix.words) and all(
        field.text is not None and field.certain and glob_matches(field.text, glob)
        for field, glob in zip(args, prefix.words, strict=True)
    )


def _stands(words: tuple[str, ...], args: list[Field]) -> bool:
    return len(args) >= len(words) and all(_may_be(field, glob) for field, glob in zip(args, words, strict=False))


def _may_be(field: Field, glob: str) -> bool:
    return field.text is None or field.pattern or glob_matches(field.text, glob)


def _means(prefix: Prefix, args: list[Field]) -> bool:
    flags = [word for word in prefix.words if word.startswith("-") and len(word) > 1]
    wanted = tuple(word for word in prefix.words if word not in flags)
    try:
        if prefix.program == "git":
            _, args = subcommand(args)
        _, operands = options(args, mixed=True)
    except Uncertain:
        operands = args
    given = [field.text for field in args if field.text is not None and field.text.startswith("-")]
    letters = {letter for text in given if not text.startswith("--") for letter in text[1:]}
    return _stands(wanted, operands) and all(
        any(glob_matches(text, flag) for text in given) or (_CLUSTER.fullmatch(flag) and letters.issuperset(flag[1:]))
        for flag in flags
    )
