"""Named files and directories outside of a project, copied before an agent's own tool changes them.

A checkpoint holds the project. What a call names elsewhere is copied into our state directory first: bytes, modes,
links, and owners where the daemon may set them. Not held: times, hard links, extended attributes; of pipes, sockets and
devices only that they were there.

A state is a directory: `manifest`, and the content of each file under its digest. It is complete under its name, or not
there at all. The state after a call has a manifest alone: with it later work is told from the call's own.
"""

import contextlib
import glob
import hashlib
import os
import re
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Literal

import msgspec

from bascule.workspace.machine.checkpoints import stats, steps
from bascule.workspace.machine.checkpoints.objects import BLOB, object_id
from bascule.workspace.machine.files import attributes, shut
from bascule.workspace.ports import CheckpointFault, Kept, LaterChanges, PutBack, Value
from bascule.workspace.protocol import FileChange, PathReason

# A state that was taken but is in nobody's records yet survives a collection this long.
GRACE = timedelta(hours=1)
_PIECE = 1024 * 1024
_SPACE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")
_STATE = re.compile(r"[0-9a-f]{32}\.([0-9]{1,15})")
_MANIFEST = "manifest"
# Of a state that is not finished, or no longer whole.
_NEW_STATE = ".new-"
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Of the process that names them: what is written there is not kept anywhere.
_STREAMS = frozenset(["/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/0", "/dev/fd/1", "/dev/fd/2"])
_PATTERN = re.compile(r"[*?\[]")


class OutsideLimits(msgspec.Struct, frozen=True, kw_only=True):
    # Of one call: the call waits for the copy, and a disk takes this much in about a second.
    bytes: int = 256 * 1024 * 1024
    files: int = 10_000
    # Of all calls together; beyond it the oldest copies go.
    total_bytes: int = 2 * 1024 * 1024 * 1024


class _Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    kind: Literal["file", "link", "directory", "special"]
    mode: int
    owner: int
    group: int
    # Of a file its digest, of a link where it leads.
    content: bytes = b""
    attributes: dict[str, bytes] = {}


class _Manifest(msgspec.Struct, frozen=True, array_like=True):
    # Whatever is at these paths or beneath them belongs to it, also what was not there.
    tops: list[bytes]
    entries: dict[bytes, _Entry]
    # Whether the content of files is there too.
    held: bool
    # Of a state that was composed of others: when what a path has there was taken (ns).
    taken: dict[bytes, int] = {}


