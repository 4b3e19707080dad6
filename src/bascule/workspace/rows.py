"""The workspace's method rows: spaces, runs, commands, files, and the operations inside a run."""

from bascule.foundation.errors import Forbidden
from bascule.kernel.call import Grade
from bascule.kernel.rows import (
    PERSON_ONLY,
    Acts,
    Changes,
    Effect,
    Http,
    Nothing,
    Operation,
    Reads,
    Runs,
    Streams,
    Waits,
    operations_of,
    rows_of,
    starter,
    words_need_proof,
)
from bascule.workspace.blame import BlameParams, BlameResult
from bascule.workspace.protocol import (
    CancelRunParams,
    CreateFileEvent,
    CreateFileOperation,
    DeleteFileEvent,
    DeleteFileOperation,
    DiffResult,
    EditFileEvent,
    EditFileOperation,
    EventsMessage,
    FileParams,
    FilePathParams,
    FilesList,
    FilesListParams,
    FileWriteParams,
    MessageEvent,
    MessageOperation,
    ProcessesListParams,
    ProcessLogs,
    ProcessLogsParams,
    ProcessParams,
    ProcessStartParams,
    ProcessView,
    ReadFileEvent,
    ReadFileOperation,
    RedoParams,
    ResumeParams,
    RunIdParams,
    RunParams,
    RunStreamParams,
    RunWaitParams,
    ShellEvent,
    ShellOperation,
    SpaceOpenParams,
    SpaceParams,
    SpaceView,
    StreamedOutput,
    UndoParams,
    UndoResult,
)
from bascule.workspace.run_list import LogParams, OperationView, RunsListParams, RunView

_SPACE = "/v1/spaces/{spaceId}"
_RUN = f"{_SPACE}/runs/{{runId}}"
# For a caller that has nothing but the id.
_RUN_ALONE = "/v1/runs/{runId}"
# A file of 10 MiB as base64, or as text with some escapes, and the message around it.
_MAX_MESSAGE_BYTES = 16 * 1024 * 1024


def _by_its_approval(_params: ResumeParams) -> Grade:
    """never: approvals.decide answers it, and what a passkey signs there names the question"""
    raise Forbidden(
        "a run's question is answered at the console by its approval",
        hint="approvals.list names it, approvals.decide answers it",
    )


def _proof_of_undo(params: UndoParams | RedoParams) -> Grade:
    """Signed in for a dry run, else fresh."""
    return Grade.SIGNED_IN if params.dry_run else Grade.FRESH


