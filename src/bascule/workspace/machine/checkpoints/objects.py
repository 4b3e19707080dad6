"""Git's objects: how a file, a link and a directory are written down, and what they are called.

A tree holds the exact permissions of each file and directory, where git itself writes only 644, 755 and 40000; git
reads such trees as if they had those.

A file with attributes of its own (`attributes`) is an object that names its content and says what they are. Git has
such objects for the tags of releases; the tree marks the entry, so that nobody else has to look.

What a checkpoint cannot hold (a file that is too large, a directory that cannot be read) is in its tree as a gap: an
entry with git's mode for the commit of another repository, whose object git never looks for. Ours is a text: why it is
not held, and below that which thing it was. Two gaps are equal only where the thing is known to be untouched.
"""

import hashlib
import os
import stat
from typing import NamedTuple

import msgspec

# 20 bytes; people see them as 40 hexadecimal digits.
ObjectId = bytes
ID_BYTES = 20
# By name: a user's own, and access control lists.
Attributes = dict[str, bytes]

BLOB = b"blob"
TREE = b"tree"
# A file's content and attributes.
DRESSED = b"tag"

_GITLINK = 0o160000
GAP = _GITLINK
# A gap that also stands for every other name of its directory that the tree does not have.
GAP_AND_REST = _GITLINK | 1
# A pipe, socket or device: there is no content that replacing it could lose.
GAP_WITHOUT_CONTENT = _GITLINK | 2

# A directory that nobody may enter: what it would be written as means 0755. Git looks at the lower bits alone.
_SHUT_DIRECTORY = 0o1000000 | stat.S_IFDIR
# A file whose object is a `DRESSED` one.
_DRESSED = 0o2000000


class BadObject(Exception):
    """Bytes that are not the object they should be."""


class Entry(NamedTuple):
    # As `stat` has it: type and permissions. 0755 is a directory's normal mode.
    mode: int
    # Empty for a directory where only the directory itself is meant.
    object: ObjectId
    # Whether the object is its content with its attributes.
    dressed: bool = False

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)

    @property
    def is_gap(self) -> bool:
        return stat.S_IFMT(self.mode) == _GITLINK

    @property
    def runs_as(self) -> int:
        """A file's set-user-ID and set-group-ID."""
        return self.mode & (stat.S_ISUID | stat.S_ISGID) if stat.S_ISREG(self.mode) else 0

    def alone(self) -> "Entry":
        """Without what is in it."""
        return Entry(self.mode, b"") if self.is_dir else self


def object_id(kind: bytes, data: bytes) -> ObjectId:
    digest = hashlib.sha1(b"%s %d\0" % (kind, len(data)), usedforsecurity=False)
    digest.update(data)
    return digest.digest()


def kept_mode(mode: int) -> int:
    """Type and permissions, set-user-ID, set-group-ID and sticky among them."""
    return stat.S_IFLNK if stat.S_ISLNK(mode) else stat.S_IFMT(mode) | stat.S_IMODE(mode)


def gap_text(reason: str, identity: str) -> bytes:
    return f"{reason}\n{identity}".encode("utf-8", "backslashreplace")


def gap_reason(text: bytes) -> str:
    return text.partition(b"\n")[0].decode("utf-8", "replace")


def special_text(found: os.stat_result) -> bytes:
    """The gap of a pipe, socket or device."""
    return gap_text("is a pipe, socket or device", f"{found.st_mode:o} {found.st_dev} {found.st_ino} {found.st_rdev}")


def write_tree(entries: dict[bytes, Entry]) -> bytes:
    # Directories sort as if their name ended in a slash.
    ordered = sorted(entries.items(), key=lambda item: item[0] + b"/" if item[1].is_dir else item[0])
    return b"".join(b"%o %s\0%s" % (_written(entry), name, entry.object) for name, entry in ordered)


def write_dressed(content: ObjectId, attributes: Attributes) -> bytes:
    return content + msgspec.msgpack.encode(attributes, order="sorted")


def read_dressed(data: bytes) -> tuple[ObjectId, Attributes]:
    try:
        return data[:ID_BYTES], msgspec.msgpack.decode(data[ID_BYTES:], type=Attributes)
    except msgspec.DecodeError:
        raise BadObject("the attributes of a file cannot be read") from None


def file_id(content: ObjectId, attributes: Attributes) -> ObjectId:
    return object_id(DRESSED, write_dressed(content, attributes)) if attributes else content


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
            raise BadObject("a tree has a mode that is not a number") from None
        name = data[space + 1 : null]
        if name in (b"", b".", b"..") or b"/" in name:
            # Such a name would lead a restore somewhere else.
            raise BadObject("a tree has a name that no file can have")
        at = null + 1 + ID_BYTES
        dressed = mode & _DRESSED != 0
        entries[name] = Entry(_read(mode & ~_DRESSED), data[null + 1 : at], dressed)
    return entries


def _written(entry: Entry) -> int:
    mode = entry.mode | (_DRESSED if entry.dressed else 0)
    if mode == stat.S_IFDIR:
        return _SHUT_DIRECTORY
    return stat.S_IFDIR if mode == stat.S_IFDIR | 0o755 else mode


def _read(mode: int) -> int:
    if mode == _SHUT_DIRECTORY:
        return stat.S_IFDIR
    return mode | 0o755 if mode == stat.S_IFDIR else mode
