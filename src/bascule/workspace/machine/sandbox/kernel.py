"""What the kernel has to be asked in its own words: seccomp, Landlock, another process's memory and root."""

import ctypes
import os
import struct
from collections.abc import Sequence

from bascule.workspace.machine.files.syscalls import RESOLVE_IN_ROOT, openat2_steady
from bascule.workspace.machine.sandbox.filters import NOTIFY, numbers
from bascule.workspace.machine.sandbox.spawner import LANDLOCK_CREATE_RULESET

SECCOMP_GET_ACTION_AVAIL = 2
SECCOMP_GET_NOTIF_SIZES = 3
LANDLOCK_CREATE_RULESET_VERSION = 1
# The first whose domains keep abstract sockets and signals to themselves.
LANDLOCK_WITH_SCOPES = 6
SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 3
# The sizes we read and write.
NOTIFICATION_BYTES, RESPONSE_BYTES, DATA_BYTES = 80, 24, 64

PAGE = os.sysconf("SC_PAGE_SIZE")

_libc = ctypes.CDLL(None, use_errno=True)
_readv = _libc.process_vm_readv
_readv.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_ulong)
_readv.restype = ctypes.c_ssize_t
# struct iovec
_PIECE = struct.Struct("=QQ")


class _Sizes(ctypes.Structure):
    _fields_ = (("notification", ctypes.c_uint16), ("response", ctypes.c_uint16), ("data", ctypes.c_uint16))


class Memory:
    """Memory of other processes, read through one buffer: for one thread.

    Not through /proc/PID/mem: what has just left the spawner by vfork still has its memory, whose files in /proc are
    root's.
    """

    # Pieces of one `pieces`, which is one system call.
    MOST = 64
    MOST_BYTES = 64 * 1024

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(self.MOST_BYTES)
        self._view = memoryview(self._buffer).cast("B")
        self._address = ctypes.addressof(self._buffer)

    def pieces(self, pid: int, wanted: Sequence[tuple[int, int]]) -> list[bytes]:
        """(address, size) each: as much of it as lies in its first page; empty where one of them is not there."""
        theirs = [(address, min(size, PAGE - address % PAGE)) for address, size in wanted]
        total = sum(size for _, size in theirs)
        assert len(theirs) <= self.MOST
        assert total <= self.MOST_BYTES
        vector = b"".join(_PIECE.pack(address, size) for address, size in theirs)
        if _readv(pid, _PIECE.pack(self._address, total), 1, vector, len(theirs), 0) != total:
            return [self.read(pid, *piece) for piece in theirs]
        found, at = [], 0
        for _, size in theirs:
            found.append(bytes(self._view[at : at + size]))
            at += size
        return found

    def read(self, pid: int, address: int, size: int) -> bytes:
        """As far as it is there."""
        found = bytearray()
        while len(found) < size:
            # A piece that reaches into a page that is not there would fail as a whole.
            start = (address + len(found)) % (1 << 64)
            step = min(size - len(found), PAGE - start % PAGE)
            if _readv(pid, _PIECE.pack(self._address, step), 1, _PIECE.pack(start, step), 1, 0) != step:
                break
            found += self._view[:step]
        return bytes(found)


def supervision_problem() -> str | None:
    """Why execs cannot be asked about here; None when they can."""
    calls = numbers()
    if calls is None:
        return f"system calls of {os.uname().machine} are not known to us"
    action = ctypes.c_uint32(NOTIFY)
    if _libc.syscall(calls.seccomp, SECCOMP_GET_ACTION_AVAIL, 0, ctypes.byref(action)) != 0:
        return "the kernel has no seccomp user notification (Linux 5.6 or newer is needed, and no filter against it)"
    sizes = _Sizes()
    if _libc.syscall(calls.seccomp, SECCOMP_GET_NOTIF_SIZES, 0, ctypes.byref(sizes)) != 0 or (
        (sizes.notification, sizes.response, sizes.data) != (NOTIFICATION_BYTES, RESPONSE_BYTES, DATA_BYTES)
    ):
        return "the kernel's seccomp notifications have another form than ours"
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        os.close(open_in_root(root, "/"))
    except OSError as error:
        return f"openat2 does not work here: {error.strerror}"
    finally:
        os.close(root)
    return None


def landlock_scopes() -> int:
    """What a cell that shares the machine's network is given, so that abstract sockets stay out of reach."""
    version = _libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_CREATE_RULESET_VERSION)
    return SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS if version >= LANDLOCK_WITH_SCOPES else 0


def open_in_root(root: int, path: str | bytes) -> int:
    """A path as a process with that root means it: links and `..` stay beneath, magic links are not followed."""
    return openat2_steady(root, path, os.O_PATH, RESOLVE_IN_ROOT)
