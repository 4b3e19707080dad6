"""What to do to bring a workspace from one tree to another without losing what came later.

Three trees: `base`, as the workspace was expected; `target`, as it should become; `now`, as it is. A path that is
neither as in `base` nor already as in `target` has been changed by somebody since: a conflict, and one conflict stops
everything.
"""

from collections.abc import Iterator
from typing import NamedTuple

from bascule.adapters.checkpoints.compare import Difference, TreeView, differences
from bascule.adapters.checkpoints.objects import Entry
from bascule.adapters.checkpoints.store import ObjectStore
from bascule.adapters.checkpoints.unified import shown_path
from bascule.bridges.workspace.ports import CheckpointFault

# Paths named in a refusal; more would only fill a context.
MAX_NAMED = 20


class Plan(NamedTuple):
    """Steps in the order in which they are carried out; every path is one that `now` has as it is expected."""

    # Files and links to remove.
    remove: list[bytes]
    # Directories to remove if nothing else is in them, with their modes, the deepest first; and those that must go.
    remove_dirs: list[tuple[bytes, int]]
    must_go: list[bytes]
    # Directories to make, the outermost first, and directories to give another mode.
    make_dirs: list[tuple[bytes, int]]
    modes: list[tuple[bytes, int]]
    # Files and links to put in place, over what is there.
    put: list[tuple[bytes, Entry]]
    # What all this changes.
    changed: list[Difference]


def plan(store: ObjectStore, base: bytes, target: bytes, now: bytes) -> Plan:
    return _Planning(TreeView(store, now), TreeView(store, target)).plan(differences(store, base, target))


class _Planning:
    def __init__(self, now: TreeView, target: TreeView) -> None:
        self._now = now
        self._target = target
        self._made: dict[bytes, int] = {}
        self._conflicts: list[bytes] = []
        self._plan = Plan([], [], [], [], [], [], [])

    def plan(self, found: list[Difference]) -> Plan:
        removed = {difference.path for difference in found if difference.new is None or difference.new.is_dir}
        for difference in found:
            there = self._now.get(difference.path)
            there = there and there.alone()
            if there == difference.new or _is_made(difference, there):
                continue
            if not self._step(difference, there):
                self._conflicts.append(difference.path)
                continue
            self._plan.changed.append(difference)
        for path in self._plan.must_go:
            self._conflicts.extend(self._strangers(path, removed))
        if self._conflicts:
            raise _conflict(self._conflicts)
        self._plan.make_dirs.extend(sorted(self._made.items(), key=lambda item: item[0].count(b"/")))
        self._plan.remove_dirs.sort(key=lambda step: -step[0].count(b"/"))
        return self._plan

    def _step(self, difference: Difference, there: Entry | None) -> bool:
        """Whether what is there lets this difference be made."""
        path, old, new = difference
        if old is not None and old.is_dir:
            return self._leave_directory(path, old, new, there)
        if there != old:
            return False
        if new is None or new.is_dir:
            if old is not None:
                self._plan.remove.append(path)
            if new is not None:
                self._made[path] = new.mode
        else:
            self._plan.put.append((path, new))
        return new is None or self._has_parents(path)

    def _leave_directory(self, path: bytes, old: Entry, new: Entry | None, there: Entry | None) -> bool:
        if new is not None and new.is_dir:
            self._plan.modes.append((path, new.mode))
            return there == old
        if there is None or not there.is_dir:
            return False
        self._plan.remove_dirs.append((path, there.mode))
        if new is not None:
            self._plan.must_go.append(path)
            self._plan.put.append((path, new))
        return True

    def _has_parents(self, path: bytes) -> bool:
        """Directories on the way that are gone are made again; anything else in their place is a conflict."""
        steps = path.split(b"/")[:-1]
        for count in range(1, len(steps) + 1):
            above = b"/".join(steps[:count])
            if above in self._made:
                continue
            there = self._now.get(above)
            wanted = self._target.get(above)
            if there is not None and there.is_dir:
                continue
            if there is not None and above not in self._plan.remove:
                return False
            self._made[above] = wanted.mode if wanted is not None else 0o040755
        return True

    def _strangers(self, path: bytes, removed: set[bytes]) -> Iterator[bytes]:
        """What is in a directory that has to go, and was not there."""
        for name, entry in self._now.names(path).items():
            below = path + b"/" + name
            if below not in removed:
                yield below
            elif entry.is_dir:
                yield from self._strangers(below, removed)


def _is_made(difference: Difference, there: Entry | None) -> bool:
    """Whether a directory that should come is there already, whatever its mode: somebody else made it."""
    old, new = difference.old, difference.new
    come = new is not None and new.is_dir and (old is None or not old.is_dir)
    return come and there is not None and there.is_dir


def _conflict(paths: list[bytes]) -> CheckpointFault:
    named = ", ".join(f"`{shown_path(path)}`" for path in sorted(set(paths))[:MAX_NAMED])
    more = len(set(paths)) - MAX_NAMED
    return CheckpointFault(
        f"changed since: {named}{f' and {more} more' if more > 0 else ''}. Nothing was changed, because that would "
        "lose the later changes; undo those first, or change the files by hand"
    )
