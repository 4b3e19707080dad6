"""Evidence, read: folders that lie in workspaces, where agents write too.

Everything is opened step by step from the root, through no link, and a file only where it is a plain one with one name.
What stands in it is somebody's: sizes, lines and depth are bounded before it is parsed.
"""

import contextlib
import hashlib
import heapq
import os
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from bascule.desktop.ports import EvidenceGone, Execution, Shown
from bascule.foundation import png
from bascule.foundation.clock import SystemClock
from bascule.kernel.evidence import (
    DAY,
    EXECUTION,
    FILES,
    MAX_EXECUTIONS,
    Evidence,
    EvidenceRoot,
    WorkspaceForbidden,
    descend,
)
from gabp import codec

# Ten years of days; folders that are named like days of other times are an agent's.
MAX_DAYS: Final = 4_000
# The first lines of a trace name the app.
_TRACE_HEAD_BYTES: Final = 8 * 1024

_PLAIN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Day, time of the last change in ns, execution id, workspace: the order of lists.
_Found = tuple[str, int, str, str]


class ReadLimits(NamedTuple):
    """What of a file is read at all."""

    # What the host writes of an execution is some kilobytes.
    result_bytes: int = 256 * 1024
    trace_bytes: int = 1024 * 1024
    trace_lines: int = 2_000
    # 20,000 elements with their titles; more than a page shows of a window.
    tree_bytes: int = 8 * 1024 * 1024
    # Values in one file of JSON. Eight megabytes of `[],` are 200 MB in memory, and seconds in which nothing else
    # happens; an element has some twenty values.
    values: int = 500_000
    # A screen of noise is 8 MB.
    picture_bytes: int = 16 * 1024 * 1024
    # Of a picture, as its header says: eight screens beside each other. A browser unpacks it into memory, 4 bytes a
    # pixel.
    picture_pixels: int = 64 * 1024 * 1024


READ_LIMITS: Final = ReadLimits()


class EvidenceFiles:
    """Blocking; for a thread."""

    def __init__(self, root: str, own: str, limits: ReadLimits = READ_LIMITS) -> None:
        self._root = root
        self._own = own
        self._limits = limits

    def newest(self, workspaces: Sequence[str], before: str | None, limit: int) -> list[Execution]:
        with contextlib.ExitStack() as open_folders:
            folders = self._open(workspaces, open_folders)
            cut = _find(folders, before) if before is not None else None
            streams = [_newest(folder, workspace, cut) for workspace, folder in folders.items()]
            merged = heapq.merge(*streams, reverse=True)
            return [_execution(folders[found[3]], found, self._limits) for found in islice(merged, limit)]

    def show(self, workspaces: Sequence[str], execution_id: str) -> Shown:
        with contextlib.ExitStack() as open_folders:
            folders = self._open(workspaces, open_folders)
            found = _find(folders, execution_id)
            with _folder(folders[found[3]], found) as folder:
                return _shown(folder, _about(folder, found, self._limits), self._limits)

    def picture(self, workspaces: Sequence[str], execution_id: str, name: str) -> bytes:
        with contextlib.ExitStack() as open_folders:
            folders = self._open(workspaces, open_folders)
            found = _find(folders, execution_id)
            with _folder(folders[found[3]], found) as folder:
                return _picture(folder, name, self._limits)

    def _open(self, workspaces: Sequence[str], stack: contextlib.ExitStack) -> dict[str, int]:
        """`artifacts/desktop` of each workspace that has one."""
        folders: dict[str, int] = {}
        try:
            root = EvidenceRoot(self._root)
        except OSError:
            return folders
        stack.callback(root.close)
        for workspace in dict.fromkeys((self._own, *workspaces)):
            with contextlib.suppress(WorkspaceForbidden, OSError):
                evidence = Evidence(root, root.resolve(workspace), SystemClock())
                folders[workspace] = stack.enter_context(evidence.desktop())
        return folders


# -- finding --------------------------------------------------------------------------------------


def _days(desktop: int) -> list[str]:
    return sorted((each for each in os.listdir(desktop) if DAY.match(each)), reverse=True)[:MAX_DAYS]


def _newest(desktop: int, workspace: str, before: _Found | None) -> Iterator[_Found]:
    for day in _days(desktop):
        if before is not None and day > before[0]:
            continue
        try:
            folder = descend(desktop, (day,))
        except OSError:
            # A link or a file in the place of a day.
            continue
        try:
            found: list[_Found] = []
            with os.scandir(folder) as entries:
                for entry in islice(entries, MAX_EXECUTIONS):
                    if EXECUTION.match(entry.name) and entry.is_dir(follow_symlinks=False):
                        changed = entry.stat(follow_symlinks=False).st_mtime_ns
                        found.append((day, changed, entry.name, workspace))
        except OSError:
            continue
        finally:
            os.close(folder)
        found.sort(reverse=True)
        yield from (each for each in found if before is None or each < before)


def _find(folders: dict[str, int], execution_id: str) -> _Found:
    if EXECUTION.match(execution_id):
        for workspace, desktop in folders.items():
            for day in _days(desktop):
                with contextlib.suppress(OSError):
                    folder = descend(desktop, (day, execution_id))
                    try:
                        return day, os.fstat(folder).st_mtime_ns, execution_id, workspace
                    finally:
                        os.close(folder)
    raise EvidenceGone(execution_id)


