"""`bascule doctor` for pages: one examination at a time, and its answer is good for some seconds."""

import asyncio
from collections.abc import Awaitable, Callable

from bascule.admin.protocol import DoctorCheck, DoctorReport
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.tasks import Tasks
from bascule.kernel.call import Call
from bascule.kernel.rows import Nothing

# An examination starts programs and writes a file for the disk's speed; a page that is loaded again needs no new one.
CACHED_SECONDS = 10.0

Examine = Callable[[], Awaitable[list[DoctorCheck]]]


class Doctor:
    def __init__(self, examine: Examine, clock: Clock, tasks: Tasks, *, cached_seconds: float = CACHED_SECONDS) -> None:
        self._examine = examine
        self._clock = clock
        self._tasks = tasks
        self._cached_seconds = cached_seconds
        self._known: tuple[float, DoctorReport] | None = None
        self._running: asyncio.Task[DoctorReport] | None = None

    def look(self, call: Call, params: Nothing) -> "DoctorReport | asyncio.Future[DoctorReport]":
        if self._known is not None and self._clock.monotonic() < self._known[0]:
            return self._known[1]
        if self._running is None or self._running.done():
            self._running = self._tasks.start(self._look(), call.method)
        # Whoever leaves does not end it for the others.
        return asyncio.shield(self._running)

    async def _look(self) -> DoctorReport:
        result = DoctorReport(checks=await self._examine(), at=rfc3339(self._clock.wall_ms()))
        self._known = (self._clock.monotonic() + self._cached_seconds, result)
        return result
