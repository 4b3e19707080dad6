"""Carrying out a plan in a workspace, and writing a tree out as files.

Everything that has to be written is written beside the workspace's files first, so that a full disk is found out
before anything changes; then names change one by one. Each change is atomic and happens only where the name still is
what was expected (`swap`): what somebody saves meanwhile stays. A crash between two changes leaves a workspace from
which the same undo goes on, because what is already as it should be is left alone.
"""

import contextlib
import errno
import os
import shutil
import stat
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator

from bascule.workspace.machine.checkpoints.compare import Difference, TreeView
from bascule.workspace.machine.checkpoints.merge import Plan
from bascule.workspace.machine.checkpoints.objects import Entry, ObjectId
from bascule.workspace.machine.checkpoints.stats import FileStat, Node, remember
from bascule.workspace.machine.checkpoints.store import ObjectStore
from bascule.workspace.machine.checkpoints.swap import Swap, is_as
from bascule.workspace.machine.checkpoints.unified import shown_path
from bascule.workspace.machine.files import attributes, shut, temporary
from bascule.workspace.machine.files.beneath import O_PATH
from bascule.workspace.machine.files.root import WorkspaceRoot
from bascule.workspace.machine.files.syscalls import born_ns
from bascule.workspace.ports import CheckpointFault

_DIRECTORY = O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# What a path answers below a file or a link: nothing can be there.
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Owner = tuple[int, int] | None


def only_copies(
    root: WorkspaceRoot, steps: Plan, now: TreeView, since: Callable[[bytes], int]
) -> dict[bytes, ObjectId]:
    """What the plan removes although it is older than `since` (ns) and nothing that stays has its content.

    A call that moves what no checkpoint holds (`.git`, `artifacts/`, a place it did not name) makes a name where there
    was none. A file that is moved keeps the time at which it was made; what the call has made or written is newer.
    """
    found: dict[bytes, Entry] = {}
    inodes: dict[bytes, os.stat_result] = {}
    for path, entry in steps.remove:
        if entry.is_gap:
            continue
        with contextlib.suppress(OSError), _reached(root, path, _closed_above(path, now)) as (directory, name):
            seen = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if max(seen.st_mtime_ns, born_ns(directory, name) or 0) < since(path):
                found[path], inodes[path] = entry, seen
    # What has another name that stays is not lost.
    names = Counter((seen.st_dev, seen.st_ino) for seen in inodes.values())
    found = {path: found[path] for path, seen in inodes.items() if seen.st_nlink <= names[seen.st_dev, seen.st_ino]}
    kept = {entry.object for _, entry, _ in steps.put}
    if any(entry.object not in kept for entry in found.values()):
        going = {path for path, _ in steps.remove}
        kept |= {entry.object for path, entry in now.walk() if path not in going}
    return {path: entry.object for path, entry in found.items() if entry.object not in kept}


def linked(root: WorkspaceRoot, steps: Plan, now: TreeView) -> list[bytes]:
    """What the plan replaces although its file has other names. Those keep what it holds; ours will be another file.

    Nothing is written through a name: whoever puts a link to another file there would choose what is overwritten.
    """
    replaced = [path for path, _, expected in steps.put if expected is not None]
    found: dict[bytes, os.stat_result] = {}
    for path in (*replaced, *(path for path, _ in steps.remove)):
        with contextlib.suppress(OSError), _reached(root, path, _closed_above(path, now)) as (directory, name):
            seen = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1:
                found[path] = seen
    # All names of a file may be replaced, or removed, here.
    ours = Counter((seen.st_dev, seen.st_ino) for seen in found.values())
    return [path for path in replaced if (was := found.get(path)) and was.st_nlink > ours[was.st_dev, was.st_ino]]


