"""What a person sees before saying yes: the change to a file, or the command as it was understood."""

import difflib
import hashlib
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from posixpath import normpath
from types import MappingProxyType
from typing import Any, NamedTuple

from bascule.kernel.consent import blocks
from bascule.kernel.consent.blocks import Block
from bascule.kernel.policy.decision import Verdict
from bascule.kernel.policy.shell.reading import Reading, read
from bascule.workspace.edits import EditFault, edit_bytes
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.paths import BadPath, WorkspacePath, parse_path
from bascule.workspace.ports import FileFault, ResolvedPath, Root
from bascule.workspace.protocol import (
    CreateFileOperation,
    DeleteFileOperation,
    EditFileOperation,
    MessageOperation,
    Operation,
    ReadFileOperation,
    ShellOperation,
)
from bascule.workspace.validation import content_of

# difflib compares every line with every other: beyond this it would hold up the person who waits for the picture.
MAX_COMPARED_LINES = 4_000

# Names of one directory that a pattern is compared with: a person is shown a few dozen of them at the most.
MAX_LISTED = 2_000
_PATTERN = re.compile(r"[*?\[]")

# The digest of a file that is not there, or too large to be pinned.
ABSENT = "absent"


class Pinned(NamedTuple):
    """Files that an answer rests on, by digest: change one, and it is another question."""

    files: dict[str, str]
    # What was looked at but could not be pinned, and why: shown, not hidden.
    unpinned: tuple[str, ...] = ()
    # Files that a command may load besides those it names: compared when it starts, and not held while it runs.
    loads: Mapping[str, str] = MappingProxyType({})


def summary(operation: Operation, resolved: str | None = None) -> str:
    """`resolved` is where a link leads its path."""
    match operation:
        case ShellOperation():
            return operation.command
        case MessageOperation():
            return "message"
        case _:
            shown = f"{operation.__struct_config__.tag} {operation.path}"
            return f"{shown} (leads to {resolved})" if resolved is not None else shown


class Looked(NamedTuple):
    pinned: Pinned
    # Complete; what is invisible in it is made visible when it becomes a question.
    preview: tuple[Block, ...]


def look_at_command(
    operation: ShellOperation, cwd: WorkspacePath | None, root: Root, verdict: Verdict, *, limits: WorkspaceLimits
) -> Looked:
    """Blocking. What the person sees and what the answer is bound to."""
    pinned = _scripts(operation, cwd, root, limits)
    return Looked(pinned, _command(operation, cwd, verdict, pinned))


def look_at_file(
    operation: Operation, place: ResolvedPath | FileFault, root: Root, verdict: Verdict, *, limits: WorkspaceLimits
) -> Looked:
    """Blocking. What the person sees and what the answer is bound to, from one and the same reading of a file."""
    assert not isinstance(operation, MessageOperation | ShellOperation)
    resolved = place.path if isinstance(place, ResolvedPath) and place.elsewhere else None
    title = blocks.facts(f"{summary(operation, resolved)} in {root.path}", f"rule: {verdict.rule}: {verdict.reason}")
    if isinstance(place, FileFault):
        return Looked(Pinned({operation.path: ABSENT}), (title, blocks.text(f"it would fail: {place}")))
    path = place.path
    try:
        before = root.read(place, limits.max_read_bytes)
    except FileFault as error:
        digest = root.digest(place, limits.max_pinned_bytes) or ABSENT
        if isinstance(operation, CreateFileOperation):
            return Looked(Pinned({path: digest}), (title, _file(operation, path, None)))
        return Looked(Pinned({path: digest}), (title, blocks.text(f"it would fail: {error}")))
    # A caller that may read a file may read it as it is by then.
    reads = isinstance(operation, ReadFileOperation)
    files = {} if reads else {path: hashlib.sha256(before).hexdigest()}
    return Looked(Pinned(files), (title, _file(operation, path, before)))


def _scripts(operation: ShellOperation, cwd: WorkspacePath | None, root: Root, limits: WorkspaceLimits) -> Pinned:
    """The workspace files a command would execute, and those that it may load."""
    reading = read(operation.command, operation.env)
    files: dict[str, str] = {}
    loads: dict[str, str] = {}
    unpinned: list[str] = []
    named = [(script, files) for script in reading.scripts]
    matched = [(each, loads) for pattern in reading.loads for each in _matching(pattern, cwd, root)]
    for script, found in (*named, *matched):
        place = _inside(script, cwd, root)
        if place is None:
            unpinned.append(f"{script} (not in the workspace)")
        elif place in files:
            continue
        elif len(files) + len(loads) >= limits.max_pinned_files:
            unpinned.append(f"{script} (more than {limits.max_pinned_files} files)")
        else:
            found[place] = _digest(root, place, limits) or ABSENT
    return Pinned(files, tuple(dict.fromkeys(unpinned)), loads)


