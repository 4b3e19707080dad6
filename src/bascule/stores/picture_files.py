"""Pictures for the person as 0600 files in a directory of their own: the `Pictures` port."""

import contextlib
import os

from bascule.foundation import png as png_format
from bascule.foundation.paths import make_private_dir

_SUFFIX = ".png"
# A screen of 8K as a PNG that compresses badly; `save` gets smaller ones.
MAX_PICTURE_BYTES = 64 * 1024 * 1024


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

    def read(self, path: str) -> bytes | None:
        try:
            # NONBLOCK: what lies there may have been replaced by a pipe.
            descriptor = os.open(self._place(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                data = file.read(MAX_PICTURE_BYTES + 1) or b""
        except OSError:
            return None
        return data if png_format.pixels(data) and len(data) <= MAX_PICTURE_BYTES else None

    def remove(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._place(path))

    def keep_only(self, paths: set[str]) -> None:
        for name in os.listdir(self._directory):
            path = os.path.join(self._directory, name)
            if path not in paths:
                self.remove(path)

    def _place(self, path: str) -> str:
        """What the store says is a name in this directory, whatever directories stand before it."""
        return os.path.join(self._directory, os.path.basename(path))
