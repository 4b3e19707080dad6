"""Git's objects: how a file, a link and a directory are written down, and what they are called.

A tree holds the exact permissions of each file and directory, where git itself writes only 644, 755 and 40000; git
reads such trees as if they had those.
"""

import hashlib
import stat
from typing import NamedTuple

# 20 bytes; people see them as 40 hexadecimal digits.
ObjectId = bytes
ID_BYTES = 20

BLOB = b"blob"
TREE = b"tree"


class BadObject(Exception):
    """Bytes that are not the object they should be."""


class Entry(NamedTuple):
    # As `stat` has it: type and permissions. 0755 is a directory's normal mode.
    mode: int
    # Empty for a directory where only the directory itself is meant.
    object: ObjectId

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)

    def alone(self) -> "Entry":
        """Without what is in it."""
        return Entry(self.mode, b"") if self.is_dir else self


def object_id(kind: bytes, data: bytes) -> ObjectId:
    digest = hashlib.sha1(b"%s %d\0" % (kind, len(data)), usedforsecurity=False)
    digest.update(data)
    return digest.digest()


def kept_mode(mode: int) -> int:
    """Type and permissions; setuid, setgid and sticky are not ours to bring back."""
    if stat.S_ISLNK(mode):
        return stat.S_IFLNK
    return stat.S_IFMT(mode) | (mode & 0o777)


def write_tree(entries: dict[bytes, Entry]) -> bytes:
    # Directories sort as if their name ended in a slash.
    ordered = sorted(entries.items(), key=lambda item: item[0] + b"/" if item[1].is_dir else item[0])
    return b"".join(b"%o %s\0%s" % (_written(entry.mode), name, entry.object) for name, entry in ordered)


def read_tree(data: bytes) -> dict[bytes, Entry]:
    entries: dict[bytes, Entry] = {}
    at = 0
    while at < len(data):
        space, null = data.find(b" ", at), data.find(b"\0", at)
        if not at < space < null or null + 1 + ID_BYTES > len(data):
            raise BadObject("a tree is cut or damaged")
        try:
            mode = int(data[at:space], 8)
        except ValueError:
            raise BadObject("a tree has a mode that is no number") from None
        name = data[space + 1 : null]
        if name in (b"", b".", b"..") or b"/" in name:
            # Such a name would lead a restore somewhere else.
            raise BadObject("a tree has a name that no file can have")
        at = null + 1 + ID_BYTES
        entries[name] = Entry(_read(mode), data[null + 1 : at])
    return entries


def _written(mode: int) -> int:
    return stat.S_IFDIR if mode == stat.S_IFDIR | 0o755 else mode


def _read(mode: int) -> int:
    return mode | 0o755 if mode == stat.S_IFDIR else mode
