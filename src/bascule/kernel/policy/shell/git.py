"""git runs other programs in more ways than any other tool an agent uses every day."""

import re

from bascule.kernel.policy.shell.fields import Field, known
from bascule.kernel.policy.shell.options import Found, Option, options, value_of

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
# Options of git's own commands whose value is a command line, after the letters that take a value.
_TRANSPORTS = ("", ("upload-pack", "receive-pack", "exec"))
_EXECUTING: dict[str, tuple[str, tuple[str, ...]]] = {
    "rebase": ("xXsC", ("x", "exec")),
    "difftool": ("xt", ("x", "extcmd")),
    "grep": ("OefABCm", ("O", "open-files-in-pager")),
    "filter-branch": (
        "df",
        ("env-filter", "tree-filter", "index-filter", "parent-filter", "msg-filter", "commit-filter", "setup"),
    ),
    **dict.fromkeys(("clone", "fetch", "pull", "push", "ls-remote", "fetch-pack", "archive"), _TRANSPORTS),
}
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
    if rest and rest[0].text is not None:
        _verb(rest[0].text, rest[1:], found)


def _verb(verb: str, args: list[Field], found: Found) -> None:
    if verb in _EXECUTING:
        short, names = _EXECUTING[verb]
        given, _ = options(args, short, names, mixed=True)
        for value in value_of(given, *names):
            found.text(value, f"git {verb}")
    first = args[0].text if args else None
    if verb == "config":
        _config(args, found)
    elif verb == "bisect" and first == "run":
        found.command(args[1:], "git bisect run")
    elif verb == "submodule" and first == "foreach":
        _, operands = options(args[1:])
        found.joined(operands, "git submodule foreach")
    for field in args:
        if field.text is not None and field.text.startswith("ext::"):
            found.text(known(field.text.removeprefix("ext::")), "git ext::")


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
