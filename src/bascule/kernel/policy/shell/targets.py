"""Files that everyday programs are told to make, change, remove or read, as far as their arguments show.

Paths are as written, seen from where the program starts; `~` at the beginning is a home. A directory stands for
everything beneath it. Programs that are not here may write anywhere: nothing is concluded from silence.
"""

import re
from collections.abc import Callable
from itertools import pairwise

from bascule.kernel.policy.shell.fields import Field, known
from bascule.kernel.policy.shell.looking import LOOKING
from bascule.kernel.policy.shell.options import Option, Uncertain, has, options, value_of

_HERE = known(".")
# `host:path`, `user@host:path`, `rsync://`: on another machine. `./a:b` is a file.
_REMOTE = re.compile(r"(?:[A-Za-z0-9_.+-]+@)?[A-Za-z0-9_.-]+:(?!\\)|[a-z]+://")
# Of find: what stands before its starting points, and the tests that begin its expression.
_FIND_OPTIONS = ("-H", "-L", "-P")
# Verbs of git that change files of the tree they are called in.
_GIT_CHANGES = frozenset(
    ["checkout", "reset", "restore", "switch", "stash", "apply", "am", "merge", "rebase", "pull", "cherry-pick",
     "revert", "rm", "mv", "sparse-checkout", "submodule", "bisect"]
)  # fmt: skip
_GIT_VALUES = ("git-dir", "work-tree", "namespace", "exec-path", "config-env", "super-prefix", "attr-source")
# Programs whose operands are files that they show or pass on. `grep` and its like take a pattern first.
_SHOW = frozenset(
    ["cat", "less", "more", "head", "tail", "tac", "nl", "bat", "batcat", "strings", "xxd", "od", "hexdump", "base64",
     "base32", "sort", "uniq", "wc", "cut", "paste", "diff", "cmp", "source", ".", "file", "stat", "md5sum", "sha1sum",
     "sha256sum", "sha512sum", "zcat", "xzcat", "bzcat", "view", "vim", "vi", "nano", "jq", "column", "fold", "rev",
     "openssl", "gpg", "age", "ssh-keygen", "ssh-add", "cp", "scp", "rsync", "zip", "gzip", "split", "csplit"]
)  # fmt: skip
_SEARCH = frozenset(["grep", "egrep", "fgrep", "rg", "ag", "ack", "sed", "awk", "gawk", "mawk", "perl", "jq", "yq"])
_DELETERS = frozenset(
    ["rm", "grm", "srm", "unlink", "rimraf", "del-cli", "shred", "truncate", "wipefs", "blkdiscard", "mkfs"]
)


def written(name: str, args: list[Field]) -> list[str]:
    """What a program is told to make, change or remove."""
    try:
        found = [field.path for field in _written(name, args) if field.path]
    except Uncertain:
        found = []
    return found if name in _NO_OUTPUTS else [*found, *_outputs(name, args)]


# Programs whose `-o` names no file.
_NO_OUTPUTS = LOOKING | _SEARCH | frozenset(
    ["find", "gfind", "set", "ssh", "sftp", "scp", "mount", "sh", "bash", "dash", "zsh", "ksh", "shopt", "useradd",
     "groupadd", "kubectl", "docker", "podman", "ln", "chmod", "rm"]
)  # fmt: skip
_OUTPUTS = frozenset(
    ["-o", "--output", "--out", "-out", "--outfile", "--out-file", "--output-file", "--output-document", "--outdir",
     "--out-dir", "--output-dir", "--output-directory", "--outDir", "--outFile", "-keyout", "--dump-header",
     "--log-file", "--logfile", "--install-dir", "--destination", "DESTDIR"]
)  # fmt: skip
# Programs that work in the directory that follows.
_WORKS_IN = frozenset(["make", "gmake", "ninja", "go", "cargo", "meson", "pnpm", "just", "npm", "yarn"])
_IN = frozenset(["-C", "--directory", "--prefix", "--cwd"])


