"""The one socket that leads out of a cell, opened when a space's first cell is made."""

import asyncio
import os

from bascule.workspace.machine.sandbox.layout import SPACE_SOCK, Bound
from bascule.workspace.ports import Door, Doors


class Doorway:
    def __init__(self, doors: Doors | None, space_id: str) -> None:
        self._doors = doors
        self._space_id = space_id
        self._door: Door | None = None
        # Two cells may be the first; and a space may be closed while its door opens.
        self._turn = asyncio.Lock()

    async def open(self, user: int) -> Door | None:
        async with self._turn:
            if self._door is None and self._doors is not None:
                self._door = await self._doors.open(self._space_id, user)
            return self._door

    async def close(self) -> None:
        async with self._turn:
            self._doors = None
            if self._door is not None:
                door, self._door = self._door, None
                await door.close()


def bound_in(door: Door) -> Bound:
    """Read-only: connecting needs no more, and nobody inside can change its mode or its owner."""
    return Bound(os.open(door.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC), SPACE_SOCK, writable=False)
