"""`refs` and `logs` of a repository: directories of small files, copied in both directions.

Commands write to a copy. In the real directory they could put a link in the place of a file, and the user's own git
would write through it: with each commit it adds a line to `logs/HEAD`, and the names of branches stand in that line.
"""

import contextlib
import os
import re
import stat
from collections.abc import Callable
from typing import NamedTuple

from bascule.workspace.machine.sandbox import copying
from bascule.workspace.machine.sandbox.copying import Held, Owner, Pair, Signature

# Files and directories of one tree. Git packs refs long before there are so many.
MAX_ENTRIES = 100_000
# Names of branches have few steps.
MAX_STEPS = 32
# Of a ref; everything longer is none.
MAX_REF_BYTES = 4096
# One log, and all that one `sync` copies out.
MAX_LOG_BYTES = 16 * 1024 * 1024
MAX_OUT_BYTES = 64 * 1024 * 1024
LOGS = "logs"
# `refs/heads` and `logs/HEAD` stay, even empty.
_STAYS = 2

REF = re.compile(rb"ref: refs/[^\0\n]+\n?|[0-9a-f]{40}(?:[0-9a-f]{24})?\n?")


class _Seen(NamedTuple):
    files: dict[str, Signature]
    folders: list[str]


class Tree:
    """One of them. Places are relative to the repository."""

    def __init__(self, real: int, ours: int, name: str, owner: Owner) -> None:
        self._real = real
        self._ours = ours
        self._name = name
        self._owner = owner
        self._pairs: dict[str, Pair] = {}
        self._folders = [name]
        self._left = 0

    def look(self) -> list[Signature]:
        """Refs are replaced by renaming, which changes their directory."""
        places = [*self._folders, f"{LOGS}/HEAD"] if self._name == LOGS else self._folders
        return [copying.signature(side, place) for side in (self._real, self._ours) for place in places]

    def sync(self, where: str, may_remove: Callable[[], bool]) -> list[str]:
        """Blocking. `may_remove`, asked after looking: what was deleted inside is deleted outside too. Returns what
        there is to say."""
        self._left = MAX_OUT_BYTES
        try:
            whole = self._is_whole()
            with copying.folder(self._ours, self._name, make=self._owner):
                real, ours = _walk(self._real, self._name), _walk(self._ours, self._name)
        except (Held, OSError) as error:
            return [f"{where}/{self._name} is not copied: {error}"]
        notes = []
        removing = whole and may_remove()
        changed = [
            place
            for place in real.files.keys() | ours.files.keys() | self._pairs.keys()
            if self._pairs.get(place) != (real.files.get(place), ours.files.get(place))
        ]
        # Deleted ones first: what was a branch may be a directory of branches now.
        for place in sorted(changed, key=lambda each: (each in real.files and each in ours.files, each)):
            try:
                self._one(place, real.files.get(place), ours.files.get(place), removing=removing)
            except Held as held:
                notes.append(f"{where}/{held}")
                with contextlib.suppress(OSError):
                    self._pull(place)
            except OSError as error:
                notes.append(f"{where}/{place} could not be copied: {error.strerror}")
        self._folders = sorted({self._name, *real.folders, *ours.folders})
        return notes

    def _is_whole(self) -> bool:
        """Whether the directory itself is there. Without it everything in it comes back."""
        found = copying.stat_of(self._ours, self._name)
        if found is not None and not stat.S_ISDIR(found.st_mode):
            copying.remove(self._ours, self._name)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def _one(self, place: str, real: Signature, ours: Signature, *, removing: bool) -> None:
        was = self._pairs.get(place, Pair(None, None))
        if ours == was.ours or (ours is None and not removing):
            self._pull(place)
        elif real == was.real:
            self._push(place, real)
        elif ours is None or real is None or self._content(self._real, place) != self._content(self._ours, place):
            if self._name == LOGS and real is not None and ours is not None:
                self._join(place, real)
                return
            raise Held(f"{place} was changed outside while the command changed it: the command's change is dropped")
        else:
            self._pairs[place] = Pair(real, ours)

    def _content(self, side: int, place: str) -> bytes | None:
        above, _, name = place.rpartition("/")
        try:
            with copying.folder(side, above) as directory:
                return copying.content(directory, name, MAX_LOG_BYTES if self._name == LOGS else MAX_REF_BYTES)
        except OSError:
            return None

    def _signature(self, side: int, place: str) -> Signature:
        return copying.signature(side, place)

    def _pull(self, place: str) -> None:
        # Before reading: a change in between is then one more difference, not one that is missed.
        real = self._signature(self._real, place)
        data = self._content(self._real, place)
        if data is None:
            self._unlink(self._ours, place)
        else:
            above, _, name = place.rpartition("/")
            temporary = f".bascule-{os.urandom(6).hex()}.lock"
            with copying.folder(self._ours, above, make=self._owner) as directory:
                copying.write(directory, temporary, data, 0o644, self._owner)
                if (found := copying.stat_of(directory, name)) is not None and stat.S_ISDIR(found.st_mode):
                    copying.remove(directory, name)
                copying.move(directory, temporary, name)
        self._pair(place, real)

    def _push(self, place: str, expected: Signature) -> None:
        ours = self._signature(self._ours, place)
        if ours is None:
            self._unlink(self._real, place)
            self._pair(place, None)
            return
        data = self._content(self._ours, place)
        if data is None or (self._name != LOGS and not REF.fullmatch(data)) or len(data) > self._left:
            raise Held(f"{place}: what the command left there is not copied out of the sandbox")
        self._left -= len(data)
        self._replace(place, data, expected)

    def _join(self, place: str, expected: Signature) -> None:
        """Both sides wrote to a log: the lines of both."""
        theirs, more = self._content(self._real, place), self._content(self._ours, place)
        if theirs is None or more is None or len(theirs) + len(more) > self._left:
            raise Held(f"{place}: what the command left there is not copied out of the sandbox")
        known = set(theirs.splitlines(keepends=True))
        self._left -= len(theirs) + len(more)
        added = b"".join(line for line in more.splitlines(keepends=True) if line not in known)
        if added:
            self._replace(place, theirs + added, expected)
        self._pull(place)

    def _replace(self, place: str, data: bytes, expected: Signature) -> None:
        above, _, name = place.rpartition("/")
        ours = self._signature(self._ours, place)
        with copying.folder(self._real, above, make=self._owner) as directory:
            found = copying.stat_of(directory, name)
            # Git's own lock: its holder outside is not disturbed, and the next `sync` tries again.
            try:
                mode = stat.S_IMODE(found.st_mode) if found is not None else 0o644
                copying.write(directory, f"{name}.lock", data, mode, self._owner)
            except FileExistsError:
                return
            if copying.signature(directory, name) != expected:
                os.unlink(f"{name}.lock", dir_fd=directory)
                return
            if found is not None and stat.S_ISDIR(found.st_mode):
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=directory)
            copying.move(directory, f"{name}.lock", name)
            self._pairs[place] = Pair(copying.signature(directory, name), ours)

    def _unlink(self, side: int, place: str) -> None:
        steps = place.split("/")
        with contextlib.suppress(OSError), copying.folder(side, "/".join(steps[:-1])) as directory:
            found = copying.stat_of(directory, steps[-1])
            if found is not None and not stat.S_ISDIR(found.st_mode):
                os.unlink(steps[-1], dir_fd=directory)
        # As git does: a directory that became empty goes, so that a branch may have its name.
        for length in range(len(steps) - 1, _STAYS, -1):
            try:
                with copying.folder(side, "/".join(steps[: length - 1])) as directory:
                    os.rmdir(steps[length - 1], dir_fd=directory)
            except OSError:
                break

    def _pair(self, place: str, real: Signature) -> None:
        ours = self._signature(self._ours, place)
        if real is None and ours is None:
            self._pairs.pop(place, None)
        else:
            self._pairs[place] = Pair(real, ours)


def _walk(side: int, name: str) -> _Seen:
    """Regular files, and directories; nothing else is there for us. A directory that is too deep is overlooked."""
    files: dict[str, Signature] = {}
    folders: list[str] = []
    waiting = [name]
    while waiting:
        place = waiting.pop()
        try:
            with copying.folder(side, place) as directory, os.scandir(directory) as entries:
                folders.append(place)
                for entry in entries:
                    below = f"{place}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        if below.count("/") < MAX_STEPS:
                            waiting.append(below)
                    elif entry.is_file(follow_symlinks=False) and not entry.name.endswith(".lock"):
                        files[below] = copying.as_signature(entry.stat(follow_symlinks=False))
                    if len(files) + len(folders) + len(waiting) > MAX_ENTRIES:
                        # What is not seen would count as deleted.
                        raise Held(f"it has more than {MAX_ENTRIES:,} entries; run `git pack-refs --all`")
        except OSError:
            continue
    return _Seen(files, folders)
