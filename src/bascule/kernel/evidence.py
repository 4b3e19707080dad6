"""Evidence: what a desktop call leaves in the workspace, written so that nobody can make us write elsewhere.

Contract 2.1: a workspace must lie within WORKSPACE_ROOT. Comparing texts is not enough: "/ws-evil" begins with "/ws",
and a program in the workspace can put a link where a directory was a moment ago. So the root is opened once,
and everything below it is opened step by step from there, following no link.
"""

import contextlib
import hashlib
import os
import re
import stat
import threading
from collections.abc import Iterator
from typing import Any, Final

from bascule.foundation.clock import Clock, rfc3339
from gabp import codec

# A day's work with a desktop is a few hundred executions of about a hundred kilobytes.
MAX_WORKSPACE_BYTES: Final = 1024 * 1024 * 1024
MAX_EXECUTIONS: Final = 20_000
# A screen of noise is 8 MB as PNG, and an action has two.
MAX_FILE_BYTES: Final = 64 * 1024 * 1024
MAX_INDEX_BYTES: Final = 8 * 1024 * 1024

INDEX: Final = "index.ndjson"
FOLDERS: Final = ("artifacts", "desktop")
# Everything we write; whatever else lies in a folder is not ours to remove.
FILES: Final = frozenset(
    ("observe.png", "marks.png", "before.png", "after.png", "ax.json", "trace.jsonl", "result.json", "snapshot.txt")
)

DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
EXECUTION: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class WorkspaceForbidden(Exception):
    """The path is not a directory within the root, or does not stay one."""


class EvidenceRoot:
    """WORKSPACE_ROOT, opened once: moving or replacing the name later changes nothing."""

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path, strict=True)
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._descriptor)

    def resolve(self, path: str) -> str:
        """`realpath(workspacePath)` if it is in the root, component by component; raises WorkspaceForbidden."""
        if not os.path.isabs(path) or "\0" in path:
            raise WorkspaceForbidden("workspacePath must be an absolute path")
        try:
            real = os.path.realpath(path, strict=True)
        except OSError as error:
            raise WorkspaceForbidden(f"workspacePath cannot be opened: {error.strerror}") from error
        if real != self.path and os.path.commonpath((real, self.path)) != self.path:
            raise WorkspaceForbidden("workspacePath is not within WORKSPACE_ROOT")
        return real

    def open(self, real: str) -> int:
        """A descriptor of a directory that `resolve` gave, reached from the root without following a link."""
        steps = [] if real == self.path else os.path.relpath(real, self.path).split(os.sep)
        try:
            return descend(self._descriptor, steps)
        except OSError as error:
            raise WorkspaceForbidden(f"workspacePath changed while it was opened: {error.strerror}") from error


