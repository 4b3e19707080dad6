"""What of a workspace commands may read and not change, because programs of the user obey it outside.

`artifacts/`, and of every repository that is there when a command starts: its `.git`, as `mirror` says, or read-only
as a whole; the file that stands for `.git` in a linked worktree or a submodule; and the places at which an index
names another repository, so that none can be put there.
"""

import os
import stat
import threading
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from bascule.workspace.machine.files import git_index
from bascule.workspace.machine.files.repositories import GIT
from bascule.workspace.machine.files.root import ARTIFACTS
from bascule.workspace.machine.sandbox.layout import Bound
from bascule.workspace.machine.sandbox.mirror import Mirror, open_repository
from bascule.workspace.ports import SandboxFault

# Repositories in which commands can commit, the nearest first; the `.git` of others is read-only. Each is a dozen
# mounts.
MAX_MIRRORS = 16
# Mounts of one cell. Some workspaces are a directory full of clones; one with more of them is opened clone by clone.
MAX_SEALS = 400


class Seal(NamedTuple):
    """A place that is bound once more onto itself: read-only, or only so that it cannot be renamed."""

    place: str
    identity: tuple[int, int]
    writable: bool


class Plan(NamedTuple):
    """What the next cell is given; a warm one of another plan does not serve."""

    shape: Hashable
    seals: tuple[Seal, ...]
    mirrors: tuple[Mirror, ...]
    # What was found at each place.
    looked: dict[str, "Identity"]


NO_SEALS = Plan((), (), (), {})
Identity = tuple[int, int, int] | None


