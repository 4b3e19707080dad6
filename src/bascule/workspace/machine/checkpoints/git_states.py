"""What a repository's own record says at one moment: HEAD, refs, index, configuration, hooks and half-done work.

A checkpoint leaves `.git` out. Objects that a command leaves unreferenced stay until git collects them, weeks later;
so with this record a `git reset --hard`, a deleted branch or a lost index comes back. Only the repository at the top of
the workspace is held, without its objects and reflogs, but for the stash's. Of those further down a state has a digest:
that something changed there is said, and not put back.

A state is one file, named by its digest, beside the checkpoints.
"""

import contextlib
import functools
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import timedelta
from typing import NamedTuple

import msgspec

from bascule.workspace.machine.checkpoints.git_record import (
    OWN_REFS,
    PLAIN,
    PROGRAM,
    SEVERAL,
    Entries,
    Held,
    Places,
    branch_of,
    digest_of,
    files_of,
    identity_of,
    in_the_way,
    listed,
    locks_of,
    loose_refs,
    packed_refs,
    places_of,
    put_back,
    read,
    read_record,
    same,
    unlock,
)
from bascule.workspace.machine.checkpoints.store import cannot_be_stored
from bascule.workspace.machine.files.git_files import PACKED_REFS, REFS, WORKTREES
from bascule.workspace.ports import CheckpointFault, LaterChanges
from bascule.workspace.timeline import CHANGED_SINCE

# A state that was taken but is in nobody's records yet survives a collection this long.
GRACE = timedelta(hours=1)
# States in memory: two that are compared, where an edit came from, and now.
MAX_LOADED = 4
# So many of them are looked at in each call.
MAX_FURTHER = 100
_FURTHER = "is a repository below the project's own: what the run changed in git's record there stays"
_MODE = "had mode %04o, which an undo gives it not, nor what is in it: chmod it by hand"
_SPACE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")
# A file that changed just now may change again within the same tick of its times: file systems with whole seconds.
_TICK_NS = 2_000_000_000
_Looks = tuple[tuple[str | bytes | int, ...], ...]
# The identity of a state where there is none at the top.
NO_REPOSITORY = (0, 0)


class _State(msgspec.Struct, frozen=True):
    # By name.
    files: dict[str, bytes]
    # Device and inode of that directory: refs of one repository name nothing in another.
    identity: tuple[int, int]
    # Of that directory, to name that it changed.
    mode: int | None = None
    # Hooks that git executes.
    executable: tuple[str, ...] = ()
    # By the path of each `.git` further down.
    further: dict[str, bytes] = {}
    # What is no plain file and no hook, by name.
    kinds: dict[str, str] = {}

    def held(self, name: str) -> Held | None:
        content = self.files.get(name)
        if content is None:
            return None
        return Held(content, PROGRAM if name in self.executable else self.kinds.get(name, PLAIN))

    def entries(self) -> Entries:
        return {name: held for name in self.files if (held := self.held(name)) is not None}

    def having(self, changes: Mapping[str, Held | None]) -> "_State":
        entries = {**self.entries(), **changes}
        # In one order, so that an undo which goes on leaves the same state by name.
        held = {name: each for name, each in sorted(entries.items()) if each is not None}
        return msgspec.structs.replace(
            self,
            files={name: each.content for name, each in held.items()},
            executable=tuple(name for name, each in held.items() if each.kind == PROGRAM),
            kinds={name: each.kind for name, each in held.items() if each.kind not in (PLAIN, PROGRAM)},
        )


class _Comparison(NamedTuple):
    # What is to be put back, and what stays with the reason.
    back: list[str]
    left: dict[str, str]
    was: _State
    now: _State


