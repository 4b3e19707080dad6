"""Completions for bash, zsh and fish, made from the argparse parsers: they cannot know less than --help."""

import argparse
from collections.abc import Iterable, Iterator

import shtab

# What an option's value is, by how its help names it.
_KINDS = {"DIR": shtab.DIRECTORY, "FILE": shtab.FILE, "PATH": shtab.FILE}
# The aliases of `shell`, for the shell that does not look behind them.
ALIASES = {"reply": "bridge-reply", "register": "bridge-register"}


def script(shell: str, parsers: Iterable[argparse.ArgumentParser]) -> str:
    texts = []
    for parser in parsers:
        for _, each in commands(parser):
            for action in each._actions:  # noqa: SLF001 - argparse has no other way to ask what it parses
                if (kind := _KINDS.get(str(action.metavar))) is not None:
                    action.complete = kind  # type: ignore[attr-defined]  # where shtab looks for it
        texts.append(shtab.complete(parser, shell=shell))
    text = "\n".join([*texts, ""])
    match shell:
        case "bash":
            return text + "".join(f"complete -o bashdefault -F {_function(ALIASES[name])} {name}\n" for name in ALIASES)
        case "zsh":
            # What is not evaluated takes itself for a file that zsh has loaded to complete one command.
            quoted = text.replace("'", "'\\''")
            return f"(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}\neval '{quoted}'\n"
        case _:
            return text


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """`bascule`, `bascule setup`, `bascule setup claude`, ... and how each is parsed."""
    yield parser.prog, parser
    for action in parser._actions:  # noqa: SLF001 - argparse again
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse again
            for inner in action.choices.values():
                yield from commands(inner)


def _function(program: str) -> str:
    return "_shtab_" + program.replace("-", "_")
