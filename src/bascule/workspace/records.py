"""What the workspace keeps: spaces, and runs in parts, so that one more event never writes the others again."""

from typing import Any

import msgspec

from bascule.workspace.protocol import ApprovalRequiredEvent, Event, Operation, OperationType

# Of runs and undos, and of the checkpoints, git states and outside copies that they name. Raise it when older and newer
# code do not read each other's whole: of another number all of that is moved aside, by `daemon/moving_aside.py`.
FORMAT = 2

RUNNING = "running"
AWAITING = "awaiting_approval"
COMPLETED = "completed"
ERROR = "error"
CANCELLED = "cancelled"
# The daemon ended while it was under way.
UNKNOWN = "unknown"
# How the note of a native call begins that goes on without an undo.
NO_UNDO = "no undo: "
ENDED = frozenset({COMPLETED, ERROR, CANCELLED, UNKNOWN})


class SpaceRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    space_id: str
    name: str
    # The real directory.
    path: str
    opened_by: str
    opened_at: int


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One operation of a run, valid or not, and the id its event will have."""

    id: str
    operation: Operation | None = None
    # What is wrong with it: its one event says so when its turn comes.
    problem: str | None = None


class RunQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a paused run waits for."""

    approval_id: str
    # Of everything the answer is bound to: operation, place, policy, and the files it names.
    digest: str
    bound: dict[str, Any]
    event: ApprovalRequiredEvent


class Asks(msgspec.Struct, frozen=True, gc=False):
    """By which rule an operation on a copy would have asked, and why."""

    rule: str
    reason: str


class Segment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What an operation did between taking and giving back its turn, as two checkpoints."""

    before: str
    # None while it works, and when the daemon ended meanwhile or the checkpoint could not be taken.
    after: str | None = None
    # Then: what changed later than this (wall clock, in ms) is not the run's work.
    until: int | None = None
    # Moments: wall clock in ms, but no two are the same, and none is before an earlier one (`Checkpointing.take`).
    began: int = 0
    ended: int = 0


class NativeCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A call of an agent's own tool, as its client reported it: a claim."""

    client: str
    session: str
    # The client's process, and the handle of the session's agent: whose work it is.
    pid: int = 0
    agent: str | None = None
    # A keyed digest of what was asked; and its beginning, where a setting says that it is kept (native_keep_prompts).
    prompt: str | None = None
    asked: str | None = None
    tool: str
    # The command, or the paths; cut.
    title: str
    # Paths of the project that it names to write them, and whether it writes nothing else.
    mentions: tuple[str, ...] = ()
    only_these: bool = False


class GitSegment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """HEAD, refs and index before and after, where they differ."""

    before: str
    after: str
    # Moments, as of a `Segment`.
    began: int = 0
    ended: int = 0


class OutsideSegment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What it named outside of the project, before and after."""

    before: str
    # None while it works, and when it is not known.
    after: str | None = None


class Move(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The project's directory went from one path to another."""

    source: str
    target: str
    # Device and inode: which directory that is.
    identity: tuple[int, int]


class RemovedProject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The project's directory as it was, to make it again."""

    mode: int
    owner: int
    group: int


class UndoRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An undo: what it found, and what it was about to leave, on disk before its first change.

    What is neither the one nor the other has been changed since, also where the undo was cut short.
    """

    undo_id: str
    space_id: str
    # Who made the undo: taking it back is taking back their work.
    started_by: str
    # From below an agent's client, and that client's process, where it is known: no terminal of the person's.
    below_client: bool = False
    client: int = 0
    at: int
    # What was to be taken back, for people; the operations that this is, and the only paths that were meant of them.
    what: str
    undoes: tuple[str, ...]
    paths: tuple[str, ...] = ()
    # It took undos back.
    redoes: bool = False
    segment: Segment
    # The tree that it was about to leave; the one that it left may have the work of others in it.
    planned: str
    git: GitSegment | None = None
    outside: OutsideSegment | None = None
    move: Move | None = None
    mode: tuple[int, int] | None = None
    # Else it was cut short, and a directory may be half made.
    finished: bool = False
    # It was taken back itself.
    undone: bool = False

    @property
    def run_id(self) -> str:
        return self.undo_id


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="row", tag="run"):
    run_id: str
    space_id: str
    # Counts all runs of this store: the order of starting, whatever the wall clock did.
    number: int
    started_by: str
    started_at: int
    status: str
    operations: int
    ended_at: int | None = None
    on_copy: bool = False
    # One command that does not take turns.
    background: bool = False
    # One that an agent's own tool did; nothing of ours executed it.
    native: NativeCall | None = None
    # Git's record before such a call, until what it changed there is known.
    git_before: str | None = None
    git_began: int = 0
    git: GitSegment | None = None
    outside: OutsideSegment | None = None
    # The project's own directory went elsewhere, or was removed, or has another mode (before, after).
    move: Move | None = None
    removed: RemovedProject | None = None
    mode: tuple[int, int] | None = None
    # Repositories' own records (`.git`) that it removed or took elsewhere.
    lost: tuple[str, ...] = ()
    # On a copy: what some operation would have been asked for, so that taking the result over asks.
    would_ask: Asks | None = None
    committed: bool = False
    undone: bool = False
    segments: tuple[Segment, ...] = ()
    question: RunQuestion | None = None
    # Runs that began while it worked are no longer kept: what they changed can no longer be told from what it did.
    outlived: bool = False
    # Why it cannot be undone, or how it ended.
    note: str | None = None
    # Who said yes to what it did: `person: passkey`, `timed rule: NAME, ID`, `rule: NAME`, `client: its own dialog`,
    # `nobody: observe`.
    approved_by: tuple[str, ...] = ()
    # What it left that other programs of the user obey, one sentence each.
    steering: tuple[str, ...] = ()
    # Its events made room for those of newer runs.
    events_dropped: bool = False
    worked_ms: int = 0
    # Items of its stream so far: a reader that comes back after a restart asks for what comes after its last one.
    seq: int = 0

    def with_yes(self, yes: str) -> "RunRecord":
        return self if yes in self.approved_by else msgspec.structs.replace(self, approved_by=(*self.approved_by, yes))

    @property
    def left_changes(self) -> bool:
        """Whether an undo has something to do, or to name."""
        parts = (self.segments, self.git, self.outside, self.move, self.removed, self.mode, self.lost)
        return any(parts)


class RunPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="row", tag="plan"):
    """The ids of a run's operations: after a crash, each that has no event yet still gets its one."""

    ids: list[str]
    types: list[OperationType | None]


class RunEvents(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="row", tag="events"):
    events: list[Event]
    # As JSON, in bytes.
    size: int


class RunRest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="row", tag="rest"):
    """The operations a paused run has before it, the one it asks about first."""

    steps: list[Step]
    size: int


RunRow = RunRecord | RunPlan | RunEvents | RunRest
# Rows of a table have one type; the tag tells which of these a row is.
RUN_ROW: Any = RunRow


def plan_key(run_id: str) -> str:
    return f"{run_id}/plan"


def rest_key(run_id: str) -> str:
    return f"{run_id}/rest"


def events_key(run_id: str, first: int) -> str:
    """By the number of its first event, so that the order of keys is the order of events."""
    return f"{run_id}/e{first:06d}"
