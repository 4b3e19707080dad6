"""What a repository's own record says at one moment: HEAD, refs, index, configuration, hooks and half-done work.

A checkpoint leaves `.git` out. Objects that a command leaves unreferenced stay until git collects them, weeks later;
so with this record a `git reset --hard`, a deleted branch or a lost index comes back. Only the repository at the top of
the workspace is held, without its objects and reflogs, but for the stash's. Of those further down a state has a digest:
that something changed there is said, and not put back.

A record is a mapping from names to what is there. Most names are paths below the repository's directory. Some stand for
more than a file: a ref is one name, loose or packed (`git gc` changes nothing); `worktrees/x` is all that git knows of
another worktree; and where refs are in a reftable, all of them together are `refs`.

A state is one file, named by its digest, beside the checkpoints.
"""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple

import msgspec

from bascule.workspace.machine.checkpoints.store import cannot_be_stored
from bascule.workspace.machine.files import git_files, git_index
from bascule.workspace.machine.files.git_files import PACKED_REFS, REFS, WORKTREES
from bascule.workspace.machine.files.syscalls import rename_new
from bascule.workspace.ports import CheckpointFault, LaterChanges
from bascule.workspace.timeline import CHANGED_SINCE

# The index of a repository with 200,000 files; a larger one is left out, and named.
MAX_FILE_BYTES = 32 * 1024 * 1024
# Files of the record; a repository with more loose refs has packed them.
MAX_FILES = 10_000
# Records of further worktrees, which are mostly their indexes: every state has all of them.
MAX_WORKTREES = 100
MAX_WORKTREES_BYTES = 4 * 1024 * 1024
# A state that was taken but is in nobody's records yet survives a collection this long.
GRACE = timedelta(hours=1)
# States in memory: two that are compared, where an edit came from, and now.
MAX_LOADED = 4
# The stash is a list: which entries it has, only its log says.
_SHARED = ("config", "logs/refs/stash")
_OWN = (*git_files.STANDING, "config.worktree")
# Each with everything in it, but for what `git gc` makes of the refs.
_SHARED_FOLDERS = ("hooks", "info")
_DERIVED = "info/refs"
# What lies in a folder that is shared, and is each worktree's own all the same.
_OWN_IN_SHARED = ("info/sparse-checkout", *(f"{each}/" for each in git_files.REFS_OF_WORKTREE))
_OWN_FOLDERS = ("info", *git_files.REFS_OF_WORKTREE)
# Where refs are in a reftable: those of a worktree, beside those of all.
_OWN_REFS = "refs/worktree"
# Of a repository further down. Its index changes when somebody only looks.
_STANDING_BELOW = ("HEAD", PACKED_REFS, "reftable/tables.list", "logs/HEAD", "logs/refs/stash", "config")
# Where `packed-refs` is a link, or too large.
_UNREAD_REFS = f"refs in {PACKED_REFS}"
_FOLDERS_BELOW = (REFS, *_SHARED_FOLDERS)
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
_REF = re.compile(rb"(ref: [^\0\n]+?|[0-9a-f]{40}(?:[0-9a-f]{24})?)\s*")
_PACKED_REF = re.compile(rb"^([0-9a-f]{40}(?:[0-9a-f]{24})?) (\S[^\0\n]*)\n", re.MULTILINE)
# As git names the tables of a reftable. Nothing else that stands in its list is taken for a file of it.
_TABLE = re.compile(rb"0x[0-9a-f]{1,16}-0x[0-9a-f]{1,16}-[0-9A-Za-z]{1,16}\.(?:ref|log)")
_LIST = "tables.list"
# Of a reftable that git writes meanwhile.
_TRIES = 3

# A file that changed just now may change again within the same tick of its times: file systems with whole seconds.
_TICK_NS = 2_000_000_000
_Looks = tuple[tuple[str | bytes | int, ...], ...]
# The identity of a state where there is none at the top.
NO_REPOSITORY = (0, 0)

PLAIN, PROGRAM, LINK, SEVERAL = "", "program", "link", "several"
_KINDS = (PLAIN, PROGRAM, LINK, SEVERAL)


