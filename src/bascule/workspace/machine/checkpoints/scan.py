"""Reading a workspace into a tree of objects.

Everything is opened beneath the root's descriptor and no link is followed, so a process that swaps names meanwhile
cannot make a checkpoint hold what is outside. `.git` (any repository's own record) and `artifacts/` are left out.

What cannot be held never costs the rest: it becomes a gap in the tree (see `objects`). Where the limits of the whole
workspace are reached, what the last checkpoint held comes first and only new names become gaps: one run that makes
too many files does not take from an earlier checkpoint what it held.
"""

import contextlib
import errno
import os
import secrets
import shutil
import stat
import time

import msgspec

from bascule.workspace.machine.checkpoints.objects import (
    BLOB,
    DRESSED,
    GAP,
    GAP_AND_REST,
    GAP_WITHOUT_CONTENT,
    TREE,
    Attributes,
    Entry,
    ObjectId,
    gap_text,
    kept_mode,
    special_text,
    write_dressed,
    write_tree,
)
from bascule.workspace.machine.checkpoints.stats import NEVER, FileStat, Link, Node, is_racy, remember
from bascule.workspace.machine.checkpoints.store import ObjectStore
from bascule.workspace.machine.checkpoints.watch import Changed, Watch
from bascule.workspace.machine.files import attributes, shut, temporary
from bascule.workspace.machine.files.repositories import GIT, find_repositories
from bascule.workspace.machine.files.root import ARTIFACTS, WorkspaceRoot
from bascule.workspace.ports import LEFTOVER, CheckpointFault

