"""A repository's own record: what is at each name of it, and how that is put back.

Most names are paths below the repository's directory. Some stand for more than a file: a ref is one name, loose or
packed (`git gc` changes nothing); `worktrees/x` is all that git knows of another worktree; and where refs are in a
reftable, all of them together are `refs`.
"""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from bascule.workspace.machine.files import git_files, git_index
from bascule.workspace.machine.files.git_files import PACKED_REFS, REFS, WORKTREES
from bascule.workspace.machine.files.syscalls import rename_new
from bascule.workspace.ports import CheckpointFault
from bascule.workspace.timeline import CHANGED_SINCE

# The index of a repository with 200,000 files; a larger one is left out, and named.
MAX_FILE_BYTES = 32 * 1024 * 1024
# Files of the record; a repository with more loose refs has packed them.
MAX_FILES = 10_000
# Records of further worktrees, which are mostly their indexes: every state has all of them.
MAX_WORKTREES = 100
MAX_WORKTREES_BYTES = 4 * 1024 * 1024
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
OWN_REFS = "refs/worktree"
# Of a repository further down. Its index changes when somebody only looks.
_STANDING_BELOW = ("HEAD", PACKED_REFS, "reftable/tables.list", "logs/HEAD", "logs/refs/stash", "config")
# Where `packed-refs` is a link, or too large.
_UNREAD_REFS = f"refs in {PACKED_REFS}"
_FOLDERS_BELOW = (REFS, *_SHARED_FOLDERS)
# What is in a lock of ours; and what a file is named until it takes its place, which git takes for a lock.
_OURS = b"a lock of Bascule's undo, process %d began %d\n"
_SIGNED = re.compile(rb"a lock of Bascule's undo, process (\d{1,10}) began (\d{1,20})\n")
_STAGED = ".bascule.lock"
_POINTS = re.compile(rb"gitdir: (.+)\n?\Z")
_REF = re.compile(rb"(ref: [^\0\n]+?|[0-9a-f]{40}(?:[0-9a-f]{24})?)\s*")
_PACKED_REF = re.compile(rb"^([0-9a-f]{40}(?:[0-9a-f]{24})?) (\S[^\0\n]*)\n", re.MULTILINE)
# As git names the tables of a reftable. Nothing else that stands in its list is taken for a file of it.
_TABLE = re.compile(rb"0x[0-9a-f]{1,16}-0x[0-9a-f]{1,16}-[0-9A-Za-z]{1,16}\.(?:ref|log)")
_LIST = "tables.list"
# Of a reftable that git writes meanwhile.
_TRIES = 3

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


Entries = dict[str, Held]


class Places(NamedTuple):
    """The repository's own directory and the one that it shares with other worktrees."""

    root: str
    own: str
    shared: str

    def of(self, name: str) -> str:
        return self.own if self._is_own(name) else self.shared

    def path(self, name: str) -> str:
        if name in (REFS, OWN_REFS) and os.path.isdir(self.stack(name)):
            return os.path.join(self.stack(name), _LIST)
        return os.path.join(self.of(name), name)

    def stack(self, name: str) -> str:
        """Where a reftable is, if there is one."""
        return os.path.join(self.own if name == OWN_REFS else self.shared, git_files.REFTABLE)

    def _is_own(self, name: str) -> bool:
        if name.startswith(_OWN_IN_SHARED):
            return True
        top = name.partition("/")[0]
        return name not in _SHARED and top not in (*_SHARED_FOLDERS, REFS, WORKTREES, PACKED_REFS)


def identity_of(directory: str) -> tuple[int, int]:
    try:
        found = os.stat(directory)
    except OSError as error:
        raise CheckpointFault(f"git's record cannot be read: {error.strerror}") from error
    return found.st_dev, found.st_ino


