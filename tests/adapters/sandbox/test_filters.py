"""The seccomp program, run by an interpreter of the kernel's instructions as they are documented."""

import errno
import struct

import pytest

from bascule.workspace.machine.sandbox.filters import ALLOW, ERROR, MACHINES, NOTIFY, X32, program

X86, ARM = MACHINES["x86_64"], MACHINES["aarch64"]
CLONE_NEWUSER, CLONE_VM = 0x10000000, 0x100


def answer(code: bytes, arch: int, number: int, *arguments: int) -> int:
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, arch, 0, *arguments, *([0] * (6 - len(arguments))))
    lines = list(struct.iter_unpack("=HBBI", code))
    at, value = 0, 0
    while True:
        operation, if_true, if_false, operand = lines[at]
        at += 1
        match operation:
            case 0x20:
                (value,) = struct.unpack_from("=I", data, operand)
            case 0x15:
                at += if_true if value == operand else if_false
            case 0x35:
                at += if_true if value >= operand else if_false
            case 0x45:
                at += if_true if value & operand else if_false
            case 0x06:
                return operand


def refused(number: int) -> int:
    return ERROR | number


@pytest.mark.parametrize("calls", [X86, ARM], ids=["x86_64", "aarch64"])
def test_execs_are_asked_about_and_the_corners_refused(calls):
    code = program(calls, confined=True, listen=True, unix_sockets=True)
    assert answer(code, calls.arch, calls.execve) == NOTIFY
    assert answer(code, calls.arch, calls.execveat) == NOTIFY
    for number in (*calls.refused, 435, 425, 426, 427):
        assert answer(code, calls.arch, number) == refused(errno.ENOSYS)
    assert answer(code, calls.arch, calls.setns) == refused(errno.EPERM)
    for number in (calls.clone, calls.unshare):
        assert answer(code, calls.arch, number, CLONE_NEWUSER | CLONE_VM) == refused(errno.EPERM)
        assert answer(code, calls.arch, number, CLONE_VM) == ALLOW
    for number in calls.pid_calls:
        assert answer(code, calls.arch, number, 1) == refused(errno.EPERM)
        assert answer(code, calls.arch, number, 0) == ALLOW
        assert answer(code, calls.arch, number, 77) == ALLOW
    for number, user in ((calls.setpriority, 2), (calls.ioprio_set, 3)):
        assert answer(code, calls.arch, number, 0, 1, 19) == refused(errno.EPERM)
        assert answer(code, calls.arch, number, user, 0, 19) == refused(errno.EPERM)
        assert answer(code, calls.arch, number, 0, 0, 19) == ALLOW


@pytest.mark.parametrize("calls", [X86, ARM], ids=["x86_64", "aarch64"])
@pytest.mark.parametrize("unix", [True, False])
def test_only_families_that_know_network_namespaces_have_sockets(calls, unix):
    code = program(calls, confined=True, listen=True, unix_sockets=unix)
    allowed = {family for family in range(64) if answer(code, calls.arch, calls.socket, family) == ALLOW}
    assert allowed == {2, 10, 16} | ({1} if unix else set())


def test_calls_of_another_abi_are_not_let_through():
    code = program(X86, confined=True, listen=True, unix_sockets=True)
    for number in range(500):
        assert answer(code, ARM.arch, number) == refused(errno.ENOSYS)
        assert answer(code, 0x40000003, number) == refused(errno.ENOSYS), "32 bits"
        assert answer(code, X86.arch, X32 | number) == refused(errno.ENOSYS)


def test_every_program_ends_and_everything_else_is_allowed():
    for calls in (X86, ARM):
        named = {calls.execve, calls.execveat, calls.setns, calls.socket, 435, 425, 426, 427, *calls.refused}
        for confined in (True, False):
            for listen in (True, False):
                code = program(calls, confined=confined, listen=listen, unix_sockets=True)
                assert len(code) // 8 < 4096
                for number in set(range(600)) - named:
                    assert answer(code, calls.arch, number) == ALLOW


def test_outside_a_sandbox_only_execs_are_asked_about():
    code = program(X86, confined=False, listen=True, unix_sockets=True)
    asked = [number for number in range(600) if answer(code, X86.arch, number) != ALLOW]
    assert asked == [X86.execve, X86.execveat]