class OutsideFiles:
    """Blocks; called on threads."""

    def __init__(self, directory: str, *, ours: Sequence[str] = (), limits: OutsideLimits | None = None) -> None:
        """`ours`: directories that are never copied."""
        self._directory = directory
        self._ours = tuple(os.path.realpath(each) for each in (*ours, directory))
        self._limits = limits or OutsideLimits()
        # Held while states go and come, which several threads do at once.
        self._lock = threading.Lock()

    def keep(self, space_id: str, root: str, paths: Sequence[str], *, into: bool = False) -> Kept:
        folder = self._folder(space_id)
        # `cp a b` names `b` and `b/a`, because `b` may be a directory.
        places = {os.path.dirname(path) for path in paths} if into else set()
        meant = [path for path in paths if path not in places or not os.path.isdir(path)]
        tops, inside = self._tops(root, meant)
        if not tops:
            return Kept(None, inside)
        return Kept(self._write(folder, tops, with_content=True), inside)

    def look(self, space_id: str, before: str, *, without: str | None = None) -> str:
        """The same places as they are now."""
        folder = self._folder(space_id)
        return self._write(folder, self._load(folder, before).tops, with_content=False, without=without)

    def look_at(self, space_id: str, states: Sequence[str], *, without: str | None = None) -> str:
        folder = self._folder(space_id)
        tops = {top for state in states for top in self._load(folder, state).tops}
        apart = [top for top in sorted(tops) if not any(_is_beneath(top, each) for each in tops)]
        return self._write(folder, apart, with_content=False, without=without, spare=set(states))

    def edits(self, space_id: str, before: str, after: str) -> dict[bytes, tuple[Value, Value]]:
        folder = self._folder(space_id)
        was, then = self._load(folder, before).entries, self._load(folder, after).entries
        return {
            path: (was.get(path), then.get(path))
            for path in sorted(was.keys() | then.keys())
            if was.get(path) != then.get(path)
        }

    def values(self, space_id: str, state: str, paths: Iterable[bytes]) -> dict[bytes, Value]:
        entries = self._load(self._folder(space_id), state).entries
        return {path: entries.get(path) for path in paths}

    def same(self, known: Value, found: Value, *, resumes: bool) -> bool:
        assert isinstance(known, _Entry | None)
        assert isinstance(found, _Entry | None)
        return known == found or (resumes and _is_begun(found, [known]))

    def compose(self, space_id: str, now: str, wanted: Mapping[bytes, str]) -> str:
        folder = self._folder(space_id)
        there = self._load(folder, now)
        sources = {state: self._load(folder, state).entries for state in {*wanted.values()}}
        taken = {path: self._taken_at(os.path.join(folder, state), path) for path, state in sorted(wanted.items())}
        entries = {path: entry for path, entry in there.entries.items() if path not in wanted}
        entries |= {path: sources[state][path] for path, state in wanted.items() if path in sources[state]}

        def fill(into: str) -> _Manifest:
            for path, state in wanted.items():
                entry = entries.get(path)
                if entry is None or entry.kind != "file":
                    continue
                name = entry.content.hex()
                # A copy that made room for others' is missed when it is put back.
                with contextlib.suppress(FileNotFoundError, FileExistsError):
                    os.link(os.path.join(folder, state, name), os.path.join(into, name))
            return _Manifest(there.tops, dict(sorted(entries.items())), held=True, taken=taken)

        return self._make(folder, fill, {now, *sources})

    def cut_short(self, space_id: str, before: str, after: str, now: str, *, half_too: bool) -> str:
        folder = self._folder(space_id)
        manifest, there = self._load(folder, before), self._load(folder, now).entries
        done = {path for path, (_, entry) in self.edits(space_id, before, after).items() if there.get(path) == entry}
        if half_too:
            done |= self.half_made(space_id, before, after, now)
        entries = {path: entry for path, entry in manifest.entries.items() if path not in done}
        entries |= {path: there[path] for path in done if path in there}
        return self._save(folder, _Manifest(manifest.tops, dict(sorted(entries.items())), held=False), {before, after})

    def half_made(self, space_id: str, before: str, after: str, now: str) -> set[bytes]:
        folder = self._folder(space_id)
        was, then, there = (self._load(folder, state).entries for state in (before, after, now))
        return {
            path
            for path in was.keys() | then.keys()
            if was.get(path) != then.get(path)
            and there.get(path) not in (was.get(path), then.get(path))
            and (_is_begun(there.get(path), (was.get(path), then.get(path))) or _is_half_way(was, then, there, path))
        }

    def changes(self, space_id: str, before: str, after: str) -> list[FileChange]:
        folder = self._folder(space_id)
        was, then = self._load(folder, before).entries, self._load(folder, after).entries
        return _changes(was, then, sorted(was.keys() | then.keys()))

    def undo(
        self,
        space_id: str,
        before: str,
        after: str | None,
        *,
        dry_run: bool,
        without: str | None = None,
        resumes: bool = False,
        keep: Callable[[Sequence[PathReason], Collection[bytes]], str | None] = lambda _failed, _older: None,
    ) -> PutBack:
        """Put back what the call changed; `LaterChanges` when something of it was changed since.

        Without a state after the call only what is gone comes back: that loses nothing.
        """
        folder = self._folder(space_id)
        manifest = self._load(folder, before)
        was, now = manifest.entries, self._now(manifest.tops, without)
        todo, left = self._todo(folder, manifest, after, now, resumes=resumes)
        changes = _changes(now, was, todo)
        if dry_run or not todo:
            return PutBack(changes, _reasons(left))
        state = os.path.join(folder, before)
        # What has to go for something that comes back goes with it; all else that the call made goes last.
        back = [path for path in todo if path in was]
        making_room = [path for path in todo if path not in was and any(_is_beneath(path, each) for each in back)]
        _PuttingBack(state, was, now).run(manifest.tops, sorted([*back, *making_room]))
        there = self._now(manifest.tops, without)
        failed = _not_as_before(was, there, [*back, *making_room])
        added = [path for path in todo if path not in was and path not in making_room]
        same = {(entry.kind, entry.content) for path, entry in was.items() if there.get(path) == entry}
        moved = [path for path in added if (now[path].kind, now[path].content) not in same]
        why = keep(_reasons(failed), _older(moved, now, partial(self._taken_at, state))) if added else None
        if why is not None:
            left |= dict.fromkeys(_outermost(added), why)
        elif added:
            _PuttingBack(state, was, now).run(manifest.tops, added)
            failed |= _not_as_before(was, self._now(manifest.tops, without), added)
        done = [path for path in todo if path not in failed and (why is None or path not in added)]
        return PutBack(_changes(now, was, done), _reasons(left), _reasons(failed))

    def contents(self, space_id: str, before: str) -> set[bytes]:
        folder = self._folder(space_id)
        found: set[bytes] = set()
        for entry in self._load(folder, before).entries.values():
            if entry.kind == "link":
                found.add(object_id(BLOB, entry.content))
            held = os.path.join(folder, before, entry.content.hex())
            if entry.kind == "file" and os.path.isfile(held):
                with open(held, "rb") as file:
                    found.add(object_id(BLOB, file.read()))
        return found

    def expect(
        self, space_id: str, before: str, after: str | None, *, without: str | None = None, resumes: bool = False
    ) -> tuple[str, str]:
        """The state as it is now, with its content, and as `undo` will leave it."""
        folder = self._folder(space_id)
        manifest = self._load(folder, before)
        kept = self._write(folder, manifest.tops, with_content=True, without=without, spare={before, after})
        now = self._load(folder, kept).entries
        todo, _ = self._todo(folder, manifest, after, now, resumes=resumes)
        entries = {path: entry for path, entry in now.items() if path not in todo}
        entries |= {path: manifest.entries[path] for path in todo if path in manifest.entries}
        # In one order, so that an undo which goes on leaves the same state by name.
        entries = dict(sorted(entries.items()))
        return kept, self._save(folder, _Manifest(manifest.tops, entries, held=False), {before, after, kept})

    def _now(self, tops: Sequence[bytes], without: str | None) -> dict[bytes, _Entry]:
        try:
            return self._entries(tops, None, without)
        except OSError as error:
            raise CheckpointFault(f"what is there now cannot be read: {error.strerror}") from error

    def _taken_at(self, state: str, path: bytes) -> int:
        """A file that was made a moment later may have an earlier time: clocks of file systems tick."""
        composed = self._load(os.path.dirname(state), os.path.basename(state)).taken
        return composed.get(path) or os.stat(state).st_mtime_ns - stats.RACY_NS

    def _todo(
        self, folder: str, manifest: _Manifest, after: str | None, now: Mapping[bytes, _Entry], *, resumes: bool
    ) -> tuple[list[bytes], dict[bytes, str]]:
        """What to put back or to remove, and what to leave alone, with the reason."""
        was = manifest.entries
        left: dict[bytes, str] = {}
        if after is None:
            differing = [path for path in was.keys() | now.keys() if was.get(path) != now.get(path)]
            left = {path: "is not known to be as the call left it" for path in differing if path in now}
            differing = [path for path in differing if path not in now]
        else:
            then = self._load(folder, after).entries
            differing = [path for path in was.keys() | then.keys() if was.get(path) != then.get(path)]
            for path in sorted(differing):
                known = (then.get(path), was.get(path))
                begun = resumes and _is_begun(now.get(path), known)
                if now.get(path) not in known and not begun and not _is_half_way(was, then, now, path):
                    raise LaterChanges(f"{_shown(path)} was changed since then")
            differing = [path for path in differing if now.get(path) != was.get(path)]
            _check_added(differing, was, then, now)
        special = [path for path in differing if path in was and was[path].kind == "special"]
        left |= dict.fromkeys(special, "is a pipe, a socket or a device, which no copy holds")
        return sorted(set(differing) - set(special)), left

    def collect(self, keep: Mapping[str, Iterable[str]]) -> None:
        """Drop what no kept run needs, of the spaces that are named."""
        for space_id, names in keep.items():
            kept = set(names)
            for state in self._states(self._folder(space_id)):
                if state.name not in kept and time.time() - state.stat().st_mtime > GRACE.total_seconds():
                    shutil.rmtree(state.path, ignore_errors=True)

    # -- what is meant --

    def _tops(self, root: str, paths: Sequence[str]) -> tuple[list[bytes], bool]:
        """Real paths outside of the project, none beneath another; and whether anything named is inside."""
        inside = False
        found: set[str] = set()
        for named in paths:
            for path in self._expanded(named):
                place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
                leads = os.path.realpath(place)
                for each in {place, leads} if os.path.isfile(leads) else {place}:
                    if _is_within(each, root):
                        inside = True
                    elif not _is_device(each):
                        found.add(_first_missing(each))
        for place in found:
            self._check_place(place, root)
        return [os.fsencode(each) for each in sorted(found) if not any(_is_beneath(each, top) for top in found)], inside

    def _expanded(self, named: str) -> list[str]:
        """As a shell expands a pattern; one that finds nothing is a name."""
        if not named.startswith("/"):
            return []
        path = os.path.normpath(named)
        if path in _STREAMS:
            return []
        if steps.is_everybodys_own(path):
            raise CheckpointFault(f"{path} is another place for every process")
        if os.path.lexists(path) or not _PATTERN.search(path):
            return [path]
        return list(islice(glob.iglob(path, include_hidden=True), self._limits.files + 1)) or [path]

    def _check_place(self, place: str, root: str) -> None:
        with contextlib.suppress(OSError):
            if stat.S_ISBLK(os.stat(place).st_mode):
                raise CheckpointFault(f"{place} is a disk")
        if _is_beneath(root, place):
            raise CheckpointFault(f"{place} holds the project itself")
        for ours in self._ours:
            if _is_within(ours, place) or _is_within(place, ours):
                raise CheckpointFault(f"{place} is, holds or lies in a directory of Bascule itself")

    # -- taking --

    def _write(
        self,
        folder: str,
        tops: list[bytes],
        *,
        with_content: bool,
        without: str | None = None,
        spare: Collection[str | None] = (),
    ) -> str:
        return self._make(
            folder,
            lambda into: _Manifest(tops, self._entries(tops, into if with_content else None, without), with_content),
            spare,
        )

    def _save(self, folder: str, manifest: _Manifest, spare: Collection[str | None]) -> str:
        return self._make(folder, lambda _into: manifest, spare)

    def _make(self, folder: str, fill: Callable[[str], _Manifest], spare: Collection[str | None] = ()) -> str:
        """A state that `fill` puts the content of; making room for it leaves `spare` alone."""
        making = os.path.join(folder, f"{_NEW_STATE}{secrets.token_hex(8)}")
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            os.mkdir(making, 0o700)
            try:
                encoded = msgspec.msgpack.encode(fill(making))
                with open(os.path.join(making, _MANIFEST), "wb") as file:
                    file.write(encoded)
                size = sum(file.stat().st_size for file in os.scandir(making))
                name = f"{hashlib.sha256(encoded).hexdigest()[:32]}.{size}"
                with self._lock:
                    self._make_room(size, spare)
                    # The same state of an earlier call is as good; its content may have made room for others'.
                    self._remove(os.path.join(folder, name))
                    os.rename(making, os.path.join(folder, name))
            except BaseException:
                shutil.rmtree(making, ignore_errors=True)
                raise
        except OSError as error:
            where = f"{error.filename}: " if isinstance(error.filename, str) else ""
            raise CheckpointFault(f"files outside of the project could not be kept: {where}{error.strerror}") from error
        return name

    def _entries(self, tops: Iterable[bytes], into: str | None, without: str | None = None) -> dict[bytes, _Entry]:
        """With `into`, the content of files is copied there."""
        entries: dict[bytes, _Entry] = {}
        room = self._limits.bytes
        for top in tops:
            for directory, path, seen in _walk(top, None if without is None else os.fsencode(without)):
                found = seen
                if len(entries) >= self._limits.files:
                    raise CheckpointFault(
                        f"{_shown(top)} holds more than {self._limits.files:,} files, which is what is kept outside"
                    )
                kind, content, dress = _kind(found), b"", dict[str, bytes]()
                if kind == "file":
                    room -= found.st_size
                    if room < 0:
                        raise CheckpointFault(
                            f"{_shown(top)} has more than {self._limits.bytes:,} bytes, which is what is kept outside"
                        )
                    content, found, dress = _read_file(directory, path, into, found)
                elif kind == "link":
                    content = os.readlink(os.path.basename(path), dir_fd=directory)
                entries[path] = _Entry(kind, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, content, dress)
        return entries

    def _make_room(self, size: int, spare: Collection[str | None]) -> None:
        """The oldest complete states go; what another call is still copying does not."""
        states = [state for space in os.scandir(self._directory) for state in self._states(space.path)]
        complete = [state for state in states if _STATE.fullmatch(state.name)]
        complete.sort(key=lambda state: state.stat().st_mtime)
        total = size + sum(map(_size, complete))
        for state in complete:
            if total <= self._limits.total_bytes:
                break
            if state.name not in spare:
                total -= _size(state)
                self._remove(state.path)

    def _remove(self, state: str) -> None:
        """In one step: nobody finds the half of a state under its name."""
        gone = os.path.join(os.path.dirname(state), f"{_NEW_STATE}{secrets.token_hex(8)}")
        with contextlib.suppress(FileNotFoundError):
            os.rename(state, gone)
            shutil.rmtree(gone, ignore_errors=True)

    # -- what is kept --

    def _folder(self, space_id: str) -> str:
        if _SPACE.fullmatch(space_id) is None:
            raise CheckpointFault(f"{space_id!r} is not the id of a space")
        return os.path.join(self._directory, space_id)

    def _states(self, folder: str) -> list["os.DirEntry[str]"]:
        """And what a crash left unfinished."""
        try:
            return [
                each for each in os.scandir(folder) if _STATE.fullmatch(each.name) or each.name.startswith(_NEW_STATE)
            ]
        except FileNotFoundError:
            return []

    def _load(self, folder: str, name: str) -> _Manifest:
        gone = "what was outside of the project before is no longer kept"
        if _STATE.fullmatch(name) is None:
            raise CheckpointFault(gone)
        try:
            with open(os.path.join(folder, name, _MANIFEST), "rb") as file:
                data = file.read()
            if hashlib.sha256(data).hexdigest()[:32] != name.partition(".")[0]:
                raise CheckpointFault("what is kept of files outside of the project was changed")
            return msgspec.msgpack.decode(data, type=_Manifest)
        except (OSError, msgspec.DecodeError) as error:
            raise CheckpointFault(gone) from error