class Held(NamedTuple):
    """What is at one name."""

    content: bytes
    # One of those above, or why nobody can put it back; then the content only tells one such thing from another.
    kind: str = PLAIN

    @property
    def why_not(self) -> str | None:
        return None if self.kind in _KINDS else self.kind

    @property
    def parts(self) -> "dict[str, Held]":
        """Of what stands for several files, by path."""
        found = msgspec.msgpack.decode(self.content, type=list[tuple[str, bytes, str]]) if self.kind == SEVERAL else []
        return {part: Held(content, kind) for part, content, kind in found}


_Entries = dict[str, Held]


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

    def entries(self) -> _Entries:
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


class _Places(NamedTuple):
    """The repository's own directory and the one that it shares with other worktrees."""

    root: str
    own: str
    shared: str

    def of(self, name: str) -> str:
        return self.own if self._is_own(name) else self.shared

    def path(self, name: str) -> str:
        if name in (REFS, _OWN_REFS) and os.path.isdir(self.stack(name)):
            return os.path.join(self.stack(name), _LIST)
        return os.path.join(self.of(name), name)

    def stack(self, name: str) -> str:
        """Where a reftable is, if there is one."""
        return os.path.join(self.own if name == _OWN_REFS else self.shared, git_files.REFTABLE)

    def _is_own(self, name: str) -> bool:
        if name.startswith(_OWN_IN_SHARED):
            return True
        top = name.partition("/")[0]
        return name not in _SHARED and top not in (*_SHARED_FOLDERS, REFS, WORKTREES, PACKED_REFS)


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
        places = _places(root)
        if places is not None and space_id not in self._unlocked:
            # Those of an earlier life.
            self._unlocked.add(space_id)
            for lock in _locks(places):
                _unlock(lock)
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
        return _same(key, known, found)

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
        places = _places(root)
        if dry_run or places is None:
            return back, left
        for name in sorted(back, key=lambda name: _turn(name, was)):
            try:
                if name == "HEAD" and (target := _branch(was.held(name))) in left and target in back:
                    raise CheckpointFault(f"names {target}, which is not back")  # noqa: TRY301 - as any other
                _put_back(places, name, now.held(name), was.held(name))
            except CheckpointFault as error:
                left[name] = str(error)
        found = _state(places)
        for name in back:
            if name not in left and not _same(name, found.held(name), was.held(name)):
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
        places = _places(root)
        if places is None or _identity(places.own) != was.identity:
            return _Comparison([], {".git": CHANGED_SINCE} if names else {}, was, was)
        now = _state(places, _look_further(root, was.further))
        if names and (REFS in was.files, _OWN_REFS in was.files) != (REFS in now.files, _OWN_REFS in now.files):
            return _Comparison([], {".git": "keeps its refs in another format since then"}, was, now)
        back: list[str] = []
        left: dict[str, str] = {}
        for name in names:
            held, wanted = now.held(name), was.held(name)
            if _same(name, held, wanted):
                continue
            why = (wanted and wanted.why_not) or (held and held.why_not)
            if not why and not _same(name, then.held(name), held):
                why = CHANGED_SINCE
            if why or (why := _in_the_way(places, name)):
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
    known = _unpacked(packed) if packed is not None else {}
    return state.having({**known, **_loose(entries), PACKED_REFS: None})


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
    return not _same(name, old, new)


def _same(name: str, known: Hashable | None, found: Hashable | None) -> bool:
    if known == found:
        return True
    if not isinstance(known, Held) or not isinstance(found, Held) or known.kind != found.kind:
        return False
    if name == "index" and known.kind == PLAIN:
        return _same_index(known.content, found.content)
    if name.startswith(f"{WORKTREES}/") and known.kind == SEVERAL:
        parts, others = known.parts, found.parts
        # It may be gone from the directory that is checked out.
        names = (parts.keys() | others.keys()) - {".git"}
        return all(_same(part, parts.get(part), others.get(part)) for part in names)
    return False


def _same_index(known: bytes, found: bytes) -> bool:
    # The number of entries, without reading any.
    if known[:4] != found[:4] or known[8:12] != found[8:12]:
        return False
    try:
        return git_index.entries(known) == git_index.entries(found)
    except git_index.UnreadableIndex:
        return False


def _turn(name: str, was: _State) -> tuple[int, str]:
    """What goes makes room for what comes; HEAD is last, when everything that it may name is there."""
    if name == "HEAD":
        return 3, name
    # The branch of a worktree is free when the worktree is gone.
    return (2 if was.held(name) is not None else 0 if name.startswith(f"{WORKTREES}/") else 1), name


