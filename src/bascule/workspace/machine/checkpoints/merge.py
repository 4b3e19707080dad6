"""What to do to give paths of a workspace another value without losing what came later.

Of each path it is known how it was expected and how it should become. One that is neither has been changed by somebody
since: it is left alone, or, where a run on a copy is taken over, stops everything. Left alone is also what one of the
trees does not hold (a gap), because nobody can say what it was or whether it is still the same; once nothing is there
any more, it is put back.
"""

import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bascule.workspace.machine.checkpoints.compare import Difference, TreeView
from bascule.workspace.machine.checkpoints.objects import GAP_WITHOUT_CONTENT, TREE, Entry, gap_reason, write_tree
from bascule.workspace.machine.checkpoints.store import ObjectStore
from bascule.workspace.machine.checkpoints.unified import shown_path
from bascule.workspace.machine.files import shut
from bascule.workspace.ports import LaterChanges
from bascule.workspace.timeline import CHANGED_SINCE

# Paths named in a refusal; more would only fill a context.
MAX_NAMED = 20
SET_ID = "had set-user-ID or set-group-ID, which an undo gives to no file: chmod it again, if it is to have that"
MOVE_AWAY = "move it away and undo again to have back what was there"


class Plan(NamedTuple):
    """Steps in the order in which they are carried out; every path is one that `now` has as it is expected."""

    # Files and links to remove, as they are expected to be.
    remove: list[tuple[bytes, Entry]]
    # Directories to remove if nothing else is in them, with their modes, the deepest first; and those that must go.
    remove_dirs: list[tuple[bytes, int]]
    must_go: list[bytes]
    # Directories to make, the outermost first, and directories to give another mode.
    make_dirs: list[tuple[bytes, int]]
    modes: list[tuple[bytes, int]]
    # Files and links to put in place, over what is expected to be there.
    put: list[tuple[bytes, Entry, Entry | None]]
    # What all this changes, and what it leaves alone, with the reason.
    changed: list[Difference]
    left: dict[bytes, str]

    def leaving(self, paths: Iterable[bytes], why: str) -> "Plan":
        """The same without removing these; a directory that was to go stays with all that is in it."""
        going = {path for path, _ in self.remove_dirs}
        stays = {next((above for above in _above(path) if above in going), path) for path in paths}

        def goes(path: bytes) -> bool:
            return path not in stays and not any(above in stays for above in _above(path))

        return self._replace(
            remove=[step for step in self.remove if goes(step[0])],
            remove_dirs=[step for step in self.remove_dirs if goes(step[0])],
            must_go=[path for path in self.must_go if goes(path)],
            # What should take the place of such a directory is not put there.
            put=[step for step in self.put if step[0] not in self.must_go or goes(step[0])],
            changed=[each for each in self.changed if goes(each.path)],
            left=self.left | dict.fromkeys(stays, why),
        )


def plan(
    store: ObjectStore,
    wanted: Sequence[Difference],
    target: bytes,
    now: bytes,
    *,
    forward: bool = False,
    resumes: bool = False,
) -> Plan:
    """`wanted`: in the order of paths, how each is expected and should become. `target` knows the modes of directories
    above them that are gone.

    With `resumes` the last one was cut short: it may have left a directory open, or just made.

    `forward` is for what happened on a copy, where one conflict stops everything. What was expected as a gap was never
    in the copy, so nothing happened to it there.
    """
    return _Planning(store, TreeView(store, now), TreeView(store, target), forward=forward, resumes=resumes).plan(
        wanted
    )