class Seals:
    """Of one space. `folder` is ours: mirrors are made there."""

    def __init__(self, root: int, folder: str) -> None:
        self._root = root
        self._folder = folder
        self._made = 0
        self._mirrors: dict[str, Mirror] = {}
        # Replaced ones: running commands still use them.
        self._old: list[Mirror] = []
        self._lock = threading.Lock()
        self._last: tuple[tuple[str, ...], Plan] | None = None

    def close(self) -> None:
        for mirror in (*self._mirrors.values(), *self._old):
            mirror.close()

    def current(self, places: tuple[str, ...]) -> Plan | None:
        """The last plan, if it still is what `plan` would make, as far as a few stats tell."""
        if self._last is None or self._last[0] != places:
            return None
        plan = self._last[1]
        for place in (ARTIFACTS, *places):
            if _identity(self._stat(place)) != plan.looked.get(place):
                return None
        return plan if all(mirror.in_step for mirror in plan.mirrors) else None

    def plan(self, places: tuple[str, ...], *, quiet: bool) -> tuple[Plan, list[str]]:
        """Blocking. `places`: every `.git` of the workspace. Copies are brought in step; notes say what could not."""
        with self._lock:
            plan = self._plan(places)
            notes = [note for mirror in plan.mirrors for note in mirror.sync(quiet=quiet)]
            # What is new in an index changes what is sealed.
            plan = self._plan(places)
            self._last = (places, plan)
            return plan, notes

    def _plan(self, places: tuple[str, ...]) -> Plan:
        seals: dict[str, Seal] = {}
        mirrors: list[Mirror] = []
        looked = {place: _identity(self._stat(place)) for place in (ARTIFACTS, *places)}
        if (found := self._stat(ARTIFACTS)) is not None and not stat.S_ISLNK(found.st_mode):
            seals[ARTIFACTS] = Seal(ARTIFACTS, (found.st_dev, found.st_ino), writable=False)
        for place in sorted(places, key=lambda each: (each.count("/"), each)):
            found = self._stat(place)
            if found is None or not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
                # Not there any more, or a link: what that leads to is another place.
                continue
            mirror = self._mirror(place, found) if len(mirrors) < MAX_MIRRORS else None
            if mirror is None:
                seals[place] = Seal(place, (found.st_dev, found.st_ino), writable=False)
            else:
                mirrors.append(mirror)
                for each in self._of_gitlinks(mirror):
                    seals.setdefault(each.place, each)
        ordered = tuple(seals[place] for place in sorted(seals))
        shapes = tuple((mirror.place, id(mirror), mirror.shape()) for mirror in mirrors)
        if len(ordered) + sum(len(shape[2]) + 4 for shape in shapes) > MAX_SEALS:
            raise SandboxFault(
                f"this workspace has {len(places)} repositories, more than can be protected in one sandbox;"
                " open the one to work in as a space of its own"
            )
        return Plan((ordered, shapes), ordered, tuple(mirrors), looked)

    def _stat(self, place: str) -> os.stat_result | None:
        try:
            return os.stat(place, dir_fd=self._root, follow_symlinks=False)
        except OSError:
            return None

    def _mirror(self, place: str, found: os.stat_result) -> Mirror | None:
        known = self._mirrors.get(place)
        if known is not None and os.path.samestat(found, os.fstat(known.real)):
            return known
        if known is not None:
            self._old.append(self._mirrors.pop(place))
        descriptor = open_repository(self._root, place) if stat.S_ISDIR(found.st_mode) else None
        if descriptor is None:
            return None
        self._made += 1
        owner = (found.st_uid, found.st_gid)
        mirror = Mirror(descriptor, place, os.path.join(self._folder, f"git-{self._made}"), owner)
        try:
            mirror.gitlinks()
        except git_index.UnreadableIndex:
            mirror.close()
            return None
        self._mirrors[place] = mirror
        return mirror

    def _of_gitlinks(self, mirror: Mirror) -> Iterator[Seal]:
        """Directories where git enters another repository: none of them, nor one above, can be exchanged."""
        try:
            paths = mirror.gitlinks()
        except git_index.UnreadableIndex:
            return
        base = mirror.place.rpartition("/")[0]
        for path in paths:
            steps = [*filter(None, base.split("/")), *os.fsdecode(path).split("/")]
            for length in range(1, len(steps) + 1):
                place = "/".join(steps[:length])
                found = self._stat(place)
                if found is None or not stat.S_ISDIR(found.st_mode):
                    break
                last = length == len(steps)
                writable = not last or self._stat(f"{place}/{GIT}") is not None
                yield Seal(place, (found.st_dev, found.st_ino), writable)

    # -- copying

    def sync(self, plan: Plan, *, quiet: bool) -> list[str]:
        """Blocking."""
        with self._lock:
            return [note for mirror in plan.mirrors for note in mirror.sync(quiet=quiet)]

    def unfinished(self, plan: Plan) -> list[str]:
        return [
            f"{mirror.place}/{name} stays in the sandbox: finish or abort it by a command of this space"
            for mirror in plan.mirrors
            for name in mirror.unfinished()
        ]

    # -- binding

    def binds(self, plan: Plan, workspace: str) -> list[Bound]:
        """In the order in which they are mounted; the caller closes their descriptors."""
        bounds: list[Bound] = []
        try:
            for seal in plan.seals:
                descriptor = open_place(self._root, seal.place)
                bounds.append(Bound(descriptor, f"{workspace}/{seal.place}", seal.writable))
            with self._lock:
                for mirror in plan.mirrors:
                    bounds += mirror.binds(workspace)
        except BaseException:
            for bound in bounds:
                os.close(bound.descriptor)
            raise
        # What lies in another mount is mounted after it.
        return sorted(bounds, key=lambda bound: bound.where.split("/"))


def _identity(found: os.stat_result | None) -> Identity:
    return None if found is None else (found.st_dev, found.st_ino, stat.S_IFMT(found.st_mode))


def open_place(root: int, place: str) -> int:
    """Step by step without following: a directory on the way could have become a link since it was looked at."""
    descriptor = root
    steps = place.split("/")
    try:
        for number, step in enumerate(steps, 1):
            flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_DIRECTORY if number < len(steps) else 0)
            below = os.open(step, flags, dir_fd=descriptor)
            if descriptor != root:
                os.close(descriptor)
            descriptor = below
    except OSError:
        if descriptor != root:
            os.close(descriptor)
        raise
    return descriptor