def _branch(head: Held | None) -> str | None:
    found = _REF.fullmatch(head.content) if head is not None else None
    return os.fsdecode(found[1][5:]) if found is not None and found[1].startswith(b"ref: ") else None


def _checked_out(places: _Places, was: _State, now: _State, back: list[str]) -> set[str]:
    """What HEAD will name, here and in the other worktrees: git would refuse to remove it, too."""
    head = now.held("HEAD")
    # Before the first commit there is no branch of the name that HEAD has.
    found = {_branch(head)} if "HEAD" not in back and head != was.held("HEAD") else set()
    if places.own != places.shared:
        found.add(_branch(_read(os.path.join(places.shared, "HEAD"))))
    for name in _listed(os.path.join(places.shared, WORKTREES)):
        record = os.path.join(places.shared, WORKTREES, name)
        if f"{WORKTREES}/{name}" not in back and not (os.path.isdir(record) and os.path.samefile(record, places.own)):
            found.add(_branch(_read(os.path.join(record, "HEAD"))))
    return {each for each in found if each is not None}


def _identity(directory: str) -> tuple[int, int]:
    try:
        found = os.stat(directory)
    except OSError as error:
        raise CheckpointFault(f"git's record cannot be read: {error.strerror}") from error
    return found.st_dev, found.st_ino


def _places(root: str) -> _Places | None:
    git = os.path.join(root, ".git")
    try:
        found = os.lstat(git)
        if stat.S_ISDIR(found.st_mode):
            return _Places(root, git, git)
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
            return _Places(root, own, own) if os.path.isdir(own) else None
        with open(common, "rb") as file:
            return _Places(root, own, os.path.normpath(os.path.join(own, os.fsdecode(file.read().strip()))))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointFault(f"git's record cannot be read: {error.strerror}") from error


def _looks(places: _Places | None, further: Mapping[str, bytes]) -> _Looks | None:
    """Times, sizes and inodes of all that a state holds; None where a change may not show in them.

    An index of 50,000 files has 5 MB: it is not read at every call.
    """
    found: list[tuple[str | bytes | int, ...]] = list(further.items())
    if places is not None:
        found.append((places.own, os.stat(places.own).st_mode))
    newest = 0
    for _, path in _files(places) if places is not None else ():
        with contextlib.suppress(OSError):
            each = os.lstat(path)
            found.append((path, each.st_ctime_ns, each.st_mtime_ns, each.st_size, each.st_ino))
            newest = max(newest, each.st_ctime_ns)
    return None if newest > time.time_ns() - _TICK_NS else tuple(found)


def _files(places: _Places) -> Iterator[tuple[str, str]]:
    """Each with the name that it belongs to."""
    own, shared = places.own, places.shared
    bisection = sorted(name for name in _listed(own) if re.fullmatch(git_files.BISECTION, name))
    for place, names in ((own, (*_OWN, *bisection)), (shared, _SHARED)):
        yield from ((name, os.path.join(place, name)) for name in names)
    for top in git_files.UNFINISHED:
        yield from _below(own, top)
    refs = () if os.path.isdir(places.stack(REFS)) else (REFS,)
    if not refs:
        yield from ((REFS, path) for _, path in _below(shared, git_files.REFTABLE))
    else:
        yield PACKED_REFS, os.path.join(shared, PACKED_REFS)
    for top in (*_SHARED_FOLDERS, *refs):
        for name, path in _below(shared, top):
            # Those of the main worktree.
            if name != _DERIVED and (own == shared or not name.startswith(_OWN_IN_SHARED)):
                yield name, path
    if own == shared:
        yield from _files_of_worktrees(shared)
        return
    for top in _OWN_IN_SHARED:
        yield from _below(own, top.rstrip("/"))
    yield from ((_OWN_REFS, path) for _, path in _below(own, git_files.REFTABLE))


def _files_of_worktrees(shared: str) -> Iterator[tuple[str, str]]:
    names = _listed(os.path.join(shared, WORKTREES))
    for name in names[:MAX_WORKTREES]:
        key = f"{WORKTREES}/{name}"
        yield from ((key, path) for _, path in _below(shared, key, without="modules"))
        if (link := _link_of(os.path.join(shared, key))) is not None:
            yield key, link
    if len(names) > MAX_WORKTREES:
        yield WORKTREES, os.path.join(shared, WORKTREES)


