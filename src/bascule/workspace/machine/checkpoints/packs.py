"""Packs: many objects in one file, with an index beside it (gitformat-pack, version 2, no deltas)."""

import contextlib
import hashlib
import os
import struct
import zlib
from collections.abc import Iterator

from bascule.workspace.machine.checkpoints.objects import BLOB, DRESSED, ID_BYTES, TREE, BadObject, ObjectId

# Three times as fast as zlib's default for a tenth more space.
LEVEL = 1

_KINDS = {TREE: 2, BLOB: 3, DRESSED: 4}
_KIND_OF = {number: kind for kind, number in _KINDS.items()}
_INDEX_HEAD = b"\xfftOc" + struct.pack(">I", 2)
_FANOUT = struct.Struct(">256I")
_TRAILER = 20
# Offsets from here on are written in a table of their own.
_LARGE = 0x80000000


class PackWriter:
    """Objects as they come; `finish` makes them a pack that others see, whole or not at all."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = os.path.join(directory, f"tmp_pack_{os.urandom(8).hex()}")
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "w+b", buffering=1024 * 1024)
        self._file.write(struct.pack(">4sII", b"PACK", 2, 0))
        self._at = 12
        # id -> (offset, crc of the entry)
        self._entries: dict[ObjectId, tuple[int, int]] = {}

    def __contains__(self, identity: ObjectId) -> bool:
        return identity in self._entries

    def ids(self) -> set[ObjectId]:
        return set(self._entries)

    def add(self, identity: ObjectId, kind: bytes, data: bytes) -> None:
        self.add_raw(identity, _entry_head(kind, len(data)) + zlib.compress(data, LEVEL))

    def add_raw(self, identity: ObjectId, entry: bytes) -> None:
        """An entry as it stands in another pack."""
        if identity not in self._entries:
            self._entries[identity] = (self._at, zlib.crc32(entry))
            self._file.write(entry)
            self._at += len(entry)

    def finish(self) -> str | None:
        """The path of the pack without its ending; None when there was nothing to pack."""
        if not self._entries:
            self.abort()
            return None
        # The count stands first and is known last.
        self._file.seek(0)
        self._file.write(struct.pack(">4sII", b"PACK", 2, len(self._entries)))
        self._file.seek(0)
        checksum = hashlib.sha1(usedforsecurity=False)
        while piece := self._file.read(1024 * 1024):
            checksum.update(piece)
        self._file.seek(0, os.SEEK_END)
        self._file.write(checksum.digest())
        self._file.close()
        path = os.path.join(self._directory, f"pack-{checksum.hexdigest()}")
        index = f"{self._path}.idx"
        with open(index, "wb") as file:
            file.write(_index(self._entries, checksum.digest()))
        os.chmod(index, 0o444)
        os.chmod(self._path, 0o444)
        # A pack is found by its index, which therefore comes last.
        os.rename(self._path, f"{path}.pack")
        os.rename(index, f"{path}.idx")
        return path

    def abort(self) -> None:
        # On a full disk closing fails too, with what is still in the buffer.
        with contextlib.suppress(OSError):
            self._file.close()
        for path in (self._path, f"{self._path}.idx"):
            with contextlib.suppress(OSError):
                os.unlink(path)


class Pack:
    """A finished pack, read through its index."""

    def __init__(self, path: str) -> None:
        self.path = path
        # Not mapped into memory: reading a mapped file that has become shorter ends the process. Nor is the pack
        # kept open: there may be many.
        with open(f"{path}.idx", "rb") as file:
            self._index = file.read()
        body, checksum = self._index[:-_TRAILER], self._index[-_TRAILER:]
        if len(body) < 8 + _FANOUT.size + _TRAILER or hashlib.sha1(body, usedforsecurity=False).digest() != checksum:
            raise BadObject(f"{path}.idx is damaged")
        if body[:8] != _INDEX_HEAD:
            raise BadObject(f"{path}.idx is not an index of a pack that we write")
        self._fanout = _FANOUT.unpack_from(self._index, 8)
        self._count: int = self._fanout[255]
        self._ids = 8 + _FANOUT.size
        self._offsets = self._ids + self._count * (ID_BYTES + 4)
        if len(self._index) < self._offsets + 4 * self._count + 2 * _TRAILER:
            raise BadObject(f"{path}.idx is cut")
        self._pack_size = os.stat(f"{path}.pack").st_size
        self._ends: dict[int, int] | None = None

    def __len__(self) -> int:
        return self._count

    def size(self) -> int:
        return self._pack_size + len(self._index)

    def ids(self) -> Iterator[ObjectId]:
        for number in range(self._count):
            yield self._id(number)

    def find(self, identity: ObjectId) -> int | None:
        """Where the object's entry begins."""
        first = identity[0]
        low, high = (self._fanout[first - 1] if first else 0), self._fanout[first]
        while low < high:
            middle = (low + high) // 2
            found = self._id(middle)
            if found == identity:
                return self._offset(middle)
            if found < identity:
                low = middle + 1
            else:
                high = middle
        return None

    def read(self, offset: int, max_bytes: int) -> tuple[bytes, bytes]:
        """Kind and content. Whether they are what the name promises is for the caller to check."""
        entry = self.raw(offset)
        kind, size, start = _read_entry_head(entry)
        if size > max_bytes:
            raise BadObject(f"an object has {size:,} bytes")
        inflate = zlib.decompressobj()
        try:
            data = inflate.decompress(entry[start:], size + 1)
        except zlib.error as error:
            raise BadObject(f"an object cannot be inflated ({error})") from None
        if len(data) != size:
            raise BadObject("an object has another size than it says")
        return kind, data

    def raw(self, offset: int) -> bytes:
        """The entry as it stands."""
        if self._ends is None:
            starts = sorted(self._offset(number) for number in range(self._count))
            self._ends = dict(zip(starts, [*starts[1:], self._pack_size - _TRAILER], strict=True))
        with open(f"{self.path}.pack", "rb", buffering=0) as file:
            file.seek(offset)
            return file.read(self._ends[offset] - offset) or b""

    def _id(self, number: int) -> ObjectId:
        at = self._ids + number * ID_BYTES
        return self._index[at : at + ID_BYTES]

    def _offset(self, number: int) -> int:
        (offset,) = struct.unpack_from(">I", self._index, self._offsets + 4 * number)
        if offset < _LARGE:
            return int(offset)
        (large,) = struct.unpack_from(">Q", self._index, self._offsets + 4 * self._count + 8 * (offset - _LARGE))
        return int(large)


