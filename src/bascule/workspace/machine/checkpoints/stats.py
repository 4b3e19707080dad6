"""What a scan remembers of a workspace, so that the next one reads only what changed.

A file is unchanged when its change time, modification time, size, inode and mode are. A file that changed just before
it was read could change again within the same tick of the file system's clock: such a one is remembered with a time
that never is, and read again.

On disk the memory is worth its while after a restart of the daemon, within one life of the machine: after a power cut
the objects it speaks of may be gone.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from bascule.workspace.machine.checkpoints.objects import Entry, ObjectId

# A kernel's clock for files ticks every 10 ms at the slowest. What has whole seconds only may tick every two.
RACY_NS = 100_000_000
COARSE_NS = 2_000_000_000
NEVER = -1
_FORM = 3
_BOOT = "/proc/sys/kernel/random/boot_id"


class FileStat(msgspec.Struct, frozen=True, array_like=True, gc=False):
    ctime: int
    mtime: int
    size: int
    inode: int
    mode: int
    object: ObjectId
    dressed: bool = False


class Node(msgspec.Struct, array_like=True):
    """A directory as the last scan found it."""

    mode: int
    tree: ObjectId
    files: dict[str, FileStat]
    directories: dict[str, "Node"]
    gaps: dict[str, Entry] = {}

    def all_gaps(self, prefix: bytes = b"") -> Iterator[tuple[bytes, Entry]]:
        for name, gap in self.gaps.items():
            yield prefix + os.fsencode(name), gap
        for name, below in self.directories.items():
            yield from below.all_gaps(prefix + os.fsencode(name) + b"/")

    def all_files(self, prefix: str = "") -> Iterator[tuple[str, FileStat]]:
        for name, file in self.files.items():
            yield prefix + name, file
        for name, below in self.directories.items():
            yield from below.all_files(f"{prefix}{name}/")

    def totals(self) -> tuple[int, int]:
        """Names and bytes beneath it that are held."""
        names, size = len(self.files) + len(self.directories), sum(file.size for file in self.files.values())
        for below in self.directories.values():
            more_names, more_size = below.totals()
            names, size = names + more_names, size + more_size
        return names, size


class Link(NamedTuple):
    """A file with several names, as it was seen by one of them."""

    inode: int
    # `NEVER`: it has to be looked at again.
    ctime: int


class _Kept(msgspec.Struct, array_like=True):
    form: int
    boot: str
    root: Node


def remember(found: os.stat_result, read_at_ns: int, identity: ObjectId, *, dressed: bool = False) -> FileStat:
    ctime = NEVER if is_racy(found, read_at_ns) else found.st_ctime_ns
    return FileStat(ctime, found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode, identity, dressed)


def is_racy(found: os.stat_result, read_at_ns: int) -> bool:
    """Whether it could change again without its times showing it."""
    age = read_at_ns - found.st_ctime_ns
    return age < (COARSE_NS if found.st_ctime_ns % 1_000_000_000 == 0 else RACY_NS)


def save(path: str, root: Node) -> None:
    boot = _boot()
    if boot is None:
        return
    # Names are bytes that msgspec would refuse as text.
    data = msgspec.msgpack.encode(_Kept(_FORM, boot, root)) if _is_text(root) else None
    temporary = f"{path}.tmp"
    with contextlib.suppress(OSError):
        if data is None:
            os.unlink(path)
            return
        with open(temporary, "wb") as file:
            file.write(data)
        os.rename(temporary, path)


def load(path: str) -> Node | None:
    try:
        with open(path, "rb") as file:
            kept = msgspec.msgpack.decode(file.read(), type=_Kept)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        return None
    return kept.root if (kept.form, kept.boot) == (_FORM, _boot()) else None


def _boot() -> str | None:
    try:
        with open(_BOOT, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return None


def _is_text(node: Node) -> bool:
    try:
        for name in (*node.files, *node.directories, *node.gaps):
            name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return all(_is_text(child) for child in node.directories.values())
