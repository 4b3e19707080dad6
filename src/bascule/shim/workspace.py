"""What the workspace's tools do, in the way of `calls`: generators that yield questions and return results.

A model pays for every character it reads, so an event is cut to what it says, and long output to head and tail with
the id under which the rest is found.
"""

from __future__ import annotations

from bascule.doors.exits import DoorError, WrongUsage
from bascule.shim.calls import Ask

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from bascule.shim.calls import Me, Tool

    Asking = Generator[Ask, Any, dict[str, Any]]

PROTOCOL_VERSION = "1.0"
# About 2,000 tokens: an error at the end of a build and where it began, not the build.
SHOWN_OUTPUT_CHARS = 8_000
# The end says more than the beginning: that is where commands report.
_HEAD_CHARS = 2_000
# About 8,000 tokens; a longer file is read by lines.
SHOWN_FILE_CHARS = 32_000
SHOWN_DIFF_CHARS = 16_000
DEFAULT_LOG_BYTES = 8_192
# What a model knows already, or has no use for.
_UNTOLD = ("timestamp", "operationId")


def execute(me: Me, arguments: dict[str, Any]) -> Asking:
    space = yield from _space(me, arguments)
    command: dict[str, Any] = {name: arguments[name] for name in ("command", "cwd", "env") if name in arguments}
    if arguments.get("background"):
        started = yield Ask("processes.start", {"spaceId": space, **command})
        return {
            "status": "running",
            "processId": started["processId"],
            "runId": started["runId"],
            "next": "exec_logs",
        }
    if "timeoutMs" in arguments:
        command["timeout"] = arguments["timeoutMs"]
    run = yield from _run(me, space, [{"type": "shell", **command}])
    out = _told(run)
    if run["status"] == "running":
        out["next"] = "workspace_run"
        process = yield from _process_of(space, run["runId"])
        if process is not None:
            out.update(processId=process, next="exec_logs")
    return out


def exec_logs(me: Me, arguments: dict[str, Any]) -> Asking:
    params = {"limit": DEFAULT_LOG_BYTES, **arguments}
    wait_ms = min(params.pop("waitMs", 0), me.slice_ms)
    page = yield Ask("processes.logs", params, wait_ms=wait_ms, repeat=True)
    return {name: page[name] for name in page if name not in ("stream", "processId")}


def exec_stop(_me: Me, arguments: dict[str, Any]) -> Asking:
    view = yield Ask("processes.stop", {"processId": arguments["processId"]})
    return {
        "processId": view["processId"],
        "running": view["running"],
        **{name: view[name] for name in ("exitCode", "endedBy") if name in view},
    }


def read_file(me: Me, arguments: dict[str, Any]) -> Asking:
    params = {"spaceId": (yield from _space(me, arguments)), "path": arguments["path"]}
    if "encoding" in arguments:
        params["encoding"] = arguments["encoding"]
    event = yield Ask("files.read", params, repeat=True)
    if not event["success"]:
        return {"status": "failed", "content": "", "error": event["error"]}
    out: dict[str, Any] = {"content": event["content"], "size": event["size"]}
    if params.get("encoding") == "base64":
        if "line" in arguments or "lines" in arguments:
            raise WrongUsage("base64 has no lines", "leave out line and lines")
        return out
    return _part_of(out, arguments)


def create_file(me: Me, arguments: dict[str, Any]) -> Asking:
    return (yield from _one(me, arguments, "createFile", ("path", "content", "encoding", "overwrite")))


def edit_file(me: Me, arguments: dict[str, Any]) -> Asking:
    return (yield from _one(me, arguments, "editFile", ("path", "edits")))


def delete_file(me: Me, arguments: dict[str, Any]) -> Asking:
    return (yield from _one(me, arguments, "deleteFile", ("path",)))


def workspace_run(me: Me, arguments: dict[str, Any]) -> Asking:
    if ("operations" in arguments) == ("runId" in arguments):
        raise WrongUsage("give either operations or runId", "operations begin a run, runId follows one")
    space = yield from _space(me, arguments)
    if "operations" in arguments:
        if arguments.get("commit"):
            raise WrongUsage(
                "commit goes with runId", "run with onCopy first, look at run_diff, then commit that runId"
            )
        run = yield from _run(me, space, arguments["operations"], on_copy=arguments.get("onCopy", False))
    elif arguments.get("commit"):
        done = yield Ask("runs.commit", {"spaceId": space, "runId": arguments["runId"]})
        return {"status": "committed", **_cut_diff(done)}
    else:
        run = yield Ask("runs.wait", {"spaceId": space, "runId": arguments["runId"]}, wait_ms=me.slice_ms, repeat=True)
    out = {"runId": run["runId"], "status": run["status"], "events": [_short(event) for event in run["events"]]}
    return {**out, **_next(run)}


def run_diff(me: Me, arguments: dict[str, Any]) -> Asking:
    space = yield from _space(me, arguments)
    return _cut_diff((yield Ask("runs.diff", {"spaceId": space, "runId": arguments["runId"]}, repeat=True)))


