"""What changed, for people and agents: a list of paths, and a diff that `git apply` takes."""

import stat
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from bascule.workspace.lines import Budget, Change, changes
from bascule.workspace.machine.checkpoints.compare import Difference
from bascule.workspace.machine.checkpoints.objects import Entry, gap_reason
from bascule.workspace.machine.checkpoints.store import ObjectStore
from bascule.workspace.protocol import FileChange, PathReason
from gabp.text import is_plain

# Larger files are told to differ and not compared by lines.
MAX_COMPARED_BYTES = 4 * 1024 * 1024
# Beyond, paths are listed without counting their lines: an installed dependency has thousands of files.
MAX_COUNTED = 5_000
CONTEXT = 3

_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r", '"': '\\"', "\\": "\\\\"}

_Kind = Literal["added", "modified", "deleted", "mode", "type"]


class _Sides(NamedTuple):
    """Both contents as lines that keep their endings; None when they are not text to compare."""

    old: list[str]
    new: list[str]


def shown_path(path: bytes, entry: Entry | None = None) -> str:
    """Names are bytes; those that are no UTF-8 are shown escaped."""
    text = path.decode("utf-8", "backslashreplace")
    return f"{text}/" if entry is not None and entry.is_dir else text


def unknown_paths(store: ObjectStore, found: Sequence[Difference]) -> list[PathReason]:
    """What the trees do not hold and may have changed, with the reason."""
    gaps = ((difference.path, difference.gap) for difference in found)
    return [
        PathReason(path=shown_path(path), reason=gap_reason(store.blob(gap.object)))
        for path, gap in gaps
        if gap is not None
    ]


def known(found: Sequence[Difference]) -> list[Difference]:
    return [difference for difference in found if difference.gap is None]


def file_changes(store: ObjectStore, found: Sequence[Difference]) -> list[FileChange]:
    budget = Budget()
    listed = list(_listed(found))
    counted = [_file_change(store, difference, budget) for difference in listed[:MAX_COUNTED]]
    return counted + [
        FileChange(path=shown_path(difference.path, difference.new or difference.old), change=_kind(difference))
        for difference in listed[MAX_COUNTED:]
    ]


def unified_diff(store: ObjectStore, found: Sequence[Difference], max_chars: int) -> tuple[str, bool]:
    """The diff, and whether it was cut: at a line, so that what is there is whole."""
    budget = Budget()
    pieces: list[str] = []
    total = 0
    for difference in _listed(found):
        for line in _diff(store, difference, budget):
            total += len(line)
            if total > max_chars:
                return "".join(pieces), True
            pieces.append(line)
    return "".join(pieces), False


def _listed(found: Sequence[Difference]) -> Iterator[Difference]:
    """Without directories that come or go with what is in them."""
    for number, difference in enumerate(found):
        old, new = difference.old, difference.new
        come_or_gone = (old is None or old.is_dir) and (new is None or new.is_dir) and (old is None or new is None)
        if come_or_gone and number + 1 < len(found):
            following = found[number + 1]
            same_side = (following.old is None) == (old is None)
            if following.path.startswith(difference.path + b"/") and same_side:
                continue
        yield difference


def _kind(difference: Difference) -> _Kind:
    old, new = difference.old, difference.new
    if old is None:
        return "added"
    if new is None:
        return "deleted"
    if old.mode >> 12 != new.mode >> 12:
        return "type"
    return "mode" if old.object == new.object else "modified"


def _file_change(store: ObjectStore, difference: Difference, budget: Budget) -> FileChange:
    kind = _kind(difference)
    path = shown_path(difference.path, difference.new or difference.old)
    if kind == "mode" or _is_dir_only(difference):
        return FileChange(path=path, change=kind)
    sides = _sides(store, difference)
    if sides is None:
        return FileChange(path=path, change=kind, binary=True)
    steps = changes(sides.old, sides.new, budget)
    return FileChange(
        path=path,
        change=kind,
        added=sum(step.new_end - step.new_start for step in steps),
        removed=sum(step.old_end - step.old_start for step in steps),
    )


def _is_dir_only(difference: Difference) -> bool:
    return all(entry is None or entry.is_dir for entry in (difference.old, difference.new))


def _sides(store: ObjectStore, difference: Difference) -> _Sides | None:
    sides = []
    if difference.gap is not None:
        return None
    for entry in (difference.old, difference.new):
        data = store.content(entry) if entry is not None and not entry.is_dir else b""
        if len(data) > MAX_COMPARED_BYTES or b"\0" in data:
            return None
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return None
        # Not `splitlines`: a form feed ends no line.
        lines = [f"{line}\n" for line in text.split("\n")]
        last = lines.pop()
        if last != "\n":
            lines.append(last[:-1])
        sides.append(lines)
    return _Sides(*sides)


