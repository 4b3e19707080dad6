"""Load on real daemons, from swarms in processes of their own (see `bench/swarm.py`)."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

_TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The scenes are the bench's, so that what is judged here and what is measured there is one and the same.
sys.path[:0] = [os.path.join(os.path.dirname(_TESTS), "bench"), os.path.join(_TESTS, "daemon")]

from living import Living, short_dir  # noqa: E402 - found by the line above

from load_scenes import Target  # noqa: E402 - as above

Start = Callable[..., tuple[Living, Target]]


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(**config)`: a daemon with its own limits, or with exactly the defaults."""
    with ExitStack() as stack:

        def begin(**config: Any) -> tuple[Living, Target]:
            directory = stack.enter_context(short_dir())
            living = stack.enter_context(Living(os.path.join(directory, "s"), log="off", **config))
            return living, Target(living.process.pid, living.state, living.port)

        yield begin
