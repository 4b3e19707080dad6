"""When a bell is rung again: until the messages are fetched, ever less often."""

# Half a minute is a tool call; an agent that has not fetched after five minutes is asked every five minutes.
PAUSES = (30.0, 60.0, 120.0, 240.0, 300.0)


class Ringing:
    """One agent's bell. Told of rings and of an empty inbox; says when the next ring is due."""

    def __init__(self, pauses: tuple[float, ...] = PAUSES) -> None:
        self._pauses = pauses
        self._rung = 0
        self._last = 0.0

    @property
    def rung(self) -> int:
        """How often since the inbox was last empty."""
        return self._rung

    def ring(self, now: float) -> None:
        self._rung += 1
        self._last = now

    def fetched(self) -> None:
        self._rung = 0

    def due_in(self, now: float) -> float | None:
        """Seconds until it is rung again; None when nothing was rung for."""
        if not self._rung:
            return None
        pause = self._pauses[min(self._rung, len(self._pauses)) - 1]
        return max(0.0, self._last + pause - now)
