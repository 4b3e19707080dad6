"""git runs other programs in more ways than any other tool an agent uses every day."""

import re

from bascule.policy.shell.fields import Field, known
from bascule.policy.shell.options import Found, Option, options, value_of

_SHORT = "Cc"
_LONG = ("git-dir", "work-tree", "namespace", "config-env", "super-prefix", "exec-path", "attr-source")
# Settings whose value is a command line.
_COMMANDS = re.compile(
    r"core\.(?:sshcommand|pager|editor|askpass|gitproxy|fsmonitor|alternaterefscommand)|pager\..*|sequence\.editor"
    r"|diff\.external|.*\.(?:textconv|driver|clean|smudge|process|cmd|program|helper|command|packcredentials)"
    r"|(?:remote|url)\..*\.(?:uploadpack|receivepack|vcs)|interactive\.difffilter|uploadpack\.packobjectshook",
    re.IGNORECASE,
)
# Settings that point git to more settings or to hooks.
_PLACES = re.compile(r"core\.(?:hookspath|worktree|attributesfile)|include\.path|includeif\..*", re.IGNORECASE)
_FILTERS = (
    "env-filter",
    "tree-filter",
    "index-filter",
    "parent-filter",
    "msg-filter",
    "commit-filter",
    "tag-name-filter",
    "setup",
)
# `core.fsmonitor` and pagers take these as well as programs.
_SWITCHES = frozenset(["", "true", "false", "yes", "no", "on", "off", "1", "0"])


def subcommand(args: list[Field]) -> tuple[list[Option], list[Field]]:
    """What stands before git's own command, and from that on."""
    return options(args, _SHORT, _LONG)


def git(args: list[Field], found: Found) -> None:
    given, rest = subcommand(args)
    for option in given:
        if option.name == "c" and option.value is not None:
            _configured(option.value, found)
        elif option.name == "config-env":
            found.opaque.append("git --config-env takes a setting from the environment")
        elif option.name == "exec-path" and option.value is not None:
            found.opaque.append("git --exec-path runs git's own programs from another place")
    if not rest or rest[0].text is None:
        return
    verb, args = rest[0].text, rest[1:]
    match verb:
        case "config":
            _config(args, found)
        case "rebase":
            _values(args, "x", ("exec",), "git rebase --exec", found)
        case "difftool":
            _values(args, "xt", ("extcmd",), "git difftool --extcmd", found)
        case "grep":
            _values(args, "OefABCm", ("open-files-in-pager",), "git grep -O", found, names=("O", "open-files-in-pager"))
        case "bisect":
            if args and args[0].text == "run":
                found.command(args[1:], "git bisect run")
        case "submodule":
            if args and args[0].text == "foreach":
                _, operands = options(args[1:])
                found.joined(operands, "git submodule foreach")
        case "filter-branch":
            _values(args, "", _FILTERS, "git filter-branch", found)
        case "clone" | "fetch" | "pull" | "ls-remote" | "push":
            _values(args, "", ("upload-pack", "receive-pack", "exec"), f"git {verb}", found)
            for field in args:
                if field.text is not None and field.text.startswith("ext::"):
                    found.text(known(field.text.removeprefix("ext::")), "git ext::")
        case _:
            return


def _values(
    args: list[Field], short: str, long: tuple[str, ...], via: str, found: Found, names: tuple[str, ...] | None = None
) -> None:
    given, _ = options(args, short, long, mixed=True)
    for value in value_of(given, *(names or (*short[:1], *long))):
        found.text(value, via)


def _configured(setting: Field, found: Found) -> None:
    name, _, value = (setting.text if setting.text is not None else setting.source).partition("=")
    _setting(name, known(value) if setting.text is not None else Field(None, setting.source), found)


def _config(args: list[Field], found: Found) -> None:
    _, operands = options(args, "f", ("file", "blob", "type", "default", "value", "comment"), mixed=True)
    if operands and operands[0].text in ("set", "get", "unset", "list", "edit"):
        operands = operands[1:]
    if len(operands) > 1 and operands[0].text is not None:
        _setting(operands[0].text, operands[1], found)


def _setting(name: str, value: Field, found: Found) -> None:
    if name.lower().startswith("alias."):
        if value.text is None:
            found.text(value, "git alias")
        elif value.text.startswith("!"):
            found.text(known(value.text[1:]), "git alias")
        else:
            found.text(known(f"git {value.text}"), "git alias")
    elif _PLACES.fullmatch(name):
        found.opaque.append(f"git {name} points git to other settings or hooks")
    elif _COMMANDS.fullmatch(name) and value.text not in _SWITCHES:
        found.text(known(value.text.removeprefix("!")) if value.text is not None else value, f"git {name}")
