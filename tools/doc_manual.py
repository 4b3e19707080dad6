"""The manual page that the wheel brings: `man bascule` where pipx or a system package puts it."""

import argparse

from bascule import __version__
from bascule.cli import main


def page() -> str:
    parser = main.build_parser()
    lines = [
        f'.TH BASCULE 1 "" "Bascule {__version__}" "User Commands"',
        ".SH NAME",
        f"bascule \\- {_text(str(parser.description).removeprefix('Bascule: ').rstrip('.'))}",
        ".SH SYNOPSIS",
        ".B bascule",
        ".I COMMAND",
        "[options]",
        ".PP",
        ".B bascule",
        ".I COMMAND",
        "\\-\\-help",
        ".SH COMMANDS",
    ]
    for name, about in _commands(parser):
        lines += [".TP", f".B {_text(name)}", _text(about)]
    lines += [".SH EXAMPLES", ".nf", *(_text(line) for line in str(parser.epilog).rstrip().splitlines()[1:]), ".fi"]
    lines += [".SH FILES", ".TP", ".I ~/.local/state/bascule", "sockets, the store, the log, tokens"]
    lines += [".TP", ".I ~/.config/bascule/config.toml", "settings"]
    return "\n".join(lines) + "\n"


def _commands(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    (commands,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))  # noqa: SLF001 - argparse has no other way to ask
    return [(each.dest, each.help or "") for each in commands._choices_actions]  # noqa: SLF001 - argparse again


def _text(text: str) -> str:
    """As roff writes it: a backslash, a dash that is typed, and a dot that begins a line."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