class Restore:
    """One plan in one workspace. `stage` writes, `apply` changes, `clear` removes what was not used."""

    def __init__(self, root: WorkspaceRoot, store: ObjectStore, plan: Plan) -> None:
        self._root = root
        self._store = store
        self._plan = plan
        self._name = temporary.new_name()
        self._staging = -1
        # What must be open while this works, the project's own directory to begin with.
        self._held = contextlib.ExitStack()

    def stage(self) -> None:
        try:
            self._held.enter_context(shut.widened_open(self._root.fileno(), shut.CHANGE))
            os.mkdir(self._name, 0o700, dir_fd=self._root.fileno())
            self._staging = os.open(self._name, _READ_DIRECTORY, dir_fd=self._root.fileno())
            for number, (path, entry, _) in enumerate(self._plan.put):
                write_entry(self._staging, str(number), entry, self._store, self._owner(path))
        except OSError as error:
            raise CheckpointFault(f"nothing was changed: {_why(error)}") from error

    def check_leftovers(self, now: TreeView) -> None:
        """A directory that has to become a file may hold what no checkpoint sees (`.git`, a pipe)."""
        for path in self._plan.must_go:
            try:
                stranger = next(self._unseen(path, now), None)
            except OSError as error:
                # It was a directory a moment ago: somebody changes the workspace under our eyes.
                raise CheckpointFault(f"nothing was changed: `{shown_path(path)}`: {_why(error)}") from error
            if stranger is not None:
                raise CheckpointFault(
                    f"`{shown_path(stranger)}` is in the way, and no checkpoint has it; nothing was changed. "
                    "Move it somewhere else first"
                )

    def apply(self, now: TreeView) -> list[bytes]:
        """Paths that somebody changed at the last moment, and that therefore stay."""
        done = 0
        path = b""
        swap = Swap(self._staging)
        raced: list[bytes] = []
        try:
            self._open_up(now)
            for number, (path, expected) in enumerate(self._plan.remove):
                with self._parent(path) as (directory, name):
                    if not swap.take(directory, name, f"removed-{number}", expected):
                        raced.append(path)
                done += 1
            for path, _ in self._plan.remove_dirs:
                self._remove_directory(path)
                done += 1
            for path, mode in self._plan.make_dirs:
                with self._parent(path) as (directory, name):
                    make_directory(directory, name, mode | 0o700, self._root.owner)
                done += 1
            for number, (path, _, replaced) in enumerate(self._plan.put):
                with self._parent(path) as (directory, name):
                    if not swap.put(directory, name, str(number), replaced):
                        raced.append(path)
                done += 1
            # The deepest first: one that lets nobody in any more would keep us from those in it.
            for path, mode in sorted((*self._plan.modes, *self._plan.make_dirs), key=lambda step: -step[0].count(b"/")):
                self._set_mode(path, mode)
                done += 1
        except OSError as error:
            raise CheckpointFault(
                f"stopped at `{shown_path(path)}` after {done} changes: {_why(error)}. "
                "Remove the cause and do the same again: it goes on where it stopped"
            ) from error
        return raced

    def is_done(self, difference: Difference) -> bool:
        """Whether a path is on the disk as it should be after `apply`."""
        path, old, new = difference
        try:
            closed = {each for each, mode in (*self._plan.modes, *self._plan.make_dirs) if mode & 0o700 != 0o700}
            with _reached(self._root, path, closed) as (directory, name):
                if new is not None:
                    return is_as(directory, name, new)
                found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError as error:
            return new is None and error.errno in _NOTHING_THERE
        # A directory that was to go stays while something is in it.
        return old is not None and old.is_dir and stat.S_ISDIR(found.st_mode)

    def clear(self) -> None:
        if self._staging >= 0:
            for name in os.listdir(self._staging):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=self._staging)
            os.close(self._staging)
            self._staging = -1
        with contextlib.suppress(OSError):
            os.rmdir(self._name, dir_fd=self._root.fileno())
        temporary.give_back(self._name)
        self._held.close()

    def _open_up(self, now: TreeView) -> None:
        for path, final in self._shut(now):
            with self._parent(path) as (directory, name):
                opened = shut.widened(directory, name, shut.CHANGE, back=not final)
                if not final:
                    self._held.enter_context(opened)
                    continue
                with opened:
                    pass

    def _shut(self, now: TreeView) -> list[tuple[bytes, bool]]:
        """Directories that have to let us in, outermost first, and whether each gets its own mode in the end."""
        plan = self._plan
        final = {path for path, _ in plan.modes}
        parts = (plan.remove, plan.remove_dirs, plan.make_dirs, plan.modes, plan.put)
        touched: list[bytes] = [step[0] for part in parts for step in part]
        holders = {path for path, _ in (*plan.modes, *plan.remove_dirs)}
        for path in touched:
            steps = path.split(b"/")
            holders.update(b"/".join(steps[:count]) for count in range(1, len(steps)))
        found = [(path, now.get(path)) for path in holders]
        closed = [path for path, entry in found if entry is not None and entry.is_dir and entry.mode & 0o700 != 0o700]
        return [(path, path in final) for path in sorted(closed, key=lambda path: path.count(b"/"))]

    def _parent(self, path: bytes) -> contextlib.AbstractContextManager[tuple[int, str]]:
        return _parent(self._root, path)

    def _owner(self, path: bytes) -> Owner:
        """Whose the file is that is replaced, where only root can tell the difference."""
        if os.geteuid() != 0:
            return None
        with contextlib.suppress(OSError), self._parent(path) as (directory, name):
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode):
                return found.st_uid, found.st_gid
        return self._root.owner

    def _remove_directory(self, path: bytes) -> None:
        try:
            with self._parent(path) as (directory, name):
                os.rmdir(name, dir_fd=directory)
        except OSError as error:
            # Somebody's later files, or what no checkpoint sees, keep it.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT) or path in self._plan.must_go:
                raise

    def _set_mode(self, path: bytes, mode: int) -> None:
        directory = self._root.opener.open(self._root.fileno(), path, _READ_DIRECTORY, links=False)
        try:
            os.fchmod(directory, stat.S_IMODE(mode))
        finally:
            os.close(directory)

    def _unseen(self, path: bytes, now: TreeView) -> Iterator[bytes]:
        closed = _closed_above(path, now)
        with _reached(self._root, path, closed) as (above, own), shut.widened(above, own, shut.LIST):
            directory = self._root.opener.open(above, own, _READ_DIRECTORY, links=False)
            try:
                names = [os.fsencode(each) for each in os.listdir(directory)]
            finally:
                os.close(directory)
        known = now.names(path)
        for name in names:
            if name not in known:
                yield path + b"/" + name
            elif known[name].is_dir:
                yield from self._unseen(path + b"/" + name, now)


