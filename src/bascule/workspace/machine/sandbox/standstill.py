"""While a command runs what a person approved, the other commands that can reach the same files stand still.

Scripts that were approved are bound over their paths, but a rename by a command with mounts of its own takes such a
mount away or along. What is excluded is every sandbox whose workspace overlaps, not only the one of the same space.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from bascule.foundation.deferred import Deferred
from bascule.workspace.ports import Extent, overlap


class Pausable(Protocol):
    def pause(self) -> Deferred[None]: ...

    def resume(self) -> object: ...


class Standstill:
    """Of all sandboxes of this machine."""

    def __init__(self) -> None:
        self._members: list[Member] = []
        # Those that have it, and when each has ended.
        self._alone: dict[Member, asyncio.Event] = {}

    def join(self, extent: Callable[[], Extent], running: Callable[[], tuple[Pausable, ...]]) -> "Member":
        member = Member(self, extent, running)
        self._members.append(member)
        return member

    def leave(self, member: "Member") -> None:
        self._members.remove(member)

    def ahead(self, member: "Member") -> asyncio.Event | None:
        """What a command of this sandbox has to wait for."""
        if not self._alone:
            return None
        mine = member.extent()
        return next(
            (over for each, over in self._alone.items() if each is member or overlap(mine, each.extent())), None
        )

    async def begin(self, member: "Member") -> None:
        """Everybody else who overlaps has stopped when this returns, and starts nothing. It must be free."""
        self._alone[member] = asyncio.Event()
        mine = member.extent()
        for other in tuple(self._members):
            if other is member or overlap(mine, other.extent()):
                for cell in other.running():
                    await cell.pause()

    def end(self, member: "Member") -> None:
        self._alone.pop(member).set()
        for other in self._members:
            if self.ahead(other) is None:
                for cell in other.running():
                    cell.resume()


class Member:
    """One sandbox's part in it."""

    def __init__(
        self, standstill: Standstill, extent: Callable[[], Extent], running: Callable[[], tuple[Pausable, ...]]
    ) -> None:
        self._standstill = standstill
        self.extent = extent
        self.running = running

    @property
    def free(self) -> bool:
        return self._standstill.ahead(self) is None

    async def wait(self) -> None:
        """No command that runs alone can meet one that is started in the same turn of the loop."""
        while (over := self._standstill.ahead(self)) is not None:
            await over.wait()

    async def begin(self) -> None:
        await self._standstill.begin(self)

    def end(self) -> None:
        self._standstill.end(self)

    def leave(self) -> None:
        self._standstill.leave(self)
