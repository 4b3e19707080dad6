"""Long waits in short requests, through a restart of the daemon."""

from __future__ import annotations

import time

from bascule.foundation.agreement import MAX_WAIT_MS
from bascule.foundation.backoff import Backoff
from bascule.local_client.exits import DoorError
from bascule.local_client.retry import PATIENCE_SECONDS, pause_after

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Who answers "nothing yet" sooner than this has not waited.
SOON_SECONDS = 1.0


def wait_in_slices(
    attempt: Callable[[int], Any],
    wait_ms: int | None,
    *,
    contact_seconds: float = PATIENCE_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Any:
    """What `attempt(slice_ms)` gives that is not None; None after `wait_ms` (None: as long as it takes).

    `contact_seconds` is how long the daemon may be away before it has answered for the first time.
    """
    deadline = None if wait_ms is None else clock() + wait_ms / 1000
    away_until: float | None = clock() + contact_seconds
    pauses = Backoff()
    while True:
        began = clock()
        left = MAX_WAIT_MS if deadline is None else max(0, round((deadline - began) * 1000))
        try:
            value = attempt(min(left, MAX_WAIT_MS))
        except DoorError as fault:
            pause = pause_after(fault, pauses)
            if away_until is None:
                away_until = clock() + PATIENCE_SECONDS
            end = away_until if deadline is None else min(away_until, deadline)
            if pause is None or clock() + pause > end:
                raise
            sleep(pause)
            continue
        away_until = None
        if value is not None:
            return value
        now = clock()
        if deadline is not None and now >= deadline:
            return None
        if now - began >= SOON_SECONDS:
            pauses.reset()
        else:
            # A daemon that is stopping, or a broker that does not wait at all: it is not asked in a tight loop.
            pause = next(pauses)
            sleep(pause if deadline is None else min(pause, max(0.0, deadline - now)))
