import os
import sys

import pytest

# The daemon process and the wires to it are shared with the tests of the daemon itself, the terminal with `e2e`, the
# browser with `web`.
for folder in ("daemon", "e2e", "web"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), folder))


@pytest.fixture
def state():
    """A state directory that does not exist yet, in a folder that goes away with the test."""
    from living import short_dir

    with short_dir() as folder:
        yield f"{folder}/s"


@pytest.fixture(scope="module")
def daemon():
    """One daemon with a console for all tests of a module."""
    from living import Living, short_dir

    with short_dir() as folder, Living(f"{folder}/s", console_port=0) as living:
        yield living
