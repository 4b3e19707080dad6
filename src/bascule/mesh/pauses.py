"""What follows from a word of another node, at most once in a while for each node, however often it speaks."""

from collections.abc import Callable
from functools import partial

from bascule.foundation.timers import Timers

# What follows is all of an outbox again.
PAUSE_MS = 100


class Pauses:
    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        # By node that was heard of within `PAUSE_MS`: what is to follow once that is over.
        self._recent: dict[str, Callable[[], None] | None] = {}
        self._closed = False

    def act(self, node: str, act: Callable[[], None]) -> None:
        """Now, or once when the pause is over, in place of what waited for that."""
        if node in self._recent:
            self._recent[node] = act
        else:
            self._recent[node] = None
            self._timers.after_ms(PAUSE_MS, partial(self._over, node))
            act()

    def act_unless_more_waits(self, node: str, act: Callable[[], None]) -> None:
        if self._recent.get(node) is None:
            self.act(node, act)

    def close(self) -> None:
        self._closed = True

    def _over(self, node: str, _now: float) -> None:
        act = self._recent.pop(node, None)
        if act is not None and not self._closed:
            self.act(node, act)
