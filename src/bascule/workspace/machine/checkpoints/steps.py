"""Directories by their absolute path, one step at a time and never through a link.

A path that had no links when it was kept may have some by now: another user, or a command in a sandbox, puts a link
where a directory was, and what is read or written by the path goes elsewhere. A step that meets one fails.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator

from bascule.workspace.machine.files import shut
from bascule.workspace.machine.files.beneath import O_PATH
from bascule.workspace.machine.files.syscalls import RESOLVE_NO_MAGICLINKS, has_openat2, openat2_steady
from bascule.workspace.ports import CheckpointFault

_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_CWD = -100


@contextlib.contextmanager
def directory(path: bytes) -> Iterator[int]:
    """To be read; NotADirectoryError where a link is on the way."""
    with parent(path) as (above, name):
        descriptor = os.open(name or b".", _READ, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def parent(path: bytes) -> Iterator[tuple[int, bytes]]:
    """The directory that holds a name, to reach the name by, and the name."""
    *steps, name = path.strip(b"/").split(b"/")
    here = os.open("/", _STEP)
    try:
        for step in steps:
            below = os.open(step, _STEP, dir_fd=here)
            os.close(here)
            here = below
        yield here, name
    finally:
        os.close(here)


@contextlib.contextmanager
def widened(path: bytes, needed: int, *, back: bool = True) -> Iterator[None]:
    """A directory of ours that its mode keeps shut lets us in."""
    with parent(path) as (above, name), shut.widened(above, name or b".", needed, back=back):
        yield


@contextlib.contextmanager
def staging(beside: bytes) -> Iterator[int]:
    """A new directory of ours, which goes with all that was not used."""
    new = f".bascule-undo-{secrets.token_hex(8)}".encode()
    with parent(os.path.join(beside, new)) as (above, name):
        os.mkdir(name, 0o700, dir_fd=above)
        made = os.open(name, _READ, dir_fd=above)
        try:
            if os.fstat(made).st_uid != os.geteuid():
                raise CheckpointFault(f"{os.fsdecode(beside)!r}: somebody else changes names there")
            try:
                yield made
            finally:
                for left in os.listdir(made):
                    with contextlib.suppress(OSError):
                        os.unlink(left, dir_fd=made)
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=above)
        finally:
            os.close(made)


def is_everybodys_own(path: str) -> bool:
    """It leads through `/proc/self/cwd` or its like, which for us is another place than for who named it."""
    if path.startswith("/proc/"):
        return True
    if not has_openat2():
        return False
    try:
        os.close(openat2_steady(_AT_CWD, path, O_PATH, RESOLVE_NO_MAGICLINKS))
    except OSError as error:
        return error.errno == errno.ELOOP and not _leads_in_a_circle(path)
    return False


def _leads_in_a_circle(path: str) -> bool:
    try:
        os.stat(path)
    except OSError as error:
        return error.errno == errno.ELOOP
    return False
