"""What the workspace needs of the machine: files beneath a root, a sandbox for commands, checkpoints.

All of it may be slow. `Files` and `Checkpoints` block and are called on threads; `Sandbox` is asyncio's.
"""

import os
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Literal, NamedTuple, Protocol, Self, TypeAlias

import msgspec

from bascule.kernel.policy.programs import ProgramRules
from bascule.workspace.paths import WorkspacePath
from bascule.workspace.protocol import FileChange, FileEntry, PathReason


class Standing(NamedTuple):
    """Where a caller's process stands."""

    # It, its parent and so on.
    pids: frozenset[int]
    # One of them is an agent's client, and which, where that is known.
    is_below_client: bool
    client: int = 0


# -- files ----------------------------------------------------------------------------------------


class FileFault(Exception):
    """A file operation failed; the message is for the agent: what is wrong, and what to do instead."""


class StorageFault(FileFault):
    """The disk or file system takes no more (full, quota, read-only): nothing that the next operation could mend."""


class ResolvedPath:
    """Where a path leads: made once by `Root.resolve`, judged, shown and acted on.

    It holds the directory open, and the name in it is never followed. Whatever links change meanwhile, what is acted
    on is what was judged.
    """

    def __init__(
        self, written: WorkspacePath, path: str, *, directory: int = -1, missing: tuple[str, ...] = (), name: str = ""
    ) -> None:
        self.written = written
        # Beneath the root, without links; the same as `written` when there was none on the way.
        self.path = path
        self.directory = directory
        # Directories between the open one and the name that do not exist: a write makes them.
        self.missing = missing
        self.name = name

    @property
    def elsewhere(self) -> bool:
        """A link on the way led to another path than the one that was written."""
        return self.path != self.written

    def close(self) -> None:
        if self.directory >= 0:
            os.close(self.directory)
            self.directory = -1

    def __del__(self) -> None:
        # A caller that was cancelled while a thread resolved never gets to close it.
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# The parts of file systems that a directory shows: of each the device and a path in it.
Extent = frozenset[tuple[str, str]]


def overlap(one: Extent, other: Extent) -> bool:
    """Whether a file can be in both."""
    return any(
        device == its_device and (_holds(path, its_path) or _holds(its_path, path))
        for device, path in one
        for its_device, its_path in other
    )


def _holds(above: str, below: str) -> bool:
    return f"{below}/".startswith(f"{above.rstrip('/')}/")


class Root(Protocol):
    """An open workspace directory: everything happens beneath its descriptor, links included."""

    # The real path it was opened by, for people; nothing is ever opened by it again.
    path: str
    # Device and inode: whether a directory opened again by the same path is the same one.
    identity: tuple[int, int]

    def resolve(self, path: WorkspacePath, *, follow: bool) -> ResolvedPath:
        """Where the path leads, whether or not anything is there; `FileFault` when out of the workspace.

        Links in directories are followed, one at the end only with `follow`. The caller closes it.
        """

    def resolve_cached(self, path: WorkspacePath, *, follow: bool) -> ResolvedPath | None:
        """The same on the event loop: None when it would have to wait for the disk, or to follow a link."""

    def read(self, place: ResolvedPath, max_bytes: int) -> bytes:
        """A regular file's content, whole or not at all."""

    def create(self, place: ResolvedPath, data: bytes, *, overwrite: bool) -> None:
        """Atomic. Makes parent directories. Without `overwrite` an existing name fails: `File already exists`."""

    def replace(self, place: ResolvedPath, data: bytes, *, expected: bytes) -> None:
        """Atomic, mode kept; refused when the content is no longer `expected`."""

    def delete(self, place: ResolvedPath) -> None:
        """A file, or a link itself; never a directory."""

    def entries(self, place: ResolvedPath | None, limit: int) -> tuple[list[FileEntry], bool]:
        """A directory's entries, sorted, and whether there are more; None is the workspace itself."""

    def digest(self, place: ResolvedPath, max_bytes: int) -> str | None:
        """SHA-256 of a regular file; None when there is none or it is larger."""

    def extent(self) -> Extent:
        """What it shows now: it may have been moved, and something mounted in it, since it was opened."""

    def fileno(self) -> int:
        """The directory's descriptor: what a sandbox binds, so that no name is ever followed a second time."""

    def is_in_place(self) -> bool:
        """Whether `path` still leads to this directory."""

    def place(self) -> str | None:
        """The path that this directory has now; None when it was removed."""

    @property
    def mode(self) -> int:
        """Its permissions now."""

    def set_mode(self, mode: int) -> None: ...

    @property
    def owned_by(self) -> tuple[int, int]:
        """User and group."""

    def duplicate(self) -> Self:
        """The same directory, opened once more; closed on its own."""

    def close(self) -> None: ...


