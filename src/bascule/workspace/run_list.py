"""What `runs.list` and `spaces.log` take and answer."""

from typing import Annotated, Literal

from msgspec import Meta

from bascule.kernel.rows import Params, Result
from bascule.workspace.protocol import RunRef, SpaceRef


class RunsListParams(Params, frozen=True, kw_only=True):
    # Only those of this space.
    space_id: SpaceRef | None = None
    # Only those that started before this run: the last one of the page before.
    before: RunRef | None = None
    # Only those that this principal started: `agent:Jerry`, `local`, `person`.
    principal: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    status: Literal["completed", "awaiting_approval", "error", "running", "cancelled", "unknown"] | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50


class NativeView(Result, frozen=True, kw_only=True):
    client: str
    session: str
    tool: str
    title: str


class RunView(Result, frozen=True, kw_only=True):
    run_id: str
    space_id: str
    started_by: str
    started_at: str
    ended_at: str | None = None
    # completed, awaiting_approval, error, running, cancelled, unknown.
    status: str
    operations: int
    events: int
    on_copy: bool = False
    # A command that was started in the background; other runs worked beside it.
    background: bool = False
    # What an agent's own tool did: which client's, in which session, and the command or the paths.
    native: NativeView | None = None
    committed: bool = False
    # Whether `runs.undo` can take it back; `note` says why not, or what of it not.
    undoable: bool = False
    undone: bool = False
    note: str | None = None
    # Who said yes to it: `person: passkey`, `person: passphrase`, `timed rule: NAME, ID`, `rule: NAME`,
    # `client: its own dialog`; or `nobody: observe` where nobody was asked, because hooks decide nothing.
    approved_by: list[str] = []
    steering: list[str] = []


class LogParams(Params, frozen=True, kw_only=True):
    space_id: SpaceRef
    # Only those before this one: the last of the page before.
    before: RunRef | None = None
    # Only this one.
    operation_id: RunRef | None = None
    # Only those of a session, or of an agent: as `runs.undo` takes them.
    session: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    agent: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    # Only those that changed this file, or something in this directory.
    path: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 20


class OperationView(Result, frozen=True, kw_only=True):
    operation_id: str
    kind: Literal["run", "undo", "redo"]
    # The operation before it in this space.
    parent: str | None = None
    started_by: str
    started_at: str
    ended_at: str | None = None
    # What an agent's own tool did: which client's, in which session, and the command or the paths.
    native: NativeView | None = None
    # What a run of operations did first.
    title: str | None = None
    # Of an undo: what it took back, in words and one by one.
    what: str | None = None
    undoes: list[str] = []
    # How many files it changed; none where that is not known.
    files: int | None = None
    # It changed files, git's record or something outside, and is not taken back.
    undoable: bool = False
    # All of it is taken back; and which undo took back that, or a part of it.
    undone: bool = False
    undone_by: str | None = None
    note: str | None = None
