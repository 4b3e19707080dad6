"""The program, in a terminal and a session of its own.

Three processes: the wrapper, a leader, the program. The leader does nothing but lead the session and wait: were the
program itself the leader, its process group would have no parent in the session, and the kernel discards Ctrl-Z for
such a group. What happens to the program is told through a pipe, one record per event.
"""

import contextlib
import errno
import fcntl
import os
import signal
import struct
import sys
import termios
from collections.abc import Mapping, Sequence
from typing import NoReturn

# The program's size when nobody looks at it.
DEFAULT_ROWS, DEFAULT_COLUMNS = 24, 80
# As a shell says it.
NOT_FOUND, NOT_EXECUTABLE = 127, 126
KILLED = 128

STARTED, STOPPED, ENDED = b"S", b"T", b"E"
_RECORD = struct.Struct("=ci")
RECORD_BYTES = _RECORD.size
# What the interpreter or a parent may have changed; a program expects the kernel's own ways.
_DEFAULT_AGAIN = (
    *(signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD),
    *(signal.SIGPIPE, signal.SIGHUP, signal.SIGTERM, signal.SIGWINCH, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXFSZ),
)
_LOCAL, _OUT, _IN = 3, 1, 0


class Child:
    """A started program: its side of the terminal, and what became of it."""

    def __init__(self, master: int, events: int, leader: int) -> None:
        self.master = master
        # Readable when something happened to the program.
        self.events = events
        self._leader = leader
        self.pid: int | None = None
        self.exit_code: int | None = None

    def read_events(self) -> list[bytes]:
        """What happened since: `STARTED`, `STOPPED`, `ENDED`. The leader's own end counts as the program's."""
        try:
            data = os.read(self.events, RECORD_BYTES * 64)
        except BlockingIOError:
            return []
        kinds: list[bytes] = []
        for at in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
            kind, number = _RECORD.unpack_from(data, at)
            if kind == STARTED:
                self.pid = number
            elif kind == ENDED:
                self.exit_code = number
            kinds.append(kind)
        if not data:
            if self.exit_code is None:
                self.exit_code = KILLED + signal.SIGKILL
            kinds.append(ENDED)
        return kinds

    def resize(self, rows: int, columns: int) -> None:
        with contextlib.suppress(OSError):
            set_size(self.master, rows, columns)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def send(self, number: int) -> None:
        """To the program and what it runs in the foreground."""
        for group in {self.pid, self.foreground()} - {None, 0}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(group or 0), number)

    def foreground(self) -> int | None:
        """The process group that has the terminal; None once nobody does."""
        try:
            return os.tcgetpgrp(self.master)
        except OSError:
            return None

    def is_cooked(self) -> bool | None:
        try:
            return bool(termios.tcgetattr(self.master)[_LOCAL] & termios.ICANON)
        except (OSError, termios.error):
            return None

    def has_foreground(self) -> bool | None:
        group = self.foreground()
        return None if not group or self.pid is None else group == self.pid

    def close(self) -> None:
        """Hang up: processes that still have the terminal get SIGHUP from the kernel."""
        for descriptor in (self.master, self.events):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._leader, 0)


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    size: tuple[int, int] = (DEFAULT_ROWS, DEFAULT_COLUMNS),
    like: int | None = None,
    plain: bool = False,
) -> Child:
    """Run `command`. Its terminal is set `like` that descriptor's; `plain`: nothing echoed, line ends as they are."""
    master, slave = os.openpty()
    events, events_writer = os.pipe()
    try:
        set_size(master, *size)
        _set_modes(slave, like, plain=plain)
        leader = os.fork()
    except BaseException:
        for descriptor in (master, slave, events, events_writer):
            os.close(descriptor)
        raise
    if not leader:
        try:
            os.close(master)
            os.close(events)
            _lead(command, environment, slave, events_writer)
        finally:
            os._exit(NOT_EXECUTABLE)
    os.close(slave)
    os.close(events_writer)
    for descriptor in (master, events):
        os.set_blocking(descriptor, False)
    return Child(master, events, leader)


def set_size(descriptor: int, rows: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _set_modes(slave: int, like: int | None, *, plain: bool) -> None:
    if like is not None:
        termios.tcsetattr(slave, termios.TCSANOW, termios.tcgetattr(like))
    if plain:
        modes = termios.tcgetattr(slave)
        modes[_LOCAL] &= ~termios.ECHO
        modes[_OUT] &= ~termios.ONLCR
        termios.tcsetattr(slave, termios.TCSANOW, modes)


# -- in the leader ---------------------------------------------------------------------------------


def _lead(command: Sequence[str], environment: Mapping[str, str], slave: int, events_writer: int) -> NoReturn:
    signal.set_wakeup_fd(-1)
    for number in _DEFAULT_AGAIN:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Makes a session, the terminal its own, and 0, 1 and 2 of it.
    os.login_tty(slave)
    program = os.fork()
    if not program:
        _become(command, environment, events_writer)
    # In both processes, in any order: neither may go on before the program is a group in the foreground.
    _to_foreground(program)
    # Keys that stop or end what is in the foreground are not for the leader.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    _send_event(events_writer, STARTED, program)
    while True:
        _, status = os.waitpid(program, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            _send_event(events_writer, STOPPED, os.WSTOPSIG(status))
            continue
        code = os.waitstatus_to_exitcode(status)
        code = code if code >= 0 else KILLED - code
        _send_event(events_writer, ENDED, code)
        os._exit(code)


def _become(command: Sequence[str], environment: Mapping[str, str], events_writer: int) -> NoReturn:
    _to_foreground(0)
    os.close(events_writer)
    try:
        os.execvpe(command[0], list(command), environment)  # noqa: S606 - what the person asked to run, without a shell
    except OSError as fault:
        what = "command not found" if fault.errno == errno.ENOENT else os.strerror(fault.errno or 0)
        os.write(2, f"bridge-wrap: {command[0]}: {what}\r\n".encode(errors="replace"))
        os._exit(NOT_FOUND if fault.errno == errno.ENOENT else NOT_EXECUTABLE)
    finally:
        os._exit(NOT_EXECUTABLE)


def _to_foreground(program: int) -> None:
    with contextlib.suppress(OSError):
        os.setpgid(program, 0)
    # Giving the terminal away from the background would stop us.
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.tcsetpgrp(0, program or os.getpgrp())
    signal.signal(signal.SIGTTOU, before or signal.SIG_DFL)


def _send_event(events_writer: int, kind: bytes, number: int) -> None:
    try:
        os.write(events_writer, _RECORD.pack(kind, number))
    except OSError:
        # The wrapper is gone; the terminal is about to be hung up.
        sys.exit(0)
