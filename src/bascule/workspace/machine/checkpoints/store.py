"""Objects on disk, in git's layout: few at a time as single files, many as a pack.

Nothing here waits for the disk. After a power cut the newest objects may be gone or empty, so none is believed
unseen: what is read is checked against its name, and an object that is already there is read once before a new
checkpoint relies on it, and written again if it is damaged.
"""

import contextlib
import errno
import os
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from bascule.workspace.machine.checkpoints.objects import (
    BLOB,
    DRESSED,
    ID_BYTES,
    TREE,
    Attributes,
    BadObject,
    Entry,
    ObjectId,
    object_id,
    read_dressed,
    read_tree,
)
from bascule.workspace.machine.checkpoints.packs import LEVEL, Pack, PackWriter
from bascule.workspace.ports import DISK_FULL, CheckpointFault

# A checkpoint with more new objects is written as a pack: one file instead of hundreds.
MAX_LOOSE_AT_ONCE = 128
MAX_LOOSE_BYTES = 8 * 1024 * 1024
# What nobody needs any more is left in a pack while it is a smaller part than this.
MAX_WASTE = 0.25
# Single files and packs beyond which collecting brings everything into one pack.
MAX_LOOSE = 2_000
MAX_PACKS = 16
# Read objects have been written by us, within the scan's limit for one file; a tree of many names may be larger.
MAX_OBJECT_BYTES = 256 * 1024 * 1024

