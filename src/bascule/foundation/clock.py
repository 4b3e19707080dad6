"""Two clocks with two names, so that no one compares them by accident.

Within one life of the daemon only the monotonic clock counts; wall time is for people, and for what
must be compared across restarts. A jump of the wall clock may end something early, never late.
"""

import time
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that only move forward."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC."""


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


# Messages come in bursts: most timestamps of a burst share their second, many their millisecond.
@lru_cache(maxsize=256)
def _seconds(wall_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall_s))


@lru_cache(maxsize=1024)
def rfc3339(wall_ms: int) -> str:
    """`2025-10-20T08:00:00.123Z`: the form of the broker spec's timestamps, with milliseconds."""
    return f"{_seconds(wall_ms // 1000)}.{wall_ms % 1000:03d}Z"