# A log that is written all the time is taken as it is in the end.
MAX_READS = 5
# Gaps with a name of their own; each is an object. The next one of a directory stands for all others in it.
MAX_GAPS = 1_000

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ScanLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint holds; what is beyond is left alone by an undo, and named.

    The first checkpoint of a workspace at these limits takes half a minute, and later ones under a second.
    """

    files: int = 100_000
    bytes: int = 1024 * 1024 * 1024
    file_bytes: int = 64 * 1024 * 1024
    # A descriptor is held for each level.
    depth: int = 200


class _NotHeld(Exception):
    """Why a file is a gap."""


class Scan:
    """One pass over a workspace. The caller holds the store's lock, and flushes it.

    With `until` (nanoseconds, as change times have them) files that changed later are gaps: the tree is the workspace
    as it was then, as far as can be known now. With `since` files that changed later are read again even where their
    times say that they were read already: a program that has a file mapped changes it without them.

    With `watch` each directory that is entered is watched from then on; with `changed` only those are entered.
    With `room` (what the last scan left) nothing is counted: that takes longer than a small scan.
    """

    def __init__(
        self,
        root: WorkspaceRoot,
        store: ObjectStore,
        limits: ScanLimits,
        until: int | None = None,
        since: int | None = None,
        *,
        watch: Watch | None = None,
        changed: Changed | None = None,
        room: tuple[int, int] | None = None,
    ) -> None:
        self._root = root
        self._watch = watch
        self._changed = changed
        # Directories that were not entered, because nothing in them changed.
        self.clean: set[str] = set()
        # Directories with something that no tree holds.
        self.with_gaps: set[str] = set()
        self._store = store
        self._limits = limits
        self._until = until
        # Beyond either of them the memory of the last scan does not count.
        self._trusted_until = min((each for each in (until, since) if each is not None), default=None)
        # Names and bytes that may come to those the last scan held.
        self.room, self.room_bytes = room or (limits.files, limits.bytes)
        self._counts = room is None
        self._gaps = 0
        # Differs from scan to scan: a gap with it is never equal to another.
        self._nonce = secrets.token_hex(8)
        self._steps: list[str] = []
        # Directories that were not read.
        self._unread: list[str] = []
        # Every `.git`, with its inode.
        self.repositories: dict[str, int] = {}
        # Files of the directories that were entered which have other names.
        self.links: dict[str, Link] = {}
        # Files read, whether or not they turned out to be new.
        self.read = 0

    def run(self, last: Node | None) -> Node:
        if last is not None and self._counts:
            names, size = last.totals()
            self.room -= names
            self.room_bytes -= size
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(shut.widened_open(self._root.fileno(), shut.LIST))
                descriptor = self._root.opener.open(self._root.fileno(), ".", _DIRECTORY)
                held.callback(os.close, descriptor)
                self._add_watch(descriptor)
                node = self._directory(descriptor, last, 0o755 | stat.S_IFDIR)
                self._note_gaps(node)
            except OSError as error:
                raise _no_checkpoint(error) from error
        if self._unread and self._until is None:
            # What no tree holds is a place for a repository all the same.
            self.repositories |= find_repositories(self._root.fileno(), self._unread).inodes
        return node

    def _directory(self, descriptor: int, last: Node | None, mode: int) -> Node:
        node = Node(mode, b"", {}, {}, {})
        files = node.files
        below: list[tuple[str, os.stat_result]] = []
        known = last.files if last is not None else {}
        changed = last is None
        trusted = self._trusted_until
        with os.scandir(descriptor) as entries:
            for entry in entries:
                name = entry.name
                if self._is_left_out(entry):
                    continue
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if temporary.is_temporary(name) and self._is_ours(descriptor, name, found):
                    continue
                if found.st_nlink > 1 and stat.S_ISREG(found.st_mode):
                    ctime = NEVER if is_racy(found, time.time_ns()) else found.st_ctime_ns
                    self.links["/".join((*self._steps, name))] = Link(found.st_ino, ctime)
                before = known.get(name)
                if (
                    before is not None
                    and _untouched(before, found)
                    and (trusted is None or found.st_ctime_ns <= trusted)
                ):
                    files[name] = before
                elif stat.S_ISDIR(found.st_mode) and temporary.is_temporary(name):
                    # Thousands of files perhaps, none of them the user's.
                    self._gap(node, name, LEFTOVER, self._nonce)
                elif stat.S_ISDIR(found.st_mode):
                    below.append((name, found))
                else:
                    self._file(descriptor, node, name, found, before)
                    changed = changed or before is None or name not in files or not _same(before, files[name])
        for name, found in below:
            self._below(descriptor, node, name, found, last and last.directories.get(name))
        same = last is not None and not changed and len(files) == len(known) and _same_below(last, node)
        node.tree = last.tree if last is not None and same else self._tree(node)
        return node

    def _add_watch(self, descriptor: int) -> None:
        """Before it is read: what changes from here on is reported."""
        if self._watch is not None:
            self._watch.add("/".join(self._steps), descriptor)

    def _note_gaps(self, node: Node) -> None:
        if node.gaps:
            self.with_gaps.add("/".join(self._steps))

    def _is_left_out(self, entry: os.DirEntry[str]) -> bool:
        if entry.name == GIT:
            self.repositories["/".join((*self._steps, GIT))] = entry.inode()
            return True
        return entry.name == ARTIFACTS and not self._steps

    def _below(self, descriptor: int, node: Node, name: str, found: os.stat_result, last: Node | None) -> None:
        self._steps.append(name)
        changed = self._changed
        try:
            if changed is not None:
                path = "/".join(self._steps)
                if last is not None and path not in changed.dirty:
                    self.clean.add(path)
                    node.directories[name] = last
                    return
                if path in changed.anew:
                    self._changed = None
            self._enter(descriptor, node, name, found, last)
        finally:
            self._changed = changed
            if name not in node.directories:
                self._unread.append("/".join(self._steps))
            self._steps.pop()

    def _enter(self, descriptor: int, node: Node, name: str, found: os.stat_result, last: Node | None) -> None:
        if last is None and not self._has_room(node, name):
            return
        if len(self._steps) > self._limits.depth:
            self._gap(node, name, f"lies deeper than {self._limits.depth} directories", self._nonce)
            return
        with contextlib.ExitStack() as held:
            try:
                if shut.is_shut(found, shut.LIST):
                    held.enter_context(shut.widened(descriptor, name, shut.LIST))
                child = self._root.opener.open(descriptor, name, _DIRECTORY, links=False)
            except OSError as error:
                if error.errno == errno.EXDEV:
                    self._gap(node, name, "is another file system, mounted there", f"{found.st_dev} {found.st_ino}")
                elif error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    # Who may not even pass through it cannot change what is in it without changing its mode.
                    closed = not os.access(name, os.X_OK, dir_fd=descriptor, effective_ids=True)
                    self._gap(node, name, _unreadable(error), self._identity(found) if closed else self._nonce)
                return
            held.callback(os.close, child)
            try:
                self._add_watch(child)
                read = node.directories[name] = self._directory(child, last, kept_mode(found.st_mode))
                self._note_gaps(read)
            except OSError as error:
                self._gap(node, name, _unreadable(error), self._nonce)

    def _tree(self, node: Node) -> ObjectId:
        entries = {
            os.fsencode(name): Entry(kept_mode(file.mode), file.object, file.dressed)
            for name, file in node.files.items()
        }
        entries.update((os.fsencode(name), Entry(below.mode, below.tree)) for name, below in node.directories.items())
        entries.update((os.fsencode(name), gap) for name, gap in node.gaps.items())
        return self._store.add(TREE, write_tree(entries))

    def _file(self, directory: int, node: Node, name: str, found: os.stat_result, before: FileStat | None) -> None:
        """Its content as an object; nothing when it is gone; else a gap."""
        if before is None and not self._has_room(node, name):
            return
        if self._until is not None and found.st_ctime_ns > self._until:
            self._gap(node, name, "was changed later", self._nonce)
            return
        try:
            for _ in range(MAX_READS):
                kind = stat.S_IFMT(found.st_mode)
                if kind == stat.S_IFREG:
                    kept = self._regular(directory, name, found, before)
                elif kind == stat.S_IFLNK:
                    kept = self._link(directory, name, found)
                else:
                    node.gaps[name] = Entry(GAP_WITHOUT_CONTENT, self._store.add(BLOB, special_text(found)))
                    return
                if kept is not None:
                    node.files[name] = kept
                    return
                found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            raise _NotHeld("keeps turning into something else")  # noqa: TRY301 - the same end as what the reader meets
        except FileNotFoundError:
            return
        except OSError as error:
            self._gap(node, name, _unreadable(error), self._identity(found))
        except _NotHeld as error:
            self._gap(node, name, str(error), self._identity(found))

    def _regular(self, directory: int, name: str, found: os.stat_result, known: FileStat | None) -> FileStat | None:
        # Of a file that is too large not a byte is read: `truncate -s 1T` costs its maker nothing.
        self._check_size(found.st_size, known)
        is_shut = shut.is_shut(found, 0o400)
        try:
            if is_shut:
                descriptor = shut.open_file(directory, name, _READ)
            else:
                descriptor = self._root.opener.open(directory, name, _READ, links=False)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                # It is a link or a socket by now.
                return None
            raise
        try:
            for attempt in range(MAX_READS):
                before = os.fstat(descriptor)
                if not stat.S_ISREG(before.st_mode):
                    return None
                read_at = time.time_ns()
                data = self._content(descriptor, before.st_size, known)
                dress = self._attributes(descriptor)
                after = os.fstat(descriptor)
                self.read += 1
                settled = (before.st_mtime_ns, before.st_ctime_ns, before.st_size) == (
                    after.st_mtime_ns,
                    after.st_ctime_ns,
                    after.st_size,
                )
                if settled or attempt == MAX_READS - 1:
                    self.room_bytes -= len(data) - (known.size if known is not None else 0)
                    # Unsettled, it is what was read, and will be read again: its change time is new.
                    identity = self._store.add(BLOB, data)
                    if dress:
                        identity = self._store.add(DRESSED, write_dressed(identity, dress))
                    kept = remember(after, read_at, identity, dressed=bool(dress))
                    # Opening it was its last change; else every scan would open it again.
                    return msgspec.structs.replace(kept, ctime=after.st_ctime_ns) if is_shut and settled else kept
                os.lseek(descriptor, 0, os.SEEK_SET)
        finally:
            os.close(descriptor)
        return None

    def _content(self, descriptor: int, size: int, known: FileStat | None) -> bytes:
        self._check_size(size, known)
        limit = self._limits.file_bytes
        pieces, total = [], 0
        # A read takes the memory it is asked for.
        while total <= limit:
            piece = os.read(descriptor, min(max(size - total, 0) + 4_096, limit + 1 - total))
            if not piece:
                break
            pieces.append(piece)
            total += len(piece)
        self._check_size(total, known)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _attributes(self, descriptor: int) -> Attributes:
        try:
            return attributes.read(descriptor)
        except attributes.TooMany:
            raise _NotHeld(f"has attributes of more than {attributes.MAX_BYTES:,} bytes") from None

    def _check_size(self, size: int, known: FileStat | None) -> None:
        if size > self._limits.file_bytes:
            raise _NotHeld(
                f"has more than {self._limits.file_bytes:,} bytes, which is what a checkpoint holds of one file"
            )
        if size > self.room_bytes + (known.size if known is not None else 0):
            raise _NotHeld(
                f"comes to a workspace with more than {self._limits.bytes:,} bytes, which is what a checkpoint holds"
            )

    def _link(self, directory: int, name: str, found: os.stat_result) -> FileStat | None:
        read_at = time.time_ns()
        try:
            target = os.readlink(name, dir_fd=directory)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return None
            raise
        return remember(found, read_at, self._store.add(BLOB, os.fsencode(target)))

    def _is_ours(self, directory: int, name: str, found: os.stat_result) -> bool:
        """Not finished yet, or left by a crash: that goes, once nobody can be writing it any more."""
        if temporary.is_in_use(name):
            return True
        if not temporary.is_stale(found.st_ctime_ns):
            return False
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(found.st_mode):
                shutil.rmtree(name, ignore_errors=True, dir_fd=directory)
            else:
                os.unlink(name, dir_fd=directory)
        return True

    def _has_room(self, node: Node, name: str) -> bool:
        """Room for one more name; the first of a directory that finds none is a gap for all that come after it."""
        if self.room > 0:
            self.room -= 1
            return True
        held = f"comes to a workspace with more than {self._limits.files:,} files, which is what a checkpoint holds"
        self._rest(node, name, held)
        return False

    def _gap(self, node: Node, name: str, why: str, identity: str) -> None:
        if self._gaps >= MAX_GAPS:
            self._rest(node, name, why)
            return
        self._gaps += 1
        node.gaps[name] = Entry(GAP, self._store.add(BLOB, gap_text(why, identity)))

    def _rest(self, node: Node, name: str, why: str) -> None:
        if all(gap.mode != GAP_AND_REST for gap in node.gaps.values()):
            text = gap_text(f"{why}; others beside it may be missing too", self._nonce)
            node.gaps[name] = Entry(GAP_AND_REST, self._store.add(BLOB, text))

    def _identity(self, found: os.stat_result) -> str:
        """Changes with the thing; where its times could hide a change, it differs from every other."""
        if is_racy(found, time.time_ns()):
            return self._nonce
        return (
            f"{found.st_mode:o} {found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
        )


def _no_checkpoint(error: OSError) -> CheckpointFault:
    return CheckpointFault(f"the directory of the workspace {_unreadable(error)}")


def _unreadable(error: OSError) -> str:
    return f"cannot be read: {error.strerror}"


def _untouched(before: FileStat, found: os.stat_result) -> bool:
    return (
        before.ctime == found.st_ctime_ns
        and before.mtime == found.st_mtime_ns
        and before.size == found.st_size
        and before.inode == found.st_ino
        and before.mode == found.st_mode
    )


def _same_below(last: Node, node: Node) -> bool:
    return (
        node.gaps == last.gaps
        and node.directories.keys() == last.directories.keys()
        and all(
            (below.mode, below.tree) == (last.directories[name].mode, last.directories[name].tree)
            for name, below in node.directories.items()
        )
    )


def _same(before: FileStat, now: FileStat) -> bool:
    return (kept_mode(before.mode), before.object) == (kept_mode(now.mode), now.object)
