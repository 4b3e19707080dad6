"""What the kernel has to be asked in its own words: seccomp, Landlock, openat2."""

import ctypes
import errno
import os

from bascule.workspace.machine.sandbox.filters import NOTIFY, numbers

SECCOMP_GET_ACTION_AVAIL = 2
SECCOMP_GET_NOTIF_SIZES = 3
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_CREATE_RULESET_VERSION = 1
# The first whose domains keep abstract sockets and signals to themselves.
LANDLOCK_WITH_SCOPES = 6
SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 3
OPENAT2 = 437
RESOLVE_IN_ROOT = 0x10
# Where `..` is a step, any rename or mount on the machine meanwhile makes the kernel say "again".
MAX_TRIES = 100
# The sizes we read and write.
NOTIFICATION_BYTES, RESPONSE_BYTES, DATA_BYTES = 80, 24, 64

PAGE = os.sysconf("SC_PAGE_SIZE")

_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


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
    try:
        os.close(open_in_root(os.open("/", os.O_PATH | os.O_CLOEXEC), "/", close=True))
    except OSError as error:
        return f"openat2 does not work here: {error.strerror}"
    return None


def landlock_scopes() -> int:
    """What a cell that shares the machine's network is given, so that abstract sockets stay out of reach."""
    version = _libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_CREATE_RULESET_VERSION)
    return SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS if version >= LANDLOCK_WITH_SCOPES else 0


def open_in_root(root: int, path: str | bytes, *, close: bool = False) -> int:
    """A path as a process with that root means it: links and `..` stay beneath, magic links are not followed."""
    how = _How(os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_IN_ROOT)
    try:
        for _ in range(MAX_TRIES):
            descriptor: int = _libc.syscall(OPENAT2, root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
            if descriptor >= 0:
                return descriptor
            if ctypes.get_errno() != errno.EAGAIN:
                break
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    finally:
        if close:
            os.close(root)
