"""For `bridge-wrap`, which types only between turns: whether the program it runs is in one."""

from __future__ import annotations

import os

from bascule.foundation import paths
from bascule.foundation.agreement import is_agent_id

_BUSY = ("UserPromptSubmit", "PostToolUse")


def note_turn(state: str, event: str) -> None:
    handle = os.environ.get("BRIDGE_WRAPPED")
    if not handle or not is_agent_id(handle):
        return
    try:
        # The wrapper has made the file; without one nobody wants to know. No O_TRUNC: the words are equally long, and a
        # wrapper that read the file while it is empty would type as if the program had no hooks.
        file = os.open(paths.turn_file(state, handle), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    os.write(file, b"busy" if event in _BUSY else b"idle")
    os.close(file)