class _PuttingBack:
    """First everything is made beside its place, then names change: a full disk changes nothing.

    Every place is reached without a link: whoever may write there cannot lead us elsewhere meanwhile.
    """

    def __init__(self, state: str, was: Mapping[bytes, _Entry], now: Mapping[bytes, _Entry]) -> None:
        self._state = state
        self._was = was
        self._now = now
        # What was made, as a name in an open directory.
        self._ready: dict[bytes, tuple[int, str]] = {}

    def run(self, tops: Sequence[bytes], paths: Sequence[bytes]) -> None:
        by_top = {top: [path for path in paths if _is_within(path, top)] for top in tops}
        at = b""
        try:
            with contextlib.ExitStack() as stack:
                for top, mine in by_top.items():
                    at = top
                    if mine:
                        self._stage(stack.enter_context(steps.staging(os.path.dirname(top))), mine)
                for top, mine in by_top.items():
                    at = top
                    self._apply(mine)
        except OSError as error:
            raise CheckpointFault(f"{_shown(at)} cannot be put back: {error.strerror}") from error

    def _stage(self, staging: int, paths: Sequence[bytes]) -> None:
        for number, path in enumerate(paths):
            entry = self._was.get(path)
            if entry is None or entry.kind == "directory":
                continue
            name = str(number)
            self._ready[path] = (staging, name)
            if entry.kind == "link":
                os.symlink(entry.content, name, dir_fd=staging)
                if os.geteuid() == 0:
                    os.chown(name, entry.owner, entry.group, dir_fd=staging, follow_symlinks=False)
            else:
                self._copy(entry, os.open(name, _NEW, 0o600, dir_fd=staging))

    def _copy(self, entry: _Entry, descriptor: int) -> None:
        found = hashlib.sha256()
        held = os.path.join(self._state, entry.content.hex())
        with open(descriptor, "wb") as file:
            if not os.path.isfile(held):
                raise CheckpointFault("what was outside of the project before is no longer kept")
            with open(held, "rb") as source:
                while piece := source.read(_PIECE):
                    found.update(piece)
                    file.write(piece)
            file.flush()
            _own(descriptor, entry)
        if found.digest() != entry.content:
            raise CheckpointFault("what is kept of files outside of the project was changed")

    def _apply(self, paths: Sequence[bytes]) -> None:
        with contextlib.ExitStack() as held:
            for path, final in self._shut(paths):
                # What is still to be made lets us in.
                with contextlib.suppress(FileNotFoundError):
                    opened = steps.widened(path, shut.CHANGE, back=not final)
                    if not final:
                        held.enter_context(opened)
                        continue
                    with opened:
                        pass
            self._change(paths)

    def _shut(self, paths: Sequence[bytes]) -> list[tuple[bytes, bool]]:
        """Directories that have to let us in, outermost first, and whether each gets its own mode in the end."""
        holders = set(paths)
        for path in paths:
            steps_up = path.split(b"/")
            holders.update(b"/".join(steps_up[:count]) for count in range(2, len(steps_up)))
        closed = [path for path in holders if self._is_closed(self._now, path) or self._is_closed(self._was, path)]
        return [(path, path in paths) for path in sorted(closed, key=lambda path: path.count(b"/"))]

    def _is_closed(self, state: Mapping[bytes, _Entry], path: bytes) -> bool:
        entry = state.get(path)
        return entry is not None and entry.kind == "directory" and entry.mode & shut.CHANGE != shut.CHANGE

    def _change(self, paths: Sequence[bytes]) -> None:
        for path in reversed(paths):
            now, was = self._now.get(path), self._was.get(path)
            # A file takes a file's place in one step; a directory's it cannot, nor the other way round.
            if now is not None and (was is None or ("directory" in {now.kind, was.kind} and now.kind != was.kind)):
                with steps.parent(path) as (directory, name):
                    (os.rmdir if now.kind == "directory" else os.unlink)(name, dir_fd=directory)
        for path in paths:
            was = self._was.get(path)
            if was is None:
                continue
            with steps.parent(path) as (directory, name):
                if was.kind != "directory":
                    staging, made = self._ready[path]
                    os.replace(made, name, src_dir_fd=staging, dst_dir_fd=directory)
                else:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=directory)
        # Deepest first, and modes last: what was read-only must take its files first.
        for path in reversed(paths):
            was = self._was.get(path)
            if was is not None and was.kind == "directory":
                with steps.directory(path) as descriptor:
                    _own(descriptor, was)


