"""How often one may miss in an app that one may not look at.

Whether a button or a title is there is something one sees. Nothing is told of it before a person has said yes; but a
call that fails because nothing matches says it too, one bit at a time, without anybody being asked. So the misses are
few, and then the app must be looked at first, which asks.
"""

from collections import deque
from typing import Final

from bascule.foundation.clock import Clock
from bascule.kernel.call import Principal

# A model that guesses a title or two is no reader of screens.
MAX_MISSES: Final = 10
WITHIN_SECONDS: Final = 600.0
# Principals whose misses are counted; agents are free to register, so the oldest are forgotten first.
MAX_PRINCIPALS: Final = 1_000


class Guesses:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._misses: dict[Principal, deque[float]] = {}

    def may(self, principal: Principal) -> bool:
        return len(self._recent(principal)) < MAX_MISSES

    def missed(self, principal: Principal) -> None:
        misses = self._recent(principal)
        misses.append(self._clock.monotonic())
        self._misses.pop(principal, None)
        self._misses[principal] = misses
        if len(self._misses) > MAX_PRINCIPALS:
            del self._misses[next(iter(self._misses))]

    def _recent(self, principal: Principal) -> deque[float]:
        misses = self._misses.get(principal) or deque()
        while misses and misses[0] <= self._clock.monotonic() - WITHIN_SECONDS:
            misses.popleft()
        return misses
