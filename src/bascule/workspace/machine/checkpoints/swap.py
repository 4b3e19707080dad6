"""Putting a name in place, or taking it away, only where what is there is what was expected.

Looking first and renaming then loses what somebody saves in between. So the two names are exchanged in one call of the
kernel, and what came out is looked at where nobody else finds it: if it is not what was expected, it goes back. A
program that still has the file open for writing would write on into what is about to be removed: that counts as not
expected too (a read lease is refused while there is one).

Where a file system cannot exchange names, it is looked at just before the rename, which leaves a gap of microseconds.
"""

import contextlib
import errno
import fcntl
import os
import signal
import stat

from bascule.workspace.machine.checkpoints.objects import BLOB, Entry, file_id, kept_mode, object_id, special_text
from bascule.workspace.machine.checkpoints.store import MAX_OBJECT_BYTES
from bascule.workspace.machine.files import attributes, shut
from bascule.workspace.machine.files.beneath import O_PATH
from bascule.workspace.machine.files.syscalls import exchange, rename_new

# Times that somebody may save again while the earlier save is being put back.
MAX_EXCHANGES = 100

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS)


class Swap:
    """Between a workspace's directories and one of ours on the same file system."""

    def __init__(self, ours: int) -> None:
        self._ours = ours

    def put(self, directory: int, name: str, staged: str, expected: Entry | None) -> bool:
        """False when something else is there, which is then still there."""
        if expected is None:
            return self._move(self._ours, staged, directory, name)
        with contextlib.ExitStack() as held:
            mine = self._hold(staged, held)
            try:
                exchange(self._ours, staged, directory, name)
            except FileNotFoundError:
                return False
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                if not is_still(directory, name, expected):
                    return False
                os.rename(staged, name, src_dir_fd=self._ours, dst_dir_fd=directory)
                return True
            if is_still(self._ours, staged, expected):
                return True
            self._put_back(directory, name, staged, mine, held)
        return False

    def _put_back(
        self, directory: int, name: str, staged: str, placed: tuple[int, int], held: contextlib.ExitStack
    ) -> None:
        """What came out goes back in; what is newer still goes over that."""
        for _ in range(MAX_EXCHANGES):
            older = self._hold(staged, held)
            try:
                exchange(self._ours, staged, directory, name)
            except FileNotFoundError:
                # Ours was removed meanwhile.
                self._move(self._ours, staged, directory, name)
                return
            if self._hold(staged, held) == placed:
                return
            placed = older
        raise OSError(errno.EBUSY, "it is saved again and again")

    def _hold(self, staged: str, held: contextlib.ExitStack) -> tuple[int, int]:
        """Which file it is; held open, so that no new file gets its number."""
        descriptor = os.open(staged, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._ours)
        held.callback(os.close, descriptor)
        found = os.fstat(descriptor)
        return found.st_dev, found.st_ino

    def take(self, directory: int, name: str, aside: str, expected: Entry) -> bool:
        """The same for a name that should go; afterwards it is `aside` in our directory."""
        try:
            if not self._move(directory, name, self._ours, aside):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        except FileNotFoundError:
            return True
        if is_still(self._ours, aside, expected):
            return True
        # Where the name is taken again, somebody has saved a newer one.
        self._move(self._ours, aside, directory, name)
        return False

    def _move(self, directory: int, name: str, into: int, new: str) -> bool:
        try:
            rename_new(directory, name, new, into)
        except FileExistsError:
            return False
        return True


def is_still(directory: int, name: str, expected: Entry) -> bool:
    """Whether it is exactly this, and nobody can be writing to it."""
    return is_as(directory, name, expected, unwritten=True)


def is_as(directory: int, name: str, expected: Entry, *, unwritten: bool = False) -> bool:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if expected.is_gap:
            return object_id(BLOB, special_text(found)) == expected.object
        if kept_mode(found.st_mode) != expected.mode:
            return False
        if stat.S_ISDIR(found.st_mode):
            return True
        if stat.S_ISLNK(found.st_mode):
            target = os.readlink(name, dir_fd=directory)
            return object_id(BLOB, os.fsencode(target)) == expected.object
        if shut.is_shut(found, 0o400):
            descriptor = shut.open_file(directory, name, _READ)
        else:
            descriptor = os.open(name, _READ, dir_fd=directory)
    except OSError:
        return False
    try:
        if os.fstat(descriptor).st_size > MAX_OBJECT_BYTES:
            return False
        if unwritten and _has_writer(descriptor):
            return False
        return file_id(_digest(descriptor), attributes.read(descriptor)) == expected.object
    except (OSError, attributes.TooMany):
        return False
    finally:
        os.close(descriptor)


def _has_writer(descriptor: int) -> bool:
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    # A process that opens it while we hold the lease makes the kernel send a signal, and that of choice would end us.
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        # Anything else: this file system, or a file of another user, has no leases.
        return error.errno == errno.EAGAIN
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _digest(descriptor: int) -> bytes:
    pieces = []
    while piece := os.read(descriptor, 1024 * 1024):
        pieces.append(piece)
    return object_id(BLOB, b"".join(pieces))
