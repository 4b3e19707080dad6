"""The one heap of deadlines: everything in the daemon that happens by itself at a time."""

import heapq
from collections.abc import Callable
from itertools import count

import msgspec

from bascule.foundation.clock import Clock

# Work done per wake-up, so that a thousand deadlines at once do not hold up the loop.
MAX_DUE_PER_TICK = 200


class Deadline(msgspec.Struct, eq=False):
    """Something that happens by itself at a time, unless it is called off."""

    when: float
    order: int
    what: Callable[[float], None] | None
    line: "_Line | None" = None

    @property
    def live(self) -> bool:
        return self.what is not None


class _Line:
    """Deadlines equally far away when they were set: the first to be set is the first to come.

    Only that one is in the heap, so that most deadlines cost one entry of a dict, and leave it when called off.
    """

    __slots__ = ("last", "length_ms", "waiting")

    def __init__(self, length_ms: float) -> None:
        self.length_ms = length_ms
        self.waiting: dict[Deadline, None] = {}
        self.last = float("-inf")

    @property
    def live(self) -> bool:
        return bool(self.waiting)


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
        # The entry of a line has the time of a deadline that was its first one then: never later than its first one is.
        self._heap: list[tuple[float, int, Deadline | _Line]] = []
        self._lines: dict[float, _Line] = {}
        self._order = count()
        # Entries of the heap for which nothing is due: deadlines that were called off, and lines without any.
        self._idle = 0
        # Set by the process: arms its one timer.
        self.on_earlier: Callable[[float], None] | None = None

    def at(self, when: float, what: Callable[[float], None]) -> Deadline:
        """Call `what` with the time then."""
        deadline = Deadline(when, next(self._order), what)
        self._push(deadline, deadline)
        return deadline

    def after_ms(self, ms: float, what: Callable[[float], None], *, since: float | None = None) -> Deadline:
        """Call `what` so long after `since`, or after now."""
        when = (self._clock.monotonic() if since is None else since) + ms / 1000
        deadline = Deadline(when, next(self._order), what)
        line = self._lines.get(ms)
        if line is None:
            line = self._lines[ms] = _Line(ms)
            self._push(deadline, line)
        elif when < line.last:
            # It counts from an earlier time than the last one in the line, so it would stand in the wrong place there.
            self._push(deadline, deadline)
            return deadline
        elif not line.waiting:
            self._idle -= 1
        line.last = when
        line.waiting[deadline] = None
        deadline.line = line
        return deadline

    def call_off(self, deadline: Deadline) -> None:
        if deadline.what is None:
            return
        deadline.what = None
        line = deadline.line
        if line is None:
            self._idle += 1
            self.tidy()
            return
        del line.waiting[deadline]
        if not line.waiting:
            self._idle += 1
            self.tidy()

    def tidy(self) -> None:
        """Drop entries for which nothing is due once they are half of the heap. Also called now and then: the live half
        may have come up meanwhile."""
        if self._idle >= self.MIN_SWEEP and self._idle * 2 > len(self._heap):
            self._heap = [each for each in self._heap if each[2].live]
            heapq.heapify(self._heap)
            self._lines = {length_ms: line for length_ms, line in self._lines.items() if line.live}
            self._idle = 0

    def next(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def tick(self, now: float) -> None:
        """Do what is due, at most a slice of it; the caller asks `next()` again."""
        limit = MAX_DUE_PER_TICK
        while limit and self._heap and self._heap[0][0] <= now:
            _, order, entry = heapq.heappop(self._heap)
            deadline = self._first_of(entry, order) if isinstance(entry, _Line) else entry
            if deadline is None:
                continue
            what, deadline.what = deadline.what, None
            if what is None:
                self._idle -= 1
                continue
            limit -= 1
            try:
                what(now)
            except Exception as error:  # noqa: BLE001 - one deadline's fault must not stop the clock for the rest
                self._on_fault(error)

    def _first_of(self, line: _Line, order: int) -> Deadline | None:
        """The deadline for which the line stood in the heap, unless it was called off; the next one takes its place."""
        first = next(iter(line.waiting), None)
        if first is None:
            self._idle -= 1
        found: Deadline | None = None
        if first is not None and first.order == order:
            found = first
            del line.waiting[found]
            first = next(iter(line.waiting), None)
        if first is None:
            del self._lines[line.length_ms]
        else:
            heapq.heappush(self._heap, (first.when, first.order, line))
        return found

    def _push(self, deadline: Deadline, entry: Deadline | _Line) -> None:
        heap = self._heap
        when = deadline.when
        earlier = not heap or when < heap[0][0]
        heapq.heappush(heap, (when, deadline.order, entry))
        if earlier and self.on_earlier is not None:
            self.on_earlier(when)

    def __len__(self) -> int:
        """How many are still to happen."""
        # A line that has any counts as one of the heap's already.
        more = sum(len(line.waiting) - 1 for line in self._lines.values() if line.waiting)
        return len(self._heap) - self._idle + more