@contextlib.contextmanager
def _folder(desktop: int, found: _Found) -> Iterator[int]:
    try:
        folder = descend(desktop, (found[0], found[2]))
    except OSError:
        raise EvidenceGone(found[2]) from None
    try:
        yield folder
    finally:
        os.close(folder)


# -- reading --------------------------------------------------------------------------------------


@contextlib.contextmanager
def _plain_file(folder: int, name: str) -> Iterator[int | None]:
    """A descriptor of a plain file with one name, or None."""
    try:
        descriptor = os.open(name, _PLAIN, dir_fd=folder)
    except (OSError, ValueError):
        # A name with a NUL is nobody's.
        yield None
        return
    try:
        status = os.fstat(descriptor)
        yield descriptor if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 else None
    finally:
        os.close(descriptor)


def _read(folder: int, name: str, limit: int) -> bytes | None:
    """None where there is none, or it is larger."""
    with _plain_file(folder, name) as file:
        if file is None or os.fstat(file).st_size > limit:
            return None
        data = _first(file, limit + 1)
    return data if len(data) <= limit else None


def _first(file: int, size: int) -> bytes:
    """Read in pieces: one call may give less."""
    pieces = []
    while size > 0 and (piece := os.read(file, size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _execution(desktop: int, found: _Found, limits: ReadLimits) -> Execution:
    try:
        with _folder(desktop, found) as folder:
            return _about(folder, found, limits)
    except EvidenceGone:
        # Rotated away since it was listed.
        return Execution(execution_id=found[2], workspace=found[3], day=found[0])


def _about(folder: int, found: _Found, limits: ReadLimits) -> Execution:
    result = _json(_read(folder, "result.json", limits.result_bytes), limits)
    result = result if isinstance(result, dict) else {}
    done, error = result.get("result"), result.get("error")
    return Execution(
        execution_id=found[2],
        workspace=found[3],
        day=found[0],
        method=_text(result.get("method")),
        app=_app(folder, limits),
        at=_text(result.get("at")),
        client=_text(result.get("client")),
        effect=_text(done.get("effect")) if isinstance(done, dict) else None,
        error=_text(error.get("code")) if isinstance(error, dict) else None,
        files=_sizes(folder),
    )


def _shown(folder: int, about: Execution, limits: ReadLimits) -> Shown:
    result_text = _read(folder, "result.json", limits.result_bytes)
    trace_text = _read(folder, "trace.jsonl", limits.trace_bytes)
    tree_text = _read(folder, "ax.json", limits.tree_bytes)
    texts = {"result.json": result_text, "trace.jsonl": trace_text, "ax.json": tree_text}
    result, tree = _json(result_text, limits), _json(tree_text, limits)
    lines = (trace_text or b"").splitlines()
    trace = [_json(line, limits) for line in lines[: limits.trace_lines]]
    left_out = [name for name, _ in about.files if name in texts and texts[name] is None]
    if result is None and result_text is not None:
        left_out.append("result.json")
    if None in trace or len(lines) > limits.trace_lines:
        left_out.append("trace.jsonl")
    if tree is None and tree_text is not None:
        left_out.append("ax.json")
    return Shown(
        about=about,
        result=result,
        trace=[each for each in trace if each is not None],
        tree=tree,
        left_out=left_out,
        changed=_changed(folder, result, limits),
    )


def _picture(folder: int, name: str, limits: ReadLimits) -> bytes:
    """By its beginning and its size; what else is in it is the browser's to read, and nothing there is executed."""
    if name not in FILES or not name.endswith(".png"):
        raise EvidenceGone(name)
    data = _read(folder, name, limits.picture_bytes)
    if data is None or not 0 < png.pixels(data) <= limits.picture_pixels:
        raise EvidenceGone(name)
    return data


def _changed(folder: int, result: Any, limits: ReadLimits) -> list[str]:
    """By the digests that the host took when it wrote them."""
    digests = result.get("files") if isinstance(result, dict) else None
    if not isinstance(digests, dict):
        return []
    changed = []
    for name in sorted(FILES.intersection(digests)):
        data = _read(folder, name, limits.picture_bytes)
        if data is None or hashlib.sha256(data).hexdigest() != digests[name]:
            changed.append(name)
    return changed


def _app(folder: int, limits: ReadLimits) -> str | None:
    # Larger traces are read to here alone.
    for line in (_head(folder, "trace.jsonl") or b"").splitlines():
        step = _json(line, limits)
        if isinstance(step, dict) and step.get("step") == "route":
            return _text(step.get("bundleId"))
    return None


def _head(folder: int, name: str) -> bytes | None:
    with _plain_file(folder, name) as file:
        return None if file is None else _first(file, _TRACE_HEAD_BYTES)


def _sizes(folder: int) -> list[tuple[str, int]]:
    found = []
    for name in sorted(FILES):
        with contextlib.suppress(OSError):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                found.append((name, status.st_size))
    return found


def _json(text: bytes | None, limits: ReadLimits) -> Any:
    # Counted without reading it: those inside of texts count too.
    if text is None or sum(map(text.count, (b",", b"[", b"{"))) > limits.values:
        return None
    try:
        return codec.decode(text)
    except codec.BadJson:
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
