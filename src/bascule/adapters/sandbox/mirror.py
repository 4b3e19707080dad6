"""A repository as commands see it: a private directory in the place of `.git`, filled from the real one.

    .git/objects, refs, logs        the real directories, writable
    .git/config, hooks, info, ...   the real ones, read-only
    .git/HEAD, index, MERGE_HEAD    copies; `sync` brings a change over, in either direction
    everything else                 stays in the private directory, and goes

Git writes `index.lock` and renames it to `index`, so the directory that holds `index` must be writable, and whoever
may write there may also make `commondir` or `hooks`, which git obeys in the user's own shell. No mount covers a name
that does not exist without leaving a file under that name. So the directory is not the real one, and only names of a
list leave it.
"""

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable
from typing import NamedTuple

from bascule.adapters.sandbox import git_index
from bascule.adapters.sandbox.layout import Bound

# Bound writable: git looks for data here, never for programs or settings.
LIVE = ("objects", "refs", "logs", "reftable", "lfs")
# Without these a directory is not a repository.
NEEDED = ("objects", "refs")
# Copied in both directions.
SYNCED = (
    "HEAD", "index", "packed-refs", "ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "MERGE_RR",
    "AUTO_MERGE", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "SQUASH_MSG", "COMMIT_EDITMSG",
    "TAG_EDITMSG", "NOTES_EDITMSG",
)  # fmt: skip
# Half-done work: the next command finds it, git outside does not, for a to-do list of a rebase may hold commands.
UNFINISHED = ("rebase-merge", "rebase-apply", "sequencer")
# Kept from one command to the next, never copied out.
KEPT = re.compile(r"rebase-merge|rebase-apply|sequencer|worktrees|BISECT_\w+")
# An index of half a million files, or as many refs; everything else is a line or a message.
LARGE = ("index", "packed-refs")
MAX_LARGE_BYTES = 64 * 1024 * 1024
MAX_FILE_BYTES = 1024 * 1024
# As git itself wants it: anything else makes `.git` no repository, and git then looks for one elsewhere.
_HEAD = re.compile(rb"ref: refs/[^\0\n]+\n?|[0-9a-f]{40,64}\n?")
# A change within the clock's tick of the last look has no newer time.
TICK_NS = 20_000_000

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Signature = tuple[int, int, int, int] | None


class _Pair(NamedTuple):
    """A file's signature on both sides when they last agreed."""

    real: Signature
    ours: Signature


class Held(Exception):
    """A file was not copied out; the message says why."""