def _outputs(name: str, args: list[Field]) -> list[str]:
    """What the usual options for an output name, whatever the program is: as far as it looks like a path."""
    found: list[str] = []
    for at, field in enumerate(args):
        text = field.text
        if text is None or len(text) < 2 or not (text[0] == "-" or "=" in text):
            continue
        following = args[at + 1].path if at + 1 < len(args) else None
        if text in _OUTPUTS:
            found.append(following or "")
        elif name in _WORKS_IN and text in _IN:
            # The directory and what is in it.
            found.append(following or "")
        elif "=" in text and (
            text.partition("=")[0] in _OUTPUTS or (name in _WORKS_IN and text.partition("=")[0] in _IN)
        ):
            found.append(text.partition("=")[2])
        elif text.startswith("-o") and text[2:3] in ("/", "~", "."):
            found.append(text[2:])
    return [path for path in found if path.startswith(("/", "~", ".")) or "/" in path]


def read_by(name: str, args: list[Field]) -> list[str]:
    """What a program is told to show or to pass on."""
    try:
        return [field.path for field in _read(name, args) if field.path]
    except Uncertain:
        return []


def is_unplaced(name: str, args: list[Field]) -> bool:
    """Whether it deletes or overwrites what nobody can name before it runs."""
    try:
        if name in _DELETERS or name.startswith("mkfs."):
            _, targets = options(args, "sn", ("size", "iterations"), mixed=True)
        elif name in ("chmod", "chown", "chgrp"):
            given, operands = options(args, mixed=True)
            targets = operands[1:] if has(given, "R", "recursive") else []
        elif name == "find" and any(field.text == "-delete" for field in args):
            targets = find_roots(args)
        elif name == "dd":
            return any(field.text is None and field.source.startswith("of=") for field in args)
        else:
            return False
    except Uncertain:
        return True
    return any(field.text is None for field in targets)


def find_roots(args: list[Field]) -> list[Field]:
    """Where find begins to look."""
    roots = []
    for field in args:
        text = field.text
        if text in _FIND_OPTIONS or (text or "").startswith(("-D", "-O")):
            continue
        if text is not None and (text.startswith("-") or text in ("(", "!", "\\(")):
            break
        roots.append(field)
    return roots or [_HERE]


def takes_data(name: str) -> bool:
    """Whether what comes on its input is data to it, whatever it says."""
    return name in LOOKING or name in _SHOW or name in _SEARCH or name in _WRITERS


def is_remote(field: Field) -> bool:
    return field.text is not None and _REMOTE.match(field.text) is not None


# -- written --------------------------------------------------------------------------------------


def _written(name: str, args: list[Field]) -> list[Field]:
    if name in ("cp", "mv", "ln", "link", "install", "rsync", "scp"):
        return _copied(name, args)
    writer = _WRITERS.get(name)
    return [] if writer is None else writer(args)


def _operands(args: list[Field]) -> list[Field]:
    return options(args, mixed=True)[1]


def _made(args: list[Field]) -> list[Field]:
    return options(args, "sdrtmn", ("reference", "date", "size", "mode"), mixed=True)[1]


def _edited(args: list[Field]) -> list[Field]:
    given, operands = options(args, "efl", ("expression", "file"), mixed=True)
    return operands if has(given, "i", "in-place") else []


def _device(args: list[Field]) -> list[Field]:
    return [Field(field.text[3:], field.source) for field in args if field.text and field.text.startswith("of=")]


def _fetched(args: list[Field]) -> list[Field]:
    given, _ = options(args, "oOP", ("output", "output-document", "directory-prefix"), mixed=True)
    return value_of(given, "o", "O", "output", "output-document")


def _unzipped(args: list[Field]) -> list[Field]:
    given, _ = options(args, "dxP", mixed=True)
    return value_of(given, "d") or [_HERE]


