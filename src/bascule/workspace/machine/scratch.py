"""Directories of our own for copies of workspaces: the `Scratch` port."""

import os
import shutil
import stat
import threading

from bascule.foundation.paths import make_private_dir


class ScratchDirectory:
    """Whatever an earlier life left in it is removed in the background: it may be large, and nobody waits for it."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        make_private_dir(directory)
        left = [os.path.join(directory, name) for name in os.listdir(directory)]
        if left:
            threading.Thread(target=lambda: list(map(self.remove, left)), name="bascule-scratch", daemon=True).start()

    def make(self, name: str) -> str:
        made = os.path.join(self._directory, name)
        os.mkdir(made, 0o700)
        return made

    def remove(self, directory: str) -> None:
        # `rmtree` works beneath descriptors, so that a link in a copy leads nowhere.
        shutil.rmtree(directory, onerror=_open_up)


def _open_up(_call: object, path: str, error: tuple[type, BaseException, object]) -> None:
    """A directory that commands made read-only is made writable; then it is tried once more."""
    if not isinstance(error[1], PermissionError):
        return
    parent = os.path.dirname(path)
    for each in (parent, path):
        if os.path.lexists(each) and stat.S_ISDIR(os.lstat(each).st_mode):
            os.chmod(each, 0o700)
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.unlink(path)
