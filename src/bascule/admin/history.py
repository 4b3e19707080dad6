"""What the daemon did lately, second by second and minute by minute: two rings of numbers that never grow.

Whoever looks after the event loop brings a sample each time it looks, so that nothing more wakes an idle machine. Looks
are half a second to two seconds apart: rates are over the time between two of them, and a slot in between has the value
of both. What nobody looked at, because the machine slept or the loop was held up, stays empty.
"""

import math
from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from bascule.admin.protocol import HistoryParams, HistoryResult
from bascule.foundation.clock import Clock, rfc3339
from bascule.kernel.call import Call

# Name of the window -> seconds of one slot, and how many: ten minutes by the second, a day by the minute. Together some
# 160 KiB, whatever happens.
WINDOWS: Final = {"10m": (1, 600), "24h": (60, 1_440)}
# Slots between two looks that get the value of both: an idle daemon is looked at every two seconds, a busy machine is
# late by one or two.
FILLED_SLOTS: Final = 5

_SERIES: Final = (
    "callsPerSecond",
    "p50Ms",
    "p99Ms",
    "loopLagMs",
    "rssMb",
    "storeMb",
    "approvalsPending",
    "agentsOnline",
    "ticketsOpen",
    "cpuPercent",
)
_MB: Final = 1_000_000


class Sample(NamedTuple):
    """One look. Counters go up from the start of the daemon; the others are as they are now."""

    calls: int
    # Calls by how long they took, one count per bucket and one above the last.
    times: tuple[float, ...]
    cpu_seconds: float
    lag_seconds: float
    rss_bytes: int | None
    store_bytes: int
    approvals_pending: int
    agents_online: int
    tickets_open: int


class Ring:
    def __init__(self, step: int, slots: int, bounds: Sequence[float]) -> None:
        self.step = step
        self.slots = slots
        self._bounds = bounds
        self._values = {name: array("d", [math.nan]) * slots for name in _SERIES}
        # The slot that is being measured, when that began, and with which counters.
        self._open: tuple[int, float, Sample] | None = None
        self._worst_lag = 0.0
        # The first slot that is not measured yet.
        self.end = 0

    def add(self, now: float, sample: Sample) -> None:
        slot = int(now // self.step)
        self._worst_lag = max(self._worst_lag, sample.lag_seconds)
        if self._open is None:
            self.end = slot
        elif slot > self._open[0]:
            self._close(slot, now, sample)
        else:
            return
        self._open = (slot, now, sample)
        self._worst_lag = 0.0

    def _close(self, slot: int, now: float, sample: Sample) -> None:
        assert self._open is not None
        first, began, before = self._open
        known = slot if slot - first <= FILLED_SLOTS else first + 1
        values = self._measured(now - began, before, sample)
        # No further back than the ring reaches, however long nobody looked.
        for number in range(max(first, slot - self.slots), slot):
            for name, value in values.items():
                self._values[name][number % self.slots] = value if number < known else math.nan
        self.end = slot

    def _measured(self, seconds: float, before: Sample, now: Sample) -> dict[str, float]:
        times = [new - old for old, new in zip(before.times, now.times, strict=True)]
        values = {
            "callsPerSecond": (now.calls - before.calls) / seconds,
            "p50Ms": quantile(self._bounds, times, 0.5) * 1000,
            "p99Ms": quantile(self._bounds, times, 0.99) * 1000,
            "loopLagMs": self._worst_lag * 1000,
            "rssMb": math.nan if now.rss_bytes is None else now.rss_bytes / _MB,
            "storeMb": now.store_bytes / _MB,
            "approvalsPending": now.approvals_pending,
            "agentsOnline": now.agents_online,
            "ticketsOpen": now.tickets_open,
            "cpuPercent": (now.cpu_seconds - before.cpu_seconds) / seconds * 100,
        }
        return {name: round(value, 3) for name, value in values.items()}

    def series(self) -> dict[str, list[float | None]]:
        """Oldest first."""
        at = self.end % self.slots
        return {
            name: [None if math.isnan(value) else value for value in (*values[at:], *values[:at])]
            for name, values in self._values.items()
        }


class MetricsHistory:
    def __init__(self, clock: Clock, bounds: Sequence[float]) -> None:
        """`bounds` are the upper ends of the buckets in a sample's `times`."""
        self._clock = clock
        self._rings = {name: Ring(step, slots, bounds) for name, (step, slots) in WINDOWS.items()}

    def add(self, sample: Sample) -> None:
        now = self._clock.monotonic()
        for ring in self._rings.values():
            ring.add(now, sample)

    def show(self, call: Call, params: HistoryParams) -> HistoryResult:
        ring = self._rings[params.window]
        # Slots are of the monotonic clock; people read the other one.
        since = max(0.0, self._clock.monotonic() - ring.end * ring.step) if ring.end else 0.0
        return HistoryResult(
            step_ms=ring.step * 1000,
            end_at=rfc3339(self._clock.wall_ms() - round(since * 1000)),
            series=ring.series(),
        )


def quantile(bounds: Sequence[float], counts: Sequence[float], share: float) -> float:
    """Of so many values per bucket; evenly spread inside of one. NaN of nothing, the last bound above it."""
    wanted = sum(counts) * share
    if not wanted:
        return math.nan
    passed = 0.0
    for (low, high), count in zip(pairwise((0.0, *bounds)), counts, strict=False):
        if passed + count >= wanted:
            return low + (high - low) * (wanted - passed) / count
        passed += count
    return bounds[-1]
