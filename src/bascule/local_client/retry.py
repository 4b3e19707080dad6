"""How often to knock again.

Only what is safe to repeat comes here: a send or a reply with its own ticket id, a registration, a read.
"""

from __future__ import annotations

import os
import time

from bascule.local_client.exits import ConnectionLost, DoorError, NotRunning, Refusal

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

# A daemon restarts within two seconds; after ten it is not restarting.
RETRY_SECONDS = 10.0
# Someone who waits for an answer for minutes would rather see a slow restart through.
PATIENCE_SECONDS = 60.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


class Pauses:
    """0.05 s doubling to 1 s, each cut by up to half so that many waiters do not come back as one."""

    def __init__(self) -> None:
        self._next = _FIRST_PAUSE

    def next(self) -> float:
        pause = self._next
        self._next = min(_LONGEST_PAUSE, pause * 2)
        return pause * (0.5 + os.urandom(1)[0] / 512)

    def reset(self) -> None:
        self._next = _FIRST_PAUSE


def retrying(
    attempt: Callable[[], T],
    *,
    seconds: float = RETRY_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Repeat `attempt` while the daemon is away or busy, for at most `seconds`; then raise what came last."""
    pauses = Pauses()
    deadline = clock() + seconds
    while True:
        try:
            return attempt()
        except DoorError as fault:
            pause = pause_after(fault, pauses)
            if pause is None or clock() + pause > deadline:
                raise
        sleep(pause)


def pause_after(fault: DoorError, pauses: Pauses) -> float | None:
    """How long to wait before trying again; None when trying again would change nothing."""
    match fault:
        case NotRunning() | ConnectionLost():
            return pauses.next()
        case Refusal(status=429 | 503):
            return max(fault.retry_after or 0.0, pauses.next())
    return None
