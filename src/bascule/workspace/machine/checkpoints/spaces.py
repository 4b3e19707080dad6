"""Checkpoints of workspaces: one set of objects per space, one memory of what was scanned per directory.

A space's copy (`copy_out`) is another directory with the same objects, so that what happens in it can be brought back.
Directories are held as trees hold them, empty ones too. Not held: `.git`, `artifacts/`, owners, times, extended
attributes, which names are hard links of one file; and gaps: what is too large, too deep or cannot be read, pipes,
sockets, devices and other mounts. `unknown` names those that may have changed between two trees.
"""

import os
import re
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Literal

from bascule.workspace.blame import NOT_HELD
from bascule.workspace.lines import merge_lines
from bascule.workspace.machine.checkpoints import stats
from bascule.workspace.machine.checkpoints.compare import Difference, TreeView, differences
from bascule.workspace.machine.checkpoints.merge import Plan, applied, edited, is_half_made, plan
from bascule.workspace.machine.checkpoints.objects import (
    BLOB,
    DRESSED,
    ID_BYTES,
    TREE,
    Entry,
    gap_reason,
    write_dressed,
)
from bascule.workspace.machine.checkpoints.restore import Restore, linked, only_copies, write_out
from bascule.workspace.machine.checkpoints.scan import Scan, ScanLimits
from bascule.workspace.machine.checkpoints.stats import Link, Node
from bascule.workspace.machine.checkpoints.store import ObjectStore, cannot_be_stored
from bascule.workspace.machine.checkpoints.unified import file_changes, known, shown_path, unified_diff, unknown_paths
from bascule.workspace.machine.checkpoints.watch import Changed, Watch, Watches, WatchFault
from bascule.workspace.machine.files.root import WorkspaceRoot
from bascule.workspace.ports import CheckpointFault, Root, Undone, Value, Ways
from bascule.workspace.protocol import FileChange, PathReason

# A tree that was taken but is in nobody's records yet survives a collection this long.
GRACE = timedelta(hours=1)
# Files that changed since the memory was last put on disk; until then a restart reads those again.
SAVE_AFTER = 500
# Copies that were made and not opened; more are opened without what is known of them.
MAX_COPIES = 4
TOO_MANY_EVENTS = "more changed at once than the kernel reports (fs.inotify.max_queued_events)"
ONLY_COPY = "is older than the call and may be the only copy: nothing that is put back is the same; it was moved here"
# Files with other names that are looked at for each checkpoint, which takes 2 ms. A project whose packages are hard
# links into a store outside has tens of thousands.
MAX_LINKS = 1_000
# Times that a workspace may change between looking and acting.
MAX_LOOKS = 3

_SPACE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")
_STATS = "stats-"


