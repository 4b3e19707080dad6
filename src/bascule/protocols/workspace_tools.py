"""The tools of the set `workspace`: files and commands in the directory an agent was started in."""

from bascule.protocols.tool import ACTS, ADDS, COUNT, ENDS, LIST, OBJECT, READS, SETS, STRING, Tool, said

_BOOLEAN = {"type": "boolean"}
_PATH = said(STRING, "Relative to the space")
_SPACE = said(STRING, "Name or id of another space; default: the directory you were started in")
_RUN = {"runId": STRING, "status": STRING}

TOOLS: tuple[Tool, ...] = (
    Tool(
        name="exec",
        toolset="workspace",
        uses=("runs.start", "processes.start"),
        title="Run command",
        description=(
            "Run a shell command (sh -c) in the sandbox: the space and a private /tmp are writable, no network. Long "
            "output is cut to head and tail; `processId` leads to all of it. Still running after 45 s: `running`."
        ),
        arguments={
            "command": STRING,
            "cwd": _PATH,
            "timeoutMs": said(COUNT, "Default 30000"),
            "env": OBJECT,
            "background": said(_BOOLEAN, "Return at once; see exec_logs, exec_stop"),
            "space": _SPACE,
        },
        required=("command",),
        result={**_RUN, "exitCode": {"type": "integer"}, "stdout": STRING, "stderr": STRING, "processId": STRING},
        always=("status",),
        hints=ACTS,
    ),
    Tool(
        name="exec_logs",
        toolset="workspace",
        uses=("processes.logs",),
        title="Read command output",
        description="Output of a command by processId, also while it runs.",
        arguments={
            "processId": STRING,
            "stream": {"type": "string", "enum": ["stdout", "stderr"]},
            "offset": {"type": "integer", "description": "Byte; negative counts from the end"},
            "limit": said(COUNT, "Bytes, default 8192"),
            "waitMs": {"type": "integer", "minimum": 0, "description": "Wait for more, or for the end"},
        },
        required=("processId",),
        result={"text": STRING, "nextOffset": {"type": "integer"}, "running": _BOOLEAN},
        always=("text", "nextOffset", "running"),
        hints=READS,
    ),
    Tool(
        name="exec_stop",
        toolset="workspace",
        uses=("processes.stop",),
        title="Stop command",
        description="End a command and everything it started.",
        arguments={"processId": STRING},
        required=("processId",),
        result={"processId": STRING, "running": _BOOLEAN},
        always=("processId",),
        hints=ENDS,
    ),
    Tool(
        name="read_file",
        toolset="workspace",
        uses=("files.read",),
        title="Read file",
        description="Read a text file, or part of it by lines; base64 for others.",
        arguments={
            "path": _PATH,
            "line": said(COUNT, "First line wanted"),
            "lines": said(COUNT, "How many"),
            "encoding": {"type": "string", "enum": ["utf-8", "base64"]},
            "space": _SPACE,
        },
        required=("path",),
        result={"content": STRING, "size": {"type": "integer"}, "nextLine": {"type": "integer"}},
        always=("content",),
        hints=READS,
    ),
    Tool(
        name="create_file",
        toolset="workspace",
        uses=("runs.start",),
        title="Create file",
        description="Write a new file; parent directories are made. An existing one needs overwrite.",
        arguments={
            "path": _PATH,
            "content": STRING,
            "encoding": {"type": "string", "enum": ["utf-8", "base64"]},
            "overwrite": _BOOLEAN,
            "space": _SPACE,
        },
        required=("path", "content"),
        result=_RUN,
        always=("status",),
        hints=SETS,
    ),
    Tool(
        name="edit_file",
        toolset="workspace",
        uses=("runs.start",),
        title="Edit file",
        description=(
            "Replace texts in a file; each oldContent must occur exactly once. All edits apply or none; a miss shows "
            "the closest text."
        ),
        arguments={
            "path": _PATH,
            "edits": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"oldContent": STRING, "newContent": STRING},
                    "required": ["oldContent", "newContent"],
                },
            },
            "space": _SPACE,
        },
        required=("path", "edits"),
        result=_RUN,
        always=("status",),
        hints=ADDS,
    ),
    Tool(
        name="delete_file",
        toolset="workspace",
        uses=("runs.start",),
        title="Delete file",
        description="Delete one file. run_undo brings it back.",
        arguments={"path": _PATH, "space": _SPACE},
        required=("path",),
        result=_RUN,
        always=("status",),
        hints=ENDS,
    ),
    Tool(
        name="workspace_run",
        toolset="workspace",
        uses=("runs.start", "runs.wait", "runs.commit"),
        title="Run operations",
        description=(
            "Carry out several operations in order as one run, undone as one. Or follow a run by runId: one that was "
            "`running`, or that a person has approved meanwhile."
        ),
        arguments={
            "operations": {
                "type": "array",
                "items": OBJECT,
                "description": (
                    "{type: message|createFile|readFile|editFile|deleteFile|shell, id?, ...}; fields as in the other "
                    "tools (shell: command, cwd, timeout, env)"
                ),
            },
            "onCopy": said(_BOOLEAN, "Try on a copy: nothing asks, nothing lasts until commit"),
            "runId": STRING,
            "commit": said(_BOOLEAN, "With runId: take over what that run did on a copy"),
            "space": _SPACE,
        },
        result={**_RUN, "events": LIST},
        always=("status",),
        hints=ACTS,
    ),
    Tool(
        name="run_diff",
        toolset="workspace",
        uses=("runs.diff",),
        title="Show changes",
        description="What a run changed, as a unified diff; `unknown` names what no checkpoint holds.",
        arguments={"runId": STRING, "space": _SPACE},
        required=("runId",),
        result={"changes": LIST, "diff": STRING, "unknown": LIST, "note": STRING},
        always=("changes", "diff"),
        hints=READS,
    ),
    Tool(
        name="run_undo",
        toolset="workspace",
        uses=("runs.undo",),
        title="Undo run",
        description="Put back what a run changed, except `leftAlone`; refused when later changes would be lost.",
        arguments={"runId": STRING, "dryRun": said(_BOOLEAN, "Only show what would change"), "space": _SPACE},
        required=("runId",),
        result={"changes": LIST, "diff": STRING, "leftAlone": LIST, "note": STRING},
        always=("changes", "diff"),
        hints=ENDS,
    ),
)