def _own(descriptor: int, entry: _Entry) -> None:
    if os.geteuid() == 0:
        os.fchown(descriptor, entry.owner, entry.group)
    found, mode = os.fstat(descriptor), entry.mode
    # Another user's program must not come back as one that runs with our rights.
    if found.st_uid != entry.owner:
        mode &= ~stat.S_ISUID
    if found.st_gid != entry.group:
        mode &= ~stat.S_ISGID
    os.fchmod(descriptor, mode)
    attributes.write(descriptor, entry.attributes)


def _not_as_before(
    was: Mapping[bytes, _Entry], now: Mapping[bytes, _Entry], paths: Iterable[bytes]
) -> dict[bytes, str]:
    return dict.fromkeys((path for path in paths if now.get(path) != was.get(path)), "is not as it was before")


def _older(paths: Iterable[bytes], now: Mapping[bytes, _Entry], since: Callable[[bytes], int]) -> set[bytes]:
    """Contents, as git names them, of what was written before that: it was moved there, or copied with its times."""
    found: set[bytes] = set()
    for path in paths:
        try:
            with _let_in(path, now), steps.parent(path) as (directory, name):
                seen = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if seen.st_mtime_ns >= since(path) or _kind(seen) not in ("file", "link"):
                    continue
                if _kind(seen) == "link":
                    found.add(object_id(BLOB, os.readlink(name, dir_fd=directory)))
                    continue
                with open(_opened(directory, name, seen), "rb") as file:
                    found.add(object_id(BLOB, file.read()))
        except OSError as error:
            raise CheckpointFault(f"{_shown(path)} cannot be read: {error.strerror}") from error
    return found


