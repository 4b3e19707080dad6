"""For `bridge-wrap`, which types only between turns: whether the program it runs is in one."""

from __future__ import annotations

import os

from bascule.foundation import paths
from bascule.foundation.agreement import is_agent_id

# Other events say nothing about a turn.
_WORDS = {
    "UserPromptSubmit": b"busy",
    "PreToolUse": b"busy",
    "PostToolUse": b"busy",
    "SessionStart": b"idle",
    "Stop": b"idle",
}


def note_turn(state: str, event: str) -> None:
    handle = os.environ.get("BRIDGE_WRAPPED")
    if event not in _WORDS or not handle or not is_agent_id(handle):
        return
    try:
        # The wrapper has made the file; without one nobody wants to know. No O_TRUNC: the words are equally long, and a
        # wrapper that read the file while it is empty would type as if the program had no hooks.
        file = os.open(paths.turn_file(state, handle), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    os.write(file, _WORDS[event])
    os.close(file)