# What `what_is_at` calls them.
DIRECTORY = "another directory"
EMPTY = "an empty directory"


class Files(Protocol):
    def open_root(self, path: str) -> Root:
        """`FileFault` when it is no directory, or one that no space may be (ours, the root, a home)."""

    def open_copy(self, path: str) -> Root:
        """A directory that we filled ourselves (`copy_out`), wherever it is; never one that a caller named."""

    def what_is_at(self, path: str) -> str | None:
        """`DIRECTORY`, `EMPTY`, or what else it is, in words for the person; None: nothing."""

    def is_directory(self, path: str, identity: tuple[int, int]) -> bool:
        """Whether exactly this directory is there, and no link to it."""

    def missing(self, root: str, names: Iterable[str]) -> list[str]:
        """Of these paths beneath it those at which nothing is."""

    def make_directory(self, path: str, mode: int | None, owner: tuple[int, int] | None) -> None:
        """With all that hold it; `FileFault` when it cannot be. Only root can give it to an owner."""

    def move_directory(self, source: str, target: str) -> None:
        """In one step; an empty directory at `target` makes room. `FileFault` when it cannot be."""


# -- commands -------------------------------------------------------------------------------------


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, once everything about it is decided."""

    process_id: str
    # For `sh -c`.
    command: str
    cwd: WorkspacePath | None = None
    # Added to the base environment.
    env: Mapping[str, str] = {}
    # None for background commands.
    timeout: timedelta | None = None
    # Enforced when programs are really executed.
    programs: ProgramRules
    # Who runs it: HOME is theirs alone.
    principal: str = "local"
    # Every `.git` of the workspace, if the caller knows; else they are looked for.
    repositories: tuple[str, ...] | None = None
    # Files it runs, by the SHA-256 that a person has approved: it sees these bytes or does not start. With a timeout
    # the other commands of this space and of those that overlap with it stand still while it runs, so that none can
    # exchange them, and it is ended when somebody else does.
    sealed: Mapping[WorkspacePath, str] = {}


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """One stream's output as an event shows it: whole, or head and tail."""

    text: str = ""
    size: int = 0
    truncated: bool = False


class ProgramRun(msgspec.Struct, frozen=True, kw_only=True):
    """A program that was executed, or kept from it: provenance."""

    path: str
    # Cut to a few words.
    argv: tuple[str, ...]
    denied: str | None = None
    times: int = 1


