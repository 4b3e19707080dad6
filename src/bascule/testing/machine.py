"""A machine in memory for the workspace: directories are dicts, commands are what a test says they are.

    machine = Machine()
    machine.directory("/projects/project", {"a.txt": b"one"})
    machine.command("make test", stdout="12 passed")
    house = House(machine=machine)

`machine.links` says where a path leads that goes through a link. What else a file system adds (races, modes) is the
business of `workspace.machine`, and is tested with real ones.
"""

import asyncio
import difflib
import hashlib
import os
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Literal

from bascule.workspace.lines import merge_lines
from bascule.workspace.paths import WorkspacePath
from bascule.workspace.ports import (
    DIRECTORY,
    Captured,
    CheckpointFault,
    Command,
    Extent,
    FileFault,
    Kept,
    LaterChanges,
    LogPage,
    OnOutput,
    Outcome,
    PutBack,
    ResolvedPath,
    Root,
    SandboxFault,
    SandboxKind,
    StorageFault,
    Undone,
    Value,
    Way,
    Ways,
)
from bascule.workspace.protocol import FileChange, FileEntry, PathReason

Files = dict[str, bytes]
# How a tree says that it does not hold a file; the reason follows.
_GAP = b"\0gap "
# What a command does to the files, beside what it says.
Does = Callable[[Files], None]


class MemoryRoot:
    """A directory, as a dict from path to content."""

    def __init__(self, machine: "Machine", path: str) -> None:
        self._machine = machine
        self._directory = path
        self.path = path
        self.identity = (1, id(self.files))

    def extent(self) -> Extent:
        return frozenset({("", self.path)})

    # The same for ever: nothing here moves directories.
    mode = 0o755
    owned_by = (0, 0)

    def is_in_place(self) -> bool:
        return self._directory in self._machine.directories

    def place(self) -> str | None:
        return self._directory if self.is_in_place() else None

    def set_mode(self, mode: int) -> None:
        raise NotImplementedError

    def duplicate(self) -> "MemoryRoot":
        return MemoryRoot(self._machine, self._directory)

    @property
    def files(self) -> Files:
        found = self._machine.directories.get(self._directory)
        if found is None:
            raise FileFault(f"{self._directory} does not exist; make the directory first")
        return found

    def resolve(self, path: WorkspacePath, *, follow: bool) -> ResolvedPath:
        links = self._machine.links
        if follow and path in links:
            return ResolvedPath(path, links[path])
        head, slash, name = path.rpartition("/")
        return ResolvedPath(path, f"{links.get(head, head)}{slash}{name}")

    def resolve_cached(self, path: WorkspacePath, *, follow: bool) -> ResolvedPath | None:
        place = self.resolve(path, follow=follow)
        return None if place.elsewhere else place

    def read(self, place: ResolvedPath, max_bytes: int) -> bytes:
        data = self.files.get(place.path)
        if data is None:
            raise FileFault(f"No such file: `{place.written}`")
        if len(data) > max_bytes:
            raise FileFault(f"`{place.written}` has {len(data)} bytes; at most {max_bytes} are allowed here")
        return data

    def create(self, place: ResolvedPath, data: bytes, *, overwrite: bool) -> None:
        if place.path in self.files and not overwrite:
            raise FileFault("File already exists")
        self._write(place, data)

    def replace(self, place: ResolvedPath, data: bytes, *, expected: bytes) -> None:
        if self.files.get(place.path) != expected:
            raise FileFault(
                f"`{place.written}` was changed by something else meanwhile; read it again and repeat the edit"
            )
        self._write(place, data)

    def _write(self, place: ResolvedPath, data: bytes) -> None:
        if self._machine.disk_full:
            raise StorageFault(f"No space left on the disk: `{place.written}` was not changed; delete something first")
        self.files[place.path] = data

    def delete(self, place: ResolvedPath) -> None:
        if self.files.pop(place.path, None) is None:
            raise FileFault(f"No such file: `{place.written}`")

    def entries(self, place: ResolvedPath | None, limit: int) -> tuple[list[FileEntry], bool]:
        start = f"{place.path}/" if place else ""
        below = {name[len(start) :]: data for name, data in self.files.items() if name.startswith(start)}
        if place and not below:
            raise FileFault(f"No such file: `{place.written}`")
        directories = {name.partition("/")[0] for name in below if "/" in name}
        found = [FileEntry(name=name, type="directory") for name in directories]
        found += [FileEntry(name=name, type="file", size=len(data)) for name, data in below.items() if "/" not in name]
        found.sort(key=lambda entry: entry.name)
        return found[:limit], len(found) > limit

    def digest(self, place: ResolvedPath, max_bytes: int) -> str | None:
        data = self.files.get(place.path)
        return hashlib.sha256(data).hexdigest() if data is not None and len(data) <= max_bytes else None

    def fileno(self) -> int:
        """Nothing that a kernel knows."""
        return -1

    def close(self) -> None: ...


