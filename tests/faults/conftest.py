import os
import sys

import pytest

# The daemon process and the wires to it are shared with the tests of the daemon itself.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "daemon"))


@pytest.fixture
def state():
    """A state directory that does not exist yet, in a folder that goes away with the test."""
    from living import short_dir

    with short_dir() as folder:
        yield f"{folder}/s"


@pytest.fixture
def cut_disk():
    """A disk whose power can be cut; skipped where none can be made, but never in CI."""
    from cut_disk import CutDisk, NoDisk
    from lacking import missing_here
    from living import short_dir

    with short_dir() as folder:
        try:
            disk = CutDisk(folder)
        except NoDisk as error:
            missing_here(f"no disk to cut the power of: {error}")
        try:
            yield disk
        finally:
            disk.remove()
