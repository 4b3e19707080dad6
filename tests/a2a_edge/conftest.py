import os
import sys

import pytest

# The daemon process and the wires to it are shared with the tests of the daemon itself, a terminal with the commands.
for neighbour in ("daemon", "e2e"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), neighbour))


@pytest.fixture
def state():
    """A state directory that does not exist yet, in a folder that goes away with the test."""
    from living import short_dir

    with short_dir() as folder:
        yield f"{folder}/s"


@pytest.fixture(scope="module")
def edge():
    """One daemon with its door for A2A open, for all tests of a module."""
    from edge_scene import Edge
    from living import short_dir

    with short_dir() as folder, Edge(f"{folder}/s") as scene:
        yield scene
