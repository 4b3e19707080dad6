"""Turns on the one event loop: nobody keeps it for longer than a moment while others wait for it.

A door asks `take` before it handles a request. A caller that has had its share is called again in the next turn of the
loop, behind those of its own that wait already; others are served in between. What a principal sends meanwhile stays
in its own sockets. That next turn renews the shares, not the clock: `loop.time()` of uvloop moves on within one turn,
so by the clock a door with a long read to work off would get a new share every millisecond. A share that is used up
over many turns costs one callback; while nobody asks for more than its share, none is made.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable

# Small calls of one principal in one turn: half a millisecond, which nobody beside it notices. One agent that answers
# everybody's questions is such a principal, too.
CALLS_PER_TURN = 16
# A request over HTTP, with its head, takes as long as four over link in one read.
HTTP_CALLS = 4
# A call of 1 MiB keeps the loop for milliseconds, and the disk after it. From this size on calls come one at a time,
# with a pause in proportion between them, from any caller: an ask beside them meets one, not all.
LARGE_BYTES = 64 * 1024
LARGE_PAUSE_PER_BYTE = 0.050 / (1024 * 1024)
# What was spent is forgotten after this, also when nobody ever waits: far longer than one turn of the loop takes.
FORGET_SECONDS = 1.0
# Who is over its quota is not read for so long: refusing costs nearly as much as serving.
OVER_QUOTA_PAUSE = 0.05

# The line of everybody's large calls.
_LARGE = object()


class FairShare:
    def __init__(self, *, calls_per_turn: int = CALLS_PER_TURN, on_fault: Callable[[Exception], object]) -> None:
        """`on_fault` hears of a callback that failed; the others are called all the same."""
        self._loop = asyncio.get_running_loop()
        self._share = calls_per_turn
        self._on_fault = on_fault
        # Calls since shares were renewed.
        self._spent: dict[Hashable, int] = {}
        self._renewed = self._loop.time()
        self._waiting: dict[tuple[Hashable, bool], deque[Callable[[], None]]] = {}
        self._paused: dict[object, asyncio.TimerHandle] = {}
        self._serving: tuple[Hashable, bool] | None = None
        self._armed = False

    def take(self, who: Hashable, size: int = 0, calls: int = 1) -> bool:
        """Whether `who` may act now, on something of `size` bytes; then it is counted. If not: `wait`."""
        large = size > LARGE_BYTES
        if (self._waiting or self._paused) and self._is_late((who, large)):
            return False
        if self._loop.time() - self._renewed > FORGET_SECONDS:
            self._renew()
        spent = self._spent.get(who, 0)
        if spent >= self._share:
            return False
        self._spent[who] = spent + calls
        if large:
            self._pause(_LARGE, size * LARGE_PAUSE_PER_BYTE)
        return True

    def is_spent(self, who: Hashable) -> bool:
        """Whether a small call of `who` would have to wait: what it sent need not be looked at before."""
        return self._spent.get(who, 0) >= self._share or (
            bool(self._waiting or self._paused) and self._is_late((who, False))
        )

    def wait(self, who: Hashable, size: int, go_on: Callable[[], None]) -> None:
        """Have `go_on` called when it is the turn of `who` again; it asks `take` once more."""
        self._waiting.setdefault((who, size > LARGE_BYTES), deque()).append(go_on)
        self._arm()

    async def turn(self, who: Hashable, size: int = 0, calls: int = 1) -> None:
        """`take`, after waiting if need be, for doors that have a task per call."""
        if self.take(who, size, calls):
            return
        mine: asyncio.Future[None] = self._loop.create_future()

        def go_on() -> None:
            if mine.done():
                # Its client left.
                return
            if self.take(who, size, calls):
                mine.set_result(None)
            else:
                self.wait(who, size, go_on)

        self.wait(who, size, go_on)
        await mine

    def over_quota(self, who: Hashable) -> None:
        """`who` calls too often: what it sends next is looked at after a moment."""
        self._pause(who, OVER_QUOTA_PAUSE)

    def _pause(self, what: Hashable, seconds: float) -> None:
        if what not in self._paused:
            self._paused[what] = self._loop.call_later(seconds, self._resume, what)

    def _resume(self, what: Hashable) -> None:
        del self._paused[what]
        if self._waiting:
            self._arm()

    def _is_late(self, line: tuple[Hashable, bool]) -> bool:
        """Whether others of its own stand before it, or it has to pause."""
        return (line in self._waiting and line != self._serving) or self._is_paused(line)

    def _is_paused(self, line: tuple[Hashable, bool]) -> bool:
        who, large = line
        return who in self._paused or (large and _LARGE in self._paused)

    def _arm(self) -> None:
        if not self._armed and not all(map(self._is_paused, self._waiting)):
            self._armed = True
            self._loop.call_soon(self._next_turn)

    def _renew(self) -> None:
        self._spent.clear()
        self._renewed = self._loop.time()

    def _next_turn(self) -> None:
        self._armed = False
        self._renew()
        for line in list(self._waiting):
            waiting = self._waiting[line]
            self._serving = line
            for _ in range(len(waiting)):
                if self._is_paused(line) or self._spent.get(line[0], 0) >= self._share:
                    break
                try:
                    waiting.popleft()()
                except Exception as error:  # noqa: BLE001 - one door's fault would end everybody's turns
                    self._on_fault(error)
            self._serving = None
            # To the end, so that the large calls of all principals take turns too.
            del self._waiting[line]
            if waiting:
                self._waiting[line] = waiting
        if self._waiting:
            self._arm()
