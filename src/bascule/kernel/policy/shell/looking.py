"""Commands that are proven to change nothing, so that nothing has to be kept for an undo.

Proven by a list: a program is here only if none of its arguments, or none that the check lets through, writes a file.
Everything else may write.
"""

import re

from bascule.kernel.policy.shell.fields import Field
from bascule.kernel.policy.shell.options import Uncertain, has, options

LOOKING = frozenset(
    ["ls", "cat", "head", "tail", "tac", "nl", "grep", "egrep", "fgrep", "wc", "pwd", "echo", "printf", "true", "false",
     "test", "[", ":", "stat", "file", "du", "df", "which", "type", "date", "id", "whoami", "uname", "uniq",
     "cut", "tr",
     "diff", "cmp", "comm", "tree", "hexdump", "od", "strings", "md5sum", "sha1sum", "sha256sum", "sha512sum",
     "basename",
     "dirname", "realpath", "readlink", "sleep", "seq", "ps", "nproc", "cd", "pushd", "popd", "jq", "column", "fold",
     "rev", "expr", "printenv", "hostname", "uptime", "free", "lsof", "pgrep", "ag", "base64", "cal", "locale",
     "getconf", "tty", "groups", "dir", "export", "set", "shift", "return", "exit", "wait", "jobs", "zcat"]
)  # fmt: skip
_GIT_LOOKS = frozenset(
    ["status", "log", "diff", "show", "rev-parse", "ls-files", "ls-tree", "blame", "describe", "shortlog", "cat-file",
     "rev-list", "merge-base", "name-rev", "grep", "check-ignore", "count-objects", "for-each-ref", "show-ref"]
)  # fmt: skip
# Options that make a looking verb write a file or run a program.
_GIT_ACTS = ("--output", "--ext-diff", "--textconv", "-O", "--open-files")
_FIND_ACTS = frozenset(["-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprint0", "-fls", "-fprintf"])
_SED_PRINTS = re.compile(r"(?:[0-9$]+(?:,[0-9$]+)?|/[^/]*/)?[pq=d]")


def only_looks(name: str, args: list[Field]) -> bool:
    try:
        return _only_looks(name, args)
    except Uncertain:
        return False


def _only_looks(name: str, args: list[Field]) -> bool:
    if name in LOOKING:
        return True
    if any(field.text is None for field in args) and name in ("find", "sed", "sort", "git", "rg"):
        return False
    texts = [field.text or "" for field in args]
    match name:
        case "find":
            return _FIND_ACTS.isdisjoint(texts)
        case "rg":
            return not any(text.startswith("--pre") or text == "--hostname-bin" for text in texts)
        case "sort":
            given, _ = options(args, "oktST", ("output", "key", "field-separator", "compress-program"), mixed=True)
            return not has(given, "o", "output", "compress-program")
        case "sed":
            given, operands = options(args, "efl", ("expression", "file"), mixed=True)
            quiet = not has(given, "i", "in-place", "e", "f", "expression", "file") and bool(operands)
            return quiet and _SED_PRINTS.fullmatch(operands[0].text or "") is not None
        case "git":
            given, rest = options(args, "C", ())
            named = [option.name for option in given]
            acts = any(text.startswith(_GIT_ACTS) for text in texts)
            return set(named) <= {"C", "no-pager"} and bool(rest) and rest[0].text in _GIT_LOOKS and not acts
        case _:
            return False