class Evidence:
    """The folders of one workspace."""

    def __init__(
        self,
        root: EvidenceRoot,
        workspace: str,
        clock: Clock,
        *,
        max_bytes: int = MAX_WORKSPACE_BYTES,
        max_executions: int = MAX_EXECUTIONS,
    ) -> None:
        self._root = root
        self.workspace = workspace
        self._clock = clock
        self._max_bytes = max_bytes
        self._max_executions = max_executions
        # Every execution there is, the oldest first, with its size; read once, then kept.
        self._kept: dict[tuple[str, str], int] | None = None
        # Executions of one workspace end beside each other, each in a thread of its own.
        self._counting = threading.Lock()

    def folder(self, execution_id: str) -> "Folder":
        day = rfc3339(self._clock.wall_ms())[:10]
        return Folder(self, day, execution_id)

    @contextlib.contextmanager
    def desktop(self, *, make: bool = False) -> Iterator[int]:
        """A descriptor of `artifacts/desktop`."""
        workspace = self._root.open(self.workspace)
        try:
            try:
                descriptor = descend(workspace, FOLDERS, make=make)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise WorkspaceForbidden(
                    f"{'/'.join(FOLDERS)} in the workspace is not a plain directory: {error.strerror}"
                ) from error
        finally:
            os.close(workspace)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def record(self, desktop: int, line: dict[str, Any]) -> None:
        """One line in the index, on disk when this returns."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(INDEX, flags, 0o600, dir_fd=desktop)
        except OSError as error:
            raise WorkspaceForbidden(f"{INDEX} in the workspace is not a plain file: {error.strerror}") from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise WorkspaceForbidden(f"{INDEX} in the workspace is not a plain file")
            os.write(descriptor, codec.encode(line) + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if status.st_size > MAX_INDEX_BYTES:
            os.replace(INDEX, INDEX + ".1", src_dir_fd=desktop, dst_dir_fd=desktop)

    def keep_within_quota(self, desktop: int, day: str, execution_id: str, size: int) -> int:
        """Count the new execution and remove the oldest ones over the limits; how many were removed."""
        with self._counting:
            return self._remove_oldest(desktop, day, execution_id, size)

    def _remove_oldest(self, desktop: int, day: str, execution_id: str, size: int) -> int:
        if self._kept is None:
            self._kept = dict(_executions(desktop))
        self._kept[day, execution_id] = size
        total = sum(self._kept.values())
        removed = 0
        for oldest in list(self._kept):
            if total <= self._max_bytes and len(self._kept) <= self._max_executions:
                break
            if oldest == (day, execution_id):
                break
            total -= self._kept.pop(oldest)
            removed += _remove(desktop, *oldest)
        return removed


class Folder:
    """`YYYY-MM-DD/<executionId>/`: made at the first file, closed by `finish`."""

    def __init__(self, evidence: Evidence, day: str, execution_id: str) -> None:
        self._evidence = evidence
        self._day = day
        self.execution_id = execution_id
        self._digests: dict[str, str] = {}
        self._size = 0

    @property
    def path(self) -> str:
        """As the contract shows it: absolute, with `/` at its end."""
        return os.path.join(self._evidence.workspace, *FOLDERS, self._day, self.execution_id, "")

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._digests)

    def write(self, name: str, data: bytes) -> None:
        """A new file, on disk when this returns. Raises WorkspaceForbidden or OSError (a full disk)."""
        if name not in FILES:
            raise ValueError(f"{name!r} is not a file of evidence")
        if len(data) > MAX_FILE_BYTES:
            raise OSError(f"{name} of {len(data)} bytes is over the limit of {MAX_FILE_BYTES}")
        with self._evidence.desktop(make=True) as desktop:
            folder = descend(desktop, (self._day, self.execution_id), make=True)
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(name, flags, 0o600, dir_fd=folder)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(descriptor)
                os.fsync(folder)
            finally:
                os.close(folder)
        self._digests[name] = hashlib.sha256(data).hexdigest()
        self._size += len(data)

    def finish(self, result: dict[str, Any], trace: list[dict[str, Any]], line: dict[str, Any]) -> None:
        """The last files, with the digests of the others, and the line in the index with theirs."""
        if trace:
            self.write("trace.jsonl", b"".join(codec.encode(each) + b"\n" for each in trace))
        body = codec.encode({**result, "files": dict(self._digests)})
        self.write("result.json", body)
        with self._evidence.desktop() as desktop:
            removed = self._evidence.keep_within_quota(desktop, self._day, self.execution_id, self._size)
            if removed:
                line = {**line, "removedOldest": removed}
            digest = hashlib.sha256(body).hexdigest()
            self._evidence.record(desktop, {**line, "folder": f"{self._day}/{self.execution_id}", "result": digest})


def descend(start: int, steps: "tuple[str, ...] | list[str]", *, make: bool = False) -> int:
    """Open a directory step by step, each time from the one before, never through a link."""
    at = os.dup(start)
    try:
        for step in steps:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(step, 0o700, dir_fd=at)
                    os.fsync(at)
            below = os.open(step, _DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
    except OSError:
        os.close(at)
        raise
    return at


def _executions(desktop: int) -> Iterator[tuple[tuple[str, str], int]]:
    """Every execution with its size, the oldest first."""
    for day in sorted(each for each in os.listdir(desktop) if DAY.match(each)):
        try:
            folder = descend(desktop, (day,))
        except OSError:
            continue
        try:
            found = [(entry.stat(follow_symlinks=False).st_mtime_ns, entry.name) for entry in os.scandir(folder)]
            for _, name in sorted(each for each in found if EXECUTION.match(each[1])):
                yield (day, name), _size(folder, name)
        finally:
            os.close(folder)


def _size(folder: int, name: str) -> int:
    total = 0
    with contextlib.suppress(OSError):
        inner = descend(folder, (name,))
        try:
            for each in os.listdir(inner):
                total += os.stat(each, dir_fd=inner, follow_symlinks=False).st_size
        finally:
            os.close(inner)
    return total


def _remove(desktop: int, day: str, execution_id: str) -> bool:
    """Our own files and the folder; what somebody else put there stays, and its folder with it."""
    with contextlib.suppress(OSError):
        outer = descend(desktop, (day,))
        try:
            inner = descend(outer, (execution_id,))
            try:
                for name in FILES.intersection(os.listdir(inner)):
                    os.unlink(name, dir_fd=inner)
            finally:
                os.close(inner)
            os.rmdir(execution_id, dir_fd=outer)
        finally:
            os.close(outer)
        with contextlib.suppress(OSError):
            os.rmdir(day, dir_fd=desktop)
        return True
    return False