EndedBy = Literal["exit", "timeout", "cancelled", "memory", "processes", "cpu", "disk", "exchanged", "lost"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. No process of it is left when this exists."""

    exit_code: int
    ended_by: EndedBy = "exit"
    duration: timedelta
    stdout: Captured
    stderr: Captured
    programs: tuple[ProgramRun, ...] = ()
    # What the person or agent should know: which limit, which program was denied.
    note: str | None = None


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    data: bytes
    offset: int
    size: int
    # Bytes beyond the spool's limit.
    dropped: int = 0


SandboxKind = Literal["bubblewrap", "none"]
OnOutput = Callable[[Literal["stdout", "stderr"], bytes], None]


class SandboxFault(Exception):
    """No command can run here; the message says why and what to do (`bascule doctor`)."""


class Door(Protocol):
    """A listening socket for the commands of one space; every connection there acts as that space's agent."""

    path: str
    # The handle of that agent.
    agent: str

    async def close(self) -> None:
        """The socket is gone, and nobody is connected."""


class Doors(Protocol):
    async def open(self, space_id: str, user: int) -> Door:
        """For processes of `user` alone; `OSError` when it cannot be."""


class RunningCommand(Protocol):
    process_id: str

    async def wait(self) -> Outcome:
        """Cancelling the waiter does not end the command; `stop` does."""

    def stop(self, why: Literal["cancelled"] = "cancelled") -> None:
        """End it and everything it started, by SIGKILL; `wait` then returns."""


class Sandbox(Protocol):
    """Where one space's commands run."""

    # "bubblewrap" or "none".
    kind: str

    async def start(self, command: Command, on_output: OnOutput) -> RunningCommand:
        """`SandboxFault` when it cannot be. `on_output` is called on the event loop as output comes."""

    async def close(self) -> None:
        """Every process is gone when it returns."""


class Sandboxes(Protocol):
    def problem(self) -> str | None:
        """Why commands cannot run on this machine, in one sentence with its remedy; None when they can."""

    def open(
        self, space_id: str, root: Root, *, network: bool, kind: SandboxKind = "bubblewrap", door: bool = False
    ) -> Sandbox:
        """`SandboxFault` when there can be none of that kind here; "none" only because a person's settings say so.

        With `door` commands find `space.sock` and may send messages; outside a sandbox they never do.
        """

    def logs(self, process_id: str, stream: Literal["stdout", "stderr"], offset: int, limit: int) -> LogPage:
        """Spooled output of a command, running or ended; `KeyError` when it is no longer kept."""

    def forget(self, process_id: str) -> None:
        """Its spooled output may go."""


# -- checkpoints ----------------------------------------------------------------------------------


# What a tree says of a directory that a killed undo has left: copies of what the store has, and nobody's work.
LEFTOVER = "is named like what an unfinished undo leaves behind"
# In every sentence about that, whichever part found it.
DISK_FULL = "the disk with Bascule's state is full"


class CheckpointFault(Exception):
    """No checkpoint could be taken or used; the message says why (too many files, too large, a later change)."""


class LaterChanges(CheckpointFault):
    """What has to be put back was changed since; nothing was changed now."""


# What a path, or a name of git's, has in a state: compared, and never looked into. None is that nothing is there.
Value: TypeAlias = object


class Way(NamedTuple):
    """What is to become of one path."""

    expected: Value
    wanted: Value
    # When the call began that brought what is there now (wall clock): what is older may be the only copy of it.
    since_ms: int = 0


class Ways(NamedTuple):
    # A tree from before all of it: it knows directories above them that are gone.
    target: str
    paths: Mapping[bytes, Way]


class Undone(NamedTuple):
    changes: list[FileChange]
    # What stays as it is although it may belong to it, and why.
    left_alone: list[PathReason]
    # A unified diff of `changes`, and whether it was cut.
    diff: str
    truncated: bool
    # What is not as it should be, now that it was looked at again.
    failed: list[PathReason] = []


class Checkpoints(Protocol):
    """Snapshots of one workspace in our state directory, as git objects.

    What a tree cannot hold (too large, too deep, unreadable) costs the rest nothing: `unknown` names it.
    """

    @property
    def root(self) -> Root:
        """The directory that they are of."""

    # Every `.git` that the last `take` saw, with its inode, also where a tree holds nothing; it is part of no tree.
    repositories: Mapping[str, int]

    # Why the last `take` looked at everything although it was to rely on a watch.
    scans_because: str | None

    def take(self, until: int | None = None, since: int | None = None, *, watched: bool = False) -> str:
        """The tree as it is now; cheap when little changed. What changed after `until` (ns) is unknown in it.

        With `watched` only what the kernel reports as changed is looked at, where it can report that.

        What changed after `since` (ns) is read again, whatever its times say: a program that has a file mapped changes
        it without them.
        """

    def touched(self, before: str, after: str) -> list[str]:
        """Paths that are new or different in `after`; directories too."""

    def content(self, tree: str, path: str) -> bytes | None:
        """A file of a tree."""

    def versions(self, trees: Sequence[str], path: str) -> list[str | None]:
        """In each of the trees the id of a file's content, None where it has none, `not held` behind a gap."""

    def blob(self, version: str) -> bytes:
        """A content by its id, which is the same in every workspace."""

    def kind(self, tree: str, path: str) -> Literal["file", "link", "directory"] | None:
        """What a tree has there; None: nothing."""

    def changes(self, before: str, after: str) -> list[FileChange]: ...

    def unknown(self, before: str, after: str) -> list[PathReason]:
        """Paths that one of the trees does not hold, unless they are known to be the same in both."""

    def diff(self, before: str, after: str, max_chars: int) -> tuple[str, bool]:
        """A unified diff, and whether it was cut."""

    def edits(self, before: str, after: str, /) -> Mapping[bytes, tuple[Value, Value]]:
        """Each path that differs, with its value in both; a directory without what is in it."""

    def values(self, tree: str, paths: Iterable[bytes], /) -> Mapping[bytes, Value]: ...

    def same(self, known: Value, found: Value, /) -> bool:
        """Whether what is found now can be what was left; also where nobody can tell, which `bring` looks at again."""

    def is_rewrite(self, old: Value, new: Value, /) -> bool:
        """Whether another content came, and not another mode alone."""

    def merged(self, base: Value, ours: Value, theirs: Value, /) -> tuple[Value, str]:
        """Three files as one, line by line; or why that cannot be."""

    def bring(
        self,
        ways: Ways,
        *,
        dry_run: bool,
        max_chars: int = 0,
        resumes: bool = False,
        elsewhere: Callable[[], Collection[bytes]] = tuple,
    ) -> Undone:
        """Give each path its value, where it is still as expected; what is not is left alone.

        With `resumes` the same was cut short, and directories may have a mode that is nobody's. What is older than the
        way says is not removed where nothing else has its content, in the workspace or `elsewhere` (ids of git's
        blobs).
        """

    def expect(self, ways: Ways, *, resumes: bool = False) -> tuple[str, str]:
        """The tree as it is now, and as `bring` will leave it. Both are on disk."""

    def cut_short(self, before: str, after: str, now: str, /, *, half_too: bool = False) -> tuple[str, set[bytes]]:
        """How far a change from `before` to `after` came that was cut short, and the paths that it left half made.

        With `half_too` the tree has those as they are now.
        """

    def has(self, contents: Collection[bytes], /) -> bool:
        """Whether files or links of the workspace, as it is now, have each of these (ids of git's blobs)."""

    def empty(self) -> str:
        """The tree of a directory without anything in it."""

    def close(self) -> None:
        """Once nobody else takes a checkpoint here; the root is closed with it."""

    def copy_out(self, tree: str, into: str) -> None:
        """The tree as files in a new directory: a workspace to try things in."""

    def apply(self, before: str, after: str) -> Undone:
        """Bring what happened between two trees into the workspace, if nothing of it changed since `before`."""


class CheckpointStore(Protocol):
    def open(self, space_id: str, root: Root) -> Checkpoints: ...

    def collect(self, keep: Mapping[str, frozenset[str]]) -> int:
        """Drop what no kept tree of a space needs; bytes freed. Spaces that are not named stay as they are."""


class GitStates(Protocol):
    """HEAD, refs, index, configuration and hooks of the repository at the top, which checkpoints leave out.

    A state is a mapping from names, which are for people ("HEAD", "refs/heads/main", "index"), to what can be compared.
    """

    def take(
        self, space_id: str, root: str, /, *, further: Iterable[str] = (), until_ms: int | None = None
    ) -> str | None:
        """The id of the state as it is now; None where there is no repository.

        `further`: every `.git` of the workspace. With `until_ms` (wall clock) what changed later is left out.
        """

    def further(self, space_id: str, state: str, /) -> list[str]:
        """Every `.git` below the top that was looked at for a state."""

    def not_held(self, space_id: str, root: str, before: str, after: str, /) -> dict[str, str]:
        """With the reason: every `.git` in which something changed that is not put back."""

    def edits(self, space_id: str, before: str, after: str, /) -> Mapping[str, tuple[Hashable | None, Hashable | None]]:
        """Each name that differs between two states, with what is there in both; None: nothing."""

    def value(self, space_id: str, state: str, key: str, /) -> Hashable | None:
        """What is at one name in a state."""

    def same(self, key: str, known: Hashable | None, found: Hashable | None, /) -> bool:
        """Whether `found` can be what was left as `known`: git changes times in an index when it only looks."""

    def compose(self, space_id: str, now: str, wanted: Mapping[str, str], /) -> str:
        """The state `now` with each of these names as it is in the state beside it; kept on disk."""

    def undo(
        self, space_id: str, root: str, before: str, after: str, /, *, dry_run: bool
    ) -> tuple[list[str], dict[str, str]]:
        """Put back what differs and is still as in `after`: what was put back, and what stays with the reason."""

    def is_same(self, space_id: str, before: str, after: str, /) -> bool:
        """Whether two states are of one repository: refs of another name commits that it does not have."""

    def expect(self, space_id: str, root: str, before: str, after: str, /) -> tuple[str, str]:
        """The state as it is now, and as `undo` will leave it. Both are on disk."""

    def collect(self, keep: Mapping[str, Iterable[str]], /) -> None:
        """Drop what no kept run needs, of the spaces that are named."""


class Kept(NamedTuple):
    # None: nothing outside of the project was named.
    state: str | None
    # Whether something inside of it was.
    inside: bool


class PutBack(NamedTuple):
    changes: list[FileChange]
    # What stays as it is although it may belong to it, and why.
    left_alone: list[PathReason]
    # What is not as it should be, now that it was looked at again.
    failed: list[PathReason] = []


class OutsideStore(Protocol):
    """Copies of what calls name outside of their project, in our state directory."""

    def keep(self, space_id: str, root: str, paths: Sequence[str], /, *, into: bool) -> Kept:
        """Copy what these absolute paths name; `CheckpointFault` says why that cannot be.

        With `into` a directory is only where others of them are put.
        """

    def look(self, space_id: str, before: str, /, *, without: str | None = None) -> str:
        """The same places as they are now, without their content, and without what lies at `without`."""

    def changes(self, space_id: str, before: str, after: str, /) -> list[FileChange]: ...

    def edits(self, space_id: str, before: str, after: str, /) -> Mapping[bytes, tuple[Value, Value]]:
        """Each path that differs, with its value in both."""

    def look_at(self, space_id: str, states: Sequence[str], /, *, without: str | None = None) -> str:
        """`look` at the places of all these states."""

    def values(self, space_id: str, state: str, paths: Iterable[bytes], /) -> Mapping[bytes, Value]: ...

    def same(self, known: Value, found: Value, /, *, resumes: bool) -> bool:
        """Whether what is found now can be what was left; with `resumes` also by an undo that was cut short."""

    def compose(self, space_id: str, now: str, wanted: Mapping[bytes, str], /) -> str:
        """The state `now` with each of these paths as it is in the state named beside it, and its content."""

    def cut_short(self, space_id: str, before: str, after: str, now: str, /, *, half_too: bool) -> str:
        """How far a change from `before` to `after` came that was cut short; with what is half made as it is now."""

    def half_made(self, space_id: str, before: str, after: str, now: str, /) -> Collection[bytes]:
        """What such a change has left neither as it was nor as it should become."""

    def undo(
        self,
        space_id: str,
        before: str,
        after: str | None,
        /,
        *,
        dry_run: bool,
        without: str | None = None,
        resumes: bool = False,
        keep: Callable[[Sequence[PathReason], Collection[bytes]], str | None] = lambda _failed, _older: None,
    ) -> PutBack:
        """Put back what the call changed; `LaterChanges` when something of it was changed since.

        What it made is removed last. Before that `keep` is asked, with what could not be put back here, and with what
        is older than the call and was not put back here (ids of git's blobs): its answer is why nothing is removed.
        What lies at `without` or beneath it is not looked at. `resumes` as in `Checkpoints.undo`.
        """

    def contents(self, space_id: str, before: str, /) -> Collection[bytes]:
        """What `undo` puts back, as ids of git's blobs."""

    def expect(
        self, space_id: str, before: str, after: str | None, /, *, without: str | None = None, resumes: bool = False
    ) -> tuple[str, str]:
        """The state as it is now, with its content, and as `undo` will leave it. Both are on disk."""

    def collect(self, keep: Mapping[str, Iterable[str]], /) -> None:
        """Drop what no kept run needs, of the spaces that are named."""


# -- room of our own ------------------------------------------------------------------------------


class Scratch(Protocol):
    """Private directories for copies of workspaces. Blocks; called on threads."""

    def make(self, name: str) -> str:
        """A new empty directory that nobody else can reach."""

    def remove(self, directory: str) -> None:
        """With everything in it, whatever its modes are."""