class _Planning:
    def __init__(self, store: ObjectStore, now: TreeView, target: TreeView, *, forward: bool, resumes: bool) -> None:
        self._forward = forward
        self._resumes = resumes
        self._store = store
        self._now = now
        self._target = target
        self._made: dict[bytes, int] = {}
        self._conflicts: list[bytes] = []
        # With their reasons: what is left alone, and directories of which `base` knows nothing.
        self._gaps: dict[bytes, str] = {}
        self._behind: dict[bytes, str] = {}
        # A directory that stays keeps what is in it.
        self._stuck: list[bytes] = []
        self._plan = Plan([], [], [], [], [], [], [], {})

    def plan(self, found: Sequence[Difference]) -> Plan:
        left = self._plan.left
        possible: list[Difference] = []
        for difference in found:
            if _of_above(difference.path, self._gaps) is not None:
                # What is left alone is left with all that is in it.
                continue
            reason = self._gap(difference)
            if reason is None:
                possible.append(self._without_set_id(difference))
            else:
                left[difference.path] = reason
        going = {difference.path for difference in possible if difference.new is None or difference.new.is_dir}
        for difference in possible:
            there = self._now.get(difference.path)
            there = there and there.alone()
            if self._is_there(difference, there):
                continue
            if any(difference.path.startswith(above) for above in self._stuck):
                continue
            if self._step(difference, there, going):
                self._plan.changed.append(difference)
        if self._conflicts:
            raise _conflict(self._conflicts)
        self._keep_full_directories()
        self._plan.make_dirs.extend(sorted(self._made.items(), key=lambda item: item[0].count(b"/")))
        self._plan.remove_dirs.sort(key=lambda step: -step[0].count(b"/"))
        return self._plan

    def _is_there(self, difference: Difference, there: Entry | None) -> bool:
        path, _, wanted = difference
        if there == wanted:
            return True
        if wanted is None or not _is_made(difference, there):
            return False
        if self._resumes and (_is_opened(there, wanted) or is_begun(path, there, self._now, self._target)):
            self._plan.modes.append((path, wanted.mode))
            self._plan.changed.append(difference)
        return True

    def _without_set_id(self, difference: Difference) -> Difference:
        """A tree does not know whose program it was: it must not come back as one that runs with our rights."""
        path, _, new = difference
        if new is None or not new.runs_as or self._now.get(path) == new:
            return difference
        self._plan.left[path] = SET_ID
        return difference._replace(new=new._replace(mode=new.mode & ~new.runs_as))

    def _gap(self, difference: Difference) -> str | None:
        """Why it cannot be known what would be lost, or what to put there."""
        path, old, new = difference
        gap = next((entry for entry in (new, old) if entry is not None and entry.is_gap), None)
        reason = gap_reason(self._store.blob(gap.object)) if gap is not None else _of_above(path, self._behind)
        if reason is None:
            return None
        if gap is None or (gap is old and not self._forward):
            if gap is not None and gap.mode == GAP_WITHOUT_CONTENT:
                return None
            there = self._now.get(path)
            if there is None or there.alone() == new:
                # Nothing can be lost where nothing is, or the right thing already.
                self._behind[path] = reason
                return None
            if new is not None:
                reason = f"{reason}; {MOVE_AWAY}"
        self._gaps[path] = reason
        return reason

    def _step(self, difference: Difference, there: Entry | None, going: set[bytes]) -> bool:
        """Whether what is there lets this difference be made."""
        path, old, new = difference
        if there is None and old is not None and (old.is_gap or (new is not None and old.is_dir != new.is_dir)):
            # Of a file in a directory's place an undo that was cut short leaves neither.
            old = None
        if old is not None and old.is_dir:
            return self._leave_directory(path, old, new, there, going)
        if there != old or (new is not None and not self._has_parents(path)):
            return self._cannot(path)
        if new is None or new.is_dir:
            if old is not None:
                self._plan.remove.append((path, old))
            if new is not None:
                self._made[path] = new.mode
        else:
            self._plan.put.append((path, new, old))
        return True

    def _leave_directory(
        self, path: bytes, old: Entry, new: Entry | None, there: Entry | None, going: set[bytes]
    ) -> bool:
        if new is not None and new.is_dir:
            opened = self._resumes and (_is_opened(there, old) or _is_opened(there, new))
            if there != old and not opened:
                return self._cannot(path)
            self._plan.modes.append((path, new.mode))
            return True
        if there is None or not there.is_dir:
            return self._cannot(path)
        if new is not None:
            strangers = list(self._strangers(path, going))
            if strangers:
                return self._keeps(path, strangers)
            self._plan.must_go.append(path)
            self._plan.put.append((path, new, None))
        self._plan.remove_dirs.append((path, there.mode))
        return True

    def _cannot(self, path: bytes) -> bool:
        if self._forward:
            self._conflicts.append(path)
        else:
            self._plan.left[path] = CHANGED_SINCE
        return False

    def _keeps(self, path: bytes, strangers: list[bytes]) -> bool:
        """It has to become a file, and holds what must not go."""
        self._stuck.append(path + b"/")
        left = self._plan.left
        later = [below for below in strangers if below not in left]
        if later and self._forward:
            self._conflicts.extend(later)
        else:
            first = (later or strangers)[0]
            left[path] = f"is a directory with `{shown_path(first)}` in it, which is left alone"
        return False

    def _has_parents(self, path: bytes) -> bool:
        """Directories on the way that are gone are made again; anything else in their place is a conflict."""
        steps = path.split(b"/")[:-1]
        made: dict[bytes, int] = {}
        for count in range(1, len(steps) + 1):
            above = b"/".join(steps[:count])
            if above in self._made:
                continue
            there = self._now.get(above)
            wanted = self._target.get(above)
            if there is not None and there.is_dir:
                continue
            if there is not None and all(above != removed for removed, _ in self._plan.remove):
                return False
            made[above] = wanted.mode if wanted is not None else 0o040755
        self._made.update(made)
        return True

    def _strangers(self, path: bytes, going: set[bytes]) -> Iterator[bytes]:
        """What is in a directory that has to go, and does not go by itself."""
        for name, entry in self._now.names(path).items():
            below = path + b"/" + name
            if below not in going:
                yield below
            elif entry.is_dir:
                yield from self._strangers(below, going)

    def _keep_full_directories(self) -> None:
        """A directory in which something is left alone stays, and is not called a change."""
        full = {above for path in self._plan.left for above in _above(path)}
        if full:
            self._plan.remove_dirs[:] = [step for step in self._plan.remove_dirs if step[0] not in full]
            self._plan.changed[:] = [
                each for each in self._plan.changed if each.path not in full or each.new is not None
            ]


