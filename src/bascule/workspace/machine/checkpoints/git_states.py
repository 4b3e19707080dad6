"""What a repository's own record says at one moment: HEAD, refs, index, configuration and hooks, without the objects.

A checkpoint leaves `.git` out. Objects that a command leaves unreferenced stay until git collects them, weeks later;
so with these files a `git reset --hard`, a deleted branch or a lost index comes back. Only the repository at the top of
the workspace is held, without its objects and reflogs, but for the stash's. Of those further down a state has a digest:
that something changed there is said, and not put back.

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
from bascule.workspace.machine.files.syscalls import rename_new
from bascule.workspace.ports import CheckpointFault, LaterChanges

# The index of a repository with 200,000 files; a larger one is left out, and named.
MAX_FILE_BYTES = 32 * 1024 * 1024
# Loose refs; a repository with more has packed them.
MAX_REFS = 10_000
# A state that was taken but is in nobody's records yet survives a collection this long.
GRACE = timedelta(hours=1)
_SINGLE = ("HEAD", "ORIG_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "MERGE_MSG", "index")
# The stash is a list: which entries it has, only its log says.
_SHARED = ("packed-refs", "logs/refs/stash", "config")
# Each with everything in it.
_FOLDERS = ("refs", "hooks", "info")
# Of a repository further down. Its index changes when somebody only looks.
_STANDING = ("HEAD", "packed-refs", "logs/HEAD", "logs/refs/stash", "config")
# So many of them are looked at in each call.
MAX_FURTHER = 100
# What is in a lock of ours; and what a file is named until it takes its place, which git takes for a lock.
_OURS = b"a lock of Bascule's undo, process %d began %d\n"
_SIGNED = re.compile(rb"a lock of Bascule's undo, process (\d{1,10}) began (\d{1,20})\n")
_STAGED = ".bascule.lock"
_FURTHER = "is a repository below the project's own: what the run changed in git's record there stays"
_MODE = "had mode %04o, which an undo gives it not, nor what is in it: chmod it by hand"
_SPACE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")
_POINTS = re.compile(rb"gitdir: (.+)\n?\Z")


# A file that changed just now may change again within the same tick of its times: file systems with whole seconds.
_TICK_NS = 2_000_000_000
_Looks = tuple[tuple[str | bytes | int, ...], ...]
# The identity of a state where there is none at the top.
NO_REPOSITORY = (0, 0)


class _State(msgspec.Struct, frozen=True):
    # By the path below the repository's directory.
    files: dict[str, bytes]
    # Device and inode of that directory: refs of one repository name nothing in another.
    identity: tuple[int, int]
    # Of that directory, to name that it changed.
    mode: int | None = None
    # Hooks that git executes.
    executable: tuple[str, ...] = ()
    # By the path of each `.git` further down.
    further: dict[str, bytes] = {}

    def held(self, name: str) -> tuple[bytes | None, bool]:
        return self.files.get(name), name in self.executable


class GitStates:
    def __init__(self, directory: str) -> None:
        self._directory = directory
        # Of each space what the files looked like when its last state was taken, and that state.
        self._last: dict[str, tuple[_Looks, str]] = {}
        self._unlocked: set[str] = set()

    def take(self, space_id: str, root: str, *, further: Iterable[str] = (), until_ms: int | None = None) -> str | None:
        """The id of the state as it is now; None where there is no repository.

        `further`: every `.git` of the workspace. With `until_ms` (wall clock) what changed later is left out: nobody
        knows what was there then.
        """
        places = _places(root)
        if places is not None and space_id not in self._unlocked:
            # Those of an earlier life.
            self._unlocked.add(space_id)
            for lock in _locks(*places):
                _unlock(lock)
        below = _look_further(root, further)
        if places is None and not below:
            return None
        folder = self._folder(space_id)
        looks = _looks(places, below) if until_ms is None else None
        known = self._last.get(space_id)
        if looks is not None and known is not None and known[0] == looks and os.path.exists(f"{folder}/{known[1]}"):
            return known[1]
        state = _state(places, below)
        if until_ms is not None and places is not None:
            files = {name: content for name, content in state.files.items() if not _is_later(places, name, until_ms)}
            state = msgspec.structs.replace(state, files=files)
        name = self._keep(folder, state)
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
            _put_back(places, name, was.files.get(name), executable=name in was.executable)
        now = _state(places)
        left = [name for name in back if now.held(name) != was.held(name)]
        return [name for name in back if name not in left], left

    def further(self, space_id: str, state: str) -> list[str]:
        return list(self._load(space_id, state).further)

    def not_held(self, space_id: str, root: str, before: str, after: str) -> dict[str, str]:
        """With its reason every `.git` that the run changed, and that is not as it was before."""
        was, then = self._load(space_id, before), self._load(space_id, after)
        now = _look_further(root, was.further)
        changed = [place for place, each in was.further.items() if then.further.get(place) != each != now.get(place)]
        # Of one that is gone the run's record knows.
        found = {place: _FURTHER for place in changed if os.path.lexists(os.path.join(root, place))}
        changed_mode = was.mode is not None and then.mode not in (None, was.mode)
        return found | ({".git": _MODE % was.mode} if changed_mode else {})

    def is_same(self, space_id: str, before: str, after: str) -> bool:
        return self._load(space_id, before).identity == self._load(space_id, after).identity

    def expect(self, space_id: str, root: str, before: str, after: str) -> tuple[str, str]:
        """The state as it is now, and as `undo` will leave it."""
        now = self.take(space_id, root, further=self.further(space_id, before))
        if now is None:
            raise LaterChanges("git's record changed since then: .git")
        back, _, was, state = self._compare(space_id, root, before, after)
        files = {name: was.files.get(name) if name in back else state.files.get(name) for name in (*state.files, *back)}
        left = {name: content for name, content in sorted(files.items()) if content is not None}
        executable = tuple(name for name in left if name in (was if name in back else state).executable)
        then = msgspec.structs.replace(state, files=left, executable=executable)
        return now, self._keep(self._folder(space_id), then)

    def _compare(
        self, space_id: str, root: str, before: str, after: str
    ) -> tuple[list[str], list[str], _State, _State]:
        """What is to be put back, what changed since, what was before, and what is now."""
        was, then = self._load(space_id, before), self._load(space_id, after)
        names = _differing(was, then)
        places = _places(root)
        if places is None or _identity(places[0]) != was.identity:
            return [], [".git"] if names else [], was, was
        now = _state(places, _look_further(root, was.further))
        back = [name for name in names if now.held(name) == then.held(name) != was.held(name)]
        left = [name for name in names if now.held(name) not in (then.held(name), was.held(name))]
        return back, left, was, now

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


def _differing(was: _State, then: _State) -> list[str]:
    """HEAD comes last: until then everything it may name is there."""
    names = sorted(name for name in was.files.keys() | then.files.keys() if was.held(name) != then.held(name))
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


def _looks(places: tuple[str, str] | None, further: Mapping[str, bytes]) -> _Looks | None:
    """Times, sizes and inodes of all that a state holds; None where a change may not show in them.

    An index of 50,000 files has 5 MB: it is not read at every call.
    """
    found: list[tuple[str | bytes | int, ...]] = list(further.items())
    if places is not None:
        found.append((places[0], os.stat(places[0]).st_mode))
    newest = 0
    for _, path in _files(*places) if places is not None else ():
        with contextlib.suppress(FileNotFoundError):
            each = os.lstat(path)
            found.append((path, each.st_ctime_ns, each.st_mtime_ns, each.st_size, each.st_ino))
            newest = max(newest, each.st_ctime_ns)
    return None if newest > time.time_ns() - _TICK_NS else tuple(found)


def _files(own: str, shared: str) -> Iterator[tuple[str, str]]:
    """Each with its path below the repository's directory."""
    for place, names in ((own, _SINGLE), (shared, _SHARED)):
        for name in names:
            yield name, os.path.join(place, name)
    for path in _in_folders(shared, _FOLDERS):
        yield os.path.relpath(path, shared), path


