"""What the kernel has to be asked in its own words: seccomp, Landlock, another process's memory and root."""

import ctypes
import os

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


class _Sizes(ctypes.Structure):
    _fields_ = (("notification", ctypes.c_uint16), ("response", ctypes.c_uint16), ("data", ctypes.c_uint16))


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def peek(pid: int, address: int, size: int) -> bytes:
    """Memory of another process, as far as it is there. Not through /proc/PID/mem: what has just left the spawner
    by vfork still has its memory, whose files in /proc are root's."""
    buffer = ctypes.create_string_buffer(size)
    done = 0
    while done < size:
        # A piece that reaches into a page that is not there would fail as a whole.
        step = min(size - done, PAGE - (address + done) % PAGE)
        ours = _Piece(ctypes.addressof(buffer) + done, step)
        theirs = _Piece(address + done, step)
        if _libc.process_vm_readv(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0) != step:
            break
        done += step
    return buffer.raw[:done]


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