def _packed(args: list[Field]) -> list[Field]:
    given, operands = options(args, "S", mixed=True)
    return [] if has(given, "c", "stdout", "to-stdout", "l", "list", "t", "test") else operands


def _sorted(args: list[Field]) -> list[Field]:
    given, _ = options(args, "oktS", ("output", "key", "field-separator"), mixed=True)
    return value_of(given, "o", "output")


def _copied(name: str, args: list[Field]) -> list[Field]:
    short = "tSgmoZ"
    long: tuple[str, ...] = ("target-directory", "suffix", "mode", "owner", "group")
    if name in ("rsync", "scp"):
        short = "efBTM" if name == "rsync" else "cFiJloPSX"
        long = ("rsh", "exclude", "include", "filter", "files-from", "exclude-from", "include-from", "rsync-path")
    given, operands = options(args, short, long, mixed=True)
    if name == "install" and has(given, "d", "directory"):
        return operands
    # What is moved away is gone, and what is linked to can be written through the link.
    links = name in ("ln", "link") or (name == "cp" and has(given, "l", "link", "s", "symbolic-link"))
    sources = operands[:-1] if name == "mv" or links or has(given, "remove-source-files") else []
    target = (value_of(given, "t", "target-directory") if name not in ("rsync", "scp") else []) or operands[-1:]
    if name == "mv" and has(given, "t", "target-directory"):
        sources = operands
    found = [*target, *sources, *_beneath(target, operands)]
    return [field for field in found if not is_remote(field)] if name in ("rsync", "scp") else found


def _beneath(target: list[Field], operands: list[Field]) -> list[Field]:
    """Copied into a directory, a file keeps its name: `cp x/hooks .git`."""
    joined = []
    for directory in target:
        for operand in operands[:-1] or operands:
            if directory.path and operand.text:
                path = f"{directory.path.rstrip('/')}/{operand.text.rstrip('/').rpartition('/')[2]}"
                joined.append(Field(path, path))
    return joined


def _found(args: list[Field]) -> list[Field]:
    written = find_roots(args) if any(field.text == "-delete" for field in args) else []
    for flag, value in pairwise(args):
        if flag.text in ("-fprint", "-fprint0", "-fls", "-fprintf"):
            written.append(value)
    return written


def _git(args: list[Field]) -> list[Field]:
    given, rest = options(args, "Cc", _GIT_VALUES)
    tree = value_of(given, "work-tree") or value_of(given, "C")[-1:] or [_HERE]
    verb = rest[0].text if rest else None
    operands = options(rest[1:], "bcBuoje", ("branch", "depth", "origin", "exclude"), mixed=True)[1] if rest else []
    if verb == "clean":
        return [_joined(tree[0], operand) for operand in operands] or tree
    if verb == "clone":
        return [_joined(tree[0], operands[1] if len(operands) > 1 else _HERE)]
    if verb == "init":
        return [_joined(tree[0], operand) for operand in operands[:1]] or tree
    if verb == "worktree" and operands and operands[0].text in ("add", "remove", "move"):
        return [_joined(tree[0], operand) for operand in operands[1:2]]
    return tree if verb in _GIT_CHANGES else []


def _joined(directory: Field, path: Field) -> Field:
    if directory.text == "." or directory.path is None or path.path is None or path.path.startswith(("/", "~")):
        return path
    return known(f"{directory.path}/{path.path}")


def _tar(args: list[Field]) -> tuple[list[Field], list[Field]]:
    """What it writes, and what it puts into an archive."""
    given, operands = _tar_options(args)
    archive = [field for field in value_of(given, "f", "file") if field.text != "-"]
    place = value_of(given, "C", "directory")
    if has(given, "x", "extract", "get"):
        return place or [_HERE], archive
    if has(given, "c", "create", "r", "append", "u", "update"):
        gone = operands if has(given, "remove-files") else []
        return [*archive, *gone], [_joined(place[-1], operand) for operand in operands] if place else operands
    return [], archive


