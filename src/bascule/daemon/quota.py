"""How often a principal may call: a bucket each, so that a flood drowns nobody but its source."""

from collections.abc import Callable

from bascule.call import Principal
from bascule.clock import Clock
from bascule.errors import Overloaded

# Far above what agents do and below what one core serves, so that one runaway loop leaves room for others.
CALLS_PER_SECOND = 5_000
# A burst of parallel tool calls, or a client that catches up after a restart.
BURST_CALLS = 10_000
# Principals come and go; over this the idle buckets, which are full, are forgotten.
MAX_BUCKETS = 20_000


class CallQuota:
    def __init__(
        self,
        clock: Clock,
        *,
        per_second: float = CALLS_PER_SECOND,
        burst: float = BURST_CALLS,
        on_over: Callable[[Principal], None] | None = None,
    ) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = burst
        self._on_over = on_over
        # principal -> [calls left, as of]
        self._buckets: dict[Principal, list[float]] = {}

    def take(self, principal: Principal) -> None:
        if not self._per_second:
            return
        now = self._clock.monotonic()
        bucket = self._buckets.get(principal)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                self._forget_idle(now)
            self._buckets[principal] = [self._burst - 1, now]
            return
        left = bucket[0] + (now - bucket[1]) * self._per_second
        left = min(left, self._burst)
        bucket[1] = now
        if left < 1:
            bucket[0] = left
            if self._on_over is not None:
                self._on_over(principal)
            raise Overloaded(
                f"{principal} makes more than {self._per_second:g} calls per second",
                hint="slow down; waiting with waitMs costs one call, polling costs many",
                retry_after=(1 - left) / self._per_second,
            )
        bucket[0] = left - 1

    def _forget_idle(self, now: float) -> None:
        refill = self._burst / self._per_second
        for principal in [each for each, bucket in self._buckets.items() if now - bucket[1] > refill]:
            del self._buckets[principal]
