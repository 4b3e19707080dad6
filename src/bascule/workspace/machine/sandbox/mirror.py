"""A repository as commands see it: a private directory in the place of `.git`, filled from the real one.

    .git/objects                    the real directory, writable
    .git/config, hooks, info, ...   the real ones, read-only
    .git/refs, logs, HEAD, index    copies; `sync` brings a change over, in either direction
    everything else                 stays in the private directory, and goes

Git writes `index.lock` and renames it to `index`, so the directory that holds `index` must be writable, and whoever
may write there may also make `commondir` or `hooks`, which git obeys in the user's own shell. No mount covers a name
that does not exist without leaving a file under that name. So the directory is not the real one, and only names of a
list leave it.
"""

import contextlib
import os
import re
import stat

from bascule.workspace.machine.files import git_files, git_index
from bascule.workspace.machine.files.git_files import PACKED_REFS
from bascule.workspace.machine.sandbox import copying
from bascule.workspace.machine.sandbox.copying import Held, Pair, Signature
from bascule.workspace.machine.sandbox.layout import Bound
from bascule.workspace.machine.sandbox.trees import LOGS, REF, Tree

# Bound writable: git looks for data here, never for programs or settings.
LIVE = ("objects", git_files.REFTABLE, "lfs")
# Mounts of their own: a link in their place would lead git's own writing elsewhere. `info` names other directories of
# objects, and files there are written through links.
IN_OBJECTS = (("info", False), ("pack", True))
# Where git writes through links, or enters them.
LINKLESS = ("objects", "objects/pack")
# Copied file by file.
TREES = (git_files.REFS, LOGS)
# Without these a directory is not a repository.
NEEDED = ("objects", git_files.REFS)
# Copied in both directions.
SYNCED = (*git_files.STANDING, PACKED_REFS, *git_files.PASSING)
# Copied inwards only: in MERGE_RR stand files that git reads and writes at the next commit, wherever they are.
INWARD = ("MERGE_RR",)
# Kept from one command to the next, never copied out. The next command finds half-done work, git outside does not: a
# to-do list of a rebase may hold commands.
KEPT = re.compile("|".join((*git_files.UNFINISHED, git_files.WORKTREES, git_files.BISECTION)))
# An index of half a million files, or as many refs; everything else is a line or a message.
LARGE = ("index", PACKED_REFS)
MAX_LARGE_BYTES = 64 * 1024 * 1024
MAX_FILE_BYTES = 1024 * 1024
# In the repository's own settings, where git alone looks for it.
_SHA256 = re.compile(rb"^\s*objectformat\s*=\s*\"?sha256", re.IGNORECASE | re.MULTILINE)


