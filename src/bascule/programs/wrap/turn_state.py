"""What a wrapped program's own hooks say about its turns: `busy` or `idle`, in a file of one word.

`bridge-wait --hook` writes it, or the session's own MCP server when a hook calls that, because the hook is all that
runs when a turn begins or ends; the wrapper makes the file, so that hooks of programs nobody wrapped write nothing.
"""

import contextlib
import os

from bascule.foundation import paths

WORDS = ("busy", "idle")


class TurnState:
    def __init__(self, state: str, handle: str) -> None:
        self._path = paths.turn_file(state, handle)

    def open(self) -> None:
        paths.make_private_dir(os.path.dirname(self._path))
        paths.write_private_file(self._path, "")

    def now(self) -> str | None:
        """The newest word of a hook; None while none has spoken."""
        try:
            word = paths.read_private_file(self._path).strip()
        except (OSError, paths.UnsafePlace):
            return None
        return word if word in WORDS else None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path)
