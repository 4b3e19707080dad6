"""Durations as callers give them: a `timedelta`, or seconds as a number. On the wire they are milliseconds."""

from datetime import timedelta

Duration = timedelta | float


def seconds(duration: Duration) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


def milliseconds(duration: Duration | None) -> int | None:
    """For the wire, where 0 would mean something else than "very short"."""
    return None if duration is None else max(1, round(seconds(duration) * 1000))