def _above(path: bytes) -> Iterator[bytes]:
    steps = path.split(b"/")
    return (b"/".join(steps[:count]) for count in range(1, len(steps)))


def _of_above(path: bytes, reasons: Mapping[bytes, str]) -> str | None:
    """The reason that a directory above it has."""
    return next((reasons[above] for above in _above(path) if above in reasons), None) if reasons else None


def is_half_made(difference: Difference, now: TreeView, target: TreeView) -> bool:
    """Whether a path is as an undo that was cut short can leave it, between how it was and how it should become."""
    path, old, new = difference
    there = now.get(path)
    there = there and there.alone()
    if there is None:
        # Of a file in a directory's place it leaves neither.
        return old is not None and new is not None and old.is_dir != new.is_dir
    opened = any(_is_opened(there, each) for each in (old, new) if each is not None)
    return opened or (new is not None and new.is_dir and is_begun(path, there, now, target))


def is_begun(path: bytes, there: Entry | None, now: TreeView, target: TreeView) -> bool:
    """Whether it can be what an undo that was cut short made: nobody has put anything else into it."""
    private = there is not None and there.mode == stat.S_IFDIR | shut.CHANGE
    return private and now.names(path).keys() <= target.names(path).keys()


def _is_opened(there: Entry | None, wanted: Entry) -> bool:
    """Whether a directory is as an undo that was cut short leaves one that keeps its owner out."""
    opened = (wanted.mode | shut.LIST, wanted.mode | shut.CHANGE)
    return there is not None and there.is_dir and wanted.mode != there.mode and there.mode in opened


def _is_made(difference: Difference, there: Entry | None) -> bool:
    """Whether a directory that should come is there already, whatever its mode: somebody else made it."""
    old, new = difference.old, difference.new
    come = new is not None and new.is_dir and (old is None or not old.is_dir)
    return come and there is not None and there.is_dir


def _conflict(paths: list[bytes]) -> LaterChanges:
    named = ", ".join(f"`{shown_path(path)}`" for path in sorted(set(paths))[:MAX_NAMED])
    more = len(set(paths)) - MAX_NAMED
    return LaterChanges(
        f"changed since: {named}{f' and {more} more' if more > 0 else ''}. Nothing was changed, because that would "
        "lose the later changes; undo those first, or change the files by hand"
    )


def applied(store: ObjectStore, tree: bytes, steps: Plan) -> bytes:
    """The tree that a plan leaves behind. The caller flushes the store."""
    entries: dict[bytes, Entry | None] = {path: None for path, _ in (*steps.remove, *steps.remove_dirs)}
    entries |= {path: Entry(stat.S_IFDIR | stat.S_IMODE(mode), b"") for path, mode in (*steps.make_dirs, *steps.modes)}
    entries |= {path: entry for path, entry, _ in steps.put}
    return edited(store, tree, entries)


def edited(store: ObjectStore, tree: bytes, entries: Mapping[bytes, Entry | None]) -> bytes:
    """The tree with these entries, of directories without what is in them. The caller flushes the store."""
    return _edited(store, tree, {tuple(path.split(b"/")): entry for path, entry in entries.items()})


def _edited(store: ObjectStore, tree: bytes | None, edits: Mapping[tuple[bytes, ...], Entry | None]) -> bytes:
    """`edits`: what to put at a path, a directory without its content; None removes, of directories empty ones."""
    entries = dict(store.tree(tree)) if tree is not None else {}
    below: dict[bytes, dict[tuple[bytes, ...], Entry | None]] = {}
    for path, entry in edits.items():
        if len(path) > 1:
            below.setdefault(path[0], {})[path[1:]] = entry
    own = {path[0]: entry for path, entry in edits.items() if len(path) == 1}
    for name in below.keys() | own.keys():
        there = entries.get(name)
        wanted = own.get(name, there)
        inside = there.object if there is not None and there.is_dir else None
        if wanted is not None and not wanted.is_dir:
            entries[name] = wanted
            continue
        tree_below = _edited(store, inside, below.get(name, {}))
        if wanted is not None:
            entries[name] = Entry(wanted.mode, tree_below)
        elif there is not None and there.is_dir and store.tree(tree_below):
            entries[name] = Entry(there.mode, tree_below)
        else:
            entries.pop(name, None)
    return store.add(TREE, write_tree(entries))
