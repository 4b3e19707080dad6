"""Which directories of a workspace changed, as the kernel reports it: inotify, on Linux alone.

A scan adds every directory it enters, before it reads it: whatever changes later is reported, and the next scan enters
those directories alone. Events are read when a scan asks for them. A directory that comes anew or from elsewhere is
entered with all that is in it.

Not reported: what a program writes through a mapping before it unmaps it or ends, and changes by another name of a
file (a hard link), for which the files with several names are looked at one by one. A scan that looks at everything
(for runs of our own) finds both. On network and FUSE file systems others' changes are not reported either: there is no
watch.
"""

import contextlib
import errno
import os
import struct
import sys
import threading
from collections.abc import Callable
from typing import NamedTuple

from bascule.workspace.machine.files import syscalls

# Projects watched at a time. Each takes one of the user's inotify instances, usually 128, and editors need some too.
MAX_WATCHED = 8
# Of the directories that all programs of the user may watch together, this part is ours: editors need the rest.
SHARE = 2
# More than a full queue holds (16,384 events with names): somebody writes faster than we read.
MAX_EVENT_BYTES = 8 * 1024 * 1024
_READ_BYTES = 256 * 1024
_MAX_USER_WATCHES = "/proc/sys/fs/inotify/max_user_watches"
_EVENT = struct.Struct("=iIII")

_ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE_SELF = 0x4, 0x40, 0x80, 0x100, 0x400
_UNMOUNT, _Q_OVERFLOW, _IGNORED, _ISDIR = 0x2000, 0x4000, 0x8000, 0x40000000
# modify, attrib, close_write, moved_from, moved_to, create, delete, delete_self, move_self; of directories alone, and
# not of files that are deleted already.
_MASK = 0x2 | _ATTRIB | 0x8 | _MOVED_FROM | _MOVED_TO | _CREATE | 0x200 | _DELETE_SELF | 0x800
_MASK |= 0x01000000 | 0x04000000
# ext, xfs, btrfs, tmpfs, f2fs, zfs, bcachefs, overlay.
_LOCAL = frozenset(
    [0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E, 0x794C7630]
)  # fmt: skip


class WatchFault(Exception):
    """Why changes cannot be watched."""


class Changed(NamedTuple):
    """Directories, by their path from the root, which is empty itself."""

    # In which something changed, and all that hold one of those.
    dirty: set[str]
    # Of which nothing is known, with all that is beneath.
    anew: set[str]

    def mark(self, path: str) -> None:
        while path not in self.dirty:
            self.dirty.add(path)
            if not path:
                return
            path = path.rpartition("/")[0]


class Watch:
    """Used under the lock of its workspace's checkpoints."""

    def __init__(self, root: int, room: int) -> None:
        """`room`: directories that may be watched."""
        if not sys.platform.startswith("linux"):
            raise WatchFault("changes can be watched on Linux alone")
        kind = syscalls.file_system(root)
        if kind not in _LOCAL:
            raise WatchFault(f"its file system ({kind:#x}) may change without the kernel knowing")
        try:
            self._descriptor = syscalls.inotify_init()
        except OSError as error:
            raise WatchFault(f"{_why(error)} (fs.inotify.max_user_instances)") from error
        self._room = room
        self._paths: dict[int, str] = {}
        # The inode that was added at a path: the same one is not added again.
        self._inodes: dict[str, int] = {}
        # Why it is of no use any more.
        self.problem: str | None = None

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, path: str, descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        if self.problem is not None or self._inodes.get(path) == inode:
            return
        if len(self._paths) >= self._room:
            self._give_up(f"it has more than {self._room:,} directories; raise fs.inotify.max_user_watches")
            return
        try:
            # By its descriptor: whatever its name leads to by now, this one is read.
            number = syscalls.inotify_add_watch(self._descriptor, f"/proc/self/fd/{descriptor}", _MASK)
        except OSError as error:
            hint = "; raise fs.inotify.max_user_watches" if error.errno == errno.ENOSPC else ""
            self._give_up(f"{_why(error)}{hint}")
            return
        moved = self._paths.get(number)
        if moved is not None and moved != path:
            self._inodes.pop(moved, None)
        self._paths[number] = path
        self._inodes[path] = inode

    def changed(self) -> Changed | None:
        """Since the last time; None when that is not known: then everything has to be looked at."""
        found = Changed(set(), set())
        total = 0
        while total <= MAX_EVENT_BYTES and self.problem is None:
            try:
                data = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                return found
            total += len(data)
            at = 0
            while at < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
                at += _EVENT.size + length
                if mask & (_Q_OVERFLOW | _UNMOUNT):
                    self._forget_inodes()
                    return None
                self._event(found, number, mask, name)
        self._forget_inodes()
        return None

    def close(self) -> None:
        self.problem = self.problem or "it is no longer watched"
        self._paths.clear()
        self._inodes.clear()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            # Closing takes all watches along.
            os.close(descriptor)

    def _event(self, found: Changed, number: int, mask: int, name: bytes) -> None:
        path = self._paths.get(number)
        if path is None:
            return
        if mask & _IGNORED:
            del self._paths[number]
            self._inodes.pop(path, None)
            found.mark(path)
            found.anew.add(path)
            return
        found.mark(path)
        if mask & _ISDIR and name and mask & (_CREATE | _MOVED_TO | _MOVED_FROM):
            below = f"{path}/{os.fsdecode(name)}" if path else os.fsdecode(name)
            if mask & _MOVED_FROM:
                self._release(below)
            found.mark(below)
            found.anew.add(below)

    def _release(self, path: str) -> None:
        """A directory went elsewhere with all that is in it; where it is still ours it is added again."""
        beneath = f"{path}/"
        for number, each in list(self._paths.items()):
            if each == path or each.startswith(beneath):
                del self._paths[number]
                self._inodes.pop(each, None)
                with contextlib.suppress(OSError):
                    syscalls.inotify_rm_watch(self._descriptor, number)

    def _forget_inodes(self) -> None:
        """After a loss each directory is added again: one that was replaced may have the inode of the old one."""
        with contextlib.suppress(BlockingIOError):
            while self.problem is None and os.read(self._descriptor, _READ_BYTES):
                pass
        self._inodes.clear()

    def _give_up(self, why: str) -> None:
        self.problem = why
        self.close()


class Watches:
    """Those of all workspaces: the least recently used one makes room."""

    def __init__(self, limit: int = MAX_WATCHED, most: int | None = None) -> None:
        self._limit = limit
        self._most = most
        self._lock = threading.Lock()
        # Each with what ends it, which answers False where it is in use.
        self._open: dict[Watch, Callable[[], bool]] = {}

    def start(self, root: int, end: Callable[[], bool]) -> Watch:
        with self._lock:
            for other, other_end in list(self._open.items()):
                if other.problem is not None or (len(self._open) >= self._limit and other_end()):
                    self._open.pop(other, None)
            if len(self._open) >= self._limit:
                raise WatchFault(f"{self._limit} projects are watched already")
            most = self._most if self._most is not None else _max_user_watches() // SHARE
            watch = Watch(root, most - sum(map(len, self._open)))
            self._open[watch] = end
            return watch

    def used(self, watch: Watch) -> None:
        with self._lock:
            end = self._open.pop(watch, None)
            if end is not None:
                self._open[watch] = end


def _max_user_watches() -> int:
    try:
        with open(_MAX_USER_WATCHES, "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        # What the kernel gives at the least.
        return 8_192


def _why(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the user's limit of watched directories is reached"
    return f"changes cannot be watched: {error.strerror}"