def _in_folders(place: str, names: Iterable[str], *, locks: bool = False) -> Iterator[str]:
    for top in names:
        for folder, _, found in os.walk(os.path.join(place, top)):
            for name in sorted(found):
                if name.endswith(".lock") is locks:
                    yield os.path.join(folder, name)


def _locks(own: str, shared: str) -> Iterator[str]:
    for place, names in ((own, _SINGLE), (shared, _SHARED)):
        yield from (os.path.join(place, f"{name}.lock") for name in names)
    yield from _in_folders(shared, _FOLDERS, locks=True)


def _state(places: tuple[str, str] | None, further: Mapping[str, bytes] | None = None) -> _State:
    files: dict[str, bytes] = {}
    executable: list[str] = []
    for name, path in _files(*places) if places is not None else ():
        if (found := _read(path)) is not None:
            files[name] = found[0]
            if found[1] and name.startswith("hooks/"):
                executable.append(name)
        if len(files) > MAX_REFS:
            raise CheckpointFault(f"git has more than {MAX_REFS} loose refs; `git pack-refs --all` helps")
    identity = _identity(places[0]) if places is not None else NO_REPOSITORY
    mode = stat.S_IMODE(os.lstat(places[0]).st_mode) if places is not None else None
    # In one order, so that an undo which goes on leaves the same state by name.
    files = dict(sorted(files.items()))
    return _State(files, identity, mode, tuple(executable), dict(further or {}))


