"""Rings for one agent: waits for messages, waits for the moment, types the line, and again until they are fetched."""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum

from bascule.broker.protocol import InboxWatchResult, SkipRung
from bascule.foundation.errors import BasculeError
from bascule.programs.wrap.broker_link import BrokerLink
from bascule.programs.wrap.ringing import Ringing

# While something is to be typed, program and person are looked at this often; nothing tells us when they are still.
LOOK_SECONDS = 0.1
# A hook of the program rings first, where it has one: it needs no keyboard.
HOOK_HEAD_START_SECONDS = 1.5
# After a fault of the daemon: longer than its restart, shorter than anybody's patience.
FAULT_SECONDS = 1.0
# One look at the inbox; the daemon holds no longer.
WATCH_SECONDS = 55.0

# Why nothing may be typed now; None when it may.
Obstacle = Callable[[], str | None]
# Types the line, or the message itself.
Ring = Callable[[InboxWatchResult], Awaitable["Rung"]]


class Rung(Enum):
    """What came of it."""

    RUNG = "the agent knows that something waits"
    DELIVERED = "the agent has the oldest message"
    MISSED = "the moment was over before anything was typed"


class Notifier:
    def __init__(
        self,
        post: BrokerLink,
        obstacle: Obstacle,
        ring: Ring,
        *,
        hooked: Callable[[], bool] = lambda: False,
        ringing: Ringing | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._post = post
        self._obstacle = obstacle
        self._ring = ring
        # The program's own hooks are at work.
        self._hooked = hooked
        self._ringing = ringing or Ringing()
        self._look_seconds = look_seconds
        self._now = asyncio.get_running_loop().time

    async def run(self) -> None:
        while True:
            try:
                await self._once()
            except BasculeError:
                await asyncio.sleep(FAULT_SECONDS)

    async def _once(self) -> None:
        due = self._ringing.due_in(self._now())
        wait = WATCH_SECONDS if due is None else min(due, WATCH_SECONDS)
        seen = await self._post.unread(wait_seconds=wait, skip=SkipRung.OWN) if wait else None
        if seen is not None and self._hooked():
            await asyncio.sleep(HOOK_HEAD_START_SECONDS)
            seen = await self._left_by_hooks()
            if seen is None:
                return
        if seen is None:
            if due is None or self._ringing.due_in(self._now()):
                return
            # Ours was heard or it was not: look at everything that waits.
            seen = await self._post.unread()
            if seen is None:
                self._ringing.fetched()
                return
        left: InboxWatchResult | None = seen
        while left is not None:
            left = await self._ring_when_idle(left)

    async def _ring_when_idle(self, seen: InboxWatchResult) -> InboxWatchResult | None:
        """What has to be rung for again at once, because more waits than the line said."""
        waited = False
        while self._obstacle() is not None:
            waited = True
            await asyncio.sleep(self._look_seconds)
        latest = await self._after_waiting() if waited else seen
        if latest is None:
            return None
        seen = latest
        match await self._ring(seen):
            case Rung.DELIVERED:
                self._ringing.fetched()
            case Rung.RUNG:
                self._ringing.ring(self._now())
                # What came between the line and this counts as rung for from now on, and the line did not speak of it.
                recorded = await self._post.unread(record=True)
                if recorded is not None and recorded.unread > seen.unread:
                    return recorded
            case Rung.MISSED:
                # Still unrung: the next look finds it at once.
                await asyncio.sleep(self._look_seconds)
        return None

    async def _after_waiting(self) -> InboxWatchResult | None:
        """They may have been fetched meanwhile, more may have come, or a hook was quicker at the end of the turn."""
        first = self._hooked() and not self._ringing.rung
        if first:
            # It says that the turn is over before it rings: our look could come between the two.
            await asyncio.sleep(HOOK_HEAD_START_SECONDS)
        latest = await (self._left_by_hooks() if first else self._post.unread())
        if latest is None and not first:
            self._ringing.fetched()
        return latest if self._obstacle() is None else None

    async def _left_by_hooks(self) -> InboxWatchResult | None:
        """What no hook has rung for. Where one has, ours is the second bell, if there must be one."""
        seen = await self._post.unread(skip=SkipRung.ANY)
        if seen is None and await self._post.unread(record=True) is not None:
            self._ringing.ring(self._now())
        return seen
