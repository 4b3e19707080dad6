"""How much is asked of the host at once, by whom, and how waiting callers are answered when the daemon stops.

The host answers 64 requests of one connection at a time, 16 of one client, and all agents come through one connection.
Long waits have places of their own, so that they cannot keep the others from looking; what stops or aborts needs none.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Conflict, Overloaded, Unavailable
from bascule.kernel.call import Principal

# Looks and acts at the host at once, of everybody and of one principal; more wait their turn.
MAX_AT_ONCE: Final = 32
MAX_AT_ONCE_EACH: Final = 8
# Waits held at the host, of everybody and of one principal.
MAX_WAITS: Final = 24
MAX_WAITS_EACH: Final = 8
# Of one principal, under way or waiting for their turn: the screen is one.
MAX_EACH: Final = 128


class _Line:
    """Those of one principal."""

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(MAX_AT_ONCE_EACH)
        self.count = 0


class Traffic:
    def __init__(self) -> None:
        self._room = asyncio.Semaphore(MAX_AT_ONCE)
        self._under_way: dict[tuple[Principal, str], bool] = {}
        self._lines: dict[Principal, _Line] = {}
        self._waiting: set[Deferred[Any]] = set()

    @property
    def count(self) -> int:
        return len(self._under_way)

    def of(self, principal: Principal) -> list[str]:
        """The requests of one principal."""
        return [request_id for whose, request_id in self._under_way if whose == principal]

    @contextlib.contextmanager
    def under_way(self, principal: Principal, request_id: str, *, waits: bool) -> Iterator[None]:
        key = (principal, request_id)
        if key in self._under_way:
            raise Conflict(f"requestId {request_id} is in use", hint="use another, or wait for its answer")
        if waits:
            self._check_waits(principal)
        self._under_way[key] = waits
        try:
            yield
        finally:
            del self._under_way[key]

    def _check_waits(self, principal: Principal) -> None:
        mine = sum(waits for (whose, _), waits in self._under_way.items() if whose == principal)
        total = sum(self._under_way.values())
        if mine >= MAX_WAITS_EACH or total >= MAX_WAITS:
            raise Overloaded(
                f"{mine} waits of {principal} and {total} in all watch the screen",
                hint="wait for one of them, or abort it",
                retry_after=5.0,
            )

    @contextlib.asynccontextmanager
    async def acting(self, principal: Principal, request_id: str) -> AsyncIterator[None]:
        with self.under_way(principal, request_id, waits=False):
            async with self.room(principal):
                yield

    @contextlib.asynccontextmanager
    async def room(self, principal: Principal) -> AsyncIterator[None]:
        line = self._lines.setdefault(principal, _Line())
        if line.count >= MAX_EACH:
            raise Overloaded(
                f"{principal} has {line.count} requests at the desktop", hint="wait for some of them", retry_after=1.0
            )
        line.count += 1
        try:
            async with line.turns, self._room:
                yield
        finally:
            line.count -= 1
            if not line.count:
                del self._lines[principal]

    def waiting(self, later: Deferred[Any]) -> Deferred[Any]:
        """One that `end` answers."""
        self._waiting.add(later)
        later.add_done_callback(self._waiting.discard)
        return later

    def end(self) -> None:
        for later in list(self._waiting):
            if not later.done():
                later.set_exception(Unavailable("the daemon is stopping", hint="try again in a moment"))
