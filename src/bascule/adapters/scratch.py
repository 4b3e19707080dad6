"""Directories of our own for copies of workspaces: the `Scratch` port."""

import os
import shutil
import stat

from bascule.places import make_private_dir


class ScratchDirectory:
    """What an earlier life left behind is removed when it is made."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.remove(directory)

    def make(self, name: str) -> str:
        make_private_dir(self._directory)
        made = os.path.join(self._directory, name)
        os.mkdir(made, 0o700)
        return made

    def remove(self, directory: str) -> None:
        """Beneath descriptors, so that a link in a copy leads nowhere; a directory without its w bit is given one."""

        def open_up(_call: object, path: str, error: tuple[type, BaseException, object]) -> None:
            parent = os.path.dirname(path)
            if not isinstance(error[1], PermissionError) or stat.S_ISLNK(os.lstat(parent).st_mode):
                return
            os.chmod(parent, 0o700)
            if not stat.S_ISLNK(os.lstat(path).st_mode) and os.path.isdir(path):
                os.chmod(path, 0o700)
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)

        if os.path.lexists(directory):
            shutil.rmtree(directory, onerror=open_up)