class FakeCommand:
    """A command that runs until it is told to end."""

    def __init__(self, command: Command, on_output: OnOutput, ended: Callable[["FakeCommand"], None]) -> None:
        self.process_id = command.process_id
        self.command = command
        self._on_output = on_output
        self._ended = ended
        self.output: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self._outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None
        if command.timeout is not None:
            seconds = command.timeout.total_seconds()
            self._timer = asyncio.get_running_loop().call_later(seconds, self.end, 124, "timeout")

    def say(self, text: str, stream: Literal["stdout", "stderr"] = "stdout") -> None:
        self.output[stream] += text.encode()
        self._on_output(stream, text.encode())

    def end(self, exit_code: int = 0, by: Literal["exit", "timeout", "cancelled", "memory", "lost"] = "exit") -> None:
        if self._outcome.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        captured = [Captured(text=data.decode(), size=len(data)) for data in self.output.values()]
        self._outcome.set_result(
            Outcome(
                exit_code=exit_code,
                ended_by=by,
                duration=timedelta(milliseconds=5),
                stdout=captured[0],
                stderr=captured[1],
            )
        )
        self._ended(self)

    @property
    def running(self) -> bool:
        return not self._outcome.done()

    async def wait(self) -> Outcome:
        return await asyncio.shield(self._outcome)

    def stop(self, why: Literal["cancelled"] = "cancelled") -> None:
        self.end(137, why)


class Known:
    """What a test said about a command."""

    def __init__(self, stdout: str, stderr: str, exit_code: int, does: Does | None, *, ends: bool) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.exit_code = exit_code
        self.does = does
        self.ends = ends


class FakeSandbox:
    def __init__(self, machine: "Machine", root: Root, kind: str) -> None:
        self._machine = machine
        self._root = root
        self.kind = kind
        self._ran: list[FakeCommand] = []

    async def start(self, command: Command, on_output: OnOutput) -> FakeCommand:
        machine = self._machine
        if machine.problem is not None:
            raise SandboxFault(machine.problem)
        running = FakeCommand(command, on_output, machine.ended.append)
        machine.ran.append(running)
        self._ran.append(running)
        known = machine.commands.get(command.command)
        if known is None:
            running.say(f"sh: 1: {command.command.split()[0]}: not found\n", "stderr")
            running.end(127)
            return running
        if known.does is not None:
            assert isinstance(self._root, MemoryRoot)
            known.does(self._root.files)
        for text, stream in ((known.stdout, "stdout"), (known.stderr, "stderr")):
            if text:
                running.say(text, stream)  # type: ignore[arg-type] # the two names
        if known.ends:
            running.end(known.exit_code)
        return running

    async def close(self) -> None:
        for running in self._ran:
            running.stop()