class Mirror:
    """One real `.git` directory, held open, and the private one in its place."""

    def __init__(self, real: int, place: str, folder: str, owner: tuple[int, int]) -> None:
        # The descriptor is ours from now on.
        self.real = real
        self.place = place
        self._owner = owner
        os.mkdir(folder, 0o700)
        self.ours = os.open(folder, copying.DIRECTORY)
        copying.give(self.ours, owner)
        self._pairs: dict[str, Pair] = dict.fromkeys(SYNCED, Pair(None, None))
        self._settled: tuple[Signature, ...] | None = None
        self._entries: tuple[Signature, tuple[tuple[str, bool, Signature], ...]] = (None, ())
        self._gitlinks: tuple[Signature, frozenset[bytes]] = (None, frozenset())
        self._stand_ins: set[str] = set()
        # The user's own.
        self._links = frozenset(self._find_links())
        self._trees = [Tree(real, self.ours, name, owner) for name in TREES]

    def close(self) -> None:
        os.close(self.real)
        os.close(self.ours)

    # -- what a cell is given

    def shape(self) -> tuple[tuple[str, bool, Signature], ...]:
        """Entries bound into a cell. A file has its signature: replaced outside, a bound one would be the old one."""
        now = copying.signature(self.real, ".")
        if self._entries[0] is None or self._entries[0] != now:
            entries = tuple(sorted(self._bound_entries()))
            self._entries = (now if copying.is_settled((now,)) else None, entries)
        return self._entries[1]

    def _bound_entries(self) -> list[tuple[str, bool, Signature]]:
        entries: list[tuple[str, bool, Signature]] = []
        for name in os.listdir(self.real):
            if name in SYNCED or name in TREES or name.endswith(".lock"):
                continue
            found = copying.stat_of(self.real, name)
            if found is not None and stat.S_ISDIR(found.st_mode):
                entries.append((name, name in LIVE, (found.st_dev, found.st_ino, 0, 0)))
            elif found is not None and stat.S_ISREG(found.st_mode):
                entries.append((name, False, copying.signature(self.real, name)))
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
        for name, writable in IN_OBJECTS:
            with contextlib.suppress(OSError), copying.folder(self.real, f"objects/{name}", make=self._owner) as found:
                bounds.append(Bound(os.dup(found), f"{where}/objects/{name}", writable))
        return bounds

    def _find_links(self) -> list[str]:
        found = []
        for place in LINKLESS:
            with (
                contextlib.suppress(OSError),
                copying.folder(self.real, place) as folder,
                os.scandir(folder) as entries,
            ):
                found += [f"{place}/{entry.name}" for entry in entries if entry.is_symlink()]
        return found

    def _drop_links(self) -> None:
        for place in self._find_links():
            above, _, name = place.rpartition("/")
            if place not in self._links:
                with contextlib.suppress(OSError), copying.folder(self.real, above) as folder:
                    os.unlink(name, dir_fd=folder)

    def _stand_in(self, name: str, *, directory: bool) -> None:
        """Something to mount on. Where cells have it mounted already they cannot have changed it."""
        found = copying.stat_of(self.ours, name)
        if found is not None and stat.S_ISDIR(found.st_mode) == directory and not stat.S_ISLNK(found.st_mode):
            self._stand_ins.add(name)
            return
        copying.remove(self.ours, name)
        if directory:
            os.mkdir(name, 0o755, dir_fd=self.ours)
        else:
            os.close(os.open(name, copying.NEW, 0o644, dir_fd=self.ours))
        os.chown(name, *self._owner, dir_fd=self.ours, follow_symlinks=False)
        self._stand_ins.add(name)

    def gitlinks(self) -> frozenset[bytes]:
        """Of the real index; `git_index.UnreadableIndex` when that cannot be known."""
        now = copying.signature(self.real, "index")
        if now is None:
            return frozenset()
        if self._gitlinks[0] != now:
            data = copying.content(self.real, "index", MAX_LARGE_BYTES)
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
        top = [copying.signature(side, name) for side in (self.real, self.ours) for name in (".", "HEAD", "index")]
        top += [copying.signature(self.real, place) for place in LINKLESS]
        return (*top, *(each for tree in self._trees for each in tree.look()))

    def sync(self, *, quiet: bool) -> list[str]:
        """Blocking. `quiet`: no command runs, so what is not kept goes. Returns what a person should hear."""
        # Before refs, which may be deleted because they are in there.
        notes = self._sync_one(PACKED_REFS)
        packed = not notes
        for tree in self._trees:
            # Not copied out, it may have the only other copy of a ref that is deleted.
            notes += tree.sync(self.place, lambda: packed and self._pairs[PACKED_REFS] == self._pair(PACKED_REFS))
        for name in SYNCED:
            if name != PACKED_REFS:
                notes += self._sync_one(name)
        self._drop_links()
        if quiet:
            with contextlib.suppress(OSError):
                self._tidy()
        now = self._look()
        self._settled = now if copying.is_settled(now) else None
        return notes

    def _sync_one(self, name: str) -> list[str]:
        try:
            self._sync(name)
        except Held as held:
            with contextlib.suppress(OSError):
                self._pull(name)
            return [str(held)]
        except OSError as error:
            return [f"{self.place}/{name} could not be copied: {error.strerror}"]
        return []

    def _pair(self, name: str) -> Pair:
        return Pair(copying.signature(self.real, name), copying.signature(self.ours, name))

    def unfinished(self) -> list[str]:
        return [name for name in git_files.UNFINISHED if copying.stat_of(self.ours, name) is not None]

    def _sync(self, name: str) -> None:
        real, ours = copying.signature(self.real, name), copying.signature(self.ours, name)
        was = self._pairs[name]
        if ours == was.ours:
            if real != was.real:
                self._pull(name)
        elif real == was.real:
            self._push(name)
        elif copying.content(self.real, name, MAX_LARGE_BYTES) != copying.content(self.ours, name, MAX_LARGE_BYTES):
            raise Held(
                f"{self.place}/{name} was changed outside while the command changed it: the command's change is dropped"
            )
        else:
            self._pairs[name] = Pair(real, ours)

    def _pull(self, name: str) -> None:
        # Before reading: a change in between is then one more difference, not one that is missed.
        real = copying.signature(self.real, name)
        data = copying.content(self.real, name, MAX_LARGE_BYTES)
        if data is None:
            copying.remove(self.ours, name)
        else:
            self._write(self.ours, f".bascule-{os.urandom(6).hex()}", name, data, 0o644)
        self._pairs[name] = Pair(real, copying.signature(self.ours, name))

    def _push(self, name: str) -> None:
        ours = copying.signature(self.ours, name)
        if name in INWARD:
            self._pairs[name] = Pair(copying.signature(self.real, name), ours)
            return
        data = copying.content(self.ours, name, MAX_LARGE_BYTES if name in LARGE else MAX_FILE_BYTES)
        if data is None:
            if name == "HEAD" or copying.stat_of(self.ours, name) is not None:
                raise Held(f"{self.place}/{name}: what the command left there is not copied out of the sandbox")
            self._remove_real(name)
        else:
            self._check(name, data)
            found = copying.stat_of(self.real, name)
            mode = stat.S_IMODE(found.st_mode) if found is not None else 0o644
            # Git's own lock: its holder outside is not disturbed, and the next `sync` tries again.
            try:
                self._write(self.real, f"{name}.lock", name, data, mode)
            except FileExistsError:
                return
        self._pairs[name] = Pair(copying.signature(self.real, name), ours)

    def _remove_real(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.real)

    def _check(self, name: str, data: bytes) -> None:
        if name == "HEAD" and not REF.fullmatch(data):
            raise Held(f"{self.place}/HEAD names no branch and no commit and is not copied out of the sandbox")
        if name == "index":
            try:
                new = git_index.foreign_gitlinks(data, self._id_bytes()) - self.gitlinks()
            except git_index.UnreadableIndex as error:
                raise Held(f"{self.place}/index is {error} and is not copied out of the sandbox") from None
            if new:
                first = os.fsdecode(min(new))
                raise Held(
                    f"what was staged is not copied out of the sandbox: `{first}` is a repository of its own, and git"
                    " would run what its configuration says; stage it outside, or delete its .git"
                )

    def _id_bytes(self) -> int:
        config = copying.content(self.real, "config", MAX_FILE_BYTES) or b""
        return git_index.SHA256_BYTES if _SHA256.search(config) else git_index.SHA1_BYTES

    def _write(self, side: int, temporary: str, name: str, data: bytes, mode: int) -> None:
        copying.write(side, temporary, data, mode, self._owner)
        if side == self.ours and (found := copying.stat_of(side, name)) is not None and stat.S_ISDIR(found.st_mode):
            copying.remove(side, name)
        copying.move(side, temporary, name)

    def _tidy(self) -> None:
        """What a command made beside: `commondir` would be obeyed by the next one's git."""
        for name in os.listdir(self.ours):
            if name not in self._stand_ins and name not in (*SYNCED, *TREES) and not KEPT.fullmatch(name):
                copying.remove(self.ours, name)


def open_repository(root: int, place: str) -> int | None:
    """The `.git` directory at a place, if git would take it for one; no link is followed on the way."""
    descriptor = root
    try:
        for step in place.split("/"):
            below = os.open(step, copying.DIRECTORY, dir_fd=descriptor)
            if descriptor != root:
                os.close(descriptor)
            descriptor = below
    except OSError:
        if descriptor != root:
            os.close(descriptor)
        return None
    head = copying.content(descriptor, "HEAD", MAX_FILE_BYTES)
    found = [copying.stat_of(descriptor, name) for name in NEEDED]
    if (
        head is not None
        and REF.fullmatch(head)
        and all(each is not None and stat.S_ISDIR(each.st_mode) for each in found)
    ):
        return descriptor
    os.close(descriptor)
    return None
