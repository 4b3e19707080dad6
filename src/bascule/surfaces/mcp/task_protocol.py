"""What MCP says of tasks, in both eras: the shapes on the wire and the methods `tasks/*`, for either door.

2025-11-25 has them in its core, for calls whose client asks for a task. Since 2026-07-28 they are the extension
`io.modelcontextprotocol/tasks`: the client declares it with every request, and the server decides.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from bascule.foundation.deferred import within
from bascule.foundation.errors import NotFound
from bascule.kernel.call import Principal
from bascule.programs.mcp_stdio.mcp import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    TASKS_EXTENSION,
)
from bascule.surfaces.mcp.calling import ClientGone, Hold
from bascule.surfaces.mcp.tasks import McpTask, McpTasks, Status

MODERN_METHODS = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
HANDSHAKE_METHODS = frozenset({"tasks/get", "tasks/cancel", "tasks/result", "tasks/list"})
METHODS = MODERN_METHODS | HANDSHAKE_METHODS
_RELATED = "io.modelcontextprotocol/related-task"
# A page of `tasks/list`.
PAGE = 50


class TaskFault(Exception):
    """A JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Answer:
    """The result of a request about a task, and what to do when the client has it."""

    __slots__ = ("result", "task")

    def __init__(self, result: dict[str, Any], task: McpTask | None = None) -> None:
        self.result = result
        # The result of this task is in it.
        self.task = task


def created(task: McpTask, *, modern: bool) -> dict[str, Any]:
    """In place of the result of `tools/call`."""
    return {"resultType": "task", **_about(task, modern=True)} if modern else {"task": _about(task, modern=False)}


def shown(task: McpTask) -> dict[str, Any]:
    """The extension's whole task: the answer to `tasks/get`, and the params of a notification."""
    out = _about(task, modern=True)
    if task.status is Status.INPUT_REQUIRED:
        out["inputRequests"] = dict(task.requests)
    elif task.status is Status.COMPLETED:
        out["result"] = task.outcome.result
    elif task.status is Status.FAILED:
        out["error"] = task.outcome.error
    return out


def status_notification(task: McpTask, *, modern: bool) -> tuple[str, dict[str, Any]]:
    """Method and params."""
    if modern:
        return "notifications/tasks", shown(task)
    return "notifications/tasks/status", _about(task, modern=False)


def missing_capability() -> TaskFault:
    needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
    return TaskFault(MISSING_CAPABILITY, "the client has not declared the tasks extension with this request", needed)


async def respond(
    tasks: McpTasks,
    principal: Principal,
    method: str,
    params: Mapping[str, Any],
    *,
    modern: bool,
    declared: bool,
    hold: Hold | None = None,
) -> Answer:
    """Answer `tasks/*` as the agent that asks. `hold` learns what an answer waits for."""
    if method not in (MODERN_METHODS if modern else HANDSHAKE_METHODS):
        raise TaskFault(METHOD_NOT_FOUND, f"there is no method {method}")
    if modern and not declared:
        raise missing_capability()
    if method == "tasks/list":
        return Answer(_listed(tasks, principal, params.get("cursor")))
    try:
        task = tasks.find(principal, params.get("taskId"))
    except NotFound as unknown:
        raise TaskFault(INVALID_PARAMS, unknown.message) from None
    match method:
        case "tasks/get":
            ended = modern and task.status is Status.COMPLETED
            return Answer(shown(task) if modern else _about(task, modern=False), task if ended else None)
        case "tasks/update":
            answers = params.get("inputResponses")
            if not isinstance(answers, dict):
                raise TaskFault(INVALID_PARAMS, "inputResponses must be an object")
            task.answered(answers)
            return Answer({})
        case "tasks/cancel":
            if task.has_ended and not modern:
                # 2025-11-25: "Receivers MUST reject cancellation requests for tasks already in a terminal status".
                raise TaskFault(INVALID_PARAMS, f"{task.task_id} has ended already: it is {task.status.value}")
            tasks.cancel(task)
            return Answer({} if modern else _about(task, modern=False))
        case _:
            return await _result(task, hold)


async def _result(task: McpTask, hold: Hold | None) -> Answer:
    """`tasks/result` of 2025-11-25: exactly what the call would have returned, once it is there."""
    later = task.ended.copy()
    if hold is not None:
        hold(later)
    await within(None, later)
    if hold is not None:
        hold(None)
    if later.cancelled():
        raise ClientGone
    if task.outcome.result is not None:
        return Answer({**task.outcome.result, "_meta": {_RELATED: {"taskId": task.task_id}}}, task)
    error = task.outcome.error or {"code": INTERNAL_ERROR, "message": f"{task.task_id} was cancelled"}
    raise TaskFault(int(error["code"]), str(error["message"]))


def _listed(tasks: McpTasks, principal: Principal, cursor: object) -> dict[str, Any]:
    mine = tasks.of(principal)
    if cursor is not None:
        ids = [each.task_id for each in mine]
        if cursor not in ids:
            raise TaskFault(INVALID_PARAMS, "this cursor is not one of ours; begin without one")
        mine = mine[ids.index(str(cursor)) + 1 :]
    page = mine[:PAGE]
    out: dict[str, Any] = {"tasks": [_about(each, modern=False) for each in page]}
    return {**out, "nextCursor": page[-1].task_id} if len(mine) > PAGE else out


def _about(task: McpTask, *, modern: bool) -> dict[str, Any]:
    ttl, poll = ("ttlMs", "pollIntervalMs") if modern else ("ttl", "pollInterval")
    out = {
        "taskId": task.task_id,
        "status": task.status.value,
        "createdAt": _iso(task.created_at),
        "lastUpdatedAt": _iso(task.updated_at),
        ttl: task.ttl_ms,
        poll: task.poll_ms,
    }
    return out if task.message is None else {**out, "statusMessage": task.message}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def wanted_ttl(params: Mapping[str, Any]) -> int | None:
    """Of a call of 2025-11-25 whose client asks for a task."""
    task = params.get("task")
    if not isinstance(task, dict):
        raise TaskFault(INVALID_PARAMS, "task must be an object")
    ttl = task.get("ttl")
    if ttl is not None and (not isinstance(ttl, int) or isinstance(ttl, bool) or ttl <= 0):
        raise TaskFault(INVALID_PARAMS, "task.ttl must be a number of milliseconds")
    return ttl