class FakeCheckpoints:
    def __init__(self, machine: "Machine", root: Root, space_id: str) -> None:
        assert isinstance(root, MemoryRoot)
        self._machine = machine
        self._root = self.root = root
        self._space_id = space_id
        self.repositories: Mapping[str, int] = {}
        self.scans_because: str | None = None

    def touched(self, before: str, after: str) -> list[str]:
        return [each.path for each in self.changes(before, after) if each.change != "deleted"]

    def content(self, tree: str, path: str) -> bytes | None:
        return self._machine.trees[tree].get(path)

    def versions(self, trees: Sequence[str], path: str) -> list[str | None]:
        return [found.hex() if (found := self.content(tree, path)) is not None else None for tree in trees]

    def blob(self, version: str) -> bytes:
        return bytes.fromhex(version)

    def kind(self, tree: str, path: str) -> Literal["file", "directory"] | None:
        files = self._machine.trees[tree]
        if path in files:
            return "file"
        return "directory" if any(each.startswith(f"{path}/") for each in files) else None

    def take(
        self,
        until: int | None = None,
        since: int | None = None,  # noqa: ARG002 - no times here
        *,
        watched: bool = False,  # noqa: ARG002 - all of it is looked at
    ) -> str:
        if self._machine.no_checkpoints is not None:
            raise CheckpointFault(self._machine.no_checkpoints)
        files = dict(self._root.files)
        gaps = {path: why for path, why in self._machine.not_held.items() if path in files}
        if until is not None:
            gaps |= {path: "was changed later" for path, at in self._machine.changed_at.items() if at > until}
        for path in gaps:
            # Another content is another gap, as far as this machine can tell.
            files[path] = _GAP + f"{gaps[path]}\n{hash(files.get(path))}".encode()
        return self._keep(files)

    def changes(self, before: str, after: str) -> list[FileChange]:
        old, new = self._machine.trees[before], self._machine.trees[after]
        found = []
        for path in sorted({*old, *new} - set(self._gaps(before, after))):
            if old.get(path) != new.get(path):
                kind: Literal["added", "deleted", "modified"] = "modified"
                if path not in old:
                    kind = "added"
                elif path not in new:
                    kind = "deleted"
                found.append(FileChange(path=path, change=kind))
        return found

    def unknown(self, before: str, after: str) -> list[PathReason]:
        return [PathReason(path=path, reason=why) for path, why in self._gaps(before, after).items()]

    def _gaps(self, before: str, after: str) -> dict[str, str]:
        old, new = self._machine.trees[before], self._machine.trees[after]
        return {
            path: content.removeprefix(_GAP).partition(b"\n")[0].decode()
            for tree in (old, new)
            for path, content in tree.items()
            if content.startswith(_GAP) and old.get(path) != new.get(path)
        }

    def diff(self, before: str, after: str, max_chars: int) -> tuple[str, bool]:
        old, new = self._machine.trees[before], self._machine.trees[after]
        text = ""
        for change in self.changes(before, after):
            was, now = (tree.get(change.path, b"").decode("utf-8", "replace") for tree in (old, new))
            lines = (was.splitlines(keepends=True), now.splitlines(keepends=True))
            text += "".join(difflib.unified_diff(*lines, f"a/{change.path}", f"b/{change.path}"))
        return text[:max_chars], len(text) > max_chars

    def edits(self, before: str, after: str, /) -> dict[bytes, tuple[Value, Value]]:
        old, new = self._machine.trees[before], self._machine.trees[after]
        return {
            os.fsencode(path): (old.get(path), new.get(path))
            for path in sorted({*old, *new})
            if old.get(path) != new.get(path)
        }

    def values(self, tree: str, paths: Iterable[bytes], /) -> dict[bytes, Value]:
        return {path: self._machine.trees[tree].get(os.fsdecode(path)) for path in paths}

    def same(self, known: Value, found: Value, /) -> bool:
        return known == found or any(isinstance(each, bytes) and each.startswith(_GAP) for each in (known, found))

    def is_rewrite(self, old: Value, new: Value, /) -> bool:
        return old != new

    def merged(self, base: Value, ours: Value, theirs: Value, /) -> tuple[Value, str]:
        if not (isinstance(base, bytes) and isinstance(ours, bytes) and isinstance(theirs, bytes)):
            return None, "is no file in all three states"
        return merge_lines(base, ours, theirs)

    def bring(
        self,
        ways: Ways,
        *,
        dry_run: bool,
        max_chars: int = 0,
        resumes: bool = False,
        elsewhere: Callable[[], Collection[bytes]] = tuple,
    ) -> Undone:
        # Nothing here is older than what made it, or cut short.
        del resumes, elsewhere
        files = self._root.files
        then, left = dict(files), dict[str, str]()
        for path, way in ((os.fsdecode(path), way) for path, way in sorted(ways.paths.items())):
            gap = next((each for each in way[:2] if isinstance(each, bytes) and each.startswith(_GAP)), None)
            if gap is not None:
                left[path] = gap.removeprefix(_GAP).partition(b"\n")[0].decode()
            elif files.get(path) != way.expected:
                left[path] = "was changed since"
            elif isinstance(way.wanted, bytes):
                then[path] = way.wanted
            else:
                then.pop(path, None)
        was, will = self._keep(dict(files)), self._keep(dict(then))
        changes = self.changes(was, will)
        if not dry_run:
            files.clear()
            files.update(then)
        named = [PathReason(path=path, reason=why) for path, why in left.items()]
        return Undone(changes, named, *self.diff(was, will, max_chars))

    def expect(self, ways: Ways, *, resumes: bool = False) -> tuple[str, str]:
        del resumes
        then = dict(self._root.files)
        for path, way in ways.paths.items():
            if then.get(os.fsdecode(path)) == way.expected:
                then.pop(os.fsdecode(path), None)
                if isinstance(way.wanted, bytes):
                    then[os.fsdecode(path)] = way.wanted
        return self.take(), self._keep(then)

    def cut_short(self, before: str, after: str, now: str, /, *, half_too: bool = False) -> tuple[str, set[bytes]]:
        del before, now, half_too
        return after, set()

    def has(self, _contents: Collection[bytes], /) -> bool:
        return True

    def apply(self, before: str, after: str) -> Undone:
        paths = {path: Way(old, new) for path, (old, new) in self.edits(before, after).items()}
        undone = self.bring(Ways(before, paths), dry_run=True)
        if later := [each.path for each in undone.left_alone if each.reason == "was changed since"]:
            raise LaterChanges(f"{later[0]} was changed later")
        return self.bring(Ways(before, paths), dry_run=False)

    def empty(self) -> str:
        return self._keep({})

    def close(self) -> None: ...

    def _keep(self, files: Files) -> str:
        name = hashlib.sha1(repr(sorted(files.items())).encode(), usedforsecurity=False).hexdigest()
        self._machine.trees[name] = files
        self._machine.trees_of.setdefault(self._space_id, set()).add(name)
        return name

    def copy_out(self, tree: str, into: str) -> None:
        self._machine.directories[into] = dict(self._machine.trees[tree])


