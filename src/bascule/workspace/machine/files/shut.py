"""Opening what its owner has shut: `chmod 000` keeps nothing from a user who may change the mode.

The mode is widened for the user alone, and only as long as it has to be. It is changed by a descriptor of the very
file or directory (O_PATH), so nobody can put something else under its name meanwhile. Root needs none of this, and
where there is no /proc it stays shut.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from bascule.workspace.machine.files.beneath import O_PATH

_THIS = O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
# To list a directory and to reach what is in it; to change names in it, too.
LIST = 0o500
CHANGE = 0o700


def is_shut(found: os.stat_result, needed: int) -> bool:
    """Whether its mode keeps us out although it is ours."""
    user = os.geteuid()
    return user != 0 and found.st_uid == user and found.st_mode & needed != needed


def open_file(directory: int, name: str | bytes, flags: int) -> int:
    """A regular file that may not be read; its mode is as it was when this returns."""
    with _named(directory, name) as (this, found):
        if not stat.S_ISREG(found.st_mode) or not is_shut(found, 0o400):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        mode = stat.S_IMODE(found.st_mode)
        os.chmod(this, mode | 0o400)
        try:
            return os.open(this, flags & ~os.O_NOFOLLOW)
        finally:
            os.chmod(this, mode)


@contextlib.contextmanager
def widened(directory: int, name: str | bytes, needed: int, *, back: bool = True) -> Iterator[None]:
    """A directory that lets us in meanwhile; with `back` its mode is then as it was."""
    with _named(directory, name) as (this, found):
        if not stat.S_ISDIR(found.st_mode) or not is_shut(found, needed):
            yield
            return
        mode = stat.S_IMODE(found.st_mode)
        os.chmod(this, mode | needed)
        try:
            yield
        finally:
            if back:
                os.chmod(this, mode)


@contextlib.contextmanager
def widened_open(directory: int, needed: int) -> Iterator[None]:
    """The same for a directory that is open already, to be read."""
    found = os.fstat(directory)
    if not is_shut(found, needed):
        yield
        return
    mode = stat.S_IMODE(found.st_mode)
    os.fchmod(directory, mode | needed)
    try:
        yield
    finally:
        os.fchmod(directory, mode)


@contextlib.contextmanager
def _named(directory: int, name: str | bytes) -> Iterator[tuple[str, os.stat_result]]:
    descriptor = os.open(name, _THIS, dir_fd=directory)
    try:
        yield f"/proc/self/fd/{descriptor}", os.fstat(descriptor)
    finally:
        os.close(descriptor)
