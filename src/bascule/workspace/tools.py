"""The tools of the set `workspace`: files and commands in the directory an agent was started in.

A model pays for every character it reads, so an event is cut to what it says, and long output to head and tail with
the id under which the rest is found.
"""

from functools import partial
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from bascule.foundation.errors import BasculeError, InvalidRequest
from bascule.kernel.tool import (
    ACTS,
    ADDS,
    BOOLEAN,
    ENDS,
    INTEGER,
    LIST,
    READS,
    SETS,
    STRING,
    Arguments,
    Result,
    Retry,
    Session,
    Toolset,
    given,
    tool,
)
from bascule.workspace.following import followed
from bascule.workspace.protocol import SPACES_PROTOCOL_VERSION

# About 2,000 tokens: an error at the end of a build and where it began, not the build.
SHOWN_OUTPUT_CHARS = 8_000
# The end says more than the beginning: that is where commands report.
_HEAD_CHARS = 2_000
# About 8,000 tokens; a longer file is read by lines.
SHOWN_FILE_CHARS = 32_000
SHOWN_DIFF_CHARS = 16_000
DEFAULT_LOG_BYTES = 8_192
# What a model knows already, or has no use for.
_LEFT_OUT = ("timestamp", "operationId")

_Path = Annotated[str, Meta(description="Relative to the space")]
_Space = Annotated[str, Meta(description="Name or id of another space; default: the directory you were started in")]
_Encoding = Literal["utf-8", "base64"]


_RUN = {"runId": STRING, "status": STRING}


class ExecArguments(Arguments, frozen=True, kw_only=True):
    command: str
    cwd: _Path | UnsetType = UNSET
    timeout_ms: Annotated[int, Meta(ge=1, description="Default 30000")] | UnsetType = UNSET
    env: dict[str, Any] | UnsetType = UNSET
    background: Annotated[bool, Meta(description="Return at once; see exec_logs, exec_stop")] | UnsetType = UNSET
    space: _Space | UnsetType = UNSET


@tool(
    "exec",
    "Run command",
    "Run a shell command (sh -c) in the sandbox: the space and a private /tmp are writable, no network. Long "
    "output is cut to head and tail; `processId` leads to all of it. Still running after 45 s: `running`.",
    uses=("runs.start", "processes.start"),
    hints=ACTS,
    retry=Retry.NEVER,
    result={**_RUN, "exitCode": INTEGER, "stdout": STRING, "stderr": STRING, "processId": STRING},
    always=("status",),
    waits=True,
)
async def execute(me: Session, arguments: ExecArguments) -> Result:
    space = await _space(me, arguments.space)
    command = _chosen(arguments, "command", "cwd", "env")
    if arguments.background:
        started = await me.call("processes.start", {"spaceId": space, **command})
        ids = {"processId": started["processId"], "runId": started["runId"]}
        return Result({"status": "running", **ids, "next": "exec_logs"})
    if arguments.timeout_ms is not UNSET:
        command["timeout"] = arguments.timeout_ms
    run = await _run(me, space, [{"type": "shell", **command}])
    return await followed(me, space, run, partial(_executed, me, space))


async def _executed(me: Session, space: str, run: dict[str, Any]) -> Result:
    out = _summary(run)
    if run["status"] == "running":
        out["next"] = "workspace_run"
        process = await _process_of(me, space, run["runId"])
        if process is not None:
            out.update(processId=process, next="exec_logs")
    return out


class ExecLogsArguments(Arguments, frozen=True, kw_only=True):
    process_id: str
    stream: Literal["stdout", "stderr"] | UnsetType = UNSET
    offset: Annotated[int, Meta(description="Byte; negative counts from the end")] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, description="Bytes, default 8192")] | UnsetType = UNSET
    wait_ms: Annotated[int, Meta(ge=0, description="Wait for more, or for the end")] | UnsetType = UNSET


@tool(
    "exec_logs",
    "Read command output",
    "Output of a command by processId, also while it runs.",
    uses=("processes.logs",),
    hints=READS,
    retry=Retry.READ,
    result={"text": STRING, "nextOffset": INTEGER, "running": BOOLEAN},
    always=("text", "nextOffset", "running"),
)
async def exec_logs(me: Session, arguments: ExecLogsArguments) -> Result:
    params = {"limit": DEFAULT_LOG_BYTES, **given(arguments)}
    wait_ms = min(params.pop("waitMs", 0), me.slice_ms)
    page = await me.call("processes.logs", params, wait_ms=wait_ms)
    return Result({name: page[name] for name in page if name not in ("stream", "processId")})


class ExecStopArguments(Arguments, frozen=True, kw_only=True):
    process_id: str