# For people who look with git: no guessing of who may, nothing thrown away, our exact modes not complained about.
_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tbare = true
\tfilemode = true
[gc]
\tauto = 0
\tpruneExpire = never
[fsck]
\tbadFilemode = ignore
"""

# Entries of trees that are remembered: the directories of a project of 30,000 files; some 6 MB.
MAX_REMEMBERED = 30_000


class ObjectStore:
    """Guarded by `lock`: who writes or collects holds it throughout."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.lock = threading.RLock()
        self._objects = os.path.join(directory, "objects")
        self._pack_dir = os.path.join(self._objects, "pack")
        self._packs: list[Pack] | None = None
        # Written or read by us in this life.
        self._seen: set[ObjectId] = set()
        self._waiting: dict[ObjectId, tuple[bytes, bytes]] = {}
        self._waiting_bytes = 0
        self._writer: PackWriter | None = None
        # The last trees that were read, the oldest first, and how many entries they have.
        self._trees: dict[ObjectId, Mapping[bytes, Entry]] = {}
        self._remembered = 0
        self._prepare()

    # -- reading ----------------------------------------------------------------------------------

    def blob(self, identity: ObjectId) -> bytes:
        return self._checked(identity, BLOB)

    def content(self, entry: Entry) -> bytes:
        """Of a file or link."""
        return self.blob(self.dressed(entry)[0] if entry.dressed else entry.object)

    def dressed(self, entry: Entry) -> tuple[ObjectId, Attributes]:
        """Where its content is, and its attributes."""
        if not entry.dressed:
            return entry.object, {}
        try:
            return read_dressed(self._checked(entry.object, DRESSED))
        except BadObject as error:
            raise _damaged(entry.object, error) from None

    def tree(self, identity: ObjectId) -> Mapping[bytes, Entry]:
        """Remembered for a while: a history of many runs reads the same directories again and again."""
        known = self._trees.pop(identity, None)
        if known is None:
            known = self._read_tree(identity)
            self._remembered += len(known)
            while self._remembered > MAX_REMEMBERED and self._trees:
                self._remembered -= len(self._trees.pop(next(iter(self._trees))))
        self._trees[identity] = known
        return known

    def _read_tree(self, identity: ObjectId) -> dict[bytes, Entry]:
        try:
            return read_tree(self._checked(identity, TREE))
        except BadObject as error:
            raise _damaged(identity, error) from None

    def _checked(self, identity: ObjectId, kind: bytes) -> bytes:
        waiting = self._waiting.get(identity)
        if waiting is not None:
            return waiting[1]
        try:
            found = self._read(identity)
        except (BadObject, OSError) as error:
            raise _damaged(identity, error) from error
        if found is None:
            raise CheckpointFault(f"the checkpoint is gone: its object {identity.hex()} is no longer stored")
        if found[0] != kind:
            raise _damaged(identity, f"it is not a {kind.decode()}")
        return found[1]

    def _read(self, identity: ObjectId) -> tuple[bytes, bytes] | None:
        """Kind and content, checked; a damaged copy is passed over when there is another one."""
        fault: Exception | None = None
        reads: list[Callable[[ObjectId], tuple[bytes, bytes] | None]] = [self._read_loose]
        reads += [partial(_read_packed, pack) for pack in self._all_packs()]
        for read in reads:
            try:
                found = read(identity)
            except (BadObject, OSError) as error:
                fault = error
                continue
            if found is None:
                continue
            if object_id(*found) == identity:
                self._seen.add(identity)
                return found
            fault = BadObject("its content is not what its name promises")
        if fault is not None:
            raise fault
        return None

    def _read_loose(self, identity: ObjectId) -> tuple[bytes, bytes] | None:
        try:
            with open(self._loose(identity), "rb") as file:
                packed = file.read()
        except FileNotFoundError:
            return None
        inflate = zlib.decompressobj()
        try:
            data = inflate.decompress(packed, MAX_OBJECT_BYTES)
        except zlib.error as error:
            raise BadObject(f"it cannot be inflated ({error})") from None
        head, null, body = data.partition(b"\0")
        kind, space, size = head.partition(b" ")
        if not inflate.eof or not null or not space or size != b"%d" % len(body):
            raise BadObject("it is cut")
        return kind, body

    # -- writing ----------------------------------------------------------------------------------

    def add(self, kind: bytes, data: bytes) -> ObjectId:
        """Its name. It is there for others after `flush`."""
        identity = object_id(kind, data)
        if identity in self._seen or identity in self._waiting or self._is_sound(identity):
            return identity
        try:
            self._add(identity, kind, data)
        except OSError as error:
            # Raised here: a concurrent reader of the workspace would take it for a file that cannot be read.
            raise cannot_be_stored(error) from error
        return identity

    def _add(self, identity: ObjectId, kind: bytes, data: bytes) -> None:
        if self._writer is not None:
            self._writer.add(identity, kind, data)
            return
        self._waiting[identity] = (kind, data)
        self._waiting_bytes += len(data)
        if len(self._waiting) > MAX_LOOSE_AT_ONCE or self._waiting_bytes > MAX_LOOSE_BYTES:
            self._writer = PackWriter(self._pack_dir)
            self._spill()

    def flush(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            written = writer.ids()
            try:
                path = writer.finish()
            except BaseException:
                # A full disk is no place for the half of a pack.
                writer.abort()
                raise
            if path is not None:
                self._all_packs().append(Pack(path))
            self._seen |= written
            return
        for identity, (kind, data) in self._waiting.items():
            self._write_loose(identity, kind, data)
            self._seen.add(identity)
        self._clear()

    def abandon(self) -> None:
        """Nothing of what was added since the last flush stays."""
        self._clear()
        if self._writer is not None:
            self._writer.abort()
            self._writer = None

    def _is_sound(self, identity: ObjectId) -> bool:
        if self._writer is not None and identity in self._writer:
            return True
        with contextlib.suppress(BadObject, OSError):
            return self._read(identity) is not None
        return False

    def _spill(self) -> None:
        assert self._writer is not None
        for identity, (kind, data) in self._waiting.items():
            self._writer.add(identity, kind, data)
        self._clear()

    def _clear(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    def _write_loose(self, identity: ObjectId, kind: bytes, data: bytes) -> None:
        path = self._loose(identity)
        temporary = os.path.join(self._objects, f"tmp_obj_{os.urandom(8).hex()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(zlib.compress(b"%s %d\0%s" % (kind, len(data), data), LEVEL))
            try:
                os.rename(temporary, path)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
                os.rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    # -- collecting -------------------------------------------------------------------------------

    def collect(self, keep: Iterable[ObjectId]) -> int:
        """Drop what none of these trees needs. Whatever happens meanwhile, what they need is always there."""
        with self.lock:
            needed = self._needed(keep)
            self._trees.clear()
            self._remembered = 0
            before = self._size()
            loose = self._loose_ids()
            packs = self._all_packs()
            packed = sum(len(pack) for pack in packs)
            used = sum(1 for pack in packs for identity in pack.ids() if identity in needed)
            crowded = len(packs) > MAX_PACKS or sum(identity in needed for identity in loose) > MAX_LOOSE
            if crowded or packed - used > MAX_WASTE * packed:
                self._repack(needed, loose)
                loose = self._loose_ids()
            for identity in loose:
                if identity not in needed:
                    os.unlink(self._loose(identity))
            self._remove_unfinished()
            self._seen &= needed
            return max(0, before - self._size())

    def _needed(self, roots: Iterable[ObjectId]) -> set[ObjectId]:
        needed: set[ObjectId] = set()
        waiting = list(roots)
        while waiting:
            identity = waiting.pop()
            if identity in needed:
                continue
            needed.add(identity)
            try:
                entries = self._read_tree(identity)
            except CheckpointFault:
                # Damaged or gone: what it needed is unknown, and it cannot be used any more.
                continue
            for entry in entries.values():
                if entry.is_dir:
                    waiting.append(entry.object)
                    continue
                needed.add(entry.object)
                if entry.dressed:
                    with contextlib.suppress(CheckpointFault):
                        needed.add(self.dressed(entry)[0])
        return needed

    def _repack(self, needed: set[ObjectId], loose: list[ObjectId]) -> None:
        old = list(self._all_packs())
        writer = PackWriter(self._pack_dir)
        try:
            self._copy(writer, needed, loose)
            path = writer.finish()
        except BaseException:
            writer.abort()
            raise
        # The new pack is in place; from here on a crash only leaves things twice.
        self._packs = [Pack(path)] if path is not None else []
        for pack in old:
            if pack.path != path:
                for ending in (".idx", ".pack"):
                    os.unlink(pack.path + ending)
        for identity in loose:
            os.unlink(self._loose(identity))

    def _copy(self, writer: PackWriter, needed: set[ObjectId], loose: list[ObjectId]) -> None:
        for identity in loose:
            # What is damaged stays behind; a sound copy may be in a pack.
            if identity in needed:
                self._add_sound(writer, identity)
        times = Counter(identity for pack in self._all_packs() for identity in pack.ids())
        for pack in self._all_packs():
            for identity in pack.ids():
                if identity not in needed or identity in writer:
                    continue
                # Twice, because one of the two is damaged: only what was read is known to be the other.
                if times[identity] > 1 and self._add_sound(writer, identity):
                    continue
                offset = pack.find(identity)
                if offset is not None:
                    writer.add_raw(identity, pack.raw(offset))

    def _add_sound(self, writer: PackWriter, identity: ObjectId) -> bool:
        with contextlib.suppress(BadObject, OSError):
            found = self._read(identity)
            if found is not None:
                writer.add(identity, *found)
                return True
        return False

    def _remove_unfinished(self) -> None:
        for directory in (self._objects, self._pack_dir):
            for name in os.listdir(directory):
                if name.startswith("tmp_"):
                    os.unlink(os.path.join(directory, name))

    def _size(self) -> int:
        return sum(pack.size() for pack in self._all_packs()) + sum(
            os.stat(self._loose(identity)).st_size for identity in self._loose_ids()
        )

    def _loose_ids(self) -> list[ObjectId]:
        found: list[ObjectId] = []
        for first in os.listdir(self._objects):
            if len(first) == 2:
                for rest in os.listdir(os.path.join(self._objects, first)):
                    with contextlib.suppress(ValueError):
                        identity = bytes.fromhex(first + rest)
                        if len(identity) == ID_BYTES:
                            found.append(identity)
        return found

    # -- layout -----------------------------------------------------------------------------------

    def _all_packs(self) -> list[Pack]:
        if self._packs is None:
            self._packs = []
            for name in sorted(os.listdir(self._pack_dir)):
                if name.startswith("pack-") and name.endswith(".idx"):
                    # One that cannot be read is as good as gone; its objects are missed where they are needed.
                    with contextlib.suppress(BadObject, OSError, ValueError):
                        self._packs.append(Pack(os.path.join(self._pack_dir, name.removesuffix(".idx"))))
        return self._packs

    def _loose(self, identity: ObjectId) -> str:
        name = identity.hex()
        return os.path.join(self._objects, name[:2], name[2:])

    def _prepare(self) -> None:
        os.makedirs(self._pack_dir, 0o700, exist_ok=True)
        os.makedirs(os.path.join(self.directory, "refs"), 0o700, exist_ok=True)
        for name, text in (("config", _CONFIG), ("HEAD", "ref: refs/heads/none\n")):
            path = os.path.join(self.directory, name)
            if not os.path.exists(path):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)


def _read_packed(pack: Pack, identity: ObjectId) -> tuple[bytes, bytes] | None:
    offset = pack.find(identity)
    return None if offset is None else pack.read(offset, MAX_OBJECT_BYTES)


def cannot_be_stored(error: OSError) -> CheckpointFault:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    why = f"{DISK_FULL} ({error.strerror})" if full else error.strerror
    return CheckpointFault(f"no checkpoint could be stored: {why}")


def _damaged(identity: ObjectId, why: object) -> CheckpointFault:
    return CheckpointFault(
        f"the checkpoint is damaged and nothing was changed: object {identity.hex()} cannot be used ({why})"
    )
