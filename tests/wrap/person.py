"""Somebody at a terminal: types, reads the screen, resizes the window, leaves."""

import fcntl
import os
import re
import select
import signal
import struct
import termios
import time

import pyte

from patience import PATIENCE


class Person:
    """A program on a terminal whose screen is read by an emulator that is not ours."""

    def __init__(self, command, *, rows=24, columns=100, environment=None, cwd=None):
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        # What the terminal answers by itself: cursor position, device attributes.
        self.screen.write_process_input = lambda text: os.write(self._master, text.encode())
        self.shown = b""
        self.code = None
        self._pid, self._master = os.forkpty()
        if not self._pid:
            try:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
                if cwd:
                    os.chdir(cwd)
                plain = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PS1": "$ ", "HISTFILE": "/dev/null"}
                for name in ("COLUMNS", "LINES"):
                    # The test runner's own; curses would believe it.
                    os.environ.pop(name, None)
                os.execvpe(command[0], command, {**os.environ, **plain, **(environment or {})})
            finally:
                os._exit(99)
        # A terminal that the next one's programs hold open as well is not gone when its window closes.
        os.set_inheritable(self._master, False)

    # -- hands --

    def type(self, text):
        data = text.encode() if isinstance(text, str) else text
        while data:
            sent = os.write(self._master, data)
            data = data[sent:]

    def resize(self, rows, columns):
        self.screen.resize(rows, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    # -- eyes --

    def look(self, seconds=0.0):
        """Take in what is shown within this time; False when the program has ended."""
        deadline = time.monotonic() + seconds
        while True:
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return True
            try:
                data = os.read(self._master, 65536)
            except OSError:
                data = b""
            if not data:
                return False
            self.shown += data
            self._stream.feed(data)

    @property
    def lines(self):
        rows = [line.rstrip() for line in self.screen.display]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def sees(self, pattern, seconds=PATIENCE):
        """The match of a pattern on the screen; an AssertionError when it never appears."""
        return self.until(lambda: re.search(pattern, "\n".join(self.lines), re.MULTILINE), f"{pattern!r}", seconds)

    def until(self, look, what, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        alive = True
        while not (found := look()):
            if time.monotonic() > deadline or not alive:
                raise AssertionError(f"never seen: {what}\n" + "\n".join(self.lines))
            alive = self.look(0.02)
        return found

    def still(self, seconds):
        """Nothing is shown for this long, at least once within patience."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            before = len(self.shown)
            self.look(seconds)
            if len(self.shown) == before:
                return
        raise AssertionError("it never stopped writing")

    # -- the end --

    def ends(self, seconds=PATIENCE):
        """Wait for the program's end; its exit code."""
        deadline = time.monotonic() + seconds
        while self.look(0.05):
            assert time.monotonic() < deadline, "it does not end:\n" + "\n".join(self.lines)
        return self._reap(deadline)

    def _reap(self, deadline):
        while self.code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            else:
                assert time.monotonic() < deadline, "it does not end"
                time.sleep(0.005)
        return self.code

    @property
    def pid(self):
        return self._pid

    def leave(self):
        """Close the window."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1
        if self.code is None:
            try:
                self._reap(time.monotonic() + PATIENCE)
            except AssertionError:
                os.kill(self._pid, signal.SIGKILL)
                self._reap(time.monotonic() + PATIENCE)
