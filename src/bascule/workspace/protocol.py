"""The Agent Spaces protocol 1.0 on the wire: six operations in, events out.

What the spec shows is here word for word; what we add (`truncated`, `processId`, `rung`, ...) is left out of an
event when it says nothing. Which rules an operation must keep beyond its types is in `workspace.validation`.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from bascule.kernel.rows import Params, Result
from bascule.workspace.paths import MAX_PATH_CHARS

SPACES_PROTOCOL_VERSION = "1.0"

# The spec names no sizes but that of paths; these are the ones its authors' own runtime has.
MAX_COMMAND_CHARS = 4_096
MAX_CONTENT_BYTES = 10 * 1024 * 1024
MAX_MESSAGE_CHARS = 100_000
DEFAULT_TIMEOUT_MS = 30_000
MAX_TIMEOUT_MS = 3_600_000
# A message of a thousand operations is work for minutes; ten times that is a mistake or an attack.
MAX_OPERATIONS = 10_000
# Each is searched for in the whole file.
MAX_EDITS = 1_000
# A shell of a developer has fewer than a hundred.
MAX_ENV_VARIABLES = 256
# Of names and values together; the kernel takes 128 KiB for one string and some megabytes for all.
MAX_ENV_BYTES = 64 * 1024
# A UUID and a few words: it stands in events, ledger and approvals.
MAX_OPERATION_ID_CHARS = 128

Encoding = Literal["utf-8", "base64"]
OperationType = Literal["message", "createFile", "readFile", "editFile", "deleteFile", "shell"]
# What we answer to callers who said how long they wait; the spec's three are what a run ends with.
LiveRunStatus = Literal["completed", "awaiting_approval", "error", "running"]
Category = Literal["validation", "policy", "execution", "timeout", "system"]

OperationId = Annotated[str, Meta(min_length=1, max_length=MAX_OPERATION_ID_CHARS)]

# Python's `$` also matches before a final newline; JSON Schema's does not. This means the same to both.
_END = r"$(?!\n)"
# "All file paths must" (Path Validation), for the JSON Schemas; what is wrong with a path is said better by
# `workspace.paths`, so decoding leaves it to that.
_STEPS = rf"(?![A-Za-z]:)(?!/)(?!(?:[^\u0000\\]*/)?\.\.(?:/|{_END}))[^\u0000\\]+{_END}"
Path = Annotated[
    str,
    Meta(
        extra_json_schema={
            "minLength": 1,
            "maxLength": MAX_PATH_CHARS,
            # A path of nothing but `.` names the workspace itself, which is no file.
            "pattern": rf"^(?!(?:\.?/)*\.?{_END})" + _STEPS,
        }
    ),
]
# A command may run in the workspace itself.
Directory = Annotated[
    str, Meta(extra_json_schema={"minLength": 1, "maxLength": MAX_PATH_CHARS, "pattern": r"^" + _STEPS})
]
EnvName = Annotated[str, Meta(extra_json_schema={"pattern": rf"^[A-Za-z_][A-Za-z0-9_]*{_END}"})]
# A null byte is what neither a variable nor a command line can hold, and a command must say something.
EnvValue = Annotated[str, Meta(extra_json_schema={"pattern": rf"^[^\u0000]*{_END}"})]
CommandText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_COMMAND_CHARS,
        extra_json_schema={"pattern": rf"^[^\u0000]*[^\u0000\s][^\u0000]*{_END}"},
    ),
]
Environment = Annotated[dict[EnvName, EnvValue], Meta(max_length=MAX_ENV_VARIABLES)]


class _Operation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", gc=False):
    """What every operation has. `id` is a correlation id; operations without one get `op-<n>`."""

    id: OperationId | None = None


class MessageOperation(_Operation, frozen=True, kw_only=True, tag_field="type", tag="message"):
    content: Annotated[str, Meta(max_length=MAX_MESSAGE_CHARS)]


class CreateFileOperation(_Operation, frozen=True, kw_only=True, tag_field="type", tag="createFile"):
    path: Path
    content: str
    encoding: Encoding = "utf-8"
    overwrite: bool = False


class ReadFileOperation(_Operation, frozen=True, kw_only=True, tag_field="type", tag="readFile"):
    path: Path
    encoding: Encoding = "utf-8"


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", gc=False):
    old_content: str
    new_content: str


class EditFileOperation(_Operation, frozen=True, kw_only=True, tag_field="type", tag="editFile"):
    path: Path
    edits: Annotated[list[Edit], Meta(min_length=1, max_length=MAX_EDITS)]


class DeleteFileOperation(_Operation, frozen=True, kw_only=True, tag_field="type", tag="deleteFile"):
    path: Path


class ShellOperation(_Operation, frozen=True, kw_only=True, tag_field="type", tag="shell"):
    command: CommandText
    # The workspace itself unless given.
    cwd: Directory | None = None
    # A number in the spec, so 1500.5 is one too.
    timeout: Annotated[float, Meta(gt=0, le=MAX_TIMEOUT_MS)] = DEFAULT_TIMEOUT_MS
    env: Environment = {}


Operation = (
    MessageOperation
    | CreateFileOperation
    | ReadFileOperation
    | EditFileOperation
    | DeleteFileOperation
    | ShellOperation
)


class OperationsMessage(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", gc=False
):
    """What an agent sends: "All messages must include the protocol version"."""

    protocol_version: Literal["1.0"]
    operations: Annotated[list[Operation], Meta(max_length=MAX_OPERATIONS)]


# -- events ---------------------------------------------------------------------------------------


class PathReason(Result, frozen=True, kw_only=True):
    """A path that a checkpoint does not hold or an undo leaves alone, and why; `.` is the whole workspace."""

    path: str
    reason: str


class _Event(Result, frozen=True, kw_only=True):
    timestamp: str
    # On failure too, and also where the spec's shortened examples leave them out.
    operation_id: str | UnsetType = UNSET
    # In the last event of a run: what of the run `runs.undo` cannot put back.
    not_undoable: list[PathReason] | UnsetType = UNSET


class MessageEvent(_Event, frozen=True, kw_only=True, tag_field="type", tag="message"):
    success: bool


class CreateFileEvent(_Event, frozen=True, kw_only=True, tag_field="type", tag="createFile"):
    path: str
    success: bool
    bytes_written: int | UnsetType = UNSET
    error: str | UnsetType = UNSET


class ReadFileEvent(_Event, frozen=True, kw_only=True, tag_field="type", tag="readFile"):
    path: str
    success: bool
    content: str | UnsetType = UNSET
    encoding: Encoding | UnsetType = UNSET
    # In bytes, whatever the encoding.
    size: int | UnsetType = UNSET
    error: str | UnsetType = UNSET


class EditFileEvent(_Event, frozen=True, kw_only=True, tag_field="type", tag="editFile"):
    path: str
    success: bool
    edits_applied: int | UnsetType = UNSET
    # How each edit was found when not to the letter: exact, line-endings, trailing-space, indent.
    rungs: list[str] | UnsetType = UNSET
    error: str | UnsetType = UNSET


class DeleteFileEvent(_Event, frozen=True, kw_only=True, tag_field="type", tag="deleteFile"):
    path: str
    success: bool
    error: str | UnsetType = UNSET


class ShellEvent(_Event, frozen=True, kw_only=True, tag_field="type", tag="shell"):
    command: str
    success: bool
    exit_code: int | UnsetType = UNSET
    stdout: str | UnsetType = UNSET
    stderr: str | UnsetType = UNSET
    timed_out: bool | UnsetType = UNSET
    duration_ms: int | UnsetType = UNSET
    # Not all output is here: `processes.logs` has it under the id.
    truncated: bool | UnsetType = UNSET
    process_id: str | UnsetType = UNSET
    # What ended it when it did not end by itself: memory, processes, cpu, disk, cancelled, lost.
    ended_by: str | UnsetType = UNSET
    # Said in every event when a command ran without one.
    sandbox: Literal["none"] | UnsetType = UNSET
    error: str | UnsetType = UNSET


class ApprovalRequiredEvent(_Event, frozen=True, kw_only=True, tag_field="type", tag="approvalRequired"):
    operation_type: OperationType
    reason: str
    # {command?, path?, policy, approvalId, ...}
    details: dict[str, Any]


class PolicyDeniedEvent(_Event, frozen=True, kw_only=True, tag_field="type", tag="policyDenied"):
    operation_type: OperationType
    reason: str
    suggestion: str | UnsetType = UNSET


class ErrorEvent(_Event, frozen=True, kw_only=True, tag_field="type", tag="error"):
    category: Category
    message: str
    details: dict[str, Any]


Event = (
    MessageEvent
    | CreateFileEvent
    | ReadFileEvent
    | EditFileEvent
    | DeleteFileEvent
    | ShellEvent
    | ApprovalRequiredEvent
    | PolicyDeniedEvent
    | ErrorEvent
)


class EventsMessage(Result, frozen=True, kw_only=True):
    """What a run answers."""

    protocol_version: str
    run_id: str
    status: LiveRunStatus
    events: list[Event]
    # What the run left that other programs of the user obey, one sentence each. Ours, not the protocol's.
    steering: list[str] = []


# -- what our own methods take and answer ---------------------------------------------------------

SpaceRef = Annotated[str, Meta(min_length=1, max_length=128)]
RunRef = Annotated[str, Meta(min_length=1, max_length=64)]
ProcessRef = Annotated[str, Meta(min_length=1, max_length=64)]
_Wait = Annotated[int, Meta(ge=0)]
_Operations = Annotated[Any, Meta(extra_json_schema={"type": "array", "items": {}, "maxItems": MAX_OPERATIONS})]

# A page of a log that a link frame and a model's context can hold.
MAX_LOG_BYTES = 256 * 1024


class SpaceOpenParams(Params, frozen=True, kw_only=True):
    """A directory becomes a space; the same directory is the same space."""

    # Absolute. Followed to the real directory.
    path: Annotated[str, Meta(min_length=1, max_length=4_096, extra_json_schema={"pattern": r"^/"})]
    # Shown to people; unless given, the directory's own name.
    name: Annotated[str, Meta(min_length=1, max_length=64)] | None = None


class SpaceParams(Params, frozen=True, kw_only=True):
    space_id: SpaceRef


class SpaceView(Result, frozen=True, kw_only=True):
    space_id: str
    name: str
    path: str
    opened_by: str
    opened_at: str
    # "bubblewrap" or "none"; with why when commands cannot run.
    sandbox: str
    problem: str | None = None
    runs: int
    processes: int


class RunParams(Params, frozen=True, kw_only=True):
    """The spec's operations message, and where it runs.

    `protocolVersion` and `operations` are any JSON here: what is wrong with them is answered in the protocol's own
    form (an `error` event), not in ours.
    """

    space_id: SpaceRef
    protocol_version: Annotated[Any, Meta(extra_json_schema={"const": "1.0"})] = None
    operations: _Operations = None
    # Without it the caller stays until the run is over, and its leaving cancels the run. With it the run lives by
    # itself and the answer after that time may say `running`.
    wait_ms: _Wait | None = None
    # On a copy of the workspace: nothing asks, nothing lasts until `runs.commit`.
    on_copy: bool = False


class RunIdParams(Params, frozen=True, kw_only=True):
    run_id: RunRef
    # When given, the run must be one of this space.
    space_id: SpaceRef | None = None


class RunWaitParams(RunIdParams, frozen=True, kw_only=True):
    wait_ms: _Wait = 25_000


class RunStreamParams(RunIdParams, frozen=True, kw_only=True):
    # Only what came after this item.
    since: Annotated[int, Meta(ge=0)] = 0


class ApprovalAnswer(Params, frozen=True, kw_only=True):
    operation_id: OperationId
    decision: Literal["approved", "denied"]
    reason: Annotated[str, Meta(max_length=1_000)] | None = None


class ResumeParams(RunIdParams, frozen=True, kw_only=True):
    approval: ApprovalAnswer


class CancelRunParams(RunIdParams, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(max_length=1_000)] | None = None


class UndoParams(Params, frozen=True, kw_only=True):
    """Without any of `runId`, `session`, `agent`, `since`, `to` and `paths`: the last run in the space."""

    space_id: SpaceRef | None = None
    # One operation: a run, or an undo.
    run_id: RunRef | None = None
    # All runs of a session: its id, the end of it, or a client's name for that client's newest one.
    session: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    # All runs of the agent with this handle.
    agent: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    # Only runs that began then or later: a time with its zone.
    since: Annotated[str, Meta(min_length=1, max_length=40)] | None = None
    # Everything that came after this operation.
    to: RunRef | None = None
    # Only these files, and what is in these directories; alone: what the last run that changed them did to them.
    paths: Annotated[list[Path], Meta(max_length=1_000)] = []
    # Of all these only the newest run; with `paths` the newest that changed one of them.
    newest: bool = False
    # What others changed later in the same file is merged by line; without it such a file is left alone.
    merge: bool = False
    # Say what would change, and change nothing.
    dry_run: bool = False


class RedoParams(Params, frozen=True, kw_only=True):
    """Take back the last undo in the space, or the one that is named."""

    space_id: SpaceRef
    undo_id: RunRef | None = None
    # The last one of the agent with this handle.
    agent: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    dry_run: bool = False


class StreamedOutput(Result, frozen=True, kw_only=True):
    """An item of `runs.stream`: an event, a piece of output, or the end."""

    seq: int
    # "event", "stdout", "stderr", "status".
    kind: str
    operation_id: str | None = None
    text: str | None = None
    event: Event | None = None
    status: str | None = None
    steering: list[str] = []


class FileChange(Result, frozen=True, kw_only=True):
    path: str
    change: Literal["added", "modified", "deleted", "mode", "type"]
    binary: bool = False
    added: int = 0
    removed: int = 0


class DiffResult(Result, frozen=True, kw_only=True):
    run_id: str
    space_id: str
    changes: list[FileChange]
    # A unified diff, cut at a limit that `truncated` admits.
    diff: str
    truncated: bool = False
    # What may have changed and no checkpoint holds.
    unknown: list[PathReason] = []
    # What else to know: it is not over, others worked at the same time, the daemon ended meanwhile.
    note: str | None = None
    steering: list[str] = []


class UndoResult(Result, frozen=True, kw_only=True):
    # The newest of the operations that were meant, all of them, and in words.
    run_id: str
    operations: list[str]
    what: str
    dry_run: bool
    # Paths put back, and what with: the diff that undoing makes.
    changes: list[FileChange]
    diff: str
    truncated: bool = False
    # What stays as it is although the run may have changed it.
    left_alone: list[PathReason] = []
    # What should be as it was before the run and, looked at afterwards, is not.
    failed: list[PathReason] = []
    note: str | None = None
    # The command that takes this undo back: `runs.redo`.
    taken_back_by: str | None = None


class ProcessStartParams(Params, frozen=True, kw_only=True):
    space_id: SpaceRef
    command: CommandText
    cwd: Directory | None = None
    env: Environment = {}


class ProcessesListParams(Params, frozen=True, kw_only=True):
    space_id: SpaceRef | None = None


class ProcessParams(Params, frozen=True, kw_only=True):
    process_id: ProcessRef
    # When given, the command must be one of this space.
    space_id: SpaceRef | None = None


class ProcessLogsParams(ProcessParams, frozen=True, kw_only=True):
    stream: Literal["stdout", "stderr"] = "stdout"
    # From this byte; a negative one counts from the end.
    offset: int = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_LOG_BYTES)] = 16 * 1024
    # Wait this long for more when there is nothing at `offset` yet.
    wait_ms: _Wait = 0


class ProcessLogs(Result, frozen=True, kw_only=True):
    process_id: str
    stream: str
    text: str
    offset: int
    next_offset: int
    # Bytes written so far; those beyond the spool's limit are gone.
    size: int
    running: bool
    exit_code: int | None = None
    # Output beyond the spool's limit was not kept.
    dropped: int = 0


class ProcessView(Result, frozen=True, kw_only=True):
    process_id: str
    space_id: str
    # The run whose command it is; one in the background is a run of its own.
    run_id: str | None = None
    command: str
    started_by: str
    started_at: str
    running: bool
    background: bool = False
    exit_code: int | None = None
    ended_by: str | None = None


class FilePathParams(Params, frozen=True, kw_only=True):
    space_id: SpaceRef
    path: Path


class FileParams(FilePathParams, frozen=True, kw_only=True):
    encoding: Encoding = "utf-8"


class FileWriteParams(FileParams, frozen=True, kw_only=True):
    content: str
    overwrite: bool = True


class FilesListParams(Params, frozen=True, kw_only=True):
    space_id: SpaceRef
    # The workspace itself when empty.
    path: Annotated[str, Meta(extra_json_schema={"maxLength": MAX_PATH_CHARS, "pattern": rf"^(?:|{_STEPS})$"})] = ""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000


class FileEntry(Result, frozen=True, kw_only=True):
    name: str
    type: Literal["file", "directory", "link", "other"]
    size: int = 0


class FilesList(Result, frozen=True, kw_only=True):
    path: str
    entries: list[FileEntry]
    more: bool = False
