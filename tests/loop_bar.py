"""What one call may take from the event loop, which all others wait for.

Processor time of this thread is measured, against a plain loop of Python beside it, so that a busy machine changes
nothing; the least of a few tries counts.
"""

from collections.abc import Callable
from time import thread_time

# On the machine where the plain loop takes 2.5 ms.
BAR = 0.020
# For more than 64 KiB.
LONG_BAR = 0.050
PLAIN = 0.0025
# A busy machine spoils a try, not all of them.
TRIES = 6


def plain_loop() -> float:
    counts = {}
    start = thread_time()
    for number in range(40_000):
        counts[number & 255] = str(number)
    return thread_time() - start


def fits(work: Callable[[], object], bar: float = BAR) -> bool:
    for _ in range(TRIES):
        start = thread_time()
        work()
        taken = thread_time() - start
        if taken < bar or taken < bar * plain_loop() / PLAIN:
            return True
    return False