class Machine:
    """`Files`, `Sandboxes`, `CheckpointStore` and `Scratch` in one, because they share the directories."""

    def __init__(self) -> None:
        self.directories: dict[str, Files] = {}
        # Paths that lead elsewhere: of a link itself, or of a directory that is one.
        self.links: dict[str, str] = {}
        self.commands: dict[str, Known] = {}
        # Commands that were started, and those that ended, in order.
        self.ran: list[FakeCommand] = []
        self.ended: list[FakeCommand] = []
        self.trees: dict[str, Files] = {}
        self.trees_of: dict[str, set[str]] = {}
        self.disk_full = False
        # Paths that no checkpoint holds, and why; when which path was changed, for checkpoints as of a moment (ns).
        self.not_held: dict[str, str] = {}
        self.changed_at: dict[str, int] = {}
        # Why commands cannot run, and why no checkpoint can be taken.
        self.problem: str | None = None
        self.no_checkpoints: str | None = None
        self.sandbox: SandboxKind = "bubblewrap"

    def directory(self, path: str, files: Mapping[str, bytes] | None = None) -> Files:
        made = self.directories[path] = dict(files or {})
        return made

    def command(
        self,
        command: str,
        *,
        stdout: str = "",
        stderr: str = "",
        exit_code: int = 0,
        does: Does | None = None,
        ends: bool = True,
    ) -> None:
        """From now on this command says and does this; with `ends=False` it runs until the test ends it."""
        self.commands[command] = Known(stdout, stderr, exit_code, does, ends=ends)

    # -- files --

    def open_root(self, path: str) -> MemoryRoot:
        if path not in self.directories:
            raise FileFault(f"{path} does not exist; make the directory first")
        return MemoryRoot(self, path)

    open_copy = open_root

    def what_is_at(self, path: str) -> str | None:
        return DIRECTORY if path in self.directories else None

    def is_directory(self, path: str, identity: tuple[int, int]) -> bool:
        return path in self.directories and MemoryRoot(self, path).identity == identity

    def missing(self, root: str, names: Iterable[str]) -> list[str]:  # noqa: ARG002 - the port's
        return list(names)

    def make_directory(self, path: str, mode: int | None, owner: tuple[int, int] | None) -> None:  # noqa: ARG002 - the port's
        self.directory(path)

    def move_directory(self, source: str, target: str) -> None:
        self.directories[target] = self.directories.pop(source)


class FakeSandboxes:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def problem(self) -> str | None:
        return self._machine.problem

    def open(
        self,
        space_id: str,  # noqa: ARG002 - the port's
        root: Root,
        *,
        network: bool,  # noqa: ARG002 - the port's
        kind: SandboxKind = "bubblewrap",
        door: bool = False,  # noqa: ARG002 - the port's
    ) -> FakeSandbox:
        return FakeSandbox(self._machine, root, kind)

    def logs(self, process_id: str, stream: Literal["stdout", "stderr"], offset: int, limit: int) -> LogPage:
        for running in self._machine.ran:
            if running.process_id == process_id:
                data = running.output[stream]
                start = min(offset, len(data))
                return LogPage(data=data[start : start + limit], offset=start, size=len(data))
        raise KeyError(process_id)

    def forget(self, process_id: str) -> None:
        self._machine.ran[:] = [each for each in self._machine.ran if each.process_id != process_id]


