"""What differs between two trees, and what cannot be known to be the same."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bascule.workspace.machine.checkpoints.objects import GAP_AND_REST, GAP_WITHOUT_CONTENT, Entry, ObjectId
from bascule.workspace.machine.checkpoints.store import ObjectStore


class Difference(NamedTuple):
    """One path. A directory stands for itself, without what is in it; a gap for everything beneath it."""

    path: bytes
    old: Entry | None
    new: Entry | None

    @property
    def gap(self) -> Entry | None:
        """What keeps this difference from being known."""
        for entry in (self.old, self.new):
            if entry is not None and entry.is_gap:
                return entry
        return None


class TreeView:
    """A tree by paths. Read as far as it is asked about."""

    def __init__(self, store: ObjectStore, root: ObjectId) -> None:
        self._store = store
        self.root = root

    def get(self, path: bytes) -> Entry | None:
        """Beneath a gap everything is that gap; beneath what is known to be no directory there is nothing."""
        return self.at(self.root, path)

    def at(self, root: ObjectId, path: bytes) -> Entry | None:
        """The same in another tree."""
        found: Entry | None = Entry(0o040755, root)
        for step in path.split(b"/"):
            if found is None or found.is_gap:
                return found if found is None or found.mode != GAP_WITHOUT_CONTENT else None
            if not found.is_dir:
                return None
            entries = self._store.tree(found.object)
            found = entries.get(step) or _rest(entries)
        return found

    def names(self, path: bytes) -> Mapping[bytes, Entry]:
        """What is in a directory; nothing when it is none."""
        found = self.get(path) if path else Entry(0o040755, self.root)
        return self._store.tree(found.object) if found is not None and found.is_dir else {}

    def walk(self) -> Iterator[tuple[bytes, Entry]]:
        """Every path, a directory before what is in it."""
        waiting = [(b"", self.root)]
        while waiting:
            prefix, tree = waiting.pop()
            for name, entry in self._store.tree(tree).items():
                yield prefix + name, entry
                if entry.is_dir:
                    waiting.append((prefix + name + b"/", entry.object))


def differences(store: ObjectStore, old: ObjectId, new: ObjectId, *, behind_gaps: bool = False) -> list[Difference]:
    """In the order of paths; equal directories are not even read.

    With `behind_gaps` also what `new` has in a directory where `old` has a gap.
    """
    found = list(_between(store, b"", old, new, behind_gaps=behind_gaps))
    found.sort(key=lambda difference: difference.path.split(b"/"))
    return found


def _between(
    store: ObjectStore, prefix: bytes, old: ObjectId | None, new: ObjectId | None, *, behind_gaps: bool
) -> Iterator[Difference]:
    if old == new:
        return
    before = store.tree(old) if old is not None else {}
    after = store.tree(new) if new is not None else {}
    rest_before, rest_after = _rest(before), _rest(after)
    for name in before.keys() | after.keys():
        first, second = before.get(name) or rest_before, after.get(name) or rest_after
        if first == second:
            continue
        path = prefix + name
        alone = Difference(path, first and first.alone(), second and second.alone())
        if alone.old != alone.new:
            yield alone
        gap = alone.gap
        # A pipe hides nothing: what the directory on the other side holds came or went.
        if gap is not None and gap.mode != GAP_WITHOUT_CONTENT and not (behind_gaps and gap is alone.old):
            continue
        below = (first.object if first and first.is_dir else None, second.object if second and second.is_dir else None)
        if below != (None, None):
            yield from _between(store, path + b"/", *below, behind_gaps=behind_gaps)


def _rest(entries: Mapping[bytes, Entry]) -> Entry | None:
    """The gap that stands for the names which are not in a directory's tree."""
    return next((entry for entry in entries.values() if entry.mode == GAP_AND_REST), None)
