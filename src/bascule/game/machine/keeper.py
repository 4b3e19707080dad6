"""Starts one game and stays until nothing of it is left: between the daemon and every game that it launches.

A program of its own, on the standard library only (`python -I -S`), because it must outlive the daemon: when the daemon
is gone, however it went, our control socket ends, and so does the game. It is a subreaper, so launchers that fork and
exit leave the real game to us, and "the game" is everything below this process.

Over the control socket (its descriptor is our argument), a JSON value per line:
    -> {"argv": [...], "cwd": ..., "env": {...}, "terminal": false}  once
                                                         <- {"pid": 12} or {"fault": [errno, text]}
    -> "terminate" or "kill"                             <- {"left": [34, ...]}  the launcher is gone, these run on;
                                                            again when one of them ends
                                                         <- {"ended": 0}  nothing is left; ours is the last word
Its stdin, stdout and stderr are the game's. A game that wants a terminal gets one of its own in their place; what it
paints goes to our stdout.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import stat
import sys
import termios
import time

# typing costs 5 ms; who checks types has read it already.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

# Between asking and killing, when the daemon is gone and cannot say what games.toml says: its `stop_timeout`'s default.
ORPHAN_SECONDS = 5.0
PIECE_BYTES = 64 * 1024
# What every program for terminals can draw on.
TERMINAL_SIZE = (24, 80)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LINUX = sys.platform == "linux"


class Keeper:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.main = 0
        self.code: int | None = None
        # Somebody wants it to end: what is left when its first process ends is on its way out too.
        self.asked = False
        self.kill_at: float | None = None
        self.lines = b""
        # The socket that the game listens on: its file outlives a process that is killed.
        self.socket_path: str | None = None
        self.poll = select.poll()
        # Our side of its terminal, and where what it paints goes.
        self.screen = -1
        self.output = -1

    # -- starting

    def start(self, wanted: dict[str, Any]) -> None:
        if wanted["env"].get("GABP_TRANSPORT") == "pipe":
            self.socket_path = wanted["env"].get("GABP_ADDRESS")
        reader, writer = os.pipe()
        terminal = self.open_terminal() if wanted["terminal"] else -1
        self.main = os.fork()
        if not self.main:
            become(wanted, writer, terminal)
        os.close(writer)
        if terminal >= 0:
            os.close(terminal)
            self.poll.register(self.screen, select.POLLIN)
        # The game has them now. While we held them too, nobody would see it close them.
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        with open(reader, "rb") as file:
            fault = file.read()
        if fault:
            os.waitpid(self.main, 0)
            self.send({"fault": json.loads(fault)})  # noqa: TID251 - our own words
            os._exit(0)
        self.send({"pid": self.main})

    def open_terminal(self) -> int:
        """The game's side of it."""
        self.screen, terminal = os.openpty()
        termios.tcsetwinsize(terminal, TERMINAL_SIZE)
        self.output = os.dup(1)
        # A daemon that reads slowly misses something that is painted over anyway; nothing here waits for it.
        for descriptor in (self.screen, self.output):
            os.set_blocking(descriptor, False)
        return terminal

    def paint(self) -> bool:
        """Pass on what the game has painted; False when there is nothing more for now, or ever."""
        try:
            piece = os.read(self.screen, PIECE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            # Linux says EIO when the last process is gone.
            piece = b""
        if not piece:
            self.poll.unregister(self.screen)
            os.close(self.screen)
            self.screen = -1
            return False
        with contextlib.suppress(OSError):
            os.write(self.output, piece)
        return True

    # -- ending

    def terminate(self) -> None:
        self.asked = True
        self.signal_all(signal.SIGTERM)

    def kill(self) -> None:
        """Until nothing is left: what forks while it is killed is found the next time."""
        self.asked = True
        self.kill_at = None
        pause = 0.001
        while self.reap():
            self.signal_all(signal.SIGKILL)
            time.sleep(pause)
            # One that hangs in the kernel is waited for without haste.
            pause = min(2 * pause, 0.1)
        self.leave()

    def orphaned(self) -> None:
        """The daemon is gone, or whoever ended us wants us to. Games that save when they are asked to end still can."""
        if self.kill_at is None:
            self.terminate()
            self.kill_at = time.monotonic() + ORPHAN_SECONDS

    def signal_all(self, number: signal.Signals) -> None:
        for pid in descendants():
            send(pid, number)
        if not LINUX and self.main:
            # Who cannot look its descendants up has their group.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.main, number)

    def reap(self) -> bool:
        """Whether anything is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.main:
                self.code = os.waitstatus_to_exitcode(status)

    def look(self) -> None:
        """Somebody has ended."""
        ran = self.code is None
        if not self.reap():
            self.leave()
        if self.code is None:
            return
        if ran and self.code != 0 and not self.asked:
            # It crashed. Its helpers are nobody's game: they would keep it from being started again.
            self.kill()
        # A launcher that forks twice leaves one behind that ends at once: the game is what then is first.
        self.send({"left": descendants()})

    def leave(self) -> NoReturn:
        while self.screen >= 0 and self.paint():
            pass
        if self.socket_path is not None:
            # The daemon does it too; a daemon that was killed cannot.
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.lstat(self.socket_path).st_mode):
                    os.unlink(self.socket_path)
        self.send({"ended": self.code})
        os._exit(0)

    # -- the loop

    def send(self, message: dict[str, Any]) -> None:
        # Nobody there: `receive` finds out, and nobody is to be told.
        with contextlib.suppress(OSError):
            self.control.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> bool:
        """False when the daemon is gone."""
        try:
            piece = self.control.recv(PIECE_BYTES)
        except OSError:
            piece = b""
        *lines, self.lines = (self.lines + piece).split(b"\n")
        for line in lines:
            wanted = json.loads(line)  # noqa: TID251 - in here there is no other parser, and the daemon is trusted
            if wanted == "kill":
                self.kill()
            elif wanted == "terminate":
                self.terminate()
            elif not self.main:
                self.start(wanted)
        return bool(piece)

    def ring(self, numbers: bytes) -> None:
        """Signals have come."""
        if any(number != signal.SIGCHLD for number in numbers):
            self.orphaned()
        if self.main:
            self.look()

    def serve(self) -> NoReturn:
        bell, ring = os.pipe()
        os.set_blocking(bell, False)
        os.set_blocking(ring, False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        poll = self.poll
        poll.register(self.control, select.POLLIN)
        poll.register(bell, select.POLLIN)
        while True:
            wait = None if self.kill_at is None else max(0.0, self.kill_at - time.monotonic()) * 1000
            for descriptor, _ in poll.poll(wait):
                if descriptor == bell:
                    self.ring(os.read(bell, 4096))
                elif descriptor == self.screen:
                    self.paint()
                elif descriptor == self.control.fileno() and not self.receive():
                    poll.unregister(self.control)
                    if not self.main:
                        os._exit(0)
                    self.orphaned()
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                self.kill()


def become(wanted: dict[str, Any], writer: int, terminal: int) -> NoReturn:
    """In the child: be the game, or say why not."""
    try:
        os.setsid()
        if terminal >= 0:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
            for descriptor in (0, 1, 2):
                os.dup2(terminal, descriptor)
        if LINUX:
            # Should we be killed: we are one thread, which is whose death this is about.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            # Python ignores the last two; a program that was not told must not.
            signal.signal(number, signal.SIG_DFL)
        if wanted["cwd"] is not None:
            os.chdir(wanted["cwd"])
        os.execvpe(wanted["argv"][0], wanted["argv"], wanted["env"])  # noqa: S606 - as the user wrote it in games.toml
    except (OSError, ValueError) as error:
        os.write(writer, json.dumps([getattr(error, "errno", None) or 0, str(error)]).encode())
    finally:
        os._exit(127)


def descendants() -> list[int]:
    """Parents before their children."""
    found, waiting = [], [os.getpid()]
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                    children = [int(child) for child in file.read().split()]
                found += children
                waiting += children
    return found


def send(pid: int, number: signal.Signals) -> None:
    """By descriptor, and only while it still is below us: its number may have gone to a stranger."""
    with contextlib.suppress(OSError, ValueError):
        descriptor = os.pidfd_open(pid)
        try:
            if is_descendant(pid):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def is_descendant(pid: int) -> bool:
    while pid > 1:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
        # The name in parentheses may contain anything, parentheses too.
        pid = int(text[text.rindex(b")") + 2 :].split()[1])
        if pid == os.getpid():
            return True
    return False


def main() -> None:
    number = int(sys.argv[1])
    os.set_inheritable(number, False)
    if LINUX and ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise SystemExit("keeper: this kernel has no subreapers")
    Keeper(socket.socket(fileno=number)).serve()


if __name__ == "__main__":
    main()
