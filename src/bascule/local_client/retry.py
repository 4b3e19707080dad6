"""How often to knock again.

Only what is safe to repeat comes here: a send or a reply with its own ticket id, a registration, a read.
"""

from __future__ import annotations

import time

from bascule.foundation.backoff import Backoff
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


def retrying(
    attempt: Callable[[], T],
    *,
    seconds: float = RETRY_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Repeat `attempt` while the daemon is away or busy, for at most `seconds`; then raise what came last."""
    pauses = Backoff()
    deadline = clock() + seconds
    while True:
        try:
            return attempt()
        except DoorError as fault:
            pause = pause_after(fault, pauses)
            if pause is None or clock() + pause > deadline:
                raise
        sleep(pause)


def pause_after(fault: DoorError, pauses: Backoff) -> float | None:
    """How long to wait before trying again; None when trying again would change nothing."""
    match fault:
        case NotRunning() | ConnectionLost():
            return next(pauses)
        case Refusal(status=429 | 503):
            return max(fault.retry_after or 0.0, next(pauses))
    return None
