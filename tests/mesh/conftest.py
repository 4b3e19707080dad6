import os
import sys
from collections.abc import Iterator

import pytest
from machines import Machines

# Real daemons, the wires to them, terminals and what to do without root are shared with other tests.
for neighbour in ("daemon", "e2e", "faults"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), neighbour))


@pytest.fixture
def pair() -> Iterator[Machines]:
    """Two machines of one person: Ada on the laptop, Jerry on the desk."""
    with Machines("laptop", "desk") as machines:
        machines["laptop"].house.register("Ada")
        machines["desk"].house.register("Jerry")
        machines.advance(1)
        machines.settle()
        yield machines
