"""Events of games as programs read them, and what has arrived of them and was not read yet."""

from collections import deque
from typing import Any

import msgspec

from bascule.game.protocol import EventPage, GameEvent

# Some minutes of a lively game; a reader further behind is told how many it missed.
MAX_GAME_EVENTS = 4_096


class Happened(GameEvent, frozen=True, kw_only=True):
    """An event with its payload as plain values."""

    payload: Any = None


class HappenedPage(EventPage, frozen=True, kw_only=True):
    events: list[Happened]  # type: ignore[assignment] # the same events, with their payloads read


class GameFeed:
    """Events of one game, and from where on a stream that broke off is opened again."""

    finished = False

    def __init__(self, since: int | None, *, limit: int = MAX_GAME_EVENTS) -> None:
        self._limit = limit
        self._events: deque[Happened] = deque()
        self._since = since
        # The life of the daemon that the cursors belong to.
        self._life: tuple[int, str] | None = None
        self._missed = 0

    def opens(self, life: tuple[int, str]) -> int | None:
        """After which cursor to open the stream. Another life of the daemon counts anew: all is new there."""
        if self._life is not None and self._life != life:
            self._since = 0
        self._life = life
        return self._since

    def begins(self, cursor: int) -> int:
        """With what comes now. From here on a stream that breaks off goes on without a gap."""
        self._since = cursor
        return cursor

    def offer(self, item: Happened) -> None:
        self._since = max(item.cursor, self._since or 0)
        if len(self._events) >= self._limit:
            self._missed += 1
            return
        self._events.append(msgspec.structs.replace(item, missed=item.missed + self._missed) if self._missed else item)
        self._missed = 0

    def left_out(self, count: int) -> None:
        self._missed += count

    def lost(self) -> None:
        """What has arrived stays true."""

    def take(self) -> Happened | None:
        return self._events.popleft() if self._events else None
