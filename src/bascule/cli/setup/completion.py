"""Completions for bash, zsh and fish, made from the argparse parsers: they cannot know less than --help."""

import argparse
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# What an option's value is, by how its help names it.
_KINDS = {"DIR": ":dir", "FILE": ":file", "PATH": ":file"}
# A value that nothing can be proposed for.
_FREE = ":free"
# The aliases of `shell`, for the shell that does not look behind them.
ALIASES = {"reply": "bridge-reply", "register": "bridge-register"}


class Option(NamedTuple):
    names: tuple[str, ...]
    help: str
    # None: it takes no value. Else words to choose from, or one of :dir, :file, :free.
    value: str | None


class Command(NamedTuple):
    # `bascule`, `bascule setup`, `bascule setup claude`, ...
    path: str
    words: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]


def commands(parsers: Iterable[argparse.ArgumentParser]) -> list[Command]:
    return [command for parser in parsers for command in _walk(parser.prog, parser)]


def _walk(path: str, parser: argparse.ArgumentParser) -> Iterator[Command]:
    words: list[tuple[str, str]] = []
    options: list[Option] = []
    below: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask what it parses
        if action.help == argparse.SUPPRESS and not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse again
            continue
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse again
            said = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001 - argparse again
            words += [(name, said.get(name, "")) for name in action.choices]
            below += action.choices.items()
        elif action.option_strings:
            options.append(Option(tuple(action.option_strings), _help(parser, action), _value(action)))
        elif action.choices:
            words += [(str(choice), "") for choice in action.choices]
    yield Command(path, tuple(words), tuple(options))
    for name, inner in below:
        yield from _walk(f"{path} {name}", inner)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    if not action.help:
        return ""
    return parser._get_formatter()._expand_help(action)  # noqa: SLF001 - what --help would print


def _value(action: argparse.Action) -> str | None:
    if action.nargs == 0:
        return None
    if action.choices:
        return "\n".join(map(str, action.choices))
    return _KINDS.get(str(action.metavar), _FREE)


def _lookups(words: dict[str, str], known: list[Command]) -> str:
    """What may follow a command, and what an option takes: the same functions to both shells."""
    return f"""\
_bascule_words() {{
    case $1 in
{_cases(words)}    *) return 1 ;;
    esac
}}

_bascule_value() {{
    case $1 in
{_cases(_values(known))}    *) return 1 ;;
    esac
}}
"""


def bash(known: list[Command]) -> str:
    words = {command.path: "\n".join([*(word for word, _ in command.words), *_names(command)]) for command in known}
    programs = " ".join([*_programs(known), *ALIASES])
    meant = "".join(f"    {alias}) at={program} ;;\n" for alias, program in ALIASES.items())
    return f"""\
{_lookups(words, known)}
_bascule() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} at=${{COMP_WORDS[0]##*/}} index word value IFS=$'\\n'
    COMPREPLY=()
    case $at in
{meant}    esac
    for ((index = 1; index < COMP_CWORD; index++)); do
        word=${{COMP_WORDS[index]}}
        case $word in
        -*) _bascule_value "$at $word" >/dev/null && ((index++)) ;;
        *) _bascule_words "$at $word" >/dev/null && at="$at $word" ;;
        esac
    done
    if value=$(_bascule_value "$at ${{COMP_WORDS[COMP_CWORD - 1]}}"); then
        case $value in
        :dir | :file)
            COMPREPLY=($(compgen -${{value:1:1}} -- "$current"))
            type compopt >/dev/null 2>&1 && compopt -o filenames 2>/dev/null
            ;;
        :free) ;;
        *) COMPREPLY=($(compgen -W "$value" -- "$current")) ;;
        esac
        return
    fi
    COMPREPLY=($(compgen -W "$(_bascule_words "$at")" -- "$current"))
}}
complete -F _bascule {programs}
"""


def zsh(known: list[Command]) -> str:
    described = {
        command.path: "\n".join(
            [
                *(_described(word, about) for word, about in command.words),
                *(_described(name, option.help) for option in command.options for name in option.names),
            ]
        )
        for command in known
    }
    return f"""\
{_lookups(described, known)}
_bascule() {{
    local at=${{words[1]:t}} index word value
    local -a found
    for ((index = 2; index < CURRENT; index++)); do
        word=$words[index]
        case $word in
        -*) _bascule_value "$at $word" >/dev/null && ((index++)) ;;
        *) _bascule_words "$at $word" >/dev/null && at="$at $word" ;;
        esac
    done
    if value=$(_bascule_value "$at $words[CURRENT-1]"); then
        case $value in
        :dir) _files -/ ;;
        :file) _files ;;
        :free) ;;
        *) compadd -- ${{(f)value}} ;;
        esac
        return
    fi
    found=("${{(@f)$(_bascule_words "$at")}}")
    _describe -V "$at" found
}}
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
compdef _bascule {" ".join(_programs(known))}
"""


def fish(known: list[Command]) -> str:
    lines = [
        "function __bascule_at",
        "    set -l given (commandline -opc)",
        "    set -l at (string replace -r '.*/' '' -- $given[1])",
        "    for word in $given[2..-1]",
        '        contains -- "$at $word" $__bascule_paths; and set at "$at $word"',
        "    end",
        "    echo $at",
        "end",
        "set -g __bascule_paths " + " ".join(_fish_quoted(command.path) for command in known),
    ]
    for command in known:
        program = command.path.partition(" ")[0]
        here = f"complete -c {program} -n {_fish_quoted(f'test (__bascule_at) = {_fish_quoted(command.path)}')}"
        lines.append(f"{here} -f")
        lines += [f"{here} -a {_fish_quoted(word)} -d {_fish_quoted(about)}" for word, about in command.words]
        for option in command.options:
            names = " ".join(f"-{'l' if name.startswith('--') else 's'} {name.lstrip('-')}" for name in option.names)
            lines.append(f"{here} {names}{_fish_value(option.value)} -d {_fish_quoted(option.help)}")
    return "\n".join(lines) + "\n"


def _names(command: Command) -> list[str]:
    return [name for option in command.options for name in option.names]


def _programs(known: list[Command]) -> list[str]:
    return [command.path for command in known if " " not in command.path]


def _values(known: list[Command]) -> dict[str, str]:
    """`bascule setup claude --agent` -> what may follow it."""
    return {
        f"{command.path} {name}": option.value
        for command in known
        for option in command.options
        if option.value is not None
        for name in option.names
    }


def _cases(answers: dict[str, str]) -> str:
    """The arms of a `case`; what is answered alike stands together."""
    together: dict[str, list[str]] = {}
    for question, answer in answers.items():
        together.setdefault(answer, []).append(_quoted(question))
    return "".join(
        f"    {' | '.join(questions)}) printf '%s\\n' {_quoted(answer)} ;;\n" for answer, questions in together.items()
    )


def _described(word: str, about: str) -> str:
    return word.replace(":", "\\:") + (f":{about}" if about else "")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish_value(value: str | None) -> str:
    match value:
        case None:
            return ""
        case ":dir":
            return " -x -a '(__fish_complete_directories)'"
        case ":file":
            return " -r -F"
        case ":free":
            return " -x"
        case _:
            return f" -x -a {_fish_quoted(' '.join(value.split()))}"


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
