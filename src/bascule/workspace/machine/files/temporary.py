"""Names of what is not finished yet.

A crash leaves such a file behind; the next walk (a checkpoint) removes it once it is old. Until then
it is a file like any other, or a directory that is named: only what this process works on itself is left out.
128 random bits: a process in the workspace cannot prepare a name that a write will use.
"""

import re
import secrets
import time
from datetime import timedelta

# A write takes milliseconds, putting a large checkpoint back takes minutes.
STALE_AFTER = timedelta(hours=1)

_in_use: set[str] = set()
_NAME = re.compile(r"\.bascule-[0-9a-f]{32}\.tmp")


def new_name() -> str:
    """In use until it is given back."""
    name = f".bascule-{secrets.token_hex(16)}.tmp"
    _in_use.add(name)
    return name


def give_back(name: str) -> None:
    """Nothing has this name any more."""
    _in_use.discard(name)


def is_in_use(name: str) -> bool:
    return name in _in_use


def is_temporary(name: str) -> bool:
    # Almost no name begins with a point.
    return name.startswith(".bascule-") and _NAME.fullmatch(name) is not None


def is_stale(changed_ns: int) -> bool:
    return time.time_ns() - changed_ns > STALE_AFTER.total_seconds() * 1e9
