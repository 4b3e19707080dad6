"""Files that stand twice, in a real directory and in a private one that commands write.

They are read and replaced by descriptor: no link is followed, whatever a command makes of the private side meanwhile.
"""

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

# A change within the clock's tick of the last look has no newer time.
TICK_NS = 20_000_000

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Signature = tuple[int, int, int, int] | None
Owner = tuple[int, int]


class Pair(NamedTuple):
    """A file's signature on both sides when they last agreed."""

    real: Signature
    ours: Signature


class Held(Exception):
    """A file was not copied out; the message says why."""


def stat_of(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None


def as_signature(found: os.stat_result | None) -> Signature:
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def signature(directory: int, name: str) -> Signature:
    return as_signature(stat_of(directory, name))


def content(directory: int, name: str, most: int) -> bytes | None:
    """A regular file's; None for everything else, and for more than `most`."""
    try:
        descriptor = os.open(name, _READ, dir_fd=directory)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data if len(data) <= most else None


def write(directory: int, temporary: str, data: bytes, mode: int, owner: Owner) -> None:
    """A new file; the caller renames it. `FileExistsError` when there is one."""
    descriptor = os.open(temporary, NEW, 0o600, dir_fd=directory)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fchmod(descriptor, mode)
        give(descriptor, owner)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)


def move(directory: int, temporary: str, name: str) -> None:
    try:
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def give(descriptor: int, owner: Owner) -> None:
    if os.getuid() == 0:
        os.fchown(descriptor, *owner)


def remove(directory: int, name: str) -> None:
    found = stat_of(directory, name)
    if found is None:
        return
    if stat.S_ISDIR(found.st_mode):
        shutil.rmtree(name, ignore_errors=True, dir_fd=directory)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)


@contextmanager
def folder(side: int, place: str, *, make: Owner | None = None) -> Iterator[int]:
    """A directory beneath, entered step by step; `make`: whose the missing ones become."""
    descriptor = os.dup(side)
    try:
        for step in place.split("/"):
            if make is not None and stat_of(descriptor, step) is None:
                os.mkdir(step, 0o755, dir_fd=descriptor)
                if os.getuid() == 0:
                    os.chown(step, *make, dir_fd=descriptor, follow_symlinks=False)
            below = os.open(step, DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def is_settled(signatures: Iterable[Signature]) -> bool:
    """Whether every change from now on will have a newer time."""
    newest = max((each[3] for each in signatures if each is not None), default=0)
    return newest + TICK_NS < time.time_ns()
