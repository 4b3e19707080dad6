"""How long to wait before trying again. The standard library only: helpers start with it."""

from __future__ import annotations

import os

# A daemon that restarts is back within a fraction of a second; one that does not is not hammered.
FIRST_SECONDS = 0.02
LONGEST_SECONDS = 1.0
# So that many clients of one daemon do not come back in step.
JITTER = 0.25


class Backoff:
    """An endless iterator of doubling delays, each up to 25 % shorter or longer."""

    def __init__(self, first: float = FIRST_SECONDS, longest: float = LONGEST_SECONDS) -> None:
        self._first = self._delay = first
        self._longest = longest

    def __iter__(self) -> Backoff:
        return self

    def __next__(self) -> float:
        delay = self._delay
        self._delay = min(delay * 2, self._longest)
        # Not `random`: importing it takes helpers 5 ms.
        return delay * (1 + JITTER * (os.urandom(1)[0] / 127.5 - 1))

    def reset(self) -> None:
        """It went well: the next delay is the first again."""
        self._delay = self._first
