"""Pictures for the person as 0600 files in a directory of their own: the `Pictures` port."""

import contextlib
import os

from bascule.foundation.paths import make_private_dir

_SUFFIX = ".png"


class PictureFiles:
    def __init__(self, directory: str) -> None:
        self._directory = directory
        make_private_dir(directory)

    def save(self, name: str, png: bytes) -> str:
        path = os.path.join(self._directory, name + _SUFFIX)
        # Not synced: after a crash a question without its picture is still complete in words.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(png)
        except OSError:
            self.remove(path)
            raise
        return path

    def remove(self, path: str) -> None:
        # What the store says is a name in this directory, whatever directories stand before it.
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._directory, os.path.basename(path)))

    def keep_only(self, paths: set[str]) -> None:
        for name in os.listdir(self._directory):
            path = os.path.join(self._directory, name)
            if path not in paths:
                self.remove(path)