@tool(
    "exec_stop",
    "Stop command",
    "End a command and everything it started.",
    uses=("processes.stop",),
    hints=ENDS,
    retry=Retry.NEVER,
    result={"processId": STRING, "running": BOOLEAN},
    always=("processId",),
)
async def exec_stop(me: Session, arguments: ExecStopArguments) -> Result:
    view = await me.call("processes.stop", given(arguments))
    about = {name: view[name] for name in ("exitCode", "endedBy") if name in view}
    return Result({"processId": view["processId"], "running": view["running"], **about})


class ReadFileArguments(Arguments, frozen=True, kw_only=True):
    path: _Path
    line: Annotated[int, Meta(ge=1, description="First line wanted")] | UnsetType = UNSET
    lines: Annotated[int, Meta(ge=1, description="How many")] | UnsetType = UNSET
    encoding: _Encoding | UnsetType = UNSET
    space: _Space | UnsetType = UNSET


@tool(
    "read_file",
    "Read file",
    "Read a text file, or part of it by lines; base64 for others.",
    uses=("files.read",),
    hints=READS,
    retry=Retry.READ,
    result={"content": STRING, "size": INTEGER, "nextLine": INTEGER},
    always=("content",),
)
async def read_file(me: Session, arguments: ReadFileArguments) -> Result:
    space = await _space(me, arguments.space)
    event = await me.call("files.read", {"spaceId": space, **_chosen(arguments, "path", "encoding")})
    if not event["success"]:
        return Result(status="failed", content="", error=event["error"])
    out = Result(content=event["content"], size=event["size"])
    if arguments.encoding == "base64":
        if arguments.line is not UNSET or arguments.lines is not UNSET:
            raise InvalidRequest("base64 has no lines", hint="leave out line and lines")
        return out
    return _part_of(out, arguments)


class CreateFileArguments(Arguments, frozen=True, kw_only=True):
    path: _Path
    content: str
    encoding: _Encoding | UnsetType = UNSET
    overwrite: bool | UnsetType = UNSET
    space: _Space | UnsetType = UNSET


@tool(
    "create_file",
    "Create file",
    "Write a new file; parent directories are made. An existing one needs overwrite.",
    uses=("runs.start",),
    hints=SETS,
    retry=Retry.NEVER,
    result=_RUN,
    always=("status",),
)
async def create_file(me: Session, arguments: CreateFileArguments) -> Result:
    return await _one(me, arguments.space, "createFile", _chosen(arguments, "path", "content", "encoding", "overwrite"))


class Edit(Struct, frozen=True, kw_only=True, rename="camel"):
    old_content: str
    new_content: str


class EditFileArguments(Arguments, frozen=True, kw_only=True):
    path: _Path
    edits: list[Edit]
    space: _Space | UnsetType = UNSET


@tool(
    "edit_file",
    "Edit file",
    "Replace texts in a file; each oldContent must occur exactly once. All edits apply or none; a miss shows "
    "the closest text.",
    uses=("runs.start",),
    hints=ADDS,
    retry=Retry.NEVER,
    result=_RUN,
    always=("status",),
)
async def edit_file(me: Session, arguments: EditFileArguments) -> Result:
    return await _one(me, arguments.space, "editFile", _chosen(arguments, "path", "edits"))


class DeleteFileArguments(Arguments, frozen=True, kw_only=True):
    path: _Path
    space: _Space | UnsetType = UNSET


@tool(
    "delete_file",
    "Delete file",
    "Delete one file. run_undo brings it back.",
    uses=("runs.start",),
    hints=ENDS,
    retry=Retry.NEVER,
    result=_RUN,
    always=("status",),
)
async def delete_file(me: Session, arguments: DeleteFileArguments) -> Result:
    return await _one(me, arguments.space, "deleteFile", _chosen(arguments, "path"))


_Operations = Annotated[
    list[dict[str, Any]],
    Meta(
        description=(
            "{type: message|createFile|readFile|editFile|deleteFile|shell, id?, ...}; fields as in the other "
            "tools (shell: command, cwd, timeout, env)"
        )
    ),
]


class WorkspaceRunArguments(Arguments, frozen=True, kw_only=True):
    operations: _Operations | UnsetType = UNSET
    on_copy: (
        Annotated[bool, Meta(description="Try on a copy: nothing asks, nothing lasts until commit")] | UnsetType
    ) = UNSET
    run_id: str | UnsetType = UNSET
    commit: Annotated[bool, Meta(description="With runId: take over what that run did on a copy")] | UnsetType = UNSET
    space: _Space | UnsetType = UNSET