def places_of(root: str) -> Places | None:
    git = os.path.join(root, ".git")
    try:
        found = os.lstat(git)
        if stat.S_ISDIR(found.st_mode):
            return Places(root, git, git)
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
            return Places(root, own, own) if os.path.isdir(own) else None
        with open(common, "rb") as file:
            return Places(root, own, os.path.normpath(os.path.join(own, os.fsdecode(file.read().strip()))))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointFault(f"git's record cannot be read: {error.strerror}") from error


def read_record(places: Places, until_ms: int | None) -> Entries:
    """What is there now, without what changed after `until_ms`."""
    entries: Entries = {}
    late: set[str] = set()
    several: dict[str, None] = {}
    for number, (name, path) in enumerate(files_of(places)):
        if number >= MAX_FILES:
            raise CheckpointFault(f"git's record has more than {MAX_FILES} files; `git pack-refs --all` helps")
        if until_ms is not None and _is_later(path, until_ms):
            late.add(name)
        if name in (REFS, OWN_REFS, WORKTREES) or name.startswith(f"{WORKTREES}/"):
            several[name] = None
        elif (held := read(path, as_hook=name.startswith("hooks/"))) is not None:
            entries[name] = held
    entries |= _several(places, several)
    packed = entries.pop(PACKED_REFS, None)
    known = packed_refs(packed) if packed is not None and PACKED_REFS not in late else {}
    entries = {**known, **loose_refs(entries)}
    return {name: held for name, held in entries.items() if name not in late}


def files_of(places: Places) -> Iterator[tuple[str, str]]:
    """Each with the name that it belongs to."""
    own, shared = places.own, places.shared
    bisection = sorted(name for name in listed(own) if re.fullmatch(git_files.BISECTION, name))
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
    yield from ((OWN_REFS, path) for _, path in _below(own, git_files.REFTABLE))


def _files_of_worktrees(shared: str) -> Iterator[tuple[str, str]]:
    names = listed(os.path.join(shared, WORKTREES))
    for name in names[:MAX_WORKTREES]:
        key = f"{WORKTREES}/{name}"
        yield from ((key, path) for _, path in _below(shared, key, without="modules"))
        if (link := _link_of(os.path.join(shared, key))) is not None:
            yield key, link
    if len(names) > MAX_WORKTREES:
        yield WORKTREES, os.path.join(shared, WORKTREES)


def _link_of(record: str) -> str | None:
    """The file `.git` in the directory in which a worktree is checked out."""
    found = read(os.path.join(record, "gitdir"))
    if found is None or found.kind != PLAIN or b"\0" in found.content:
        return None
    return os.path.normpath(os.path.join(record, os.fsdecode(found.content.strip())))


def listed(directory: str) -> list[str]:
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


def locks_of(places: Places) -> Iterator[str]:
    bisection = [name for name in listed(places.own) if re.fullmatch(rf"{git_files.BISECTION}\.lock", name)]
    yield from (os.path.join(places.own, name) for name in (*(f"{name}.lock" for name in _OWN), *bisection))
    yield from (os.path.join(places.shared, f"{name}.lock") for name in (*_SHARED, PACKED_REFS))
    folders = ((places.own, (*git_files.UNFINISHED, *_OWN_FOLDERS)), (places.shared, _FOLDERS_BELOW))
    for place, tops in folders:
        for top in (*tops, git_files.REFTABLE):
            yield from (path for _, path in _below(place, top, locks=True))


def _is_later(path: str, until_ms: int) -> bool:
    try:
        return os.lstat(path).st_ctime_ns > until_ms * 1_000_000
    except OSError:
        return False


def loose_refs(entries: Entries) -> Entries:
    """As git reads them: a ref is the same with an end of line and without."""
    found = {name: _REF.fullmatch(held.content) if name.startswith("refs/") else None for name, held in entries.items()}
    return {name: held if (ref := found[name]) is None else Held(ref[1], held.kind) for name, held in entries.items()}


