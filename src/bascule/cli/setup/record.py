"""What set-up made where there was nothing: files, directories, empty lists around its entries.

`--undo` takes away what is ours by name. Whether the `mcpServers` around it was there before, only this knows.
"""

import contextlib
import os

import msgspec

from bascule.foundation import paths
from gabp import codec

_NAME = "setup.json"


class Entry(msgspec.Struct):
    """What was made for one file."""

    file: bool = False
    dirs: list[str] = []
    # Objects and lists in it, by the names that lead to them.
    paths: list[list[str]] = []
    # What of ours was put in, by name; only `bascule on` says so.
    parts: list[str] = []
    # Digests of the text before and after our change, and what leads back: start, end, the text that stood there. While
    # nobody else has changed the file, it becomes what it was to the last space.
    before: str = ""
    after: str = ""
    back: list[tuple[int, int, str]] = []
    # Which lines had another ending than a line feed: Codex rewrites its file with line feeds alone.
    endings: list[str] = []


class Record:
    def __init__(self, state: str, path: str | None = None) -> None:
        self._state = state
        self._path = path or os.path.join(state, _NAME)
        self._entries: dict[str, Entry] = {}
        self._loose: list[str] = []
        try:
            # Not `paths.read_private_file`, which stops at a token's size: this grows with every project.
            with open(self._path, "rb", opener=_no_link) as file:
                self._entries = codec.decode(file.read(), dict[str, Entry])
        except (OSError, codec.BadJson):
            # Nothing is known: what is empty stays, that is all.
            return

    def of(self, target: str) -> Entry:
        return self._entries.get(target, Entry())

    def add(self, target: str, entry: Entry) -> None:
        is_first = target not in self._entries
        known = self._entries.setdefault(target, Entry())
        if is_first:
            known.before, known.after, known.back = entry.before, entry.after, entry.back
            known.endings = entry.endings
        elif entry.after:
            unbroken = known.after == entry.before
            known.after = entry.after if unbroken else ""
            known.back = [*entry.back, *known.back] if unbroken else []
        known.file = known.file or entry.file
        known.dirs = [*known.dirs, *entry.dirs]
        known.parts = [*known.parts, *(part for part in entry.parts if part not in known.parts)]
        known.paths = [*known.paths, *(path for path in entry.paths if path not in known.paths)]

    def forget(self, target: str) -> None:
        """The file is as it was."""
        self._loose += self._entries.pop(target, Entry()).dirs

    def save(self) -> None:
        """Keep what is known; directories that were made for files now gone go too, if nothing else is in them."""
        for folder in sorted(self._loose, key=len, reverse=True):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        self._loose = []
        if self._entries:
            paths.make_private_dir(self._state)
            paths.write_private_file(self._path, codec.encode(self._entries).decode() + "\n")
        elif os.path.lexists(self._path):
            os.unlink(self._path)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