def run_undo(me: Me, arguments: dict[str, Any]) -> Asking:
    space = yield from _space(me, arguments)
    params = {"spaceId": space, "runId": arguments["runId"], "dryRun": arguments.get("dryRun", False)}
    return _cut_diff((yield Ask("runs.undo", params)))


TOOLS: dict[str, Tool] = {
    "exec": execute,
    "exec_logs": exec_logs,
    "exec_stop": exec_stop,
    "read_file": read_file,
    "create_file": create_file,
    "edit_file": edit_file,
    "delete_file": delete_file,
    "workspace_run": workspace_run,
    "run_diff": run_diff,
    "run_undo": run_undo,
}


def _space(me: Me, arguments: dict[str, Any]) -> Generator[Ask, Any, str]:
    """The space meant: one by name, else the directory this process was started in. A model never gives a path."""
    wanted = arguments.get("space")
    if wanted is None and me.directory is not None:
        # Each time, for it may have been closed meanwhile; the same directory is the same space.
        return str((yield Ask("spaces.open", {"path": me.directory}, repeat=True))["spaceId"])
    spaces = yield Ask("spaces.list", {}, repeat=True)
    if wanted is None:
        raise WrongUsage("no space is named", f"give space: {_names(spaces)}")
    for space in spaces:
        if wanted in (space["spaceId"], space["name"]):
            return str(space["spaceId"])
    raise WrongUsage(f"there is no space {wanted!r}", f"there are: {_names(spaces)}")


def _names(spaces: list[dict[str, Any]]) -> str:
    return ", ".join(space["name"] for space in spaces) or "none yet; a person opens one with `bascule spaces open DIR`"


def _one(me: Me, arguments: dict[str, Any], kind: str, fields: tuple[str, ...]) -> Asking:
    """A run of one operation."""
    space = yield from _space(me, arguments)
    operation = {"type": kind, **{name: arguments[name] for name in fields if name in arguments}}
    return _told((yield from _run(me, space, [operation])))


def _run(me: Me, space: str, operations: list[Any], *, on_copy: bool = False) -> Asking:
    params: dict[str, Any] = {"spaceId": space, "protocolVersion": PROTOCOL_VERSION, "operations": operations}
    if on_copy:
        params["onCopy"] = True
    # Not repeated: a connection lost under it may have lost the answer only.
    run: dict[str, Any] = yield Ask("runs.start", params, wait_ms=me.slice_ms)
    return run


def _process_of(space: str, run_id: str) -> Generator[Ask, Any, str | None]:
    """The command that a run waits for; not worth failing the whole call for."""
    try:
        processes = yield Ask("processes.list", {"spaceId": space}, repeat=True)
    except DoorError:
        return None
    return next((each["processId"] for each in processes if each["running"] and each.get("runId") == run_id), None)


def _told(run: dict[str, Any]) -> dict[str, Any]:
    """The answer of a run of one operation."""
    out: dict[str, Any] = {"runId": run["runId"], "status": run["status"]}
    for event in run["events"]:
        short = _short(event)
        kind = short.pop("type")
        if short.pop("success", None) is False:
            out["status"] = "failed"
        elif kind in ("policyDenied", "error"):
            out["status"] = {"policyDenied": "denied", "error": "failed"}[kind]
        out.update(short)
    # What the caller has just said.
    for echo in ("path", "command", "operationType"):
        out.pop(echo, None)
    return {**out, **_next(run)}


def _next(run: dict[str, Any]) -> dict[str, Any]:
    """What every answer about a run ends with."""
    return {**({"steering": run["steering"]} if run.get("steering") else {}), **_what_next(run)}


def _what_next(run: dict[str, Any]) -> dict[str, Any]:
    if run["status"] == "running":
        return {"next": "workspace_run"}
    if run["status"] == "awaiting_approval":
        hint = "a person decides with `bascule approvals`; then workspace_run with this runId has the rest"
        return {"next": "workspace_run", "hint": hint}
    return {}


def _short(event: dict[str, Any]) -> dict[str, Any]:
    out = {name: value for name, value in event.items() if name not in _UNTOLD and value != ""}
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


def _part_of(out: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The wanted lines, or as many as a model should read at once; `nextLine` goes on."""
    # Only \n ends a line here, as in editors and compilers; splitlines() knows ten more.
    lines = out["content"].split("\n")
    first = arguments.get("line", 1) - 1
    wanted = lines[first : first + arguments["lines"]] if "lines" in arguments else lines[first:]
    kept: list[str] = []
    room = SHOWN_FILE_CHARS
    for line in wanted:
        room -= len(line) + 1
        if room < 0 and kept:
            break
        kept.append(line[:SHOWN_FILE_CHARS])
    end = first + len(kept)
    content = "\n".join(kept)
    if end < len(lines):
        return {**out, "content": f"{content}\n" if kept else "", "nextLine": end + 1}
    return {**out, "content": content}


def _cut_diff(result: dict[str, Any]) -> dict[str, Any]:
    out = {name: value for name, value in result.items() if name != "runId"}
    if len(out["diff"]) > SHOWN_DIFF_CHARS:
        out["diff"] = out["diff"][:SHOWN_DIFF_CHARS]
        out["truncated"] = True
    return out