@functools.lru_cache(1)
def packed_refs(packed: Held) -> Mapping[str, Held]:
    """Kept in memory: with many thousands of refs most calls change none of these."""
    if packed.kind != PLAIN:
        return {_UNREAD_REFS: Held(packed.content, packed.why_not or "are behind a link, which no undo follows")}
    return {os.fsdecode(name): Held(value) for value, name in _PACKED_REF.findall(packed.content)}


def _several(places: Places, names: Iterable[str]) -> Entries:
    found: Entries = {}
    left = MAX_WORKTREES_BYTES
    for name in names:
        if name in (REFS, OWN_REFS):
            held = _tables(places.stack(name))
        elif name == WORKTREES:
            beyond = listed(os.path.join(places.shared, WORKTREES))[MAX_WORKTREES:]
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
    if "modules" in listed(record):
        return Held(b"", "has submodules, whose record no undo holds")
    parts: Entries = {}
    for part, path in paths.items():
        if (held := read(path, limit)) is None:
            continue
        if held.why_not is not None:
            return Held(b"", held.kind)
        parts[part] = held
        limit -= len(held.content)
    return _together(parts)


def _tables(stack: str) -> Held | None:
    """Of a reftable: the list of its tables, and each that stands there."""
    for _ in range(_TRIES):
        listed = read(os.path.join(stack, _LIST))
        if listed is None:
            return None
        names = listed.content.splitlines()
        if listed.kind != PLAIN or not all(_TABLE.fullmatch(name) for name in names):
            return Held(listed.content, listed.why_not or f"{_LIST} is not one that Bascule can read")
        parts = {os.fsdecode(name): read(os.path.join(stack, os.fsdecode(name))) for name in names}
        if why := next((each.why_not or "is a link" for each in parts.values() if each and each.kind != PLAIN), None):
            return Held(listed.content, why)
        held = {name: each for name, each in parts.items() if each is not None}
        # Git had written a new list, and removed tables of this one.
        if len(held) == len(parts):
            return _together({_LIST: listed, **held})
    return Held(b"", f"{_LIST} names tables that are not there")


def _together(parts: Entries) -> Held:
    return Held(msgspec.msgpack.encode([(part, *held) for part, held in sorted(parts.items())]), SEVERAL)


def same(name: str, known: Hashable | None, found: Hashable | None) -> bool:
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
        return all(same(part, parts.get(part), others.get(part)) for part in names)
    return False


def _same_index(known: bytes, found: bytes) -> bool:
    # The number of entries, without reading any.
    if known[:4] != found[:4] or known[8:12] != found[8:12]:
        return False
    try:
        return git_index.entries(known) == git_index.entries(found)
    except git_index.UnreadableIndex:
        return False


def branch_of(head: Held | None) -> str | None:
    found = _REF.fullmatch(head.content) if head is not None else None
    return os.fsdecode(found[1][5:]) if found is not None and found[1].startswith(b"ref: ") else None


def digest_of(repository: str) -> bytes:
    digest = hashlib.sha256()
    for path in (repository, *(os.path.join(repository, name) for name in _STANDING_BELOW)):
        held = read(path)
        seen = (path, hashlib.sha256(held.content).digest() if held is not None else None)
        digest.update(repr(seen).encode())
    for top in _FOLDERS_BELOW:
        for _, path in _below(repository, top):
            with contextlib.suppress(OSError):
                each = os.lstat(path)
                digest.update(repr((path, each.st_ino, each.st_size, each.st_mtime_ns)).encode())
    return digest.digest()


def read(path: str, limit: int = MAX_FILE_BYTES, *, as_hook: bool = False) -> Held | None:
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


def in_the_way(places: Places, name: str) -> str | None:
    """Git is at work there."""
    path = places.path(name)
    locks = [f"{path}.lock"]
    if name.startswith(f"{WORKTREES}/"):
        locks = [lock for _, lock in _below(path, ".", locks=True)]
    elif name.startswith("refs/"):
        locks.append(os.path.join(places.shared, f"{PACKED_REFS}.lock"))
    held = next((lock for lock in locks if os.path.lexists(lock) and not _is_stale(lock)), None)
    return f"git is at work: {held} is there" if held is not None else None