@contextlib.contextmanager
def _let_in(path: bytes, now: Mapping[bytes, _Entry]) -> Iterator[None]:
    """Through directories that the call has shut, the outermost first."""
    above = [path]
    while (holder := os.path.dirname(above[-1])) in now:
        above.append(holder)
    with contextlib.ExitStack() as held:
        for each in reversed(above[1:]):
            if now[each].kind == "directory" and now[each].mode & shut.LIST != shut.LIST:
                held.enter_context(steps.widened(each, shut.LIST))
        yield


def _is_half_way(
    was: Mapping[bytes, _Entry], then: Mapping[bytes, _Entry], now: Mapping[bytes, _Entry], path: bytes
) -> bool:
    """Of a file in a directory's place an undo that was cut short leaves neither."""
    kinds = {each[path].kind for each in (was, then) if path in each}
    return path not in now and len(kinds) > 1 and "directory" in kinds


def _check_added(
    differing: Iterable[bytes], was: Mapping[bytes, _Entry], then: Mapping[bytes, _Entry], now: Mapping[bytes, _Entry]
) -> None:
    """A directory that has to go must not take with it what was put there later."""
    going = {path for path in differing if path in now and now[path].kind == "directory"}
    going -= {path for path in going if path in was and was[path].kind == "directory"}
    for path in now.keys() - then.keys() - was.keys():
        if any(_is_beneath(path, directory) for directory in going):
            raise LaterChanges(f"{_shown(path)} was put there since then")


