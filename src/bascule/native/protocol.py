"""What hooks send, what they are answered, and sessions as they are shown."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from bascule.kernel.rows import Params, Result

Client = Literal["claude", "codex", "gemini"]
Mode = Literal["observe", "warn", "enforce"]
CLIENTS: tuple[Client, ...] = ("claude", "codex", "gemini")

# A command with a here-document; more is a file's text on the wrong way.
MAX_COMMAND_CHARS = 64 * 1024
MAX_PATH_CHARS = 4_096
MAX_PATHS = 1_000
MAX_SESSION_CHARS = 200
# Of one call; of more the beginning is shown.
MAX_EDITS = 1_000
# An id of a cell and a few words.
MAX_PLACE_CHARS = 500


class HookParams(Params, frozen=True, kw_only=True):
    """One call of a hook."""

    client: Client
    # What the client gave the hook, byte for byte (base64): the daemon alone reads it.
    raw: bytes | None = None
    # The same as an object, from whoever makes an event itself.
    event: dict[str, Any] | None = None
    # Where the hook runs, for input that does not say it.
    cwd: Annotated[str, Meta(max_length=MAX_PATH_CHARS)] = ""
    # The client's process and the terminal it is in, as the hook found them.
    pid: Annotated[int, Meta(ge=1)] | None = None
    pane: Annotated[str, Meta(max_length=64)] | None = None
    # The hook refuses calls while the daemon cannot be asked.
    closed: bool = False


class EditText(Params, frozen=True, kw_only=True):
    """One change of a file's text."""

    # None: `new` is the whole text, or a patch.
    old: str | None = None
    new: str
    # As the client says it: every place, or which cell of a notebook.
    place: Annotated[str, Meta(max_length=MAX_PLACE_CHARS)] = ""


class QuestionParams(Params, frozen=True, kw_only=True):
    """What a person is asked about. Nothing that differs when an agent tries the same again."""

    client: Client
    kind: Literal["shell", "write", "read", "fetch"]
    cwd: Annotated[str, Meta(max_length=MAX_PATH_CHARS)]
    command: Annotated[str, Meta(max_length=MAX_COMMAND_CHARS)] | None = None
    paths: Annotated[list[str], Meta(max_length=MAX_PATHS)] = []
    url: Annotated[str, Meta(max_length=MAX_PATH_CHARS)] | None = None
    # The client would run it without its own sandbox.
    unsandboxed: bool = False
    # What would be written; `whole` says what all of it is, when this is its beginning.
    edits: Annotated[list[EditText], Meta(max_length=MAX_EDITS)] = []
    whole: Annotated[str, Meta(max_length=MAX_SESSION_CHARS)] | None = None
    # Of a dialog that the client has opened as well: its session. The first answer wins.
    dialog: Annotated[str, Meta(max_length=MAX_SESSION_CHARS)] | None = None


class HookAnswer(Result, frozen=True, kw_only=True):
    # What the hook prints for its client; nothing when it is empty.
    output: dict[str, Any] = {}
    # observed: the client decides. decided: this answer does.
    # gap: the end of a call whose beginning nobody reported.
    # answered: a person was asked and said yes.
    record: Literal["observed", "decided", "answered", "gap"]
    # A person can be asked at our desk (native.question), because the client cannot or while its own dialog is open;
    # `output` is what holds without.
    question: QuestionParams | None = None
    # For how long the hook may wait for their answer; without it for one call.
    wait_ms: int | None = None
    # What the rules say, whatever is done about it.
    verdict: str | None = None
    rule: str | None = None
    reason: str | None = None
    # The run of a call that may change something; `note` says what of it cannot be undone, and why.
    run_id: str | None = None
    note: str | None = None


# -- operations -----------------------------------------------------------------------------------


class _Seen(Params, frozen=True, kw_only=True):
    # Where it stands, the project it belongs to, and the user's home: all absolute.
    cwd: Annotated[str, Meta(max_length=MAX_PATH_CHARS)] = ""
    root: Annotated[str, Meta(max_length=MAX_PATH_CHARS)] = ""
    home: Annotated[str, Meta(max_length=MAX_PATH_CHARS)] = ""


class NativeShell(_Seen, frozen=True, kw_only=True):
    command: Annotated[str, Meta(max_length=MAX_COMMAND_CHARS)]
    # What it writes besides: files of a patch inside it, and what links lead to.
    writes: list[str] = []


class NativePaths(_Seen, frozen=True, kw_only=True):
    paths: Annotated[list[str], Meta(max_length=MAX_PATHS)]


class NativeFetch(_Seen, frozen=True, kw_only=True):
    url: str


# -- modes ----------------------------------------------------------------------------------------


class ModeParams(Params, frozen=True, kw_only=True):
    client: Client
    mode: Mode
    # For this directory and what is beneath it; everywhere without one.
    directory: Annotated[str, Meta(max_length=MAX_PATH_CHARS)] = "/"


class ModeView(Result, frozen=True, kw_only=True):
    client: Client
    directory: str
    mode: Mode


# -- what was seen --------------------------------------------------------------------------------


class ReportParams(Params, frozen=True, kw_only=True):
    client: Client | None = None


class Counted(Result, frozen=True, kw_only=True):
    """Calls of one kind since the daemon was started."""

    client: str
    verdict: str
    rule: str
    count: int
    # The newest, cut.
    example: str


class Report(Result, frozen=True, kw_only=True):
    since: str
    calls: int
    would_ask: int
    would_deny: int
    undoable: int
    # Calls that may have changed something and went on without an undo.
    without_undo: int = 0
    open: int
    gaps: int
    rules: list[Counted] = []
    modes: list[ModeView] = []


# -- sessions -------------------------------------------------------------------------------------


class SessionRef(Params, frozen=True, kw_only=True):
    client: Client
    session: Annotated[str, Meta(min_length=1, max_length=MAX_SESSION_CHARS)]


class SessionsParams(Params, frozen=True, kw_only=True):
    client: Client | None = None


class NativeSessionView(Result, frozen=True, kw_only=True):
    client: str
    session: str
    # works, idle, waits_for_permission, asks, failed, ended, dead, unknown.
    state: str
    # Only silence says so.
    probably: bool = False
    # The event that says so, and how long ago it was.
    evidence: str
    age_ms: int
    directory: str | None = None
    pid: int | None = None
    # verified: that process is of this user and alive. claimed: nobody looked, or there is none.
    process: str = "claimed"
    pane: str | None = None
    calls: int = 0
    open: int = 0
    mode: str = "observe"
    # The agent of its MCP server, once a hook came through that.
    agent: str | None = None
    # What its person should know, such as hooks that were switched off meanwhile.
    notice: str | None = None
    # Calls that may have changed something and went on without an undo; what of the last such call has none, and why.
    without_undo: int = 0
    no_undo: str | None = None
    # What its calls made, changed or deleted that other programs execute or agents take for instructions.
    steering: list[str] = []


class SessionChange(Result, frozen=True, kw_only=True):
    """One item of the stream."""

    session: NativeSessionView
