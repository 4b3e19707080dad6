"""What to do where a tool that a test needs is not there."""

import os
from typing import NoReturn


def missing_here(what: str) -> NoReturn:
    """A laptop goes on without this test; in CI nothing may be skipped."""
    # Here, because the bench uses the rig and has no pytest.
    import pytest

    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)
