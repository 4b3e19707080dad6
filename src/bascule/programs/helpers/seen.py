"""Which handle received which ticket, so that `bridge-reply TICKET` answers as the right agent.

One small file per ticket, written by `bridge-recv`. A convenience: when it cannot be written (a read-only
sandbox), the daemon is asked for the ticket's addressee instead.
"""

from __future__ import annotations

import os
import time

from bascule.foundation import paths
from bascule.foundation.agreement import is_agent_id

# The daemon forgets ticket ids after a day too.
KEEP_SECONDS = 24 * 3600
# Looked at per call; those behind them have their turn when these are gone.
MAX_PRUNED = 64


def remember(state: str, ticket: str, handle: str, *, now: float | None = None) -> None:
    folder = paths.seen_dir(state)
    try:
        paths.make_private_dir(folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(os.path.join(folder, ticket), flags, 0o600), "w", encoding="ascii") as file:
            file.write(handle)
        _prune(folder, (time.time() if now is None else now) - KEEP_SECONDS)
    except (OSError, paths.UnsafePlace):
        return


def handle_of(state: str, ticket: str) -> str | None:
    try:
        handle = paths.read_private_file(os.path.join(paths.seen_dir(state), ticket))
    except (OSError, paths.UnsafePlace, UnicodeDecodeError):
        return None
    return handle if is_agent_id(handle) else None


def _prune(folder: str, before: float) -> None:
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number >= MAX_PRUNED:
                return
            if entry.stat(follow_symlinks=False).st_mtime < before:
                os.unlink(entry.path)
