"""The files of the page, read once: what is not among them when they are read does not exist."""

import os
from typing import NamedTuple

WEB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "web")
# What may be served, and as what. Anything else that lies there is not.
_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".png": b"image/png",
    ".woff2": b"font/woff2",
}
SHELL = b"/"
# The same page where another page led to it. Not a path that a browser can ask for.
LED_SHELL = b"led /"
_OPENED = b'<html lang="en">'
_LED = b'<html lang="en" data-opened="elsewhere">'
_INDEX = "index.html"
PREFIX = b"/app/"
# The page, its modules and a folder of pages.
_FOLDERS = ("", "pages")


class StaticFile(NamedTuple):
    type: bytes
    body: bytes


class StaticFiles:
    def __init__(self, folder: str = WEB) -> None:
        self._folder = folder
        self._files: dict[bytes, StaticFile] | None = None

    def find(self, path: bytes) -> StaticFile | None:
        """By its whole path, compared and never opened: there is no way to name another file."""
        if self._files is None:
            self._files = self._read()
        return self._files.get(path)

    def _read(self) -> dict[bytes, StaticFile]:
        files: dict[bytes, StaticFile] = {}
        for below in _FOLDERS:
            folder = os.path.join(self._folder, below)
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                kind = _TYPES.get(os.path.splitext(name)[1])
                if kind is None or name.startswith("."):
                    continue
                with open(os.path.join(folder, name), "rb") as file:
                    found = StaticFile(kind, file.read())
                files[PREFIX + "/".join(filter(None, (below, name))).encode()] = found
        if index := files.pop(PREFIX + _INDEX.encode(), None):
            files[SHELL] = index
            files[LED_SHELL] = StaticFile(index.type, index.body.replace(_OPENED, _LED, 1))
        return files