class Mirror:
    """One real `.git` directory, held open, and the private one in its place."""

    def __init__(self, real: int, place: str, folder: str, owner: tuple[int, int]) -> None:
        # The descriptor is ours from now on.
        self.real = real
        self.place = place
        self._owner = owner
        os.mkdir(folder, 0o700)
        self.ours = os.open(folder, _DIRECTORY)
        self._give(self.ours)
        self._pairs: dict[str, _Pair] = dict.fromkeys(SYNCED, _Pair(None, None))
        self._settled: tuple[Signature, ...] | None = None
        self._entries: tuple[Signature, tuple[tuple[str, bool, Signature], ...]] = (None, ())
        self._gitlinks: tuple[Signature, frozenset[bytes]] = (None, frozenset())
        self._stand_ins: set[str] = set()
        if "logs" not in os.listdir(real):
            # Git makes it with the first commit. The cell needs a place to bind it to.
            with contextlib.suppress(OSError):
                os.mkdir("logs", 0o755, dir_fd=real)
                os.chown("logs", *owner, dir_fd=real, follow_symlinks=False)

    def close(self) -> None:
        os.close(self.real)
        os.close(self.ours)

    # -- what a cell is given

    def shape(self) -> tuple[tuple[str, bool, Signature], ...]:
        """Entries bound into a cell. A file has its signature: replaced outside, a bound one would be the old one."""
        now = _signature(self.real, ".")
        if self._entries[0] is None or self._entries[0] != now:
            entries = tuple(sorted(self._bound_entries()))
            self._entries = (now if _is_settled((now,)) else None, entries)
        return self._entries[1]

    def _bound_entries(self) -> list[tuple[str, bool, Signature]]:
        entries: list[tuple[str, bool, Signature]] = []
        for name in os.listdir(self.real):
            if name in SYNCED or name.endswith(".lock"):
                continue
            found = _stat(self.real, name)
            if found is not None and stat.S_ISDIR(found.st_mode):
                entries.append((name, name in LIVE, (found.st_dev, found.st_ino, 0, 0)))
            elif found is not None and stat.S_ISREG(found.st_mode):
                entries.append((name, False, _signature(self.real, name)))
        return entries

    def binds(self, workspace: str) -> list[Bound]:
        """The caller closes their descriptors."""
        where = f"{workspace}/{self.place}"
        bounds = [Bound(os.dup(self.ours), where, writable=True)]
        for name, writable, _ in self.shape():
            try:
                descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.real)
            except FileNotFoundError:
                continue
            self._stand_in(name, directory=stat.S_ISDIR(os.fstat(descriptor).st_mode))
            bounds.append(Bound(descriptor, f"{where}/{name}", writable))
        return bounds

    def _stand_in(self, name: str, *, directory: bool) -> None:
        """Something to mount on. Where cells have it mounted already they cannot have changed it."""
        found = _stat(self.ours, name)
        if found is not None and stat.S_ISDIR(found.st_mode) == directory and not stat.S_ISLNK(found.st_mode):
            self._stand_ins.add(name)
            return
        _remove(self.ours, name)
        if directory:
            os.mkdir(name, 0o755, dir_fd=self.ours)
        else:
            os.close(os.open(name, _NEW, 0o644, dir_fd=self.ours))
        os.chown(name, *self._owner, dir_fd=self.ours, follow_symlinks=False)
        self._stand_ins.add(name)

    def gitlinks(self) -> frozenset[bytes]:
        """Of the real index; `git_index.UnreadableIndex` when that cannot be known."""
        now = _signature(self.real, "index")
        if now is None:
            return frozenset()
        if self._gitlinks[0] != now:
            data = _content(self.real, "index", MAX_LARGE_BYTES)
            if data is None:
                raise git_index.UnreadableIndex("too large, or not a file")
            self._gitlinks = (now, git_index.gitlinks(data))
        return self._gitlinks[1]

    # -- copying

    @property
    def in_step(self) -> bool:
        """Nothing changed on either side since the last `sync`, as far as a few stats tell."""
        return self._settled is not None and self._settled == self._look()

    def _look(self) -> tuple[Signature, ...]:
        return tuple(_signature(side, name) for side in (self.real, self.ours) for name in (".", "HEAD", "index"))

    def sync(self, *, quiet: bool) -> list[str]:
        """Blocking. `quiet`: no command runs, so what is not kept goes. Returns what a person should hear."""
        notes = []
        for name in SYNCED:
            try:
                self._sync(name)
            except Held as held:
                notes.append(str(held))
                self._pull(name)
            except OSError as error:
                notes.append(f"{self.place}/{name} could not be copied: {error.strerror}")
        if quiet:
            with contextlib.suppress(OSError):
                self._tidy()
        now = self._look()
        self._settled = now if _is_settled(now) else None
        return notes

    def unfinished(self) -> list[str]:
        return [name for name in UNFINISHED if _stat(self.ours, name) is not None]

    def _sync(self, name: str) -> None:
        real, ours = _signature(self.real, name), _signature(self.ours, name)
        was = self._pairs[name]
        if ours == was.ours:
            if real != was.real:
                self._pull(name)
        elif real == was.real:
            self._push(name)
        elif _content(self.real, name, MAX_LARGE_BYTES) != _content(self.ours, name, MAX_LARGE_BYTES):
            raise Held(
                f"{self.place}/{name} was changed outside while the command changed it: the command's change is dropped"
            )
        else:
            self._pairs[name] = _Pair(real, ours)

    def _pull(self, name: str) -> None:
        # Before reading: a change in between is then one more difference, not one that is missed.
        real = _signature(self.real, name)
        data = _content(self.real, name, MAX_LARGE_BYTES)
        if data is None:
            _remove(self.ours, name)
        else:
            self._write(self.ours, f".bascule-{os.urandom(6).hex()}", name, data, 0o644)
        self._pairs[name] = _Pair(real, _signature(self.ours, name))

    def _push(self, name: str) -> None:
        ours = _signature(self.ours, name)
        data = _content(self.ours, name, MAX_LARGE_BYTES if name in LARGE else MAX_FILE_BYTES)
        if data is None:
            if name == "HEAD" or _stat(self.ours, name) is not None:
                raise Held(f"{self.place}/{name}: what the command left there is not copied out of the sandbox")
            self._remove_real(name)
        else:
            self._check(name, data)
            found = _stat(self.real, name)
            mode = stat.S_IMODE(found.st_mode) if found is not None else 0o644
            # Git's own lock: whoever holds it outside is not disturbed, and the next `sync` tries again.
            try:
                self._write(self.real, f"{name}.lock", name, data, mode)
            except FileExistsError:
                return
        self._pairs[name] = _Pair(_signature(self.real, name), ours)

    def _remove_real(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.real)

    def _check(self, name: str, data: bytes) -> None:
        if name == "HEAD" and not _HEAD.fullmatch(data):
            raise Held(f"{self.place}/HEAD names no branch and no commit and is not copied out of the sandbox")
        if name == "index":
            try:
                new = git_index.gitlinks(data) - self.gitlinks()
            except git_index.UnreadableIndex as error:
                raise Held(f"{self.place}/index is {error} and is not copied out of the sandbox") from None
            if new:
                first = os.fsdecode(min(new))
                raise Held(
                    f"what was staged is not copied out of the sandbox: `{first}` is a repository of its own, and git"
                    " would run what its configuration says; stage it outside, or delete its .git"
                )

    def _write(self, side: int, temporary: str, name: str, data: bytes, mode: int) -> None:
        descriptor = os.open(temporary, _NEW, 0o600, dir_fd=side)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fchmod(descriptor, mode)
                self._give(descriptor)
            finally:
                os.close(descriptor)
            if side == self.ours and (found := _stat(side, name)) is not None and stat.S_ISDIR(found.st_mode):
                _remove(side, name)
            os.rename(temporary, name, src_dir_fd=side, dst_dir_fd=side)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=side)
            raise

    def _tidy(self) -> None:
        """What a command made beside: `commondir` would be obeyed by the next one's git."""
        for name in os.listdir(self.ours):
            if name not in self._stand_ins and name not in SYNCED and not KEPT.fullmatch(name):
                _remove(self.ours, name)

    def _give(self, descriptor: int) -> None:
        if os.getuid() == 0:
            os.fchown(descriptor, *self._owner)


