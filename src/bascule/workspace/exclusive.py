"""Runs that change the same directories take turns.

One at a time, so that what a run changed is what lies between its two checkpoints, and an edit never meets a file
that another run is half-way through. A turn belongs to the files, not to a space: one space may lie in another, or be
the same directory mounted a second time. Runs that only read do not queue, nor do commands in the background, which are
runs beside the others (`checkpointing`); a run that waits for a person gives its turn back.
"""

from collections.abc import Callable

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Overloaded
from bascule.workspace.ports import Extent, overlap


class _Turn:
    """One that is had or waited for."""

    def __init__(self, owner: "Exclusive") -> None:
        self.owner = owner
        self.begins: Deferred[None] = Deferred()
        # Asked for when another space has or wants a turn.
        self.extent: Extent | None = None

    def excludes(self, other: "_Turn") -> bool:
        if self.owner is other.owner:
            return True
        for turn in (self, other):
            if turn.extent is None:
                turn.extent = turn.owner.extent()
        return overlap(self.extent or frozenset(), other.extent or frozenset())


class Turns:
    """Those of all spaces: first come, first served, except for those whom nobody before them excludes."""

    def __init__(self) -> None:
        self._taken: list[_Turn] = []
        # In the order of asking.
        self._waiting: list[_Turn] = []

    def waiting(self, owner: "Exclusive") -> int:
        return sum(turn.owner is owner for turn in self._waiting)

    def take(self, owner: "Exclusive") -> Deferred[None]:
        mine = _Turn(owner)
        self._waiting.append(mine)
        mine.begins.add_done_callback(lambda begins: self._go_on() if begins.cancelled() else None)
        self._go_on()
        return mine.begins

    def give_back(self, owner: "Exclusive") -> None:
        self._taken = [turn for turn in self._taken if turn.owner is not owner]
        self._go_on()

    def _go_on(self) -> None:
        waiting = [turn for turn in self._waiting if not turn.begins.done()]
        self._waiting = []
        begun = []
        for turn in waiting:
            if any(turn.excludes(other) for other in (*self._taken, *self._waiting)):
                self._waiting.append(turn)
            else:
                self._taken.append(turn)
                begun.append(turn)
        for turn in begun:
            turn.begins.set_result(None)


class Exclusive:
    """One space's turns."""

    def __init__(self, turns: Turns, extent: Callable[[], Extent], max_waiting: int) -> None:
        self._turns = turns
        self.extent = extent
        self._max_waiting = max_waiting

    def check(self) -> None:
        """Before anything is stored about a run that would have to queue."""
        if self._turns.waiting(self) >= self._max_waiting:
            raise Overloaded(
                f"{self._max_waiting} runs wait for their turn in this space already",
                hint="wait for some of them; long commands belong into the background (processes.start)",
                retry_after=1.0,
            )

    def take(self) -> Deferred[None]:
        """Settled when the turn is ours; cancelling it before gives up the place in the queue."""
        return self._turns.take(self)

    def give_back(self) -> None:
        self._turns.give_back(self)
