"""How long to wait before trying again."""

import random
from collections.abc import Iterator

# A daemon that restarts is back within a fraction of a second; one that does not is not hammered.
FIRST_S = 0.02
LONGEST_S = 1.0
JITTER = 0.25


def delays(first: float = FIRST_S, longest: float = LONGEST_S) -> Iterator[float]:
    """Doubling delays with +-25 %, so that many clients of one daemon do not come back in step."""
    delay = first
    while True:
        yield delay * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreads load, guards nothing
        delay = min(delay * 2, longest)