def put_back(places: Places, name: str, held: Held | None, wanted: Held | None) -> None:
    """`held` is what was there a moment ago, and is looked at again."""
    path = places.path(name)
    try:
        if name.startswith(f"{WORKTREES}/"):
            _put_worktree(places, path, held, wanted)
            return
        _make_folders(places.of(name), os.path.dirname(path))
        with _locked(path) as staged:
            if name in (REFS, OWN_REFS):
                _put_tables(places, places.stack(name), staged, held, wanted)
                return
            if not same(name, _at(places, name), held):
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


def _at(places: Places, name: str) -> Held | None:
    held = read(places.path(name), as_hook=name.startswith("hooks/"))
    if held is None and name.startswith("refs/") and (packed := read(places.path(PACKED_REFS))) is not None:
        return packed_refs(packed).get(name)
    return loose_refs({name: held})[name] if held is not None else None


def _stage(places: Places, staged: str, path: str, name: str, wanted: Held) -> None:
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


def _remove_packed(places: Places, name: str) -> None:
    path = places.path(PACKED_REFS)
    packed = read(path)
    if packed is None or name not in packed_refs(packed):
        return
    with _locked(path) as staged:
        packed = read(path)
        if packed is None or packed.kind != PLAIN:
            raise CheckpointFault(f"{PACKED_REFS} cannot be read")
        # With the line that says which commit a tag is of.
        line = re.compile(rb"^[0-9a-f]+ " + re.escape(os.fsencode(name)) + rb"\n(?:\^.*\n)?", re.MULTILINE)
        _stage(places, staged, path, PACKED_REFS, Held(line.sub(b"", packed.content)))
        os.replace(staged, path)


def _remove_folders(places: Places, name: str) -> None:
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


def _put_worktree(places: Places, record: str, held: Held | None, wanted: Held | None) -> None:
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
            if not same(f"{WORKTREES}/", held, _worktree(record, MAX_WORKTREES_BYTES)):
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


def _checkout_of(places: Places, record: str) -> str | None:
    """Its `.git`, if it is in the project, of which no checkpoint holds that."""
    link = _link_of(record)
    if link is None or os.path.basename(link) != ".git":
        return None
    real, root = os.path.realpath(os.path.dirname(link)), os.path.realpath(places.root)
    return os.path.join(real, ".git") if real.startswith(f"{root}/") and os.path.isdir(real) else None


def _unlink_checkout(places: Places, record: str, held: Held) -> None:
    link = _checkout_of(places, record)
    if link is not None and read(link) == held.parts.get(".git"):
        _remove(link)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(link))


def _link_checkout(places: Places, record: str, wanted: Held) -> None:
    link, held = _checkout_of(places, record), wanted.parts.get(".git")
    if link is not None and held is not None and held.kind == PLAIN and not os.path.lexists(link):
        _write(link, held.content, _mode_of(places.path("HEAD")) or 0o644)


def _put_tables(places: Places, stack: str, staged: str, held: Held | None, wanted: Held | None) -> None:
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
        unlock(lock)
        # It says that it is ours, from the moment in which it is there.
        _write(staged, _OURS % (os.getpid(), began(os.getpid()) or 0), 0o644)
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


def unlock(lock: str) -> None:
    """Remove a lock of an undo that was killed: nobody else would, and git waits for it."""
    if _is_stale(lock):
        for left in (lock, f"{lock.removesuffix('.lock')}{_STAGED}"):
            with contextlib.suppress(OSError):
                os.unlink(left)


def _is_stale(lock: str) -> bool:
    found = read(lock, len(_OURS) + 40)
    signed = _SIGNED.fullmatch(found.content) if found is not None else None
    return signed is not None and began(int(signed[1])) != int(signed[2])


def began(pid: int) -> int | None:
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
