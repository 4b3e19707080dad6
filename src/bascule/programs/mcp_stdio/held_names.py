"""Which handles the sessions of this user hold at brokers that are not our own daemon.

Our daemon gives a handle to one link connection only; HTTP has no connection to give it to. So two sessions started
alike ask each other, through a lock in the state directory.
"""

from __future__ import annotations

import fcntl
import os

from bascule.foundation import paths


class HeldNames:
    def __init__(self, state: str) -> None:
        self._state = state
        self._locks: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """False when another session holds it."""
        if name in self._locks:
            return True
        folder = os.path.join(self._state, "held")
        file = os.path.basename(paths.token_file(self._state, name)).removesuffix(".token") + ".lock"
        try:
            if not os.path.isdir(folder):
                os.mkdir(folder, 0o700)
            lock = os.open(os.path.join(folder, file), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            # No state directory here: no token is shared either, and the broker refuses a live handle by itself.
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._locks[name] = lock
        return True

    def keep(self, name: str, *, granted: bool) -> None:
        """The broker has answered: one handle is held at a time."""
        for other in [each for each in self._locks if (each != name) == granted]:
            os.close(self._locks.pop(other))

    def release(self) -> None:
        for lock in self._locks.values():
            os.close(lock)
        self._locks.clear()