class SpaceCheckpoints:
    def __init__(self, space: "_Space", root: WorkspaceRoot, limits: ScanLimits) -> None:
        self.root = root
        self._space = space
        self._store = store = space.store
        self._limits = limits
        # A copy is gone before a restart could need what is remembered of it.
        name = f"{_STATS}{root.identity[0]:x}-{root.identity[1]:x}"
        self._stats = os.path.join(store.directory, name) if root.lasting else None
        self._last = stats.load(self._stats) if self._stats is not None else space.copies.pop(root.identity, None)
        self._unsaved = SAVE_AFTER if self._last is None else 0
        self.repositories: Mapping[str, int] = {}
        self._watch: Watch | None = None
        # Whether all that changed since the last scan is among the watch's events.
        self._sees_all = False
        self._watchable = True
        # Directories of the last scan with something that no tree holds, and the room that it left; what goes does not
        # add to it, so that it is counted again when it becomes small.
        self._gaps: set[str] = set()
        self._room: tuple[int, int] | None = None
        # Files with other names: a change by one of them is reported there alone.
        self._links: dict[str, Link] = {}
        self.scans_because: str | None = None

    def take(self, until: int | None = None, since: int | None = None, *, watched: bool = False) -> str:
        with self._store.lock:
            changed = self._changed(watched=watched) if until is None else None
            if changed is not None and not changed.dirty and self._last is not None:
                self._space.reported[self._last.tree] = time.monotonic()
                return self._last.tree.hex()
            watch = self._watch if until is None else None
            room = self._room if changed is not None else None
            scan = Scan(self.root, self._store, self._limits, until, since, watch=watch, changed=changed, room=room)
            if watch is not None:
                # Until this one is through: what it does not come to is lost with the events that were read.
                self._sees_all = False
            try:
                found = scan.run(self._last)
                self._store.flush()
            except OSError as error:
                self._store.abandon()
                raise cannot_be_stored(error) from error
            except BaseException:
                self._store.abandon()
                raise
            if until is None:
                self._last = found
                self._gaps = {path for path in self._gaps if _lies_in(f"{path}/", scan.clean)} | scan.with_gaps
                enough = scan.room > self._limits.files // 10 and scan.room_bytes > self._limits.bytes // 10
                self._room = (scan.room, scan.room_bytes) if enough else None
                kept = {path: inode for path, inode in self.repositories.items() if _lies_in(path, scan.clean)}
                self.repositories = kept | scan.repositories
                self._links = self._linked(scan, found)
                self._unsaved += scan.read
                self._sees_all = watch is not None and watch.problem is None
            if self._unsaved >= SAVE_AFTER:
                self.save()
            self._space.reported[found.tree] = time.monotonic()
            return found.tree.hex()

    def _changed(self, *, watched: bool) -> Changed | None:
        """What has to be looked at; None: everything."""
        if self._watch is not None and self._watch.problem is not None:
            # Each try costs a scan: not again in this life.
            self._watchable = False
            self.scans_because = self._watch.problem
            self._watch = None
        elif self._watch is None and watched and self._watchable:
            self._sees_all = False
            try:
                self._watch = self._space.watches.start(self.root.fileno(), self.stop_watching)
            except WatchFault as error:
                self.scans_because = str(error)
        if self._watch is None:
            return None
        self._space.watches.used(self._watch)
        changed = self._watch.changed()
        self.scans_because = None if changed is not None else TOO_MANY_EVENTS
        if changed is None or not self._sees_all or self._last is None or not watched:
            return None
        for directory in self._gaps:
            # What no tree holds is not watched either.
            changed.mark(directory)
        for path, link in self._links.items():
            if not self._is_still(path, link):
                changed.mark(path.rpartition("/")[0])
        return changed

    def _is_still(self, path: str, link: Link) -> bool:
        try:
            found = os.stat(path, dir_fd=self.root.fileno(), follow_symlinks=False)
        except OSError:
            return False
        return (found.st_ino, found.st_ctime_ns) == link

    def _linked(self, scan: Scan, found: Node) -> dict[str, Link]:
        """Those with two names in here first."""
        links = {path: link for path, link in self._links.items() if _lies_in(path, scan.clean)}
        new = {link.inode for link in scan.links.values()} - {link.inode for link in links.values()}
        if new and scan.clean:
            # A file is not reported when it gets another name.
            for path, file in found.all_files():
                if file.inode in new and path not in scan.links:
                    links[path] = Link(file.inode, stats.NEVER)
        links |= scan.links
        if len(links) <= MAX_LINKS:
            return links
        names = Counter(link.inode for link in links.values())
        first = sorted(links.items(), key=lambda each: names[each[1].inode] == 1)
        return dict(first[:MAX_LINKS])

    def stop_watching(self) -> bool:
        """Another workspace needs the room; False when this one is at work."""
        if not self._store.lock.acquire(blocking=False):
            return False
        try:
            if self._watch is not None:
                self._watch.close()
                self._watch = None
            return True
        finally:
            self._store.lock.release()

    def changes(self, before: str, after: str) -> list[FileChange]:
        with self._store.lock:
            return file_changes(self._store, known(differences(self._store, _tree(before), _tree(after))))

    def unknown(self, before: str, after: str) -> list[PathReason]:
        with self._store.lock:
            return unknown_paths(self._store, differences(self._store, _tree(before), _tree(after)))

    def touched(self, before: str, after: str) -> list[str]:
        with self._store.lock:
            found = differences(self._store, _tree(before), _tree(after))
        return [os.fsdecode(each.path) for each in found if each.new is not None]

    def content(self, tree: str, path: str) -> bytes | None:
        with self._store.lock:
            entry = TreeView(self._store, _tree(tree)).get(os.fsencode(path))
            return None if entry is None or entry.is_dir else self._store.content(entry)

    def versions(self, trees: Sequence[str], path: str) -> list[str | None]:
        with self._store.lock:
            view = TreeView(self._store, b"")
            return [self._version(view.at(_tree(tree), os.fsencode(path))) for tree in trees]

    def _version(self, entry: Entry | None) -> str | None:
        if entry is None or entry.is_dir:
            return None
        return NOT_HELD if entry.is_gap else self._store.dressed(entry)[0].hex()

    def blob(self, version: str) -> bytes:
        with self._store.lock:
            return self._store.blob(bytes.fromhex(version))

    def kind(self, tree: str, path: str) -> Literal["file", "link", "directory"] | None:
        with self._store.lock:
            entry = TreeView(self._store, _tree(tree)).get(os.fsencode(path))
        if entry is None:
            return None
        return "directory" if entry.is_dir else "link" if entry.is_link else "file"

    def diff(self, before: str, after: str, max_chars: int) -> tuple[str, bool]:
        with self._store.lock:
            return unified_diff(self._store, known(differences(self._store, _tree(before), _tree(after))), max_chars)

    def edits(self, before: str, after: str) -> dict[bytes, tuple[Entry | None, Entry | None]]:
        with self._store.lock:
            # Backwards: what was in a directory that `after` cannot look into is there one by one.
            found = differences(self._store, _tree(after), _tree(before), behind_gaps=True)
        return {each.path: (each.new, each.old) for each in found}

    def values(self, tree: str, paths: Iterable[bytes]) -> dict[bytes, Entry | None]:
        with self._store.lock:
            view = TreeView(self._store, _tree(tree))
            return {path: (found := view.get(path)) and found.alone() for path in paths}

    def same(self, known: Value, found: Value) -> bool:
        assert isinstance(known, Entry | None)
        assert isinstance(found, Entry | None)
        if known == found or (found is not None and found.is_gap) or (known is not None and known.is_gap):
            return True
        # Somebody made a directory where one was removed: what was in it can come back.
        return known is None and found is not None and found.is_dir

    def is_rewrite(self, old: Value, new: Value) -> bool:
        assert isinstance(old, Entry | None)
        assert isinstance(new, Entry | None)
        return old is None or new is None or old.object != new.object

    def merged(self, base: Value, ours: Value, theirs: Value) -> tuple[Value, str]:
        entries = [each for each in (base, ours, theirs) if isinstance(each, Entry)]
        if len(entries) < 3 or not all(stat.S_ISREG(each.mode) for each in entries):
            return None, "is no file in all three states"
        with self._store.lock:
            texts = [self._store.content(each) for each in entries]
            text, conflict = merge_lines(*texts)
            if conflict:
                return None, conflict
            _, attributes = self._store.dressed(entries[1])
            content = self._store.add(BLOB, text)
            if attributes:
                content = self._store.add(DRESSED, write_dressed(content, attributes))
            self._flush()
            return entries[1]._replace(object=content), ""

    def bring(
        self,
        ways: Ways,
        *,
        dry_run: bool,
        max_chars: int = 0,
        resumes: bool = False,
        elsewhere: Callable[[], Collection[bytes]] = tuple,
    ) -> Undone:
        def since(path: bytes) -> int:
            # A file that was made a moment ago may have an earlier time: clocks of file systems tick.
            way = ways.paths.get(path)
            return way.since_ms * 1_000_000 - stats.RACY_NS if way is not None else 0

        return self._bring(
            _differences(ways),
            _tree(ways.target),
            dry_run=dry_run,
            max_chars=max_chars,
            resumes=resumes,
            since=since,
            elsewhere=elsewhere,
        )

    def expect(self, ways: Ways, *, resumes: bool = False) -> tuple[str, str]:
        with self._store.lock:
            now = self.take(watched=self._watch is not None)
            steps = plan(self._store, _differences(ways), _tree(ways.target), _tree(now), resumes=resumes)
            then = applied(self._store, _tree(now), steps)
            self._keep(then)
            return now, then.hex()

    def cut_short(self, before: str, after: str, now: str, *, half_too: bool = False) -> tuple[str, set[bytes]]:
        with self._store.lock:
            view, target = TreeView(self._store, _tree(now)), TreeView(self._store, _tree(after))
            done: dict[bytes, Entry | None] = {}
            half: set[bytes] = set()
            for each in differences(self._store, _tree(before), _tree(after)):
                there = view.get(each.path)
                if (there and there.alone()) == each.new:
                    done[each.path] = each.new
                elif is_half_made(each, view, target):
                    half.add(each.path)
                    if half_too:
                        done[each.path] = there and there.alone()
            tree = edited(self._store, _tree(before), done)
            self._keep(tree)
            return tree.hex(), half

    def has(self, contents: Collection[bytes]) -> bool:
        if not contents:
            return True
        with self._store.lock:
            return set(contents) <= {
                self._store.dressed(entry)[0] for _, entry in TreeView(self._store, _tree(self.take())).walk()
            }

    def empty(self) -> str:
        with self._store.lock:
            tree = self._store.add(TREE, b"")
            self._keep(tree)
            return tree.hex()

    def _keep(self, tree: bytes) -> None:
        self._flush()
        self._space.reported[tree] = time.monotonic()

    def _flush(self) -> None:
        try:
            self._store.flush()
        except OSError as error:
            self._store.abandon()
            raise cannot_be_stored(error) from error

    def close(self) -> None:
        with self._store.lock:
            self.stop_watching()
            self.root.close()

    def apply(self, before: str, after: str) -> Undone:
        with self._store.lock:
            found = differences(self._store, _tree(before), _tree(after))
        return self._bring(found, _tree(after), dry_run=False, forward=True)

    def copy_out(self, tree: str, into: str) -> None:
        with self._store.lock:
            node = write_out(self._store, _tree(tree), into, self.root.owner)
            found = os.stat(into)
            self._space.copies[found.st_dev, found.st_ino] = node
            while len(self._space.copies) > MAX_COPIES:
                self._space.copies.pop(next(iter(self._space.copies)))

    def last(self) -> set[bytes]:
        """The tree that the next one builds on."""
        return {self._last.tree} if self._last is not None else set()

    def save(self) -> None:
        if self._last is not None and self._stats is not None:
            stats.save(self._stats, self._last)
        self._unsaved = 0

    def _bring(
        self,
        wanted: Sequence[Difference],
        target: bytes,
        *,
        dry_run: bool,
        max_chars: int = 0,
        forward: bool = False,
        resumes: bool = False,
        since: Callable[[bytes], int] | None = None,
        elsewhere: Callable[[], Collection[bytes]] = tuple,
    ) -> Undone:
        with self._store.lock:

            def look(*, watched: bool = False) -> tuple[TreeView, Plan]:
                view = TreeView(self._store, bytes.fromhex(self.take(watched=watched)))
                steps = plan(self._store, wanted, target, view.root, forward=forward, resumes=resumes)
                if since is not None and (single := only_copies(self.root, steps, view, since)):
                    held = elsewhere()
                    steps = steps.leaving((path for path in single if single[path] not in held), ONLY_COPY)
                return view, steps

            # A program that has a file mapped changes it unseen: before anything is changed, all is looked at.
            view, steps = look(watched=self._watch is not None and not forward)
            for _ in range(MAX_LOOKS):
                if dry_run:
                    return self._undone(steps, target, (), max_chars, linked(self.root, steps, view))
                restore = Restore(self.root, self._store, steps)
                try:
                    restore.stage()
                    # Staging took its time: nothing is changed if a conflict came meanwhile.
                    looked = steps
                    view, steps = look()
                    if looked == steps:
                        restore.check_leftovers(view)
                        several = linked(self.root, steps, view)
                        raced = restore.apply(view)
                        return self._compared(self._undone(steps, target, raced, max_chars, several), steps, restore)
                finally:
                    restore.clear()
            raise CheckpointFault("the workspace keeps changing; nothing was changed. Stop what writes to it first")

    def _compared(self, undone: Undone, steps: Plan, restore: Restore) -> Undone:
        """What was put back is read from the disk once more, and only what is as it should be counts."""
        left = {each.path for each in undone.left_alone}
        failed = {
            shown_path(difference.path): "is not as it was before the run"
            for difference in steps.changed
            if not restore.is_done(difference)
        }
        return undone._replace(
            changes=[change for change in undone.changes if change.path not in failed],
            failed=[PathReason(path=path, reason=failed[path]) for path in sorted(failed) if path not in left],
        )

    def _undone(
        self, steps: Plan, target: bytes, raced: Sequence[bytes], max_chars: int, several: Sequence[bytes]
    ) -> Undone:
        changed = [difference for difference in steps.changed if difference.path not in raced]
        left = steps.left | dict.fromkeys(raced, "was saved while it was being put back")
        for path in several:
            left.setdefault(path, "has other names (hard links), which keep what was written; this one was put back")
        assert self._last is not None
        view = TreeView(self._store, target)
        for path, gap in self._last.all_gaps():
            # Not held before, and the same now: nothing to put back, and nothing could be.
            if path not in left and view.get(path) == gap:
                left[path] = f"{gap_reason(self._store.blob(gap.object))}; it was not touched"
        return Undone(
            file_changes(self._store, changed),
            [PathReason(path=shown_path(path), reason=left[path]) for path in sorted(left)],
            *unified_diff(self._store, known(changed), max_chars),
        )


