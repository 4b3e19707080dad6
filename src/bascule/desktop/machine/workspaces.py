"""Where evidence may go: beneath `desktop_root`, and nowhere among our own things."""

import os

from bascule.desktop.errors import Code, DesktopError
from bascule.foundation.errors import Forbidden

_HIDDEN = ".bascule-desktop"


class EvidencePlaces:
    """`own`: for calls that name no place, made when the host starts; one beneath the root where ours is not."""

    def __init__(self, root: str, own: str, private: tuple[str, ...]) -> None:
        self.root = os.path.realpath(root)
        self._private = tuple(map(os.path.realpath, private))
        self.own = own if _within(os.path.realpath(own), self.root) else os.path.join(self.root, _HIDDEN)

    def place(self, named: str | None) -> str:
        if named is None:
            return self.own
        real = os.path.realpath(named)
        # Whether it is a directory, and stays one, is the host's to find out: it opens it step by step.
        if not os.path.isabs(named) or not _within(real, self.root):
            raise _forbidden(f"workspacePath is not within desktop_root ({self.root})")
        if any(_within(real, each) for each in self._private):
            raise _forbidden("workspacePath is a directory of Bascule's own")
        return named


def _within(path: str, root: str) -> bool:
    return path == root or os.path.commonpath((path, root)) == root


def _forbidden(message: str) -> Forbidden:
    error = DesktopError(Code.WORKSPACE_FORBIDDEN, message)
    return Forbidden(
        message,
        hint="name a directory beneath desktop_root, or leave workspacePath out",
        details={"desktop": error.body()},
    )
