"""The one heap of deadlines: everything in the daemon that happens by itself at a time."""

import heapq
from collections.abc import Callable
from itertools import count

from bascule.foundation.clock import Clock

# Work done per wake-up, so that a thousand deadlines at once do not hold up the loop.
MAX_DUE_PER_TICK = 200


class Deadline:
    """Something that happens by itself at a time, unless it is called off."""

    __slots__ = ("what",)

    def __init__(self, what: Callable[[float], None]) -> None:
        self.what: Callable[[float], None] | None = what


class Timers:
    """Owned by the daemon, used by the bridges.

    What is called off stays in the heap, empty, until its time or until half of the heap is such: most
    waits and reply deadlines never come up, and must not keep what they would have answered.
    """

    # Below this many it is not worth looking.
    MIN_SWEEP = 64

    def __init__(self, clock: Clock, on_fault: Callable[[Exception], object]) -> None:
        self._clock = clock
        self._on_fault = on_fault
        self._heap: list[tuple[float, int, Deadline]] = []
        self._order = count()
        self._called_off = 0
        # Set by the process: arms its one timer.
        self.on_earlier: Callable[[float], None] | None = None

    def at(self, when: float, what: Callable[[float], None]) -> Deadline:
        """Call `what` with the time then."""
        heap = self._heap
        deadline = Deadline(what)
        earlier = not heap or when < heap[0][0]
        heapq.heappush(heap, (when, next(self._order), deadline))
        if earlier and self.on_earlier is not None:
            self.on_earlier(when)
        return deadline

    def after_ms(self, ms: float, what: Callable[[float], None]) -> Deadline:
        return self.at(self._clock.monotonic() + ms / 1000, what)

    def call_off(self, deadline: Deadline) -> None:
        if deadline.what is None:
            return
        deadline.what = None
        self._called_off += 1
        self.tidy()

    def tidy(self) -> None:
        """Drop called-off entries once they are half of the heap. Also called now and then: the live half may have
        come up meanwhile."""
        if self._called_off >= self.MIN_SWEEP and self._called_off * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].what is not None]
            heapq.heapify(self._heap)
            self._called_off = 0

    def next(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def tick(self, now: float) -> None:
        """Do what is due, at most a slice of it; the caller asks `next()` again."""
        limit = MAX_DUE_PER_TICK
        while limit and self._heap and self._heap[0][0] <= now:
            deadline = heapq.heappop(self._heap)[2]
            what, deadline.what = deadline.what, None
            if what is None:
                self._called_off -= 1
                continue
            limit -= 1
            try:
                what(now)
            except Exception as error:  # noqa: BLE001 - one deadline's fault must not stop the clock for the rest
                self._on_fault(error)

    def __len__(self) -> int:
        """How many are still to happen."""
        return len(self._heap) - self._called_off
