"""Time that moves when a test says so."""

# 2025-10-20T08:00:00Z: the moment of the broker spec's examples.
DEFAULT_WALL_MS = 1_760_947_200_000
# Not zero, so that code which takes a falsy time for "never" is found out.
DEFAULT_MONOTONIC = 1_000.0


class FakeClock:
    """Both clocks of `bascule.foundation.clock.Clock`. They move together; the wall clock can also jump by itself."""

    def __init__(self, *, wall_ms: int = DEFAULT_WALL_MS, monotonic: float = DEFAULT_MONOTONIC) -> None:
        self._began = self._monotonic = monotonic
        self._wall_ms = wall_ms

    def monotonic(self) -> float:
        return self._monotonic

    def wall_ms(self) -> int:
        # From the whole way and not step by step, so that a thousand small steps lose no millisecond.
        return self._wall_ms + round((self._monotonic - self._began) * 1000)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.move_to(self._monotonic + seconds)

    def move_to(self, monotonic: float) -> None:
        """Let time pass until the monotonic clock shows this."""
        if monotonic < self._monotonic:
            raise ValueError("the monotonic clock never goes back; use jump_wall for the other one")
        self._monotonic = monotonic

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back while no time passes: NTP, a person, a dead battery."""
        self._wall_ms += round(seconds * 1000)
