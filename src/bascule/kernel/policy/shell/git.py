"""git runs other programs in more ways than any other tool an agent uses every day."""

import re
from collections.abc import Callable

from bascule.kernel.policy.shell.fields import Field, known
from bascule.kernel.policy.shell.options import Found, Option, has, options, value_of

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
    "clone": ("u", ("upload-pack",)),
    **dict.fromkeys(("fetch", "pull", "push", "ls-remote", "fetch-pack", "archive"), _TRANSPORTS),
}
# `core.fsmonitor` and pagers take these as well as programs.
_SWITCHES = frozenset(["", "true", "false", "yes", "no", "on", "off", "1", "0"])
# Programs that only show, and helpers that come with git.
_HARMLESS = _SWITCHES | frozenset(
    ["cat", "less", "more", "less -R", "less -FRX", "delta", "vim", "vi", "nano", ":", "input", "store", "cache",
     "manager", "osxkeychain", "ssh", "gpg", "gpg2"]
)  # fmt: skip


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
        for value in value_of(given, *names, *(("u",) if verb == "clone" else ())):
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
    elif _COMMANDS.fullmatch(name) and value.text not in _HARMLESS:
        found.opaque.append(f"git {name} makes git run {value}")
        found.text(known(value.text.removeprefix("!")) if value.text is not None else value, f"git {name}")


# -- destruction ----------------------------------------------------------------------------------

_NAMES_OF_FORCE = ("f", "force")
_NAMES_OF_PUSH = (*_NAMES_OF_FORCE, "force-with-lease", "force-if-includes", "d", "delete", "mirror", "prune")
# Verbs that always remove what git keeps.
_ALWAYS = frozenset(["prune", "filter-branch", "filter-repo"])
# Verbs that do with one of these options.
_WITH: dict[str, tuple[str, ...]] = {
    "reset": ("hard", "merge"),
    "checkout-index": _NAMES_OF_FORCE,
    "switch": (*_NAMES_OF_FORCE, "discard-changes"),
    "update-ref": ("d", "delete", "stdin"),
    "read-tree": ("u", "reset"),
}


def destroys(args: list[Field]) -> bool:
    """Whether git removes work, or a record of it, that nothing else in git leads to."""
    _, rest = subcommand(args)
    verb, args = (rest[0].text or "", rest[1:]) if rest else ("", [])
    if verb in _ALWAYS:
        return True
    if verb in _WITH:
        return has(options(args, mixed=True)[0], *_WITH[verb])
    if verb in _WITH_FIRST:
        words = [field.text for field in args]
        return words[:1] != [] and words[0] in _WITH_FIRST[verb]
    return verb in _JUDGED and _JUDGED[verb](args)


def _clean(args: list[Field]) -> bool:
    given, _ = options(args, "e", ("exclude",), mixed=True)
    return _has(given, *_NAMES_OF_FORCE) and not has(given, "n", "dry-run")


def _rm(args: list[Field]) -> bool:
    given, _ = options(args, mixed=True)
    return has(given, "r", *_NAMES_OF_FORCE) and not has(given, "cached", "n", "dry-run")


def _checkout(args: list[Field]) -> bool:
    """Files from the index or a commit over those that are there."""
    given, _ = options(args, "bBp", ("orphan",), mixed=True)
    return any(field.text in ("--", ".") for field in args) or has(given, *_NAMES_OF_FORCE)


def _restore(args: list[Field]) -> bool:
    given, _ = options(args, "s", ("source",), mixed=True)
    return not has(given, "staged", "S") or has(given, "worktree", "W")


def _branch(args: list[Field]) -> bool:
    given, _ = options(args, "ut", ("set-upstream-to",), mixed=True)
    return has(given, "D", *_NAMES_OF_FORCE)


def _push(args: list[Field]) -> bool:
    """By an option, or by a refspec: `:main` deletes, `+main` forces."""
    given, operands = options(args, "o", ("push-option", "receive-pack", "repo", "exec"), mixed=True)
    forced = any((field.text or "").startswith((":", "+")) for field in operands[1:])
    return forced or has(given, *_NAMES_OF_PUSH)


def _worktree(args: list[Field]) -> bool:
    return bool(args) and args[0].text == "remove" and has(options(args[1:], mixed=True)[0], *_NAMES_OF_FORCE)


def _gc(args: list[Field]) -> bool:
    return any((field.text or "").startswith("--prune=") for field in args)


_WITH_FIRST = {"stash": ("drop", "clear"), "reflog": ("expire", "delete")}
_JUDGED: dict[str, Callable[[list[Field]], bool]] = {
    "clean": _clean,
    "rm": _rm,
    "checkout": _checkout,
    "restore": _restore,
    "branch": _branch,
    "push": _push,
    "worktree": _worktree,
    "gc": _gc,
}


def _has(given: list[Option], *names: str) -> bool:
    """As git has it: every beginning of a long name that is unique."""
    return any(
        name == option.name or (len(option.name) > 1 and name.startswith(option.name))
        for option in given
        for name in names
    )
