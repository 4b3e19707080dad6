"""`games.toml` on disk. Looked at when somebody asks; nothing watches it."""

import os

# One byte over the limit of the reader, so that a file that is too large is told as one.
MAX_READ_BYTES = 1024 * 1024 + 1


class TomlFile:
    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp: object = None
        self._text: bytes | None = None

    def read(self) -> tuple[object, bytes | None]:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return ("none",), None
        stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if stamp != self._stamp:
            with open(self._path, "rb") as file:
                self._text = file.read(MAX_READ_BYTES)
            self._stamp = stamp
        return stamp, self._text
