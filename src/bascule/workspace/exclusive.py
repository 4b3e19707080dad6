"""Runs that change a space take turns.

One at a time, so that what a run changed is what lies between its two checkpoints, and an edit never meets a file
that another run is half-way through. Runs that only read do not queue, nor do commands in the background, which are
runs beside the others (`checkpointing`); a run that waits for a person gives its turn back.
"""

from collections import deque

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Overloaded


class Exclusive:
    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._taken = False
        self._waiting: deque[Deferred[None]] = deque()

    def check(self) -> None:
        """Before anything is stored about a run that would have to queue."""
        if len(self._waiting) >= self._max_waiting:
            raise Overloaded(
                f"{self._max_waiting} runs wait for their turn in this space already",
                hint="wait for some of them; long commands belong into the background (processes.start)",
                retry_after=1.0,
            )

    def take(self) -> Deferred[None]:
        """Settled when the turn is ours; cancelling it before gives up the place in the queue."""
        mine: Deferred[None] = Deferred()
        if self._taken:
            self._waiting.append(mine)
        else:
            self._taken = True
            mine.set_result(None)
        return mine

    def give_back(self) -> None:
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():
                following.set_result(None)
                return
        self._taken = False