class GitStates:
    def __init__(self, directory: str) -> None:
        self._directory = directory
        # Of each space what the files looked like when its last state was taken, and that state.
        self._last: dict[str, tuple[_Looks, str]] = {}
        self._unlocked: set[str] = set()
        self._load: Callable[[str, str], _State] = functools.lru_cache(MAX_LOADED)(self._read_kept)

    def take(self, space_id: str, root: str, *, further: Iterable[str] = (), until_ms: int | None = None) -> str | None:
        """The id of the state as it is now; None where there is no repository.

        `further`: every `.git` of the workspace. With `until_ms` (wall clock) what changed later is left out: nobody
        knows what was there then.
        """
        places = places_of(root)
        if places is not None and space_id not in self._unlocked:
            # Those of an earlier life.
            self._unlocked.add(space_id)
            for lock in locks_of(places):
                unlock(lock)
        below = _look_further(root, further)
        if places is None and not below:
            return None
        folder = self._folder(space_id)
        looks = _looks(places, below) if until_ms is None else None
        known = self._last.get(space_id)
        if looks is not None and known is not None and known[0] == looks and os.path.exists(f"{folder}/{known[1]}"):
            return known[1]
        state = _state(places, below, until_ms)
        name = self._keep(folder, state)
        if looks is not None:
            self._last[space_id] = (looks, name)
        else:
            self._last.pop(space_id, None)
        return name

    def edits(self, space_id: str, before: str, after: str, /) -> Mapping[str, tuple[Hashable | None, Hashable | None]]:
        """Each name that differs between two states, with what is there in both; None: nothing."""
        was, then = self._load(space_id, before), self._load(space_id, after)
        return {name: (was.held(name), then.held(name)) for name in _differing(was, then)}

    def value(self, space_id: str, state: str, key: str, /) -> Hashable | None:
        return self._load(space_id, state).held(key)

    def same(self, key: str, known: Hashable | None, found: Hashable | None, /) -> bool:
        """Whether one can be what was left as the other; times in an index are no difference."""
        return same(key, known, found)

    def compose(self, space_id: str, now: str, wanted: Mapping[str, str], /) -> str:
        """The state `now` with each of these names as it is in the state beside it."""
        by_state = sorted(wanted.items(), key=lambda item: item[1])
        changes = {name: self._load(space_id, state).held(name) for name, state in by_state}
        return self._keep(self._folder(space_id), self._load(space_id, now).having(changes))

    def undo(
        self, space_id: str, root: str, before: str, after: str, /, *, dry_run: bool
    ) -> tuple[list[str], dict[str, str]]:
        """Put back what differs and is still as in `after`: what was put back, and what stays with the reason."""
        back, left, was, now = self._compare(space_id, root, before, after)
        places = places_of(root)
        if dry_run or places is None:
            return back, left
        for name in sorted(back, key=lambda name: _turn(name, was)):
            try:
                if name == "HEAD" and (target := branch_of(was.held(name))) in left and target in back:
                    raise CheckpointFault(f"names {target}, which is not back")  # noqa: TRY301 - as any other
                put_back(places, name, now.held(name), was.held(name))
            except CheckpointFault as error:
                left[name] = str(error)
        found = _state(places)
        for name in back:
            if name not in left and not same(name, found.held(name), was.held(name)):
                left[name] = "is not as it was before the run"
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
        for name in _differing(was, then):
            held, later = was.held(name), then.held(name)
            if why := (held and held.why_not) or (later and later.why_not):
                found[f".git/{name}"] = why
        return found | ({".git": _MODE % was.mode} if changed_mode else {})

    def is_same(self, space_id: str, before: str, after: str) -> bool:
        return self._load(space_id, before).identity == self._load(space_id, after).identity

    def expect(self, space_id: str, root: str, before: str, after: str) -> tuple[str, str]:
        """The state as it is now, and as `undo` will leave it."""
        now = self.take(space_id, root, further=self.further(space_id, before))
        if now is None:
            raise LaterChanges("git's record changed since then: .git")
        back, _, was, state = self._compare(space_id, root, before, after)
        return now, self._keep(self._folder(space_id), state.having({name: was.held(name) for name in back}))

    def _compare(self, space_id: str, root: str, before: str, after: str) -> _Comparison:
        was, then = self._load(space_id, before), self._load(space_id, after)
        names = _differing(was, then)
        places = places_of(root)
        if places is None or identity_of(places.own) != was.identity:
            return _Comparison([], {".git": CHANGED_SINCE} if names else {}, was, was)
        now = _state(places, _look_further(root, was.further))
        if names and (REFS in was.files, OWN_REFS in was.files) != (REFS in now.files, OWN_REFS in now.files):
            return _Comparison([], {".git": "keeps its refs in another format since then"}, was, now)
        back: list[str] = []
        left: dict[str, str] = {}
        for name in names:
            held, wanted = now.held(name), was.held(name)
            if same(name, held, wanted):
                continue
            why = (wanted and wanted.why_not) or (held and held.why_not)
            if not why and not same(name, then.held(name), held):
                why = CHANGED_SINCE
            if why or (why := in_the_way(places, name)):
                left[name] = why
            else:
                back.append(name)
        for name in _checked_out(places, was, now, back).intersection(back):
            if was.held(name) is None:
                back.remove(name)
                left[name] = "is checked out"
        return _Comparison(back, left, was, now)

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

    def _read_kept(self, space_id: str, name: str) -> _State:
        try:
            with open(os.path.join(self._folder(space_id), name), "rb") as file:
                data = file.read()
            if hashlib.sha256(data).hexdigest() != name:
                raise CheckpointFault("what is kept of git was changed")
            state = msgspec.msgpack.decode(data, type=_State)
        except (OSError, msgspec.DecodeError) as error:
            raise CheckpointFault("what git's record was before is no longer kept") from error
        return _of_earlier_version(state) if _has_files_of_refs(state) else state