SPACES_OPEN = Changes[SpaceOpenParams, SpaceView](
    "spaces.open",
    "Make a directory a space, or find the space it is.",
    Http("POST", "/v1/spaces"),
    effect=Effect.WRITE,
    asks=True,
)
SPACES_LIST = Reads[Nothing, list[SpaceView]]("spaces.list", "List the spaces.", Http("GET", "/v1/spaces"))
SPACES_SHOW = Reads[SpaceParams, SpaceView]("spaces.show", "Show one space.", Http("GET", _SPACE))
SPACES_BLAME = Reads[BlameParams, BlameResult](
    "spaces.blame",
    "Say which run wrote each line of a file.",
    Http("GET", f"{_SPACE}/blame/{{path...}}"),
)
SPACES_LOG = Reads[LogParams, list[OperationView]](
    "spaces.log", "List what was done in a space, newest first: runs, undos, redos.", Http("GET", f"{_SPACE}/log")
)
SPACES_CLOSE = Changes[SpaceParams, SpaceView](
    "spaces.close",
    "End a space's commands and forget it; its files stay.",
    Http("DELETE", _SPACE),
    effect=Effect.PROCESS_CONTROL,
    who=starter("space_id"),
    asks=True,
)
RUNS_START = Runs[RunParams, EventsMessage](
    "runs.start",
    "Carry out an operations message.",
    Http("POST", f"{_SPACE}/runs", max_body=_MAX_MESSAGE_BYTES),
    effect=Effect.EXEC,
)
RUNS_LIST = Reads[RunsListParams, list[RunView]](
    "runs.list", "List runs, newest first.", Http("GET", f"{_SPACE}/runs"), Http("GET", "/v1/runs")
)
RUNS_SHOW = Reads[RunIdParams, EventsMessage](
    "runs.show",
    "Show what a run answered so far.",
    Http("GET", _RUN),
    Http("GET", _RUN_ALONE),
    who=starter("run_id"),
)
RUNS_WAIT = Waits[RunWaitParams, EventsMessage](
    "runs.wait",
    "Wait until a run is over or asks.",
    Http("GET", f"{_RUN}/wait"),
    Http("GET", f"{_RUN_ALONE}/wait"),
    who=starter("run_id"),
)
RUNS_STREAM = Streams[RunStreamParams, StreamedOutput](
    "runs.stream",
    "Follow a run: events, and output as it comes.",
    Http("GET", f"{_RUN}/stream"),
    Http("GET", f"{_RUN_ALONE}/stream"),
    who=starter("run_id"),
)
RUNS_RESUME = Changes[ResumeParams, EventsMessage](
    "runs.resume",
    "Answer what a run asks; only the person may.",
    Http("POST", f"{_RUN}/resume"),
    Http("POST", f"{_RUN_ALONE}/resume"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
    # It names a run and an operation, and not what that would do: that may be another thing by now.
    proof=_by_its_approval,
    stopped=lambda params: params.approval.decision == "denied",
)
RUNS_CANCEL = Changes[CancelRunParams, EventsMessage](
    "runs.cancel",
    "Stop a run and everything it started.",
    Http("POST", f"{_RUN}/cancel"),
    Http("POST", f"{_RUN_ALONE}/cancel"),
    effect=Effect.PROCESS_CONTROL,
    who=starter("run_id"),
    asks=True,
    proof=words_need_proof,
)
RUNS_DIFF = Reads[RunIdParams, DiffResult](
    "runs.diff",
    "Show what a run changed.",
    Http("GET", f"{_RUN}/diff"),
    Http("GET", f"{_RUN_ALONE}/diff"),
    who=starter("run_id"),
)
RUNS_UNDO = Acts[UndoParams, UndoResult](
    "runs.undo",
    "Take back what runs changed, and keep the rest; or say what that would be.",
    Http("POST", f"{_SPACE}/undo"),
    Http("POST", f"{_RUN}/undo"),
    Http("POST", f"{_RUN_ALONE}/undo"),
    effect=Effect.WRITE,
    # What others did asks, but for a terminal of the person's: `undo_rights`.
    proof=_proof_of_undo,
)
RUNS_REDO = Acts[RedoParams, UndoResult](
    "runs.redo",
    "Take back the last undo, or say what that would be.",
    Http("POST", f"{_SPACE}/redo"),
    effect=Effect.WRITE,
    proof=_proof_of_undo,
)
RUNS_COMMIT = Acts[RunIdParams, DiffResult](
    "runs.commit",
    "Take over what a run did on a copy.",
    Http("POST", f"{_RUN}/commit"),
    Http("POST", f"{_RUN_ALONE}/commit"),
    effect=Effect.WRITE,
    who=starter("run_id"),
)
PROCESSES_START = Acts[ProcessStartParams, ProcessView](
    "processes.start", "Start a command in the background.", Http("POST", f"{_SPACE}/processes"), effect=Effect.EXEC
)
PROCESSES_LIST = Reads[ProcessesListParams, list[ProcessView]](
    "processes.list",
    "List commands that run, and those that ended lately.",
    Http("GET", f"{_SPACE}/processes"),
    Http("GET", "/v1/processes"),
)
PROCESSES_LOGS = Waits[ProcessLogsParams, ProcessLogs](
    "processes.logs",
    "Read a command's output.",
    Http("GET", f"{_SPACE}/processes/{{processId}}/logs"),
    # For a caller that has nothing but the id.
    Http("GET", "/v1/processes/{processId}/logs"),
    who=starter("process_id"),
)
PROCESSES_STOP = Acts[ProcessParams, ProcessView](
    "processes.stop",
    "Stop a command and everything it started.",
    Http("POST", f"{_SPACE}/processes/{{processId}}/stop"),
    Http("POST", "/v1/processes/{processId}/stop"),
    effect=Effect.PROCESS_CONTROL,
    who=starter("process_id"),
)
FILES_LIST = Reads[FilesListParams, FilesList](
    "files.list",
    "List a directory of a space.",
    Http("GET", f"{_SPACE}/files"),
    Http("GET", f"{_SPACE}/files/{{path...}}/"),
)
FILES_READ = Reads[FileParams, ReadFileEvent](
    "files.read", "Read a file of a space.", Http("GET", f"{_SPACE}/files/{{path...}}")
)
FILES_WRITE = Changes[FileWriteParams, EventsMessage](
    "files.write",
    "Write a file of a space, as a run of one operation.",
    Http("PUT", f"{_SPACE}/files/{{path...}}", max_body=_MAX_MESSAGE_BYTES),
    effect=Effect.WRITE,
)
FILES_DELETE = Changes[FilePathParams, EventsMessage](
    "files.delete",
    "Delete a file of a space, as a run of one operation.",
    Http("DELETE", f"{_SPACE}/files/{{path...}}"),
    effect=Effect.WRITE,
)

# Calls of their own inside a run: each is decided, consented to and recorded, and no route leads to it.
WORKSPACE_MESSAGE = Operation[MessageOperation, MessageEvent](
    "workspace.message", "Say something; nothing is executed.", effect=Effect.READ, recorded=False, asks=False
)
WORKSPACE_CREATE_FILE = Operation[CreateFileOperation, CreateFileEvent](
    "workspace.createFile", "Create a file.", effect=Effect.WRITE
)
WORKSPACE_READ_FILE = Operation[ReadFileOperation, ReadFileEvent](
    "workspace.readFile", "Read a file.", effect=Effect.READ, recorded=False
)
WORKSPACE_EDIT_FILE = Operation[EditFileOperation, EditFileEvent](
    "workspace.editFile", "Apply edits to a file.", effect=Effect.WRITE
)
WORKSPACE_DELETE_FILE = Operation[DeleteFileOperation, DeleteFileEvent](
    "workspace.deleteFile", "Delete a file.", effect=Effect.WRITE
)
WORKSPACE_SHELL = Operation[ShellOperation, ShellEvent](
    "workspace.shell", "Execute a command in the sandbox.", effect=Effect.EXEC
)

METHODS = rows_of(globals())
OPERATIONS = operations_of(globals())