@contextlib.contextmanager
def _parent(root: WorkspaceRoot, path: bytes) -> Iterator[tuple[int, str]]:
    """No link is followed on the way: paths of a tree have none."""
    head, _, name = path.rpartition(b"/")
    directory = root.opener.open(root.fileno(), head or b".", _DIRECTORY, links=False)
    try:
        yield directory, os.fsdecode(name)
    finally:
        os.close(directory)


@contextlib.contextmanager
def _reached(root: WorkspaceRoot, path: bytes, closed: Container[bytes]) -> Iterator[tuple[int, str]]:
    """The same through directories whose mode keeps us out."""
    steps = path.split(b"/")
    with contextlib.ExitStack() as held:
        for above in (b"/".join(steps[:count]) for count in range(1, len(steps))):
            if above in closed:
                held.enter_context(shut.widened(*held.enter_context(_parent(root, above)), shut.LIST))
        yield held.enter_context(_parent(root, path))


def _closed_above(path: bytes, now: TreeView) -> set[bytes]:
    steps = path.split(b"/")
    holders = {b"/".join(steps[:count]) for count in range(1, len(steps))}
    return {each for each in holders if (entry := now.get(each)) is not None and entry.mode & 0o700 != 0o700}


def write_out(store: ObjectStore, tree: bytes, into: str, owner: Owner) -> Node:
    """A tree as files in a new directory of ours, and what a scan would remember of it."""
    try:
        os.mkdir(into, 0o700)
        directory = os.open(into, _READ_DIRECTORY)
    except OSError as error:
        raise CheckpointFault(f"the copy cannot be made: {_why(error)}") from error
    try:
        _dress(directory, 0o755, owner)
        return _Copy(store, tree, owner).write(directory)
    except (OSError, CheckpointFault) as error:
        shutil.rmtree(into, ignore_errors=True)
        if isinstance(error, CheckpointFault):
            raise
        raise CheckpointFault(f"the copy cannot be made: {_why(error)}") from error
    finally:
        os.close(directory)


class _Copy:
    def __init__(self, store: ObjectStore, tree: bytes, owner: Owner) -> None:
        self._store = store
        self._view = TreeView(store, tree)
        self._owner = owner
        self._written: list[tuple[dict[str, FileStat], str, os.stat_result, Entry]] = []

    def write(self, directory: int) -> Node:
        root = self._directory(b"", Entry(stat.S_IFDIR | 0o755, self._view.root), directory)
        # Nobody else can have touched a file yet. What is older than the clock's tick by now looks different as soon
        # as anybody does.
        now = time.time_ns()
        for files, name, found, entry in self._written:
            files[name] = remember(found, now, entry.object, dressed=entry.dressed)
        return root

    def _directory(self, path: bytes, entry: Entry, directory: int) -> Node:
        node = Node(entry.mode, entry.object, {}, {})
        for name, found in self._view.names(path).items():
            text = os.fsdecode(name)
            if found.is_gap:
                # Not held, so not in the copy either; it counts as unknown there.
                continue
            if not found.is_dir:
                written = write_entry(directory, text, found, self._store, self._owner)
                self._written.append((node.files, text, written, found))
                continue
            os.mkdir(name, 0o700, dir_fd=directory)
            below = os.open(name, _READ_DIRECTORY, dir_fd=directory)
            try:
                node.directories[text] = self._directory(path + b"/" + name if path else name, found, below)
                # Its own mode comes last: it may forbid what has to be written into it.
                _dress(below, stat.S_IMODE(found.mode), self._owner)
            finally:
                os.close(below)
        return node


def write_entry(directory: int, name: str, entry: Entry, store: ObjectStore, owner: Owner) -> os.stat_result:
    data = store.content(entry)
    if entry.is_link:
        os.symlink(data, name, dir_fd=directory)
        if owner is not None:
            os.chown(name, *owner, dir_fd=directory, follow_symlinks=False)
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=directory)
    try:
        written = 0
        while written < len(data):
            written += os.write(descriptor, memoryview(data)[written:])
        _dress(descriptor, stat.S_IMODE(entry.mode), owner)
        # Behind the mode: a list of access is in it, too.
        attributes.write(descriptor, store.dressed(entry)[1])
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: int, name: str, mode: int, owner: Owner) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=directory)
    below = os.open(name, _READ_DIRECTORY, dir_fd=directory)
    try:
        _dress(below, stat.S_IMODE(mode), owner)
    finally:
        os.close(below)


def _dress(descriptor: int, mode: int, owner: Owner) -> None:
    if owner is not None:
        os.fchown(descriptor, *owner)
    os.fchmod(descriptor, mode)


def _why(error: OSError) -> str:
    return error.strerror or str(error)
