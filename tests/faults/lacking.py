"""What to do where something that a test needs is not there."""

import os
from typing import NoReturn

import pytest


def missing_here(what: str) -> NoReturn:
    """A laptop goes on without this test; in CI nothing may be skipped."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


# In CI the test runs all the same, and what it cannot do fails it.
only_root = pytest.mark.skipif(
    os.getuid() != 0 and os.environ.get("CI") != "true",
    reason="only root can mount, give files away and become another user",
)
