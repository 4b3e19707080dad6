"""What to do where a test cannot run: skip on a laptop, fail in CI."""

import functools
import os
from collections.abc import Callable
from typing import Any, NoReturn

import pytest


def missing_here(what: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


def needs_root(test: Callable[..., Any]) -> Callable[..., Any]:
    """Only root can play another user."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        if os.getuid() != 0:
            missing_here("needs root, to listen as another user")
        test(*args, **kwargs)

    return run