@tool(
    "workspace_run",
    "Run operations",
    "Carry out several operations in order as one run, undone as one. Or follow a run by runId: one that was "
    "`running`, or that a person has approved meanwhile.",
    uses=("runs.start", "runs.wait", "runs.commit"),
    hints=ACTS,
    retry=Retry.NEVER,
    result={**_RUN, "events": LIST},
    always=("status",),
    waits=True,
)
async def workspace_run(me: Session, arguments: WorkspaceRunArguments) -> Result:
    operations, run_id = arguments.operations, arguments.run_id
    if (operations is UNSET) == (run_id is UNSET):
        raise InvalidRequest("give either operations or runId", hint="operations begin a run, runId follows one")
    space = await _space(me, arguments.space)
    if operations is not UNSET:
        if arguments.commit:
            raise InvalidRequest(
                "commit goes with runId", hint="run with onCopy first, look at run_diff, then commit that runId"
            )
        run = await _run(me, space, operations, on_copy=bool(arguments.on_copy))
    elif arguments.commit:
        done = await me.call("runs.commit", {"spaceId": space, "runId": run_id})
        return Result({"status": "committed", **_cut_diff(done)})
    else:
        run = await me.call("runs.wait", {"spaceId": space, "runId": run_id}, wait_ms=me.slice_ms)
    return await followed(me, space, run, _events)


async def _events(run: dict[str, Any]) -> Result:
    events = [_short(event) for event in run["events"]]
    return Result({"runId": run["runId"], "status": run["status"], "events": events, **_next(run)})


class RunDiffArguments(Arguments, frozen=True, kw_only=True):
    run_id: str
    space: _Space | UnsetType = UNSET


@tool(
    "run_diff",
    "Show changes",
    "What a run changed, as a unified diff; `unknown` names what no checkpoint holds.",
    uses=("runs.diff",),
    hints=READS,
    retry=Retry.READ,
    result={"changes": LIST, "diff": STRING, "unknown": LIST, "note": STRING},
    always=("changes", "diff"),
)
async def run_diff(me: Session, arguments: RunDiffArguments) -> Result:
    space = await _space(me, arguments.space)
    return _cut_diff(await me.call("runs.diff", {"spaceId": space, "runId": arguments.run_id}))


class RunUndoArguments(Arguments, frozen=True, kw_only=True):
    run_id: str | UnsetType = UNSET
    paths: Annotated[list[str], Meta(description="Only these files or directories")] | UnsetType = UNSET
    since: Annotated[str, Meta(description="All you did since this RFC 3339 time")] | UnsetType = UNSET
    merge: Annotated[bool, Meta(description="Merge by line where others changed later")] | UnsetType = UNSET
    redo: Annotated[bool, Meta(description="Take back your last undo")] | UnsetType = UNSET
    dry_run: Annotated[bool, Meta(description="Only show what would change")] | UnsetType = UNSET
    space: _Space | UnsetType = UNSET


@tool(
    "run_undo",
    "Undo your work",
    "Take back what you changed: your last run, or as told. Changes of others stay; `leftAlone` says what stays and "
    "why. Another's run asks the person.",
    uses=("runs.undo", "runs.redo"),
    hints=ENDS,
    retry=Retry.NEVER,
    result={"changes": LIST, "diff": STRING, "leftAlone": LIST, "failed": LIST, "note": STRING},
    always=("changes", "diff"),
)
async def run_undo(me: Session, arguments: RunUndoArguments) -> Result:
    space = await _space(me, arguments.space)
    params: dict[str, Any] = {"spaceId": space, "dryRun": bool(arguments.dry_run)}
    if arguments.redo:
        return _cut_diff(await me.call("runs.redo", {**params, "agent": me.handle}))
    params |= _chosen(arguments, "runId", "paths", "since", "merge")
    if arguments.run_id is UNSET:
        # Its own work alone.
        params["agent"] = me.handle
        if arguments.since is UNSET:
            params["newest"] = True
    return _cut_diff(await me.call("runs.undo", params))


def _chosen(arguments: Arguments, *names: str) -> dict[str, Any]:
    plain = given(arguments)
    return {name: plain[name] for name in names if name in plain}


async def _space(me: Session, wanted: str | UnsetType) -> str:
    """The space meant: one by name, else the directory the client was started in. A model never gives a path."""
    if wanted is UNSET and me.directory is not None:
        # Each time, for it may have been closed meanwhile; the same directory is the same space.
        return str((await me.call("spaces.open", {"path": me.directory}))["spaceId"])
    spaces = await me.call("spaces.list", {})
    if wanted is UNSET:
        raise InvalidRequest("no space is named", hint=f"give space: {_names(spaces)}")
    for space in spaces:
        if wanted in (space["spaceId"], space["name"]):
            return str(space["spaceId"])
    raise InvalidRequest(f"there is no space {wanted!r}", hint=f"there are: {_names(spaces)}")


def _names(spaces: list[dict[str, Any]]) -> str:
    return ", ".join(space["name"] for space in spaces) or "none yet; a person opens one with `bascule spaces open DIR`"