class _Space:
    def __init__(self, directory: str, watches: Watches) -> None:
        self.store = ObjectStore(directory)
        self.watches = watches
        # Trees that were reported to the daemon, and when.
        self.reported: dict[bytes, float] = {}
        # What is in copies that nobody has opened yet.
        self.copies: dict[tuple[int, int], stats.Node] = {}
        self.open: list[SpaceCheckpoints] = []

    def drop(self, gone: list[SpaceCheckpoints]) -> None:
        """Under the store's lock."""
        for checkpoints in gone:
            self.open.remove(checkpoints)
            checkpoints.stop_watching()

    def kept(self) -> set[bytes]:
        """Trees that a collection must leave, whatever the records say."""
        limit = time.monotonic() - GRACE.total_seconds()
        for tree in [tree for tree, reported in self.reported.items() if reported <= limit]:
            del self.reported[tree]
        return set(self.reported).union(*(checkpoints.last() for checkpoints in self.open))


class GitCheckpoints:
    """Beneath `directory` each space has a directory that `git --git-dir` reads."""

    def __init__(self, directory: str, *, limits: ScanLimits | None = None, watches: Watches | None = None) -> None:
        self._directory = directory
        self._limits = limits or ScanLimits()
        self._watches = watches or Watches()
        self._lock = threading.Lock()
        self._spaces: dict[str, _Space] = {}

    def open(self, space_id: str, root: Root) -> SpaceCheckpoints:
        if not isinstance(root, WorkspaceRoot):
            raise TypeError("checkpoints are taken beneath the descriptor of a WorkspaceRoot")
        with self._lock:
            space = self._space(space_id)
        with space.store.lock:
            opened = SpaceCheckpoints(space, root, self._limits)
            space.drop([other for other in space.open if other.root.closed or other.root.identity == root.identity])
            space.open.append(opened)
            return opened

    def collect(self, keep: Mapping[str, frozenset[str]]) -> int:
        """Spaces that are not named stay as they are; one with nothing to keep is emptied."""
        freed = 0
        for space_id, trees in keep.items():
            with self._lock:
                if space_id not in self._spaces and not os.path.isdir(self._place(space_id)):
                    continue
                space = self._space(space_id)
            with space.store.lock:
                space.drop([checkpoints for checkpoints in space.open if checkpoints.root.closed])
                kept = space.kept() | {_tree(tree) for tree in trees}
                for checkpoints in space.open:
                    checkpoints.save()
                _forget_stats(space.store.directory, kept)
                freed += space.store.collect(kept)
        return freed

    def _space(self, space_id: str) -> _Space:
        space = self._spaces.get(space_id)
        if space is None:
            space = self._spaces[space_id] = _Space(self._place(space_id), self._watches)
        return space

    def _place(self, space_id: str) -> str:
        if not _SPACE.fullmatch(space_id):
            raise ValueError(f"{space_id!r} is not the id of a space")
        return os.path.join(self._directory, space_id)


def _differences(ways: Ways) -> list[Difference]:
    found: list[Difference] = []
    for path, way in ways.paths.items():
        assert isinstance(way.expected, Entry | None)
        assert isinstance(way.wanted, Entry | None)
        found.append(Difference(path, way.expected, way.wanted))
    found.sort(key=lambda each: each.path.split(b"/"))
    return found


def _lies_in(path: str, directories: set[str]) -> bool:
    while path:
        path = path.rpartition("/")[0]
        if path in directories:
            return True
    return False


def _forget_stats(directory: str, kept: set[bytes]) -> None:
    """A memory on disk speaks of objects; where its tree goes, they go, and so must it."""
    for name in os.listdir(directory):
        if name.startswith(_STATS):
            path = os.path.join(directory, name)
            found = stats.load(path)
            if found is None or found.tree not in kept:
                os.unlink(path)


def _tree(text: str) -> bytes:
    try:
        identity = bytes.fromhex(text)
    except ValueError:
        identity = b""
    if len(identity) != ID_BYTES:
        raise CheckpointFault(f"{text!r} is not a checkpoint")
    return identity
