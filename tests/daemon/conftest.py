import pytest
from living import Living, short_dir


@pytest.fixture
def state():
    """A state directory that does not exist yet, in a folder that goes away with the test."""
    with short_dir() as folder:
        yield f"{folder}/s"


@pytest.fixture(scope="module")
def daemon():
    """One daemon with default settings for all tests of a module."""
    with short_dir() as folder, Living(f"{folder}/s") as living:
        yield living
