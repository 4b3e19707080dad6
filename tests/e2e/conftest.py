import os
import sys

import pytest

# The daemon process and the wires to it are shared with the tests of the daemon itself, the desktop and its programs
# with those of the host, and MCP clients with those of the two surfaces.
for neighbour in ("daemon", "desktop_host", "shim", "mcp", "tools"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), neighbour))


@pytest.fixture
def state():
    """A state directory that does not exist yet, in a folder that goes away with the test."""
    from living import short_dir

    with short_dir() as folder:
        yield f"{folder}/s"


@pytest.fixture(scope="module")
def daemon():
    """One daemon with default settings for all tests of a module."""
    from living import Living, short_dir

    with short_dir() as folder, Living(f"{folder}/s") as living:
        yield living