async def _one(me: Session, wanted: str | UnsetType, kind: str, operation: dict[str, Any]) -> Result:
    """A run of one operation."""
    space = await _space(me, wanted)
    return await followed(me, space, await _run(me, space, [{"type": kind, **operation}]), _summarized)


async def _run(me: Session, space: str, operations: list[dict[str, Any]], *, on_copy: bool = False) -> dict[str, Any]:
    params: dict[str, Any] = {"spaceId": space, "protocolVersion": SPACES_PROTOCOL_VERSION, "operations": operations}
    if on_copy:
        params["onCopy"] = True
    run: dict[str, Any] = await me.call("runs.start", params, wait_ms=me.slice_ms)
    return run


async def _process_of(me: Session, space: str, run_id: str) -> str | None:
    """The command that a run waits for; not worth failing the whole call for."""
    try:
        processes = await me.call("processes.list", {"spaceId": space})
    except BasculeError:
        return None
    return next((each["processId"] for each in processes if each["running"] and each.get("runId") == run_id), None)


async def _summarized(run: dict[str, Any]) -> Result:
    return _summary(run)


def _summary(run: dict[str, Any]) -> Result:
    """The answer of a run of one operation."""
    out = Result({"runId": run["runId"], "status": run["status"]})
    for event in run["events"]:
        short = _short(event)
        kind = short.pop("type")
        if short.pop("success", None) is False:
            out["status"] = "failed"
        elif kind in ("policyDenied", "error"):
            out["status"] = {"policyDenied": "denied", "error": "failed"}[kind]
        out.update(short)
    # The caller has just given these.
    for echo in ("path", "command", "operationType"):
        out.pop(echo, None)
    out.update(_next(run))
    return out


def _next(run: dict[str, Any]) -> dict[str, Any]:
    """What every answer about a run ends with."""
    return {**({"steering": run["steering"]} if run.get("steering") else {}), **_next_hint(run)}


def _next_hint(run: dict[str, Any]) -> dict[str, Any]:
    if run["status"] == "running":
        return {"next": "workspace_run"}
    if run["status"] == "awaiting_approval":
        hint = "a person decides with `bascule approvals`; then workspace_run with this runId has the rest"
        return {"next": "workspace_run", "hint": hint}
    return {}


def _short(event: dict[str, Any]) -> dict[str, Any]:
    out = {name: value for name, value in event.items() if name not in _LEFT_OUT and value != ""}
    for stream in ("stdout", "stderr"):
        if len(out.get(stream, "")) > SHOWN_OUTPUT_CHARS:
            out[stream] = _head_and_tail(out[stream])
            out["truncated"] = True
    # The way to the rest of the output; without a rest it is noise.
    if not out.get("truncated"):
        out.pop("processId", None)
    if len(out.get("content", "")) > SHOWN_FILE_CHARS:
        out["content"] = out["content"][:SHOWN_FILE_CHARS]
        out.update(truncated=True, next="read_file")
    return out


def _head_and_tail(text: str) -> str:
    tail = SHOWN_OUTPUT_CHARS - _HEAD_CHARS
    left_out = len(text) - SHOWN_OUTPUT_CHARS
    return f"{text[:_HEAD_CHARS]}\n[... {left_out} characters; exec_logs has them ...]\n{text[-tail:]}"


def _part_of(out: Result, arguments: ReadFileArguments) -> Result:
    """The wanted lines, or as many as a model should read at once; `nextLine` goes on."""
    # Only \n ends a line here, as in editors and compilers; splitlines() knows ten more.
    lines = out["content"].split("\n")
    first = 0 if arguments.line is UNSET else arguments.line - 1
    wanted = lines[first:] if arguments.lines is UNSET else lines[first : first + arguments.lines]
    kept: list[str] = []
    room = SHOWN_FILE_CHARS
    for line in wanted:
        room -= len(line) + 1
        if room < 0 and kept:
            break
        kept.append(line[:SHOWN_FILE_CHARS])
    end = first + len(kept)
    out["content"] = "\n".join(kept)
    if end < len(lines):
        out.update(content=f"{out['content']}\n" if kept else "", nextLine=end + 1)
    return out


def _cut_diff(result: dict[str, Any]) -> Result:
    out = Result({name: value for name, value in result.items() if name != "runId"})
    if len(out["diff"]) > SHOWN_DIFF_CHARS:
        out.update(diff=out["diff"][:SHOWN_DIFF_CHARS], truncated=True)
    return out


TOOLSET = Toolset(
    name="workspace",
    sentence="run commands, read and edit files in the sandbox of the directory it was started in",
    by_default=True,
    tools=(
        execute,
        exec_logs,
        exec_stop,
        read_file,
        create_file,
        edit_file,
        delete_file,
        workspace_run,
        run_diff,
        run_undo,
    ),
)