def _look_further(root: str, further: Iterable[str]) -> dict[str, bytes]:
    """Of each repository below the one at the top: where it stands, as far as times and sizes tell."""
    return {place: _digest(os.path.join(root, place)) for place in sorted(set(further) - {".git"})[:MAX_FURTHER]}


def _digest(repository: str) -> bytes:
    digest = hashlib.sha256()
    for path in (repository, *(os.path.join(repository, name) for name in _STANDING)):
        content = _read(path)
        seen = (path, hashlib.sha256(content[0]).digest() if content is not None else None)
        digest.update(repr(seen).encode())
    for path in _in_folders(repository, _FOLDERS):
        with contextlib.suppress(OSError):
            each = os.lstat(path)
            digest.update(repr((path, each.st_ino, each.st_size, each.st_mtime_ns)).encode())
    return digest.digest()


def _read(path: str) -> tuple[bytes, bool] | None:
    """And whether it may be executed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_BYTES:
        os.close(descriptor)
        return None
    with open(descriptor, "rb") as file:
        return file.read(), bool(found.st_mode & 0o100)


def _put_back(places: tuple[str, str], name: str, content: bytes | None, *, executable: bool) -> None:
    path = _path(places, name)
    lock, staged = f"{path}.lock", f"{path}{_STAGED}"
    try:
        if content is not None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        _unlock(lock)
        # As git itself does: whoever has the lock changes the file, nobody else. It says that it is ours, from the
        # moment in which it is there.
        _write(staged, _OURS % (os.getpid(), _began(os.getpid()) or 0), 0o644)
        with _directory_of(path) as directory:
            rename_new(directory, os.path.basename(staged), os.path.basename(lock))
        try:
            if content is None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            else:
                _write(staged, content, 0o755 if executable else 0o644)
                os.replace(staged, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(lock)
    except FileExistsError:
        raise CheckpointFault(f"git is at work: {lock} is there") from None
    except OSError as error:
        raise CheckpointFault(f"{path} cannot be put back: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(staged)


@contextlib.contextmanager
def _directory_of(path: str) -> Iterator[int]:
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield directory
    finally:
        os.close(directory)


def _write(path: str, content: bytes, mode: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
        file.write(content)


def _unlock(lock: str) -> None:
    """Remove a lock of an undo that was killed: nobody else would, and git waits for it."""
    with contextlib.suppress(OSError):
        if os.lstat(lock).st_size > len(_OURS) + 40:
            return
    found = _read(lock)
    signed = _SIGNED.fullmatch(found[0]) if found is not None else None
    if signed is None or _began(int(signed[1])) == int(signed[2]):
        return
    for left in (lock, f"{lock.removesuffix('.lock')}{_STAGED}"):
        with contextlib.suppress(OSError):
            os.unlink(left)


def _began(pid: int) -> int | None:
    """When a process began: after a restart its number may be another's. None when it is gone, 0 where nobody says."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return None
    try:
        os.kill(pid, 0)
    except OSError:
        return None
    return 0


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
