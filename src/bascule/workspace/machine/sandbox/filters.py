"""What the kernel refuses in a cell, and what it asks us about: a seccomp program, assembled here.

Filters of the programs inside are laid over this one and can only make it stricter: the strictest answer counts,
and a second listener is refused by the kernel.
"""

import errno
import platform
import struct
from typing import NamedTuple

# struct seccomp_data
NUMBER, ARCH = 0, 4


def argument(index: int) -> int:
    """The lower half of an argument; flags, pids and address families fit into it."""
    return 16 + 8 * index


LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, NOTIFY, ERROR = 0x7FFF0000, 0x7FC00000, 0x00050000

CLONE_NEWUSER = 0x10000000
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
# Above this, x86-64 takes numbers of its x32 ABI: the same calls under other numbers.
X32 = 0x40000000
SPAWNER_PID = 1
PRIO_USER, IOPRIO_WHO_USER = 2, 3


class Numbers(NamedTuple):
    """System calls of one architecture; those from 424 on have one number everywhere."""

    arch: int
    execve: int
    execveat: int
    seccomp: int
    clone: int
    unshare: int
    setns: int
    socket: int
    setpriority: int
    ioprio_set: int
    # The first argument is a pid: prlimit64, sched_setaffinity, sched_setscheduler, sched_setparam, sched_setattr.
    pid_calls: tuple[int, ...]
    # add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd, open_by_handle_at.
    refused: tuple[int, ...]


MACHINES = {
    "x86_64": Numbers(
        arch=0xC000003E,
        execve=59,
        execveat=322,
        seccomp=317,
        clone=56,
        unshare=272,
        setns=308,
        socket=41,
        setpriority=141,
        ioprio_set=251,
        pid_calls=(302, 203, 144, 142, 314),
        refused=(248, 249, 250, 321, 298, 323, 304),
    ),
    "aarch64": Numbers(
        arch=0xC00000B7,
        execve=221,
        execveat=281,
        seccomp=277,
        clone=220,
        unshare=97,
        setns=268,
        socket=198,
        setpriority=140,
        ioprio_set=30,
        pid_calls=(261, 122, 119, 118, 274),
        refused=(217, 218, 219, 280, 241, 282, 265),
    ),
}
CLONE3 = 435
IO_URING = (425, 426, 427)


def numbers() -> Numbers | None:
    """None on machines whose system calls we do not know."""
    return MACHINES.get(platform.machine())


def program(calls: Numbers, *, confined: bool, listen: bool, unix_sockets: bool) -> bytes:
    """`confined`: what a cell may not do at all; `listen`: execs are asked about."""
    code = _Code()
    # Calls of another ABI have other numbers: none of them is let through unread.
    code.unless_equal(ARCH, calls.arch, _error(errno.ENOSYS))
    if calls.arch == MACHINES["x86_64"].arch:
        code.at_least(NUMBER, X32, _error(errno.ENOSYS))
    if confined:
        _confine(code, calls, unix_sockets=unix_sockets)
    if listen:
        for number in (calls.execve, calls.execveat):
            code.equal(NUMBER, number, NOTIFY)
    code.answer(ALLOW)
    return bytes(code.bytes)


def _confine(code: "_Code", calls: Numbers, *, unix_sockets: bool) -> None:
    # Keys of the user's session lie outside every namespace; the others are more kernel than a command needs.
    for number in (*calls.refused, *IO_URING):
        code.equal(NUMBER, number, _error(errno.ENOSYS))
    # A user namespace of one's own gives every capability inside it, and with them the kernel's rarer corners.
    # clone3 keeps its flags in memory, out of a filter's sight; every C library falls back to clone.
    code.equal(NUMBER, CLONE3, _error(errno.ENOSYS))
    code.of_call(calls.clone, (argument(0), ANY_BIT, CLONE_NEWUSER, _error(errno.EPERM)))
    code.of_call(calls.unshare, (argument(0), ANY_BIT, CLONE_NEWUSER, _error(errno.EPERM)))
    code.equal(NUMBER, calls.setns, _error(errno.EPERM))
    # The spawner has the same user: its limits and its priority would be the next command's.
    for number in calls.pid_calls:
        code.of_call(number, (argument(0), EQUAL, SPAWNER_PID, _error(errno.EPERM)))
    for number, user in ((calls.setpriority, PRIO_USER), (calls.ioprio_set, IOPRIO_WHO_USER)):
        code.of_call(number, (argument(1), EQUAL, SPAWNER_PID, _error(errno.EPERM)))
        code.of_call(number, (argument(0), EQUAL, user, _error(errno.EPERM)))
    # Not every family knows network namespaces: a vsock reaches the host of a virtual machine from any of them.
    families = (AF_INET, AF_INET6, AF_NETLINK, *((AF_UNIX,) if unix_sockets else ()))
    code.only(calls.socket, argument(0), families, _error(errno.EAFNOSUPPORT))


def _error(number: int) -> int:
    return ERROR | number


class _Code:
    def __init__(self) -> None:
        self.bytes = bytearray()

    def _add(self, code: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        self.bytes += struct.pack("=HBBI", code, if_true, if_false, value)

    def answer(self, what: int) -> None:
        self._add(RETURN, what)

    def equal(self, offset: int, value: int, what: int) -> None:
        self._test(offset, EQUAL, value, what)

    def at_least(self, offset: int, value: int, what: int) -> None:
        self._test(offset, AT_LEAST, value, what)

    def unless_equal(self, offset: int, value: int, what: int) -> None:
        self._add(LOAD, offset)
        self._add(EQUAL, value, 1, 0)
        self.answer(what)

    def _test(self, offset: int, how: int, value: int, what: int) -> None:
        self._add(LOAD, offset)
        self._add(how, value, 0, 1)
        self.answer(what)

    def of_call(self, number: int, test: tuple[int, int, int, int]) -> None:
        """A test of one call's argument; other calls skip its three instructions."""
        self._add(LOAD, NUMBER)
        self._add(EQUAL, number, 0, 3)
        self._test(*test)

    def only(self, number: int, offset: int, values: tuple[int, ...], otherwise: int) -> None:
        self._add(LOAD, NUMBER)
        self._add(EQUAL, number, 0, len(values) + 2)
        self._add(LOAD, offset)
        for left, value in zip(range(len(values), 0, -1), values, strict=True):
            self._add(EQUAL, value, left, 0)
        self.answer(otherwise)