def _entry_head(kind: bytes, size: int) -> bytes:
    """Four bits of the size beside the kind, then seven at a time."""
    head = bytearray([_KINDS[kind] << 4 | size & 0x0F])
    size >>= 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    return bytes(head)


def _read_entry_head(piece: bytes) -> tuple[bytes, int, int]:
    try:
        kind = _KIND_OF.get(piece[0] >> 4 & 7)
        size, shift, at = piece[0] & 0x0F, 4, 0
        while piece[at] & 0x80:
            at += 1
            size |= (piece[at] & 0x7F) << shift
            shift += 7
    except IndexError:
        raise BadObject("a pack is cut") from None
    if kind is None:
        raise BadObject("a pack has an entry that is none of ours")
    return kind, size, at + 1


def _index(entries: dict[ObjectId, tuple[int, int]], pack_checksum: bytes) -> bytes:
    ordered = sorted(entries.items())
    counts = [0] * 256
    for identity, _ in ordered:
        counts[identity[0]] += 1
    total, fanout = 0, []
    for count in counts:
        total += count
        fanout.append(total)
    large = [offset for _, (offset, _) in ordered if offset >= _LARGE]
    where = {offset: _LARGE + number for number, offset in enumerate(large)}
    body = b"".join(
        (
            _INDEX_HEAD,
            _FANOUT.pack(*fanout),
            b"".join(identity for identity, _ in ordered),
            b"".join(struct.pack(">I", crc) for _, (_, crc) in ordered),
            b"".join(struct.pack(">I", where.get(offset, offset)) for _, (offset, _) in ordered),
            b"".join(struct.pack(">Q", offset) for offset in large),
            pack_checksum,
        )
    )
    return body + hashlib.sha1(body, usedforsecurity=False).digest()