def _diff(store: ObjectStore, difference: Difference, budget: Budget) -> Iterator[str]:
    old, new = difference.old, difference.new
    if old is not None and new is not None and old.mode >> 12 != new.mode >> 12:
        # As git does: one thing goes, another comes.
        yield from _diff(store, Difference(difference.path, old, None), budget)
        yield from _diff(store, Difference(difference.path, None, new), budget)
        return
    before, after = _quoted(b"a/" + difference.path), _quoted(b"b/" + difference.path)
    if _is_dir_only(difference):
        # Git has no words for an empty directory or a directory's mode; a patch program skips this line.
        yield _directory_line(difference)
        return
    if old is not None and new is not None and old.mode == new.mode and _same_content(store, old, new):
        # A patch program skips this line, too.
        yield f"# attributes of {_quoted(difference.path)} changed\n"
        return
    yield f"diff --git {before} {after}\n"
    yield from _mode_lines(old, new)
    if old is not None and new is not None and old.object == new.object:
        return
    sides = _sides(store, difference)
    if sides is None:
        yield f"Binary files {before if old else '/dev/null'} and {after if new else '/dev/null'} differ\n"
        return
    steps = changes(sides.old, sides.new, budget)
    if steps:
        yield f"--- {before if old else '/dev/null'}\n"
        yield f"+++ {after if new else '/dev/null'}\n"
        for hunk in _hunks(steps):
            yield from _hunk_lines(hunk, sides)


def _same_content(store: ObjectStore, old: Entry, new: Entry) -> bool:
    return (old.dressed or new.dressed) and store.dressed(old)[0] == store.dressed(new)[0]


def _directory_line(difference: Difference) -> str:
    name = _quoted(difference.path + b"/")
    old, new = difference.old, difference.new
    if old is None:
        return f"# directory {name} added\n"
    if new is None:
        return f"# directory {name} deleted\n"
    return f"# directory {name} mode {stat.S_IMODE(old.mode):04o} to {stat.S_IMODE(new.mode):04o}\n"


def _mode_lines(old: Entry | None, new: Entry | None) -> Iterator[str]:
    if old is None and new is not None:
        yield f"new file mode {new.mode:06o}\n"
    elif new is None and old is not None:
        yield f"deleted file mode {old.mode:06o}\n"
    elif old is not None and new is not None and old.mode != new.mode:
        yield f"old mode {old.mode:06o}\n"
        yield f"new mode {new.mode:06o}\n"


def _hunks(steps: list[Change]) -> list[list[Change]]:
    """Changes whose surroundings touch stand in one hunk."""
    hunks: list[list[Change]] = []
    for step in steps:
        if hunks and step.old_start - hunks[-1][-1].old_end <= 2 * CONTEXT:
            hunks[-1].append(step)
        else:
            hunks.append([step])
    return hunks


def _hunk_lines(hunk: list[Change], sides: _Sides) -> Iterator[str]:
    before = min(CONTEXT, hunk[0].old_start)
    after = min(CONTEXT, len(sides.old) - hunk[-1].old_end)
    old_start, old_end = hunk[0].old_start - before, hunk[-1].old_end + after
    new_start, new_end = hunk[0].new_start - before, hunk[-1].new_end + after
    yield f"@@ -{_range(old_start, old_end)} +{_range(new_start, new_end)} @@\n"
    at = old_start
    for step in hunk:
        yield from _marked(" ", sides.old[at : step.old_start])
        yield from _marked("-", sides.old[step.old_start : step.old_end])
        yield from _marked("+", sides.new[step.new_start : step.new_end])
        at = step.old_end
    yield from _marked(" ", sides.old[at:old_end])


def _range(start: int, end: int) -> str:
    if start == end:
        # Nothing, after this line.
        return f"{start},0"
    return f"{start + 1}" if end - start == 1 else f"{start + 1},{end - start}"


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line
        if not line.endswith("\n"):
            yield "\n\\ No newline at end of file\n"


def _quoted(path: bytes) -> str:
    """As git quotes names that would break a line."""
    text = path.decode("utf-8", "surrogateescape")
    if is_plain(text) and '"' not in text and "\\" not in text and not text.endswith(" "):
        return text
    escaped = "".join(_escape(letter) for letter in text)
    return f'"{escaped}"'


def _escape(letter: str) -> str:
    if letter in _SHORT:
        return _SHORT[letter]
    if is_plain(letter):
        return letter
    return "".join(f"\\{byte:03o}" for byte in letter.encode("utf-8", "surrogateescape"))
