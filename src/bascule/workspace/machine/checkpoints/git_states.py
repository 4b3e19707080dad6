"""What a repository's own record says at one moment: HEAD, refs and the index, small beside the objects.

A checkpoint leaves `.git` out. Objects that a command leaves unreferenced stay until git collects them, weeks later;
so with these files a `git reset --hard`, a deleted branch or a lost index comes back. Only the repository at the top of
the workspace is looked at, and not its objects, configuration, hooks or reflogs, but for the stash's.

A state is one file, named by its digest, beside the checkpoints.
"""

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

import msgspec

from bascule.workspace.machine.checkpoints.store import cannot_be_stored
from bascule.workspace.ports import CheckpointFault, LaterChanges

# The index of a repository with 200,000 files; a larger one is left out, and named.
MAX_FILE_BYTES = 32 * 1024 * 1024
# Loose refs; a repository with more has packed them.
MAX_REFS = 10_000
# A state that was taken but is in nobody's records yet survives a collection this long.
GRACE = timedelta(hours=1)
_SINGLE = ("HEAD", "ORIG_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "MERGE_MSG", "index")
# The stash is a list: which entries it has, only its log says.
_SHARED = ("packed-refs", "logs/refs/stash")
_SPACE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")
_POINTS = re.compile(rb"gitdir: (.+)\n?\Z")


# A file that changed just now may change again within the same tick of its times: file systems with whole seconds.
_TICK_NS = 2_000_000_000
_Looks = tuple[tuple[str, int, int, int, int], ...]


class _State(msgspec.Struct, frozen=True):
    # By the path below the repository's directory.
    files: dict[str, bytes]
    # Device and inode of that directory: refs of one repository name nothing in another.
    identity: tuple[int, int]


class GitStates:
    def __init__(self, directory: str) -> None:
        self._directory = directory
        # Of each space what the files looked like when its last state was taken, and that state.
        self._last: dict[str, tuple[_Looks, str]] = {}

    def take(self, space_id: str, root: str, *, until_ms: int | None = None) -> str | None:
        """The id of the state as it is now; None where there is no repository.

        With `until_ms` (wall clock) what changed later is left out: nobody knows what was there then.
        """
        places = _places(root)
        if places is None:
            return None
        folder = self._folder(space_id)
        looks = _looks(*places) if until_ms is None else None
        known = self._last.get(space_id)
        if looks is not None and known is not None and known[0] == looks and os.path.exists(f"{folder}/{known[1]}"):
            return known[1]
        files = _read_all(*places)
        if until_ms is not None:
            files = {name: content for name, content in files.items() if not _is_later(places, name, until_ms)}
        name = self._keep(folder, _State(files, _identity(places[0])))
        if looks is not None:
            self._last[space_id] = (looks, name)
        else:
            self._last.pop(space_id, None)
        return name

    def undo(self, space_id: str, root: str, before: str, after: str, *, dry_run: bool) -> tuple[list[str], list[str]]:
        """Put back what differs and is still as in `after`: what was put back, and what changed since and stays."""
        back, left, was, _ = self._compare(space_id, root, before, after)
        places = _places(root)
        if dry_run or left or places is None:
            return back, left
        for name in back:
            _put_back(places, name, was.get(name))
        now = _read_all(*places)
        left = [name for name in back if now.get(name) != was.get(name)]
        return [name for name in back if name not in left], left

    def is_same(self, space_id: str, before: str, after: str) -> bool:
        return self._load(space_id, before).identity == self._load(space_id, after).identity

    def expect(self, space_id: str, root: str, before: str, after: str) -> tuple[str, str]:
        """The state as it is now, and as `undo` will leave it."""
        now = self.take(space_id, root)
        if now is None:
            raise LaterChanges("git's record changed since then: .git")
        back, _, was, state = self._compare(space_id, root, before, after)
        files = {name: was.get(name) if name in back else state.files.get(name) for name in (*state.files, *back)}
        left = {name: content for name, content in files.items() if content is not None}
        return now, self._keep(self._folder(space_id), msgspec.structs.replace(state, files=left))

    def _compare(
        self, space_id: str, root: str, before: str, after: str
    ) -> tuple[list[str], list[str], dict[str, bytes], _State]:
        """What is to be put back, what changed since, what was before, and what is now."""
        was, then = self._load(space_id, before), self._load(space_id, after)
        places = _places(root)
        if places is None or _identity(places[0]) != was.identity:
            return [], [".git"], was.files, was
        state = _State(_read_all(*places), was.identity)
        names = _differing(was.files, then.files)
        then_files, now = then.files, state.files
        back = [name for name in names if now.get(name) == then_files.get(name) != was.files.get(name)]
        left = [name for name in names if now.get(name) not in (then_files.get(name), was.files.get(name))]
        return back, left, was.files, state

    def _keep(self, folder: str, state: _State) -> str:
        encoded = msgspec.msgpack.encode(state)
        name = hashlib.sha256(encoded).hexdigest()
        file = os.path.join(folder, name)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            if not os.path.exists(file):
                _replace(file, encoded, 0o600)
        except OSError as error:
            raise cannot_be_stored(error) from error
        return name

    def collect(self, keep: Mapping[str, Iterable[str]]) -> None:
        """Drop what no kept run needs, of the spaces that are named."""
        for space_id, names in keep.items():
            kept = set(names)
            with contextlib.suppress(FileNotFoundError):
                for file in os.scandir(self._folder(space_id)):
                    if file.name not in kept and time.time() - file.stat().st_mtime > GRACE.total_seconds():
                        os.unlink(file.path)

    def _folder(self, space_id: str) -> str:
        if _SPACE.fullmatch(space_id) is None:
            raise CheckpointFault(f"{space_id!r} is not the id of a space")
        return os.path.join(self._directory, space_id)

    def _load(self, space_id: str, name: str) -> _State:
        try:
            with open(os.path.join(self._folder(space_id), name), "rb") as file:
                data = file.read()
            if hashlib.sha256(data).hexdigest() != name:
                raise CheckpointFault("what is kept of git was changed")
            return msgspec.msgpack.decode(data, type=_State)
        except (OSError, msgspec.DecodeError) as error:
            raise CheckpointFault("what git's record was before is no longer kept") from error


def _is_later(places: tuple[str, str], name: str, until_ms: int) -> bool:
    try:
        return os.lstat(_path(places, name)).st_ctime_ns > until_ms * 1_000_000
    except OSError:
        return True


def _path(places: tuple[str, str], name: str) -> str:
    return os.path.join(places[0] if name in _SINGLE else places[1], name)


def _differing(was: Mapping[str, bytes], then: Mapping[str, bytes]) -> list[str]:
    """HEAD comes last: until then everything it may name is there."""
    names = sorted(name for name in was.keys() | then.keys() if was.get(name) != then.get(name))
    return sorted(names, key=lambda name: name == "HEAD")


def _identity(directory: str) -> tuple[int, int]:
    try:
        found = os.stat(directory)
    except OSError as error:
        raise CheckpointFault(f"git's record cannot be read: {error.strerror}") from error
    return found.st_dev, found.st_ino


def _places(root: str) -> tuple[str, str] | None:
    """The repository's own directory and the one that it shares with other worktrees."""
    git = os.path.join(root, ".git")
    try:
        found = os.lstat(git)
        if stat.S_ISDIR(found.st_mode):
            return git, git
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_BYTES:
            return None
        with open(git, "rb") as file:
            points = _POINTS.match(file.read())
        if points is None:
            return None
        own = os.path.normpath(os.path.join(root, os.fsdecode(points.group(1))))
        common = os.path.join(own, "commondir")
        if not os.path.lexists(common):
            # A submodule's, which has everything of its own.
            return (own, own) if os.path.isdir(own) else None
        with open(common, "rb") as file:
            return own, os.path.normpath(os.path.join(own, os.fsdecode(file.read().strip())))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointFault(f"git's record cannot be read: {error.strerror}") from error


def _looks(own: str, shared: str) -> _Looks | None:
    """Times, sizes and inodes of all that a state holds; None where a change may not show in them.

    An index of 50,000 files has 5 MB: it is not read at every call.
    """
    found = []
    newest = 0
    for path in _files(own, shared):
        with contextlib.suppress(FileNotFoundError):
            each = os.lstat(path)
            found.append((path, each.st_ctime_ns, each.st_mtime_ns, each.st_size, each.st_ino))
            newest = max(newest, each.st_ctime_ns)
    return None if newest > time.time_ns() - _TICK_NS else tuple(found)


def _files(own: str, shared: str) -> Iterator[str]:
    for place, names in ((own, _SINGLE), (shared, _SHARED)):
        for name in names:
            yield os.path.join(place, name)
    for folder, _, found in os.walk(os.path.join(shared, "refs")):
        for name in found:
            yield os.path.join(folder, name)


def _read_all(own: str, shared: str) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for place, names in ((own, _SINGLE), (shared, _SHARED)):
        for name in names:
            if (content := _read(os.path.join(place, name))) is not None:
                files[name] = content
    for folder, _, found in os.walk(os.path.join(shared, "refs")):
        for name in found:
            path = os.path.join(folder, name)
            content = None if name.endswith(".lock") else _read(path)
            if content is not None:
                files[os.path.relpath(path, shared)] = content
            if len(files) > MAX_REFS:
                raise CheckpointFault(f"git has more than {MAX_REFS} loose refs; `git pack-refs --all` helps")
    return files


def _read(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) or os.fstat(descriptor).st_size > MAX_FILE_BYTES:
            return None
        return file.read()


def _put_back(places: tuple[str, str], name: str, content: bytes | None) -> None:
    path = _path(places, name)
    lock = f"{path}.lock"
    try:
        # As git itself does: whoever has the lock changes the file, nobody else.
        if content is not None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise CheckpointFault(f"git is at work: {lock} is there") from None
    except OSError as error:
        raise CheckpointFault(f"{path} cannot be put back: {error.strerror}") from error
    try:
        with open(descriptor, "wb") as file:
            file.write(content or b"")
        if content is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        else:
            os.replace(lock, path)
    except OSError as error:
        raise CheckpointFault(f"{path} cannot be put back: {error.strerror}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(lock)


def _replace(path: str, content: bytes, mode: int) -> None:
    beside = f"{path}.{os.getpid()}.new"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(beside, path)
    except OSError:
        # A full disk is no place for the half of a state.
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
