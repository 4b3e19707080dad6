"""Runs a command in a shell that may not open sockets, as coding agents' sandboxes are: a real seccomp filter.

Usage: without_sockets.py connect|socket|none PROGRAM ARGUMENTS...
"""

import ctypes
import errno
import os
import platform
import struct
import sys

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
# BPF: load a word, jump if equal, return.
LOAD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW = 0x7FFF0000
REFUSE = 0x00050000 | errno.EPERM
NUMBERS = {
    "x86_64": {"socket": 41, "connect": 42},
    "aarch64": {"socket": 198, "connect": 203},
}


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def forbid(name: str) -> None:
    number = NUMBERS[platform.machine()][name]
    steps = [(LOAD, 0, 0, 0), (JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = Program(len(steps), ctypes.cast(code, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program))):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    if sys.argv[1] != "none":
        forbid(sys.argv[1])
    os.execv(sys.argv[2], sys.argv[2:])
