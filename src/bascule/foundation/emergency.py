"""Ending what was started while the event loop cannot: from another thread, in the order of registration.

A person's stop must not wait for a loop that is held up. Whoever starts a process registers here how to end it without
the loop, for as long as that is possible.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable


class EmergencyStop:
    def __init__(self) -> None:
        # Held while `end_all` works: after `withdraw` returns no `end` runs, so descriptors may be closed.
        self._lock = threading.Lock()
        self._ends: dict[int, Callable[[], None]] = {}
        self._next = itertools.count()

    def add(self, end: Callable[[], None]) -> Callable[[], None]:
        """Register `end`, which any thread may call until the returned function was called."""
        key = next(self._next)
        with self._lock:
            self._ends[key] = end

        def withdraw() -> None:
            with self._lock:
                self._ends.pop(key, None)

        return withdraw

    def end_all(self) -> int:
        """How many were registered. One that is gone already does not keep the others."""
        with self._lock:
            for end in self._ends.values():
                with contextlib.suppress(OSError):
                    end()
            return len(self._ends)