class FakeCheckpointStore:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def open(self, space_id: str, root: Root) -> FakeCheckpoints:
        return FakeCheckpoints(self._machine, root, space_id)

    def collect(self, keep: Mapping[str, frozenset[str]]) -> int:
        gone = 0
        for space_id, kept in keep.items():
            for name in self._machine.trees_of.get(space_id, set()) - kept:
                self._machine.trees_of[space_id].discard(name)
                del self._machine.trees[name]
                gone += 1
        return gone


class FakeScratch:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def make(self, name: str) -> str:
        self._machine.directories[f"/scratch/{name}"] = {}
        return f"/scratch/{name}"

    def remove(self, directory: str) -> None:
        for path in [path for path in self._machine.directories if f"{path}/".startswith(f"{directory}/")]:
            del self._machine.directories[path]


class NothingOutside:
    """A machine with nothing but projects."""

    def keep(self, _space_id: str, _root: str, _paths: Sequence[str], /, *, into: bool) -> Kept:
        del into
        return Kept(None, inside=True)

    def look(self, _space_id: str, before: str, /, *, without: str | None = None) -> str:
        del without
        return before

    def changes(self, _space_id: str, _before: str, _after: str, /) -> list[FileChange]:
        return []

    def undo(
        self,
        _space_id: str,
        _before: str,
        _after: str | None,
        /,
        *,
        dry_run: bool,
        without: str | None = None,
        resumes: bool = False,
        keep: Callable[[Sequence[PathReason], Collection[bytes]], str | None] = lambda _failed, _older: None,
    ) -> PutBack:
        del dry_run, without, resumes, keep
        return PutBack([], [])

    def edits(self, _space_id: str, _before: str, _after: str, /) -> Mapping[bytes, tuple[Value, Value]]:
        return {}

    def look_at(self, _space_id: str, states: Sequence[str], /, *, without: str | None = None) -> str:
        del without
        return states[0]

    def values(self, _space_id: str, _state: str, paths: Iterable[bytes], /) -> Mapping[bytes, Value]:
        return dict.fromkeys(paths)

    def same(self, known: Value, found: Value, /, *, resumes: bool) -> bool:
        del resumes
        return known == found

    def compose(self, _space_id: str, now: str, _wanted: Mapping[bytes, str], /) -> str:
        return now

    def cut_short(self, _space_id: str, _before: str, after: str, _now: str, /, *, half_too: bool) -> str:
        del half_too
        return after

    def half_made(self, _space_id: str, _before: str, _after: str, _now: str, /) -> Collection[bytes]:
        return ()

    def contents(self, _space_id: str, _before: str, /) -> Collection[bytes]:
        return ()

    def expect(
        self, _space_id: str, before: str, after: str | None, /, *, without: str | None = None, resumes: bool = False
    ) -> tuple[str, str]:
        del without, resumes
        return before, after or before

    def collect(self, _keep: Mapping[str, Iterable[str]], /) -> None:
        return None


class NoGitStates:
    """Directories without a repository."""

    def take(
        self, _space_id: str, _root: str, /, *, further: Iterable[str] = (), until_ms: int | None = None
    ) -> str | None:
        del further, until_ms
        return None

    def further(self, _space_id: str, _state: str, /) -> list[str]:
        return []

    def not_held(self, _space_id: str, _root: str, _before: str, _after: str, /) -> dict[str, str]:
        return {}

    def edits(self, _space_id: str, _before: str, _after: str, /) -> Mapping[str, tuple[None, None]]:
        return {}

    def value(self, _space_id: str, _state: str, _key: str, /) -> None:
        return None

    def same(self, _key: str, known: Hashable | None, found: Hashable | None, /) -> bool:
        return known == found

    def compose(self, _space_id: str, now: str, _wanted: Mapping[str, str], /) -> str:
        return now

    def undo(
        self, _space_id: str, _root: str, _before: str, _after: str, /, *, dry_run: bool
    ) -> tuple[list[str], dict[str, str]]:
        del dry_run
        return [], {}

    def is_same(self, _space_id: str, _before: str, _after: str, /) -> bool:
        return True

    def expect(self, _space_id: str, _root: str, before: str, after: str, /) -> tuple[str, str]:
        return after, before

    def collect(self, _keep: Mapping[str, Iterable[str]], /) -> None:
        return None