def _outermost(paths: Iterable[bytes]) -> list[bytes]:
    """Without those that lie beneath another of them."""
    found: list[bytes] = []
    for path in sorted(paths, key=lambda path: path.split(b"/")):
        if not found or not _is_beneath(path, found[-1]):
            found.append(path)
    return found


def _reasons(found: Mapping[bytes, str]) -> list[PathReason]:
    return [PathReason(path=_shown(path), reason=found[path]) for path in sorted(found)]


def _is_begun(there: _Entry | None, known: Iterable[_Entry | None]) -> bool:
    """Whether a directory is as an undo that was cut short leaves it: just made, or opened for its owner."""
    modes = [each.mode for each in known if each is not None and each.kind == "directory"]
    opened = [mode | needed for mode in modes for needed in (shut.LIST, shut.CHANGE)]
    return there is not None and there.kind == "directory" and there.mode in (*opened, 0o700) and bool(modes)


def _changes(old: Mapping[bytes, _Entry], new: Mapping[bytes, _Entry], paths: Iterable[bytes]) -> list[FileChange]:
    full = {os.path.dirname(path) for path in (*old, *new)}
    found: list[FileChange] = []
    for path in paths:
        before, after = old.get(path), new.get(path)
        is_directory = all(each is None or each.kind == "directory" for each in (before, after))
        # One that comes or goes with what is in it is named by that.
        if before == after or (is_directory and path in full and (before is None or after is None)):
            continue
        change: Literal["added", "modified", "deleted", "mode", "type"] = "mode"
        if before is None:
            change = "added"
        elif after is None:
            change = "deleted"
        elif before.kind != after.kind:
            change = "type"
        elif before.content != after.content:
            change = "modified"
        found.append(FileChange(path=f"{_shown(path)}/" if is_directory else _shown(path), change=change))
    return found


