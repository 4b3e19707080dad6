"""Watching an inbox without taking from it."""

from __future__ import annotations

import time

from bascule.local_client.exits import ConnectionLost, DoorError, NotRunning
from bascule.local_client.http import ANSWER_SECONDS, Door, call
from bascule.programs.helpers import waiting

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Seen = dict[str, Any]

# A bell looks this often whether its client still lives.
SLICE_MS = 20_000
# Who waits for a day also waits for a daemon that is being upgraded; one that is away longer was switched off.
OUTAGE_SECONDS = 600.0
_OUTAGE_PAUSE = 5.0


class SessionOver(DoorError):
    """Nobody is left who could be woken."""


def watch(
    door: Door,
    handle: str,
    token: str | None,
    *,
    wait_ms: int = 0,
    by: str | None = None,
    skip: str = "none",
    record: bool = True,
) -> Seen | None:
    """One request: what waits for `handle`, or None after `wait_ms`."""
    query = f"waitMs={wait_ms}&skipRung={skip}&record={str(record).lower()}"
    if by:
        query += "&by=" + by.replace(" ", "%20")
    seconds = wait_ms / 1000 + ANSWER_SECONDS
    answer = call(door, "GET", f"/agents/{handle}/inbox/watch?{query}", token=token, seconds=seconds)
    return dict(answer) if answer else None


def wait_as_bell(
    look: Callable[[int], Seen | None],
    wait_ms: int,
    is_over: Callable[[], bool],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Seen | None:
    """What `look(slice_ms)` sees within `wait_ms`, through restarts and outages of the daemon."""

    deadline = clock() + wait_ms / 1000
    reached = clock()

    def attempt(slice_ms: int) -> Seen | None:
        nonlocal reached
        if is_over():
            raise SessionOver("the client of this hook is gone")
        seen = look(min(slice_ms, SLICE_MS))
        reached = clock()
        return seen

    while True:
        left = max(0, round((deadline - clock()) * 1000))
        try:
            seen: Seen | None = waiting.wait_in_slices(attempt, left, contact_seconds=0, clock=clock, sleep=sleep)
            return seen
        except (NotRunning, ConnectionLost):
            # Raised after a minute of knocking when there had been contact, at once when not.
            now = clock()
            if now - reached > OUTAGE_SECONDS or now + _OUTAGE_PAUSE > deadline or is_over():
                raise
            sleep(_OUTAGE_PAUSE)
