"""The entries of a git index, and which of them are gitlinks: paths at which `git status` enters another repository."""

import contextlib
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

_HEADER = struct.Struct(">4sII")
_EXTENSION = struct.Struct(">4sI")
_MODE = struct.Struct(">I")
# The second of them is there in an extended entry.
_FLAG_FIELDS = struct.Struct(">HH")
# Ten 32-bit fields precede an entry's object id; the seventh is its mode.
_BEFORE_ID = 40
_MODE_AT = 24
_GITLINK = 0o160000
_GITLINK_BYTES = _GITLINK.to_bytes(4, "big")
_EXTENDED = 0x4000
SHA1_BYTES, SHA256_BYTES = 20, 32
# An index does not say which; usually only one of them fits.
_ID_SIZES = (SHA1_BYTES, SHA256_BYTES)
_KIND = 0o170000
_DIRECTORY = 0o040000
_NAME_MASK = 0xFFF
# Assume-valid and the stage; skip-worktree and intent-to-add.
_FLAGS, _MORE_FLAGS = 0xB000, 0x6000
# Where entries begin and end: threads of git read them from there (`index.threads`), whatever stands before.
_OFFSETS = {b"EOIE", b"IEOT"}
_SPLIT = b"link"
# In a path letters follow, and no index is as large as they would say.
_SPLIT_AND_SIZE = re.compile(rb"link[\x00-\x0f]")
MAX_TRIES = 1000
# Git knows nine.
MAX_EXTENSIONS = 64
# Longer ones exist in no file system; compressed, they would be copied again and again.
MAX_PATH_BYTES = 16 * 1024
_COMPRESSED = 4


class UnreadableIndex(Exception):
    """Not an index, or one that keeps its entries in another file (`core.splitIndex`)."""


class Staged(NamedTuple):
    """An entry without its times, inode and size, which change when git only looks."""

    path: bytes
    mode: int
    object_id: bytes
    flags: int
    more_flags: int


def entries(data: bytes) -> list[Staged]:
    """All of them, in the order of the index."""
    if len(data) < _HEADER.size or _HEADER.unpack_from(data)[0] != b"DIRC":
        raise UnreadableIndex("not an index")
    for id_bytes in _ID_SIZES:
        with contextlib.suppress(_Misfit, struct.error, IndexError, ValueError):
            return list(_entries(data, id_bytes))
    raise UnreadableIndex("not an index that we can read")


def gitlinks(data: bytes) -> frozenset[bytes]:
    """Paths of gitlinks, as bytes."""
    if len(data) < _HEADER.size or _HEADER.unpack_from(data)[0] != b"DIRC":
        raise UnreadableIndex("not an index")
    if _GITLINK_BYTES not in data and not _may_be_split(data):
        # The usual case, without looking at every entry.
        return frozenset()
    found: list[frozenset[bytes]] = []
    for id_bytes in _ID_SIZES:
        with contextlib.suppress(_Misfit, struct.error, IndexError, ValueError):
            found.append(_read(data, id_bytes))
    if not found:
        raise UnreadableIndex("not an index that we can read")
    # Whichever git takes.
    return frozenset().union(*found)


def foreign_gitlinks(data: bytes, id_bytes: int) -> frozenset[bytes]:
    """As `gitlinks`, of an index that may be made to mislead: every entry is read as git reads it, or it is refused."""
    if len(data) < _HEADER.size or _HEADER.unpack_from(data)[0] != b"DIRC":
        raise UnreadableIndex("not an index")
    try:
        return _read(data, id_bytes, strict=True)
    except (_Misfit, struct.error, IndexError, ValueError):
        raise UnreadableIndex("not an index that we can read") from None


class _Misfit(Exception):
    """Entries and extensions do not end where the file does."""


def _may_be_split(data: bytes) -> bool:
    """Whether there is a `link` extension: one whose size leads through further extensions to the end."""
    for tries, found in enumerate(_SPLIT_AND_SIZE.finditer(data)):
        if tries >= MAX_TRIES:
            # Made to keep us busy; every entry is looked at then.
            return True
        if any(_extensions(data, found.start(), len(data) - size) is not None for size in _ID_SIZES):
            return True
    return False


def _extensions(data: bytes, at: int, end: int) -> list[bytes] | None:
    names: list[bytes] = []
    while at + _EXTENSION.size <= end and len(names) < MAX_EXTENSIONS:
        name, size = _EXTENSION.unpack_from(data, at)
        names.append(name)
        at += _EXTENSION.size + size
    # Git overlooks a rest that is too short for another extension.
    return names if end - _EXTENSION.size < at <= end else None


def _read(data: bytes, id_bytes: int, *, strict: bool = False) -> frozenset[bytes]:
    # Git looks at these bits alone.
    return frozenset(each.path for each in _entries(data, id_bytes, strict=strict) if each.mode & _KIND == _GITLINK)


def _entries(data: bytes, id_bytes: int, *, strict: bool = False) -> Iterator[Staged]:
    _, version, count = _HEADER.unpack_from(data)
    at = _HEADER.size
    path = b""
    for _ in range(count):
        start = at
        (mode,) = _MODE.unpack_from(data, at + _MODE_AT)
        at += _BEFORE_ID + id_bytes
        object_id = data[at - id_bytes : at]
        flags, more_flags = _FLAG_FIELDS.unpack_from(data, at)
        at += 4 if flags & _EXTENDED else 2
        if version == _COMPRESSED:
            cut, at = _varint(data, at)
            end = data.index(b"\0", at)
            path = path[: max(0, len(path) - cut)] + data[at:end]
            if len(path) > MAX_PATH_BYTES:
                raise _Misfit
            at = end + 1
        else:
            end = data.index(b"\0", at)
            path = data[at:end]
            # Padded with one to eight null bytes, to a multiple of eight.
            at = start + (end - start + 8) // 8 * 8
        if strict and mode & _KIND == _DIRECTORY:
            raise UnreadableIndex("a sparse index")
        # Git goes by the length that stands there, not by the null byte, unless there was no room for it.
        if strict and (flags & _NAME_MASK) not in (len(path), _NAME_MASK):
            raise _Misfit
        yield Staged(path, mode, object_id, flags & _FLAGS, more_flags & _MORE_FLAGS if flags & _EXTENDED else 0)
    names = _extensions(data, at, len(data) - id_bytes)
    if names is None:
        raise _Misfit
    if _SPLIT in names:
        raise UnreadableIndex("a split index")
    if strict and not _OFFSETS.isdisjoint(names):
        raise UnreadableIndex("an index with a table of offsets")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    value = byte & 0x7F
    while byte & 0x80:
        if value > MAX_PATH_BYTES:
            raise _Misfit
        at += 1
        byte = data[at]
        value = (value + 1) << 7 | byte & 0x7F
    return value, at + 1
