"""System calls that Python's `os` does not have: openat2, renameat2, statx, inotify, and the kind of a file system."""

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Callable
from functools import cache

# The number is the same on every architecture: the call is newer than their common table. There is no libc wrapper.
_OPENAT2 = 437

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
RESOLVE_IN_ROOT = 0x10
# Fail with EAGAIN rather than wait for a disk (Linux 5.12; EINVAL before).
RESOLVE_CACHED = 0x20

# "The kernel could not ensure that a `..` component didn't escape (due to a race condition)": openat2(2) says to
# try again. A thousand lost races in a row are an attack.
MAX_RACES = 1_000

_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_HOW = struct.Struct("=QQQ")
_AT_SYMLINK_NOFOLLOW = 0x100
_STATX_BTIME = 0x800
# `struct statx` and in it the mask, and the seconds and nanoseconds of the birth.
_STATX_BYTES = 256
_BIRTH = struct.Struct("=I76xqI")
# `struct statfs` is shorter everywhere; a long at its beginning is the kind.
_STATFS_BYTES = 512


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _syscall() -> Callable[..., int]:
    call = _library().syscall
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    call.restype = ctypes.c_long
    return call


@cache
def _how(flags: int, resolve: int) -> bytes:
    """`struct open_how`; the kernel reads it and never writes it."""
    return _HOW.pack(flags | os.O_CLOEXEC, 0, resolve)


def openat2(directory: int, path: str | bytes, flags: int, resolve: int) -> int:
    """For opening what exists: flags that create are not for this function."""
    name = os.fsencode(path)
    if b"\0" in name:
        # C would see a shorter path than the one that was judged.
        raise OSError(errno.EINVAL, "null byte in a path")
    descriptor = _syscall()(_OPENAT2, directory, name, _how(flags, resolve), _HOW.size)
    if descriptor >= 0:
        return descriptor
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))


def openat2_steady(directory: int, path: str | bytes, flags: int, resolve: int) -> int:
    """The same, again as long as a rename or a mount anywhere on the machine comes between."""
    for _ in range(MAX_RACES):
        try:
            return openat2(directory, path, flags, resolve)
        except BlockingIOError:
            continue
    raise OSError(errno.EAGAIN, "the path kept changing while it was opened")


@cache
def has_openat2() -> bool:
    """Linux 5.6 has it; container runtimes older than that answer EPERM in the kernel's place."""
    if not sys.platform.startswith("linux"):
        return False
    here = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(openat2(here, ".", os.O_RDONLY | os.O_DIRECTORY, RESOLVE_BENEATH | RESOLVE_NO_XDEV))
    except OSError:
        return False
    finally:
        os.close(here)
    return True


@cache
def _renameat2() -> Callable[..., int] | None:
    try:
        call = _library().renameat2
    except AttributeError:
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    call.restype = ctypes.c_int
    return call


def rename_new(directory: int, old: str, new: str, into: int | None = None) -> None:
    """Rename, within a directory or into another, unless the new name is taken: FileExistsError."""
    target = directory if into is None else into
    call = _renameat2()
    if call is not None:
        if call(directory, os.fsencode(old), target, os.fsencode(new), _RENAME_NOREPLACE) == 0:
            return
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(number, os.strerror(number))
    # Some file systems cannot; a second name for the file fails just as well when there is one already.
    os.link(old, new, src_dir_fd=directory, dst_dir_fd=target, follow_symlinks=False)
    os.unlink(old, dir_fd=directory)


def exchange(directory: int, name: str, other_directory: int, other: str) -> None:
    """Two names change places in one step; EINVAL or ENOSYS where that cannot be."""
    call = _renameat2()
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if call(directory, os.fsencode(name), other_directory, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def born_ns(directory: int, name: str | bytes) -> int | None:
    """When this very file was made, whatever its name was then; None where that is not known."""
    if sys.platform == "darwin":
        return int(os.stat(name, dir_fd=directory, follow_symlinks=False).st_birthtime * 1_000_000_000)
    try:
        call = _library().statx
    except AttributeError:
        return None
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    wanted = ctypes.c_uint(_STATX_BTIME)
    if call(directory, os.fsencode(name), _AT_SYMLINK_NOFOLLOW, wanted, buffer) != 0:
        return None
    mask, seconds, nanoseconds = _BIRTH.unpack_from(buffer)
    return int(seconds * 1_000_000_000 + nanoseconds) if mask & _STATX_BTIME else None


def path_of(descriptor: int) -> str:
    """The path that an open directory has now."""
    if sys.platform == "darwin":
        import fcntl  # noqa: PLC0415 - the command that asks for a path is macOS's alone

        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, b"\0" * 1_024).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")


def file_system(descriptor: int) -> int:
    """The magic number of statfs(2); 0 where it is not known."""
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    if _library().fstatfs(descriptor, buffer) != 0:
        return 0
    return int(ctypes.c_ulong.from_buffer(buffer).value)


def inotify_init() -> int:
    return _checked(_library().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def inotify_add_watch(descriptor: int, path: str, mask: int) -> int:
    return _checked(_library().inotify_add_watch(descriptor, os.fsencode(path), ctypes.c_uint32(mask)))


def inotify_rm_watch(descriptor: int, number: int) -> None:
    _checked(_library().inotify_rm_watch(descriptor, number))


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
