"""The person's side: the terminal bridge-wrap was started in, or the pipes in place of one."""

import contextlib
import fcntl
import os
import stat
import struct
import termios
import tty

from bascule.programs.wrap.child import DEFAULT_COLUMNS, DEFAULT_ROWS


class HostTerminal:
    """Reads 0 and writes 1, the terminal in raw mode while the program has it."""

    def __init__(self) -> None:
        self.stdin = 0
        self.stdout = 1
        # Each may be a pipe while the other is the terminal.
        self.reads_terminal = os.isatty(0)
        self.writes_terminal = os.isatty(1)
        self._modes = termios.tcgetattr(0) if self.reads_terminal else None
        self._raw = False
        self._reopened: list[int] = []

    def open(self) -> None:
        """Descriptors that never block us. The ones we were given stay as they are: others share them."""
        self.stdin = self._unblocked(0, os.O_RDONLY)
        self.stdout = self._unblocked(1, os.O_WRONLY)

    def _unblocked(self, descriptor: int, flags: int) -> int:
        # O_NONBLOCK belongs to the open file, which our shell has open too: a file of our own is opened anew.
        try:
            kind = os.fstat(descriptor).st_mode
            path = os.ttyname(descriptor) if os.isatty(descriptor) else f"/proc/self/fd/{descriptor}"
            if stat.S_ISREG(kind):
                # A file is always ready, and opened anew it would begin at its beginning.
                return descriptor
            ours = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            # A socket, or a closed descriptor: used as it is.
            return descriptor
        self._reopened.append(ours)
        return ours

    def size(self) -> tuple[int, int]:
        for descriptor in (1, 0, 2):
            try:
                rows, columns, _, _ = struct.unpack(
                    "HHHH", fcntl.ioctl(descriptor, termios.TIOCGWINSZ, b"\0" * struct.calcsize("HHHH"))
                )
            except OSError:
                continue
            if rows and columns:
                return rows, columns
        return DEFAULT_ROWS, DEFAULT_COLUMNS

    def make_raw(self) -> None:
        """Every key is the program's, Ctrl-C included; its own terminal makes signals of them."""
        if self._modes is not None and not self._raw:
            tty.setraw(0, termios.TCSADRAIN)
            self._raw = True

    def restore(self) -> None:
        if self._modes is not None and self._raw:
            self._raw = False
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSADRAIN, self._modes)

    def close(self) -> None:
        self.restore()
        for descriptor in self._reopened:
            os.close(descriptor)
        self._reopened.clear()
