"""Places for workspaces."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory that everybody may enter, so that only the sandbox keeps a command out."""
    made = tempfile.mkdtemp(prefix="bsc-")
    os.chmod(made, 0o777)
    yield Path(made)
    shutil.rmtree(made)