def _matching(pattern: str, cwd: WorkspacePath | None, root: Root) -> list[str]:
    """The files that a pattern in the last name of a path stands for; a path without one is itself."""
    folder, _, name = pattern.rpartition("/")
    if not _PATTERN.search(name):
        return [] if _PATTERN.search(folder) else [pattern]
    try:
        here = _inside(folder, cwd, root) if folder or cwd else None
        if here is not None:
            with root.resolve(here, follow=True) as place:
                entries, _ = root.entries(place, MAX_LISTED)
        elif folder in ("", ".", root.path) and cwd is None:
            entries, _ = root.entries(None, MAX_LISTED)
        else:
            return []
    except FileFault:
        return []
    return [f"{folder}/{entry.name}" if folder else entry.name for entry in entries if fnmatchcase(entry.name, name)]


def _digest(root: Root, path: WorkspacePath, limits: WorkspaceLimits) -> str | None:
    try:
        with root.resolve(path, follow=True) as place:
            return root.digest(place, limits.max_pinned_bytes)
    except FileFault:
        return None


def _inside(script: str, cwd: WorkspacePath | None, root: Root) -> WorkspacePath | None:
    """A command sees the workspace at its real path, so a path from the machine's root may lead into it."""
    if script.startswith("~"):
        return None
    absolute = normpath(f"{root.path}/{cwd or '.'}/{script}" if not script.startswith("/") else script)
    beneath = root.path.rstrip("/") + "/"
    try:
        return parse_path(absolute.removeprefix(beneath)) if absolute.startswith(beneath) else None
    except BadPath:
        return None


def _command(
    operation: ShellOperation, cwd: WorkspacePath | None, verdict: Verdict, pinned: Pinned
) -> tuple[Block, ...]:
    reading: Reading = read(operation.command, operation.env)
    shown = [
        blocks.command(operation.command, "command"),
        blocks.text(reading.describe(), "as it was read"),
        blocks.facts(
            f"rule: {verdict.rule}: {verdict.reason}", f"cwd: {cwd or '.'}", f"timeout: {operation.timeout:g} ms"
        ),
    ]
    if operation.env:
        shown.append(blocks.facts(*(f"{name}={value}" for name, value in sorted(operation.env.items())), title="env"))
    if pinned.files:
        files = (f"{name}  {_now(digest)}" for name, digest in sorted(pinned.files.items()))
        shown.append(blocks.facts(*files, title="files it runs, as they are now (it is asked anew when one changes)"))
    loaded = [f"{name}  {_now(digest)}" for name, digest in sorted(pinned.loads.items()) if digest != ABSENT]
    if loaded:
        shown.append(blocks.facts(*loaded, title="files it may load, as they are now (compared when it starts)"))
    if pinned.unpinned:
        shown.append(blocks.facts(*pinned.unpinned, title="files it runs that cannot be pinned"))
    if reading.more:
        shown.append(blocks.facts(*reading.more, title="it runs more than is shown here"))
    return tuple(shown)


def _now(digest: str) -> str:
    return "not there now; what is there by then runs" if digest == ABSENT else f"sha256 {digest}"


def _file(operation: Operation, path: str, before: bytes | None) -> Block:
    match operation:
        case CreateFileOperation():
            return _diff(before, content_of(operation), path)
        case DeleteFileOperation():
            return _diff(before, None, path)
        case EditFileOperation():
            try:
                return _diff(before, edit_bytes(before or b"", operation.edits)[0], path)
            except EditFault as error:
                return blocks.text(f"it would fail: {error}")
        case ReadFileOperation():
            return blocks.text(f"{len(before or b'')} bytes would be read")
        case MessageOperation() | ShellOperation():
            raise AssertionError("no file operation")


def _diff(before: bytes | None, after: bytes | None, path: str) -> Block:
    """A unified diff; of what is no text, sizes and digests."""
    try:
        old, new = (_lines((data or b"").decode()) for data in (before, after))
    except UnicodeDecodeError:
        return blocks.facts(f"before: {_binary(before)}", f"after:  {_binary(after)}")
    names = ("/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}")
    if len(old) + len(new) <= MAX_COMPARED_LINES:
        lines = difflib.unified_diff(old, new, *names)
    else:
        lines = iter(_whole(old, new, *names))
    ended = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return blocks.diff("".join(ended))


def _lines(text: str) -> list[str]:
    # Not `splitlines`, which also splits at form feeds and at line separators of Unicode.
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _whole(old: list[str], new: list[str], old_name: str, new_name: str) -> list[str]:
    """One hunk from the first to the last line that differs: linear, whatever the files are."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    if not gone and not come:
        return []
    place = f"@@ -{head + bool(gone)},{len(gone)} +{head + bool(come)},{len(come)} @@\n"
    return [
        f"--- {old_name}\n",
        f"+++ {new_name}\n",
        place,
        *(f"-{line}" for line in gone),
        *(f"+{line}" for line in come),
    ]


def _binary(data: bytes | None) -> str:
    return "nothing" if data is None else f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}"


def what_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Why an approval no longer holds, in one sentence for the person who gave it."""
    if old.get("policy") != new.get("policy"):
        return "the policy changed since it was approved"
    if old.get("resolved") != new.get("resolved"):
        return "its path leads elsewhere since it was approved"
    before, after = ({**(bound.get("loads") or {}), **(bound.get("files") or {})} for bound in (old, new))
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    if changed:
        return f"{', '.join(changed)} changed since it was approved"
    return "what it rests on changed since it was approved"