def _link_of(record: str) -> str | None:
    """The file `.git` in the directory in which a worktree is checked out."""
    found = _read(os.path.join(record, "gitdir"))
    if found is None or found.kind != PLAIN or b"\0" in found.content:
        return None
    return os.path.normpath(os.path.join(record, os.fsdecode(found.content.strip())))


def _listed(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _below(place: str, top: str, *, locks: bool = False, without: str | None = None) -> Iterator[tuple[str, str]]:
    """Files and links, with their paths below a place; no link but `refs` is followed."""
    start = os.path.join(place, top)
    if not os.path.isdir(start) or (os.path.islink(start) and top != REFS):
        if os.path.lexists(start) and not locks:
            yield top, start
        return
    for folder, inner, found in os.walk(start):
        links = [name for name in inner if os.path.islink(os.path.join(folder, name))]
        inner[:] = [name for name in inner if name != without]
        for name in sorted((*found, *links)):
            if name.endswith(".lock") is locks:
                path = os.path.join(folder, name)
                yield os.path.relpath(path, place), path


def _locks(places: _Places) -> Iterator[str]:
    bisection = [name for name in _listed(places.own) if re.fullmatch(rf"{git_files.BISECTION}\.lock", name)]
    yield from (os.path.join(places.own, name) for name in (*(f"{name}.lock" for name in _OWN), *bisection))
    yield from (os.path.join(places.shared, f"{name}.lock") for name in (*_SHARED, PACKED_REFS))
    folders = ((places.own, (*git_files.UNFINISHED, *_OWN_FOLDERS)), (places.shared, _FOLDERS_BELOW))
    for place, tops in folders:
        for top in (*tops, git_files.REFTABLE):
            yield from (path for _, path in _below(place, top, locks=True))


def _state(places: _Places | None, further: Mapping[str, bytes] | None = None, until_ms: int | None = None) -> _State:
    """Without what changed after `until_ms`."""
    if places is None:
        return _State({}, NO_REPOSITORY, None, (), dict(further or {}))
    entries: _Entries = {}
    late: set[str] = set()
    several: dict[str, None] = {}
    for number, (name, path) in enumerate(_files(places)):
        if number >= MAX_FILES:
            raise CheckpointFault(f"git's record has more than {MAX_FILES} files; `git pack-refs --all` helps")
        if until_ms is not None and _is_later(path, until_ms):
            late.add(name)
        if name in (REFS, _OWN_REFS, WORKTREES) or name.startswith(f"{WORKTREES}/"):
            several[name] = None
        elif (held := _read(path, as_hook=name.startswith("hooks/"))) is not None:
            entries[name] = held
    entries |= _several(places, several)
    packed = entries.pop(PACKED_REFS, None)
    known = _unpacked(packed) if packed is not None and PACKED_REFS not in late else {}
    entries = {**known, **_loose(entries)}
    entries = {name: held for name, held in entries.items() if name not in late}
    mode = stat.S_IMODE(os.lstat(places.own).st_mode)
    return _State({}, _identity(places.own), mode, (), dict(further or {})).having(entries)


def _is_later(path: str, until_ms: int) -> bool:
    try:
        return os.lstat(path).st_ctime_ns > until_ms * 1_000_000
    except OSError:
        return False


def _loose(entries: _Entries) -> _Entries:
    """As git reads them: a ref is the same with an end of line and without."""
    found = {name: _REF.fullmatch(held.content) if name.startswith("refs/") else None for name, held in entries.items()}
    return {name: held if (ref := found[name]) is None else Held(ref[1], held.kind) for name, held in entries.items()}


@functools.lru_cache(1)
def _unpacked(packed: Held) -> Mapping[str, Held]:
    """Kept in memory: with many thousands of refs most calls change none of these."""
    if packed.kind != PLAIN:
        return {_UNREAD_REFS: Held(packed.content, packed.why_not or "are behind a link, which no undo follows")}
    return {os.fsdecode(name): Held(value) for value, name in _PACKED_REF.findall(packed.content)}


def _several(places: _Places, names: Iterable[str]) -> _Entries:
    found: _Entries = {}
    left = MAX_WORKTREES_BYTES
    for name in names:
        if name in (REFS, _OWN_REFS):
            held = _tables(places.stack(name))
        elif name == WORKTREES:
            beyond = _listed(os.path.join(places.shared, WORKTREES))[MAX_WORKTREES:]
            held = Held(repr(beyond).encode(), f"are more than {MAX_WORKTREES}: of the others an undo holds nothing")
        else:
            held = _worktree(os.path.join(places.shared, name), left)
            left -= len(held.content)
        if held is not None:
            found[name] = held
    return found


def _worktree(record: str, limit: int) -> Held:
    link = _link_of(record)
    paths = {os.path.relpath(path, record): path for _, path in _below(record, ".")}
    paths |= {".git": link} if link is not None else {}
    if "modules" in _listed(record):
        return Held(b"", "has submodules, whose record no undo holds")
    parts: _Entries = {}
    for part, path in paths.items():
        if (held := _read(path, limit)) is None:
            continue
        if held.why_not is not None:
            return Held(b"", held.kind)
        parts[part] = held
        limit -= len(held.content)
    return _together(parts)


def _tables(stack: str) -> Held | None:
    """Of a reftable: the list of its tables, and each that stands there."""
    for _ in range(_TRIES):
        listed = _read(os.path.join(stack, _LIST))
        if listed is None:
            return None
        names = listed.content.splitlines()
        if listed.kind != PLAIN or not all(_TABLE.fullmatch(name) for name in names):
            return Held(listed.content, listed.why_not or f"{_LIST} is not one that Bascule can read")
        parts = {os.fsdecode(name): _read(os.path.join(stack, os.fsdecode(name))) for name in names}
        if why := next((each.why_not or "is a link" for each in parts.values() if each and each.kind != PLAIN), None):
            return Held(listed.content, why)
        held = {name: each for name, each in parts.items() if each is not None}
        # Git had written a new list, and removed tables of this one.
        if len(held) == len(parts):
            return _together({_LIST: listed, **held})
    return Held(b"", f"{_LIST} names tables that are not there")


def _together(parts: _Entries) -> Held:
    return Held(msgspec.msgpack.encode([(part, *held) for part, held in sorted(parts.items())]), SEVERAL)


def _look_further(root: str, further: Iterable[str]) -> dict[str, bytes]:
    """Of each repository below the one at the top: where it stands, as far as times and sizes tell."""
    return {place: _digest(os.path.join(root, place)) for place in sorted(set(further) - {".git"})[:MAX_FURTHER]}


def _digest(repository: str) -> bytes:
    digest = hashlib.sha256()
    for path in (repository, *(os.path.join(repository, name) for name in _STANDING_BELOW)):
        held = _read(path)
        seen = (path, hashlib.sha256(held.content).digest() if held is not None else None)
        digest.update(repr(seen).encode())
    for top in _FOLDERS_BELOW:
        for _, path in _below(repository, top):
            with contextlib.suppress(OSError):
                each = os.lstat(path)
                digest.update(repr((path, each.st_ino, each.st_size, each.st_mtime_ns)).encode())
    return digest.digest()


def _read(path: str, limit: int = MAX_FILE_BYTES, *, as_hook: bool = False) -> Held | None:
    """None where neither a file nor a link can be seen."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    try:
        if stat.S_ISLNK(found.st_mode):
            return Held(os.fsencode(os.readlink(path)), LINK)
        if not stat.S_ISREG(found.st_mode):
            return None
        if found.st_size > limit:
            return _known_by(found, f"is larger than {limit / (1 << 20):.3g} MiB, which no undo holds")
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return Held(file.read(), PROGRAM if as_hook and found.st_mode & 0o100 else PLAIN)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _known_by(found, f"cannot be read: {error.strerror}")


def _known_by(found: os.stat_result, why_not: str) -> Held:
    return Held(repr((found.st_ino, found.st_size, found.st_mtime_ns)).encode(), why_not)


# -- putting back --


def _in_the_way(places: _Places, name: str) -> str | None:
    """Git is at work there."""
    path = places.path(name)
    locks = [f"{path}.lock"]
    if name.startswith(f"{WORKTREES}/"):
        locks = [lock for _, lock in _below(path, ".", locks=True)]
    elif name.startswith("refs/"):
        locks.append(os.path.join(places.shared, f"{PACKED_REFS}.lock"))
    held = next((lock for lock in locks if os.path.lexists(lock) and not _is_stale(lock)), None)
    return f"git is at work: {held} is there" if held is not None else None


def _put_back(places: _Places, name: str, held: Held | None, wanted: Held | None) -> None:
    """`held` is what was there a moment ago, and is looked at again."""
    path = places.path(name)
    try:
        if name.startswith(f"{WORKTREES}/"):
            _put_worktree(places, path, held, wanted)
            return
        _make_folders(places.of(name), os.path.dirname(path))
        with _locked(path) as staged:
            if name in (REFS, _OWN_REFS):
                _put_tables(places, places.stack(name), staged, held, wanted)
                return
            if not _same(name, _at(places, name), held):
                raise CheckpointFault(CHANGED_SINCE)
            if wanted is not None:
                _remove_empty(path)
                _stage(places, staged, path, name, wanted)
                os.replace(staged, path)
                return
            if name.startswith("refs/"):
                _remove_packed(places, name)
                # As git does: another ref may need this name for a directory.
                _remove(os.path.join(places.shared, "logs", name))
            _remove(path)
        if wanted is None:
            _remove_folders(places, name)
    except OSError as error:
        raise CheckpointFault(f"{path} cannot be put back: {error.strerror}") from error


def _at(places: _Places, name: str) -> Held | None:
    held = _read(places.path(name), as_hook=name.startswith("hooks/"))
    if held is None and name.startswith("refs/") and (packed := _read(places.path(PACKED_REFS))) is not None:
        return _unpacked(packed).get(name)
    return _loose({name: held})[name] if held is not None else None


def _stage(places: _Places, staged: str, path: str, name: str, wanted: Held) -> None:
    """What is to take the place of `path`, with its mode."""
    if wanted.kind == LINK:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staged)
        os.symlink(wanted.content, os.fsencode(staged))
        return
    is_ref = name.startswith("refs/") and _REF.fullmatch(wanted.content)
    end = b"\n" if is_ref and not wanted.content.endswith(b"\n") else b""
    # Read by whom the person's own git lets read it, whatever our own umask says.
    mode = next(filter(None, (_mode_of(each) for each in (path, places.path("HEAD")))), 0o644)
    if name.startswith("hooks/"):
        mode = mode | (mode & 0o444) >> 2 if wanted.kind == PROGRAM else mode & ~0o111
    _write(staged, wanted.content + end, mode)


def _mode_of(path: str) -> int | None:
    with contextlib.suppress(OSError):
        found = os.lstat(path).st_mode
        return stat.S_IMODE(found) if stat.S_ISREG(found) else None
    return None


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
        os.unlink(path)


def _remove_packed(places: _Places, name: str) -> None:
    path = places.path(PACKED_REFS)
    packed = _read(path)
    if packed is None or name not in _unpacked(packed):
        return
    with _locked(path) as staged:
        packed = _read(path)
        if packed is None or packed.kind != PLAIN:
            raise CheckpointFault(f"{PACKED_REFS} cannot be read")
        # With the line that says which commit a tag is of.
        line = re.compile(rb"^[0-9a-f]+ " + re.escape(os.fsencode(name)) + rb"\n(?:\^.*\n)?", re.MULTILINE)
        _stage(places, staged, path, PACKED_REFS, Held(line.sub(b"", packed.content)))
        os.replace(staged, path)


def _remove_folders(places: _Places, name: str) -> None:
    """Those that became empty, as git does. `refs/heads` stays, and so does `hooks`."""
    steps = name.split("/")
    stay = 2 if steps[0] == REFS else 0 if steps[0] in git_files.UNFINISHED else len(steps)
    for length in range(len(steps) - 1, stay, -1):
        for place in (places.of(name), os.path.join(places.shared, "logs")):
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(place, *steps[:length]))


def _remove_empty(path: str) -> None:
    """A directory without a file, where a file is to be."""
    if os.path.isdir(path) and not os.path.islink(path):
        for folder, _, _ in os.walk(path, topdown=False):
            os.rmdir(folder)


def _make_folders(place: str, folder: str) -> None:
    """Through no link: it may lead anywhere."""
    for step in os.path.relpath(folder, place).split("/"):
        place = os.path.join(place, step)
        with contextlib.suppress(FileExistsError):
            os.mkdir(place)
        if not stat.S_ISDIR(os.lstat(place).st_mode):
            raise CheckpointFault(f"{place} is in the way")


def _put_worktree(places: _Places, record: str, held: Held | None, wanted: Held | None) -> None:
    """In one step: git makes nothing of half a record."""
    folder = os.path.dirname(record)
    aside = f"{folder}{_STAGED}"
    shutil.rmtree(aside, ignore_errors=True)
    os.mkdir(aside)
    try:
        for part, each in wanted.parts.items() if wanted is not None else ():
            path = os.path.join(aside, "new", part)
            if part != ".git":
                os.makedirs(os.path.dirname(path), exist_ok=True)
                _stage(places, path, path, part, each)
        if held is not None:
            if not _same(f"{WORKTREES}/", held, _worktree(record, MAX_WORKTREES_BYTES)):
                raise CheckpointFault(CHANGED_SINCE)
            _unlink_checkout(places, record, held)
            os.rename(record, os.path.join(aside, "old"))
        if wanted is not None:
            _make_folders(places.shared, folder)
            os.rename(os.path.join(aside, "new"), record)
            _link_checkout(places, record, wanted)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _checkout_of(places: _Places, record: str) -> str | None:
    """Its `.git`, if it is in the project, of which no checkpoint holds that."""
    link = _link_of(record)
    if link is None or os.path.basename(link) != ".git":
        return None
    real, root = os.path.realpath(os.path.dirname(link)), os.path.realpath(places.root)
    return os.path.join(real, ".git") if real.startswith(f"{root}/") and os.path.isdir(real) else None


def _unlink_checkout(places: _Places, record: str, held: Held) -> None:
    link = _checkout_of(places, record)
    if link is not None and _read(link) == held.parts.get(".git"):
        _remove(link)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(link))


def _link_checkout(places: _Places, record: str, wanted: Held) -> None:
    link, held = _checkout_of(places, record), wanted.parts.get(".git")
    if link is not None and held is not None and held.kind == PLAIN and not os.path.lexists(link):
        _write(link, held.content, _mode_of(places.path("HEAD")) or 0o644)


def _put_tables(places: _Places, stack: str, staged: str, held: Held | None, wanted: Held | None) -> None:
    """Tables come before the list that names them, and go after it."""
    if held is None or wanted is None or _tables(stack) != held:
        raise CheckpointFault(CHANGED_SINCE)
    old, new = held.parts, wanted.parts
    for part in sorted((new.keys() - old.keys()) - {_LIST}):
        table = os.path.join(stack, part)
        _stage(places, staged, table, part, new[part])
        os.replace(staged, table)
    _stage(places, staged, os.path.join(stack, _LIST), _LIST, new[_LIST])
    os.replace(staged, os.path.join(stack, _LIST))
    for part in old.keys() - new.keys():
        _remove(os.path.join(stack, part))


@contextlib.contextmanager
def _locked(path: str) -> Iterator[str]:
    """Git's own lock: whoever has it changes the file, nobody else. Gives the name of a file to write beside it."""
    lock, staged = f"{path}.lock", f"{path}{_STAGED}"
    try:
        _unlock(lock)
        # It says that it is ours, from the moment in which it is there.
        _write(staged, _OURS % (os.getpid(), _began(os.getpid()) or 0), 0o644)
        try:
            with _directory_of(path) as directory:
                rename_new(directory, os.path.basename(staged), os.path.basename(lock))
        except FileExistsError:
            raise CheckpointFault(f"git is at work: {lock} is there") from None
        try:
            yield staged
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(lock)
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
        os.fchmod(file.fileno(), mode)


def _unlock(lock: str) -> None:
    """Remove a lock of an undo that was killed: nobody else would, and git waits for it."""
    if _is_stale(lock):
        for left in (lock, f"{lock.removesuffix('.lock')}{_STAGED}"):
            with contextlib.suppress(OSError):
                os.unlink(left)


def _is_stale(lock: str) -> bool:
    found = _read(lock, len(_OURS) + 40)
    signed = _SIGNED.fullmatch(found.content) if found is not None else None
    return signed is not None and _began(int(signed[1])) != int(signed[2])


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