def _tar_options(args: list[Field]) -> tuple[list[Option], list[Field]]:
    short = "fCTXbgHKLNVIF"
    long = ("file", "directory", "exclude", "exclude-from", "files-from", "use-compress-program", "transform")
    first = args[0].text if args else None
    if first is None or first.startswith("-"):
        return options(args, short, long, mixed=True)
    # `tar xzf archive`: values come in the order of the letters.
    rest = args[1:]
    given = []
    for letter in first:
        value = rest.pop(0) if letter in short and rest else None
        given.append(Option(letter, value))
    more, operands = options(rest, short, long, mixed=True)
    return [*given, *more], operands


def _patched(args: list[Field]) -> list[Field]:
    given, operands = options(
        args, "dipBFgoruVYzD", ("directory", "input", "strip", "output", "reject-file"), mixed=True
    )
    if has(given, "dry-run"):
        return []
    return [*value_of(given, "o", "output"), *(value_of(given, "d", "directory") or operands[:1] or [_HERE])]


_WRITERS: dict[str, Callable[[list[Field]], list[Field]]] = {
    **dict.fromkeys(
        ("tee", "rm", "grm", "srm", "unlink", "rmdir", "trash", "mkfifo", "rimraf", "del-cli", "sponge"), _operands
    ),
    **dict.fromkeys(("touch", "mkdir", "truncate", "shred"), _made),
    **dict.fromkeys(("chmod", "chown", "chgrp", "setfacl"), lambda args: _operands(args)[1:]),
    **dict.fromkeys(("sed", "perl"), _edited),
    "dd": _device,
    **dict.fromkeys(("curl", "wget"), _fetched),
    **dict.fromkeys(("find", "gfind"), _found),
    "git": _git,
    **dict.fromkeys(("tar", "gtar", "bsdtar"), lambda args: _tar(args)[0]),
    "patch": _patched,
    "unzip": _unzipped,
    "zip": lambda args: options(args, "xib", mixed=True)[1][:1],
    **dict.fromkeys(("gzip", "gunzip", "bzip2", "bunzip2", "xz", "unxz", "zstd"), _packed),
    "sort": _sorted,
}


# -- read -----------------------------------------------------------------------------------------


def _read(name: str, args: list[Field]) -> list[Field]:
    if name in ("tar", "gtar", "bsdtar"):
        return _tar(args)[1]
    if name in ("cp", "scp", "rsync", "install", "mv", "ln", "link"):
        _, operands = options(args, "tSe", ("target-directory", "rsh", "exclude"), mixed=True)
        return [field for field in operands[:-1] or operands if not is_remote(field)]
    if name == "curl":
        return [field for value in _curl_bodies(args) for field in value]
    if name == "dd":
        return [known(field.text[3:]) for field in args if field.text and field.text.startswith("if=")]
    if name in _SEARCH:
        given, operands = options(args, "efmABCdD", ("regexp", "file", "expression"), mixed=True)
        has_pattern = has(given, "e", "f", "regexp", "file", "expression")
        return [*value_of(given, "f", "file"), *operands[0 if has_pattern else 1 :]]
    if name in ("find", "gfind"):
        return find_roots(args)
    return options(args, "nctkj", mixed=True)[1] if name in _SHOW else []


def _curl_bodies(args: list[Field]) -> list[list[Field]]:
    """`-T file`, `-d @file`, `-F name=@file`."""
    given, _ = options(args, "dFTHoXAuebcEKmrwxzU", ("data", "form", "upload-file", "data-binary"), mixed=True)
    found = []
    for option in given:
        if option.value is None or option.value.text is None:
            continue
        text = option.value.text
        if option.name in ("T", "upload-file"):
            found.append([option.value])
        elif option.name in ("d", "F") or option.name.startswith(("data", "form")):
            _, at, file = text.partition("@")
            found.append([known(file.partition(";")[0])] if at else [])
    return found
