"""Reading a workspace into a tree of objects.

Everything is opened beneath the root's descriptor and no link is followed, so a process that swaps names meanwhile
cannot make a checkpoint hold what is outside. `.git` (any repository's own record) and `artifacts/` are left out;
pipes, sockets, devices and other mounts are skipped and listed.
"""

import contextlib
import errno
import os
import shutil
import stat
import time

import msgspec

from bascule.adapters.checkpoints.objects import BLOB, TREE, Entry, ObjectId, kept_mode, write_tree
from bascule.adapters.checkpoints.stats import FileStat, Node, remember
from bascule.adapters.checkpoints.store import ObjectStore
from bascule.adapters.files import temporary
from bascule.adapters.files.root import ARTIFACTS, WorkspaceRoot
from bascule.bridges.workspace.ports import CheckpointFault

# Git's own record: huge, and git has its own ways to go back.
GIT = ".git"
# A log that is written all the time is taken as it is in the end.
MAX_READS = 5
MAX_SKIPPED = 100

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint may hold; beyond, a run is not undoable, and says so.

    The first checkpoint of a workspace at these limits takes half a minute, and later ones under a second.
    """

    files: int = 100_000
    bytes: int = 1024 * 1024 * 1024
    file_bytes: int = 64 * 1024 * 1024
    # A descriptor is held for each level.
    depth: int = 200


class Scan:
    """One pass over a workspace. The caller holds the store's lock, and flushes it."""

    def __init__(self, root: WorkspaceRoot, store: ObjectStore, limits: Limits) -> None:
        self._root = root
        self._store = store
        self._limits = limits
        self._files = 0
        self._bytes = 0
        self._steps: list[str] = []
        self.skipped: list[str] = []
        # Every `.git`, with its inode.
        self.repositories: dict[str, int] = {}
        # Files read, whether or not they turned out to be new.
        self.read = 0

    def run(self, last: Node | None) -> Node:
        descriptor = self._root.opener.open(self._root.fileno(), ".", _DIRECTORY)
        try:
            return self._directory(descriptor, last, 0o755 | stat.S_IFDIR)
        except OSError as error:
            raise self._not_undoable(f"cannot be read: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def _directory(self, descriptor: int, last: Node | None, mode: int) -> Node:
        if len(self._steps) > self._limits.depth:
            raise self._not_undoable(f"lies deeper than {self._limits.depth} directories")
        files: dict[str, FileStat] = {}
        below: list[tuple[str, int]] = []
        known = last.files if last is not None else {}
        changed = last is None
        with os.scandir(descriptor) as entries:
            for entry in entries:
                name = entry.name
                if self._is_left_out(entry):
                    continue
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                before = known.get(name)
                if before is not None and _untouched(before, found):
                    self._count(name, before.size)
                    files[name] = before
                elif temporary.is_temporary(name):
                    self._sweep(descriptor, name, found)
                elif stat.S_ISDIR(found.st_mode):
                    below.append((name, kept_mode(found.st_mode)))
                else:
                    now = self._file(descriptor, name, found)
                    if now is not None:
                        files[name] = now
                        changed = changed or before is None or not _same(before, now)
        directories = self._directories(descriptor, below, last)
        if last is not None and not changed and len(files) == len(known) and _same_below(last, directories):
            return Node(mode, last.tree, files, directories)
        return Node(mode, self._tree(files, directories), files, directories)

    def _is_left_out(self, entry: os.DirEntry[str]) -> bool:
        if entry.name == GIT:
            self.repositories["/".join((*self._steps, GIT))] = entry.inode()
            return True
        return entry.name == ARTIFACTS and not self._steps

    def _directories(self, descriptor: int, names: list[tuple[str, int]], last: Node | None) -> dict[str, Node]:
        directories: dict[str, Node] = {}
        for name, mode in names:
            self._count(name, 0)
            self._steps.append(name)
            try:
                child = self._root.opener.open(descriptor, name, _DIRECTORY, links=False)
            except OSError as error:
                if error.errno == errno.EXDEV:
                    self._skip()
                elif error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    raise self._not_undoable(f"cannot be read: {error.strerror}") from error
                self._steps.pop()
                continue
            try:
                directories[name] = self._directory(child, last and last.directories.get(name), mode)
            finally:
                os.close(child)
            self._steps.pop()
        return directories

    def _tree(self, files: dict[str, FileStat], directories: dict[str, Node]) -> ObjectId:
        entries = {os.fsencode(name): Entry(kept_mode(file.mode), file.object) for name, file in files.items()}
        entries.update((os.fsencode(name), Entry(node.mode, node.tree)) for name, node in directories.items())
        return self._store.add(TREE, write_tree(entries))

    def _file(self, directory: int, name: str, found: os.stat_result) -> FileStat | None:
        """Its content as an object; None when it is gone or nothing that can be kept."""
        for _ in range(MAX_READS):
            kind = stat.S_IFMT(found.st_mode)
            try:
                if kind == stat.S_IFREG:
                    kept = self._regular(directory, name)
                elif kind == stat.S_IFLNK:
                    kept = self._link(directory, name, found)
                else:
                    self._steps.append(name)
                    self._skip()
                    self._steps.pop()
                    return None
                if kept is not None:
                    self._count(name, kept.size)
                    return kept
                found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                return None
            except OSError as error:
                self._steps.append(name)
                if error.errno == errno.EXDEV:
                    self._skip()
                    self._steps.pop()
                    return None
                raise self._not_undoable(f"cannot be read: {error.strerror}") from error
        self._steps.append(name)
        raise self._not_undoable("keeps turning into something else")

    def _regular(self, directory: int, name: str) -> FileStat | None:
        try:
            descriptor = self._root.opener.open(directory, name, _READ, links=False)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                # It is a link or a socket by now.
                return None
            raise
        try:
            for attempt in range(MAX_READS):
                before = os.fstat(descriptor)
                if not stat.S_ISREG(before.st_mode):
                    return None
                read_at = time.time_ns()
                data = self._content(descriptor, name, before.st_size)
                after = os.fstat(descriptor)
                self.read += 1
                settled = (before.st_mtime_ns, before.st_ctime_ns, before.st_size) == (
                    after.st_mtime_ns,
                    after.st_ctime_ns,
                    after.st_size,
                )
                if settled or attempt == MAX_READS - 1:
                    # Unsettled, it is what was read, and will be read again: its change time is new.
                    return remember(after, read_at, self._store.add(BLOB, data))
                os.lseek(descriptor, 0, os.SEEK_SET)
        finally:
            os.close(descriptor)
        return None

    def _content(self, descriptor: int, name: str, size: int) -> bytes:
        limit = self._limits.file_bytes
        pieces, total = [], 0
        # Of a file that is too large not a byte is read: `truncate -s 1T` costs its maker nothing, and a read takes
        # the memory it is asked for.
        while size <= limit and total <= limit:
            piece = os.read(descriptor, min(max(size - total, 0) + 4_096, limit + 1 - total))
            if not piece:
                break
            pieces.append(piece)
            total += len(piece)
        if max(size, total) > limit:
            self._steps.append(name)
            raise self._not_undoable(f"has more than {limit:,} bytes, which is what a checkpoint holds of one file")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _link(self, directory: int, name: str, found: os.stat_result) -> FileStat | None:
        read_at = time.time_ns()
        try:
            target = os.readlink(name, dir_fd=directory)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return None
            raise
        return remember(found, read_at, self._store.add(BLOB, os.fsencode(target)))

    def _sweep(self, directory: int, name: str, found: os.stat_result) -> None:
        """What a crash left unfinished goes, once nobody can be writing it any more."""
        if not temporary.is_stale(found.st_ctime_ns):
            return
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(found.st_mode):
                shutil.rmtree(name, ignore_errors=True, dir_fd=directory)
            else:
                os.unlink(name, dir_fd=directory)

    def _count(self, name: str, size: int) -> None:
        self._files += 1
        self._bytes += size
        if self._files > self._limits.files:
            raise CheckpointFault(
                f"not undoable because the workspace has more than {self._limits.files:,} files, "
                "which is what a checkpoint holds"
            )
        if self._bytes > self._limits.bytes:
            self._steps.append(name)
            raise CheckpointFault(
                f"not undoable because the workspace has more than {self._limits.bytes:,} bytes, "
                f"which is what a checkpoint holds (reached at `{self._path()}`)"
            )

    def _skip(self) -> None:
        if len(self.skipped) < MAX_SKIPPED:
            self.skipped.append(self._path())

    def _path(self) -> str:
        return os.fsencode("/".join(self._steps)).decode("utf-8", "backslashreplace")

    def _not_undoable(self, why: str) -> CheckpointFault:
        return CheckpointFault(f"not undoable because `{self._path() or '.'}` {why}")


def _untouched(before: FileStat, found: os.stat_result) -> bool:
    return (
        before.ctime == found.st_ctime_ns
        and before.mtime == found.st_mtime_ns
        and before.size == found.st_size
        and before.inode == found.st_ino
        and before.mode == found.st_mode
    )


def _same_below(last: Node, directories: dict[str, Node]) -> bool:
    return directories.keys() == last.directories.keys() and all(
        (node.mode, node.tree) == (last.directories[name].mode, last.directories[name].tree)
        for name, node in directories.items()
    )


def _same(before: FileStat, now: FileStat) -> bool:
    return (kept_mode(before.mode), before.object) == (kept_mode(now.mode), now.object)