def _walk(top: bytes, without: bytes | None = None) -> Iterator[tuple[int, bytes, os.stat_result]]:
    """A directory before what is in it, each with the open directory that holds its name; `without` is passed over.

    No link is followed, also none that takes a directory's place meanwhile, and no other file system is entered.
    """
    if without is not None and _is_within(top, without):
        return
    with contextlib.ExitStack() as stack:
        try:
            directory, name = stack.enter_context(steps.parent(top))
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return
        yield directory, top, found
    with contextlib.ExitStack() as held:
        waiting = [(top, found)] if stat.S_ISDIR(found.st_mode) else []
        while waiting:
            here, seen = waiting.pop()
            if shut.is_shut(seen, shut.LIST):
                held.enter_context(steps.widened(here, shut.LIST))
            with steps.directory(here) as directory, os.scandir(directory) as entries:
                for entry in entries:
                    path = os.path.join(here, os.fsencode(entry.name))
                    if path == without:
                        continue
                    below = entry.stat(follow_symlinks=False)
                    if below.st_dev != found.st_dev:
                        raise CheckpointFault(f"{_shown(path)} is another file system, mounted there")
                    yield directory, path, below
                    if stat.S_ISDIR(below.st_mode):
                        waiting.append((path, below))


def _kind(found: os.stat_result) -> Literal["file", "link", "directory", "special"]:
    if stat.S_ISREG(found.st_mode):
        return "file"
    if stat.S_ISLNK(found.st_mode):
        return "link"
    return "directory" if stat.S_ISDIR(found.st_mode) else "special"