def open_repository(root: int, place: str) -> int | None:
    """The `.git` directory at a place, if git would take it for one; no link is followed on the way."""
    descriptor = root
    try:
        for step in place.split("/"):
            below = os.open(step, _DIRECTORY, dir_fd=descriptor)
            if descriptor != root:
                os.close(descriptor)
            descriptor = below
    except OSError:
        if descriptor != root:
            os.close(descriptor)
        return None
    head = _content(descriptor, "HEAD", MAX_FILE_BYTES)
    found = [_stat(descriptor, name) for name in NEEDED]
    if (
        head is not None
        and _HEAD.fullmatch(head)
        and all(each is not None and stat.S_ISDIR(each.st_mode) for each in found)
    ):
        return descriptor
    os.close(descriptor)
    return None


def _stat(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None


def _signature(directory: int, name: str) -> Signature:
    found = _stat(directory, name)
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _content(directory: int, name: str, most: int) -> bytes | None:
    """A regular file's; None for everything else, and for more than `most`."""
    try:
        descriptor = os.open(name, _READ, dir_fd=directory)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data if len(data) <= most else None


def _remove(directory: int, name: str) -> None:
    found = _stat(directory, name)
    if found is None:
        return
    if stat.S_ISDIR(found.st_mode):
        shutil.rmtree(name, ignore_errors=True, dir_fd=directory)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)


def _is_settled(signatures: Iterable[Signature]) -> bool:
    """Whether every change from now on will have a newer time."""
    newest = max((signature[3] for signature in signatures if signature is not None), default=0)
    return newest + TICK_NS < time.time_ns()
