"""The native bridge's method rows: hooks, sessions, modes, and the calls that rules speak of."""

from bascule.kernel.rows import (
    LOCAL_USER,
    Acts,
    Changes,
    Effect,
    Http,
    Nothing,
    Operation,
    Reads,
    Streams,
    operations_of,
    rows_of,
)
from bascule.native.protocol import (
    HookAnswer,
    HookParams,
    ModeParams,
    ModeView,
    NativeFetch,
    NativePaths,
    NativeSessionView,
    NativeShell,
    QuestionParams,
    Report,
    ReportParams,
    SessionChange,
    SessionRef,
    SessionsParams,
)

# The most that is read of a hook's input, in base64, and what stands around it.
_MAX_HOOK_BYTES = 24 * 1024 * 1024

NATIVE_BEFORE = Acts[HookParams, HookAnswer](
    "native.before",
    "Say what the rules think of a call of an agent's own tool, and keep what it may change.",
    Http("POST", "/v1/native/before", max_body=_MAX_HOOK_BYTES),
    effect=Effect.MESSAGE,
    asks=False,
    behind=True,
)
NATIVE_AFTER = Acts[HookParams, HookAnswer](
    "native.after",
    "Take note that a call of an agent's own tool is over.",
    Http("POST", "/v1/native/after", max_body=_MAX_HOOK_BYTES),
    effect=Effect.MESSAGE,
    asks=False,
    behind=True,
)
NATIVE_QUESTION = Acts[QuestionParams, HookAnswer](
    "native.question",
    "Ask a person about a call of an agent's own tool, where its client cannot.",
    Http("POST", "/v1/native/question", max_body=_MAX_HOOK_BYTES),
    effect=Effect.MESSAGE,
)
NATIVE_REPORT = Reads[ReportParams, Report](
    "native.report", "Count what the rules would have said.", Http("GET", "/v1/native/report")
)
NATIVE_MODE = Changes[ModeParams, ModeView](
    "native.mode",
    "Choose what hooks of a client do in a directory: observe, warn or enforce.",
    Http("POST", "/v1/native/mode"),
    effect=Effect.ADMIN,
    who=LOCAL_USER,
)
NATIVE_MODES = Reads[Nothing, list[ModeView]](
    "native.modes", "List what was chosen for hooks.", Http("GET", "/v1/native/modes")
)
SESSIONS_NOTE = Reads[HookParams, HookAnswer](
    "sessions.note",
    "Take note of what a client's session does.",
    Http("POST", "/v1/sessions/note", max_body=_MAX_HOOK_BYTES),
    effect=Effect.MESSAGE,
)
SESSIONS_LIST = Reads[SessionsParams, list[NativeSessionView]](
    "sessions.list", "List sessions of agents' clients, with what says so.", Http("GET", "/v1/sessions")
)
SESSIONS_SHOW = Reads[SessionRef, NativeSessionView](
    "sessions.show", "Show one session.", Http("GET", "/v1/sessions/{client}/{session}")
)
SESSIONS_STREAM = Streams[SessionsParams, SessionChange](
    "sessions.stream", "Follow what sessions do.", Http("GET", "/v1/sessions/stream")
)

NATIVE_SHELL = Operation[NativeShell, HookAnswer](
    "native.shell", "Run a command with an agent's own tool.", effect=Effect.EXEC
)
NATIVE_WRITE = Operation[NativePaths, HookAnswer](
    "native.write", "Change files with an agent's own tool.", effect=Effect.WRITE
)
NATIVE_READ = Operation[NativePaths, HookAnswer](
    "native.read", "Read files with an agent's own tool.", effect=Effect.READ, recorded=False
)
NATIVE_FETCH = Operation[NativeFetch, HookAnswer](
    "native.fetch", "Fetch a page with an agent's own tool.", effect=Effect.READ, recorded=False
)

METHODS = rows_of(globals())
OPERATIONS = operations_of(globals())