def _opened(directory: int, name: bytes, seen: os.stat_result) -> int:
    if shut.is_shut(seen, 0o400):
        return shut.open_file(directory, name, _READ)
    return os.open(name, _READ, dir_fd=directory)


def _read_file(
    directory: int, path: bytes, into: str | None, seen: os.stat_result
) -> tuple[bytes, os.stat_result, dict[str, bytes]]:
    digest = hashlib.sha256()
    making = None if into is None else os.path.join(into, "making")
    left = seen.st_size
    with (
        open(_opened(directory, os.path.basename(path), seen), "rb") as file,
        contextlib.ExitStack() as stack,
    ):
        # Mode and owner of what is read, whatever had this name before.
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise CheckpointFault(f"{_shown(path)} was exchanged while it was read")
        try:
            dress = attributes.read(file.fileno())
        except attributes.TooMany:
            raise CheckpointFault(
                f"{_shown(path)} has attributes of more than {attributes.MAX_BYTES:,} bytes"
            ) from None
        copy = stack.enter_context(open(making, "wb")) if making is not None else None
        # What grows while it is read is taken as long as it was: the limit was checked for that.
        while left > 0 and (piece := file.read(min(_PIECE, left))):
            left -= len(piece)
            digest.update(piece)
            if copy is not None:
                copy.write(piece)
    if making is not None and into is not None:
        os.rename(making, os.path.join(into, digest.hexdigest()))
    return digest.digest(), found, dress


def _first_missing(place: str) -> str:
    """What the call would have to make first: `mkdir -p` makes more than it names."""
    above = os.path.dirname(place)
    while above != place and not os.path.lexists(above):
        place, above = above, os.path.dirname(above)
    return place


def _is_device(path: str) -> bool:
    """Writing to a terminal, a pipe or `/dev/null` leaves nothing to put back."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _is_beneath(path: str | bytes, directory: str | bytes) -> bool:
    path, directory = os.fsencode(path), os.fsencode(directory)
    return path != directory and path.startswith(directory.rstrip(b"/") + b"/")


def _is_within(path: str | bytes, directory: str | bytes) -> bool:
    return os.fsencode(path) == os.fsencode(directory) or _is_beneath(path, directory)


def _size(state: "os.DirEntry[str]") -> int:
    named = _STATE.fullmatch(state.name)
    return int(named.group(1)) if named is not None else 0


def _shown(path: bytes) -> str:
    return os.fsdecode(path).encode("utf-8", "backslashreplace").decode()
