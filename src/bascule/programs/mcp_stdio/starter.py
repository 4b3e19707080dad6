"""Starts the daemon when none runs; of several stdio programs that find none, one does it."""

from __future__ import annotations

import fcntl
import os
import sys

from bascule.foundation import paths
from bascule.local_client.exits import DoorError

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    import subprocess

# What a daemon of the user needs. Not what this client's session has: tokens, virtual environments, sockets.
KEPT_ENVIRONMENT = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG")
# The end of what the daemon said when it could not start; the rest is in its log.
_MAX_COMPLAINT_CHARS = 600


class Starter:
    """At most one daemon being started by this process, and by all of them together."""

    def __init__(self, state: str, *, enabled: bool = True, command: tuple[str, ...] | None = None) -> None:
        self.enabled = enabled
        self._state = state
        # -P: a project directory with a `bascule` folder in it must not become the daemon.
        self._command = command or (
            *(sys.executable, "-P", "-m", "bascule.cli.start", "up", "-d", "--tcp-optional", "--state-dir"),
            state,
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None

    def begin(self) -> None:
        """Start the daemon unless somebody is at it already. Returns at once."""
        if self._process is not None and self._process.poll() is not None:
            self.finish()
        if not self.enabled or self._process is not None or not self._take_lock():
            return
        import subprocess  # noqa: PLC0415 - 4 ms that only this path pays

        with open(self._complaints, "wb", opener=_private) as complaints:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own module
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                cwd=self._state,
                env={name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ},
                start_new_session=True,
            )

    def failure(self) -> DoorError | None:
        """Why the daemon that we started did not come up; None while it may still."""
        if self._process is None or not self._process.poll():
            return None
        self.finish()
        with open(self._complaints, encoding="utf-8", errors="replace") as file:
            output = file.read().strip()[-_MAX_COMPLAINT_CHARS:]
        return DoorError(
            f"Bascule could not be started: {output or 'it said nothing'}",
            "run `bascule up` in a terminal to see why",
        )

    def finish(self) -> None:
        """The daemon answers, or will not: let the next one try."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def _complaints(self) -> str:
        return os.path.join(self._state, "start.err")

    def _take_lock(self) -> bool:
        paths.make_private_dir(self._state)
        lock = os.open(os.path.join(self._state, "start.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        return True


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