def _has_files_of_refs(state: _State) -> bool:
    """As earlier versions had them."""
    loose = (content for name, content in state.files.items() if name.startswith("refs/"))
    return PACKED_REFS in state.files or any(content.endswith(b"\n") for content in loose)


def _of_earlier_version(state: _State) -> _State:
    entries = state.entries()
    packed = entries.pop(PACKED_REFS, None)
    known = packed_refs(packed) if packed is not None else {}
    return state.having({**known, **loose_refs(entries), PACKED_REFS: None})


def _differing(was: _State, then: _State) -> list[str]:
    """HEAD comes last: until then everything it may name is there."""
    names = sorted(name for name in was.files.keys() | then.files.keys() if _is_edit(name, was, then))
    return sorted(names, key=lambda name: name == "HEAD")


def _is_edit(name: str, was: _State, then: _State) -> bool:
    old, new = was.held(name), then.held(name)
    if old == new:
        return False
    if old is not None and new is not None and name.startswith(f"{WORKTREES}/"):
        # What is done in another worktree is its own affair, but for where it is.
        return old.kind == new.kind == SEVERAL and old.parts.get("gitdir") != new.parts.get("gitdir")
    return not same(name, old, new)


def _turn(name: str, was: _State) -> tuple[int, str]:
    """What goes makes room for what comes; HEAD is last, when everything that it may name is there."""
    if name == "HEAD":
        return 3, name
    # The branch of a worktree is free when the worktree is gone.
    return (2 if was.held(name) is not None else 0 if name.startswith(f"{WORKTREES}/") else 1), name


def _checked_out(places: Places, was: _State, now: _State, back: list[str]) -> set[str]:
    """What HEAD will name, here and in the other worktrees: git would refuse to remove it, too."""
    head = now.held("HEAD")
    # Before the first commit there is no branch of the name that HEAD has.
    found = {branch_of(head)} if "HEAD" not in back and head != was.held("HEAD") else set()
    if places.own != places.shared:
        found.add(branch_of(read(os.path.join(places.shared, "HEAD"))))
    for name in listed(os.path.join(places.shared, WORKTREES)):
        record = os.path.join(places.shared, WORKTREES, name)
        if f"{WORKTREES}/{name}" not in back and not (os.path.isdir(record) and os.path.samefile(record, places.own)):
            found.add(branch_of(read(os.path.join(record, "HEAD"))))
    return {each for each in found if each is not None}


def _looks(places: Places | None, further: Mapping[str, bytes]) -> _Looks | None:
    """Times, sizes and inodes of all that a state holds; None where a change may not show in them.

    An index of 50,000 files has 5 MB: it is not read at every call.
    """
    found: list[tuple[str | bytes | int, ...]] = list(further.items())
    if places is not None:
        found.append((places.own, os.stat(places.own).st_mode))
    newest = 0
    for _, path in files_of(places) if places is not None else ():
        with contextlib.suppress(OSError):
            each = os.lstat(path)
            found.append((path, each.st_ctime_ns, each.st_mtime_ns, each.st_size, each.st_ino))
            newest = max(newest, each.st_ctime_ns)
    return None if newest > time.time_ns() - _TICK_NS else tuple(found)


def _state(places: Places | None, further: Mapping[str, bytes] | None = None, until_ms: int | None = None) -> _State:
    """Without what changed after `until_ms`."""
    if places is None:
        return _State({}, NO_REPOSITORY, None, (), dict(further or {}))
    mode = stat.S_IMODE(os.lstat(places.own).st_mode)
    return _State({}, identity_of(places.own), mode, (), dict(further or {})).having(read_record(places, until_ms))


def _look_further(root: str, further: Iterable[str]) -> dict[str, bytes]:
    """Of each repository below the one at the top: where it stands, as far as times and sizes tell."""
    return {place: digest_of(os.path.join(root, place)) for place in sorted(set(further) - {".git"})[:MAX_FURTHER]}


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
