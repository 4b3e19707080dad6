"""How often a principal may call: a bucket each, so that a flood drowns nobody but its source."""

from collections.abc import Callable

from bascule.foundation.clock import Clock
from bascule.foundation.errors import Overloaded
from bascule.foundation.ids import is_reserved_handle
from bascule.kernel.call import Principal, agent_of

# Far above what agents do and below what one core serves, so that one runaway loop leaves room for others.
CALLS_PER_SECOND = 5_000
# A burst of parallel tool calls, or a client that catches up after a restart.
BURST_CALLS = 10_000
# Of a space's agent (`spc_...`): commands in a sandbox send messages and wait for them, and what runs there is any
# program at all. Hundreds of short calls at once fit, a loop does not.
SPACE_CALLS_PER_SECOND = 50
SPACE_BURST_CALLS = 500
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
        # principal -> [calls left, as of, per second, burst]
        self._buckets: dict[Principal, list[float]] = {}

    def take(self, principal: Principal) -> None:
        if not self._per_second:
            return
        now = self._clock.monotonic()
        bucket = self._buckets.get(principal)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                self._forget_idle(now)
            per_second, burst = self._per_second, self._burst
            if is_reserved_handle(agent_of(principal) or ""):
                per_second, burst = min(per_second, SPACE_CALLS_PER_SECOND), min(burst, SPACE_BURST_CALLS)
            self._buckets[principal] = [burst - 1, now, per_second, burst]
            return
        left, since, per_second, burst = bucket
        left += (now - since) * per_second
        left = min(left, burst)
        bucket[1] = now
        if left < 1:
            bucket[0] = left
            if self._on_over is not None:
                self._on_over(principal)
            raise Overloaded(
                f"{principal} makes more than {per_second:g} calls per second",
                hint="slow down; waiting with waitMs costs one call, polling costs many",
                retry_after=(1 - left) / per_second,
            )
        bucket[0] = left - 1

    def _forget_idle(self, now: float) -> None:
        for principal, (_, since, per_second, burst) in list(self._buckets.items()):
            if now - since > burst / per_second:
                del self._buckets[principal]
