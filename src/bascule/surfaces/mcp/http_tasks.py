"""Tasks at `/mcp`: a middleware of the SDK's server, which knows nothing of them."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from bascule.kernel.call import Principal
from bascule.programs.mcp_stdio.mcp import TASKS_EXTENSION
from bascule.surfaces.mcp import task_protocol
from bascule.surfaces.mcp.delivery import Delivery, Handover
from bascule.surfaces.mcp.door import DELIVERY, PRINCIPAL
from bascule.surfaces.mcp.task_calls import answered_at_once
from bascule.surfaces.mcp.task_protocol import TaskFault
from bascule.surfaces.mcp.tasks import McpTask, McpTasks, Outcome

Context = ServerRequestContext[Any, Any]

_NAME_HEADER = b"mcp-name"


class TaskCall(NamedTuple):
    """A tool call that can be a task."""

    call_id: str
    work: Callable[[McpTask], Coroutine[Any, Any, Outcome]]
    # It waits for somebody or something.
    waits: bool


# The call as a task; None where the tool cannot be one.
Begin = Callable[[Context], TaskCall | None]


class HttpTasks:
    def __init__(self, tasks: McpTasks, begin: Begin, grace_seconds: float | None) -> None:
        """Without a grace every call that can be a task is one."""
        self._tasks = tasks
        self._begin = begin
        self._grace = grace_seconds

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        try:
            if ctx.method in task_protocol.METHODS:
                return await self._respond(ctx)
            if ctx.method == "tools/call":
                return await self._call(ctx, call_next)
            if ctx.method == "subscriptions/listen" and _wants_tasks(ctx) and not declares_tasks(ctx):
                # Who has declared them is acknowledged without: at this door a task is asked for with `tasks/get`.
                raise task_protocol.missing_capability()
        except TaskFault as fault:
            raise MCPError(fault.code, fault.message, fault.data) from None
        return await call_next(ctx)

    async def _call(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        params = ctx.params or {}
        modern = is_modern(ctx)
        # An agent that has too many is answered as one whose client takes none.
        offered = declares_tasks(ctx) and self._tasks.has_room(_principal(ctx)) if modern else "task" in params
        if not offered:
            return await call_next(ctx)
        ttl_ms = None if modern else task_protocol.wanted_ttl(params)
        found = self._begin(ctx)
        if found is None:
            if modern:
                return await call_next(ctx)
            raise TaskFault(types.METHOD_NOT_FOUND, "this tool cannot be a task; call it without `task`")
        task = self._tasks.start(_principal(ctx), found.call_id, found.work, ttl_ms=ttl_ms)
        if modern and task.expiry is None and self._grace is not None:
            _delivery(ctx).hold(task.work)
            try:
                at_once = await answered_at_once(task, waits=found.waits, seconds=self._grace)
            except asyncio.CancelledError:
                self._tasks.drop(task)
                raise
            finally:
                _delivery(ctx).hold(None)
            if at_once:
                return self._answered(ctx, task)
        if task.expiry is None:
            self._tasks.publish(task)
        return task_protocol.created(task, modern=modern)

    def _answered(self, ctx: Context, task: McpTask) -> HandlerResult:
        self._tasks.release(task)
        if task.outcome.result is None:
            error = task.outcome.error or {"code": types.INTERNAL_ERROR, "message": "cancelled"}
            raise TaskFault(int(error["code"]), str(error["message"]))
        if task.outcome.delivered is not None:
            self._hand_over(ctx, task.outcome.result, task.delivered, task.lost)
        return {"resultType": "complete", **task.outcome.result}

    async def _respond(self, ctx: Context) -> HandlerResult:
        params = ctx.params or {}
        modern = is_modern(ctx)
        routed = modern and ctx.method in task_protocol.MODERN_METHODS and declares_tasks(ctx)
        if routed and "taskId" in params and _header(ctx) != params["taskId"]:
            # The extension: "the client MUST set the Mcp-Name header to the value of params.taskId".
            raise MCPError(types.HEADER_MISMATCH, "the header Mcp-Name differs from params.taskId")
        answer = await task_protocol.respond(
            self._tasks,
            _principal(ctx),
            ctx.method,
            params,
            modern=modern,
            declared=declares_tasks(ctx),
            hold=_delivery(ctx).hold,
        )
        task = answer.task
        if task is not None and task.outcome.delivered is not None:
            # What did not arrive is asked for again: the task keeps it.
            self._hand_over(ctx, answer.result, task.delivered, _nothing)
        return {"resultType": "complete", **answer.result} if modern else answer.result

    @staticmethod
    def _hand_over(
        ctx: Context, result: Mapping[str, Any], arrived: Callable[[], None], lost: Callable[[], None]
    ) -> None:
        inner = result.get("result", result)
        mark = str(inner["structuredContent"]["ticketId"]).encode()
        _delivery(ctx).hand_over(Handover(mark, arrived, lost))


def is_modern(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def declares_tasks(ctx: Context) -> bool:
    able = ctx.session.client_capabilities
    return able is not None and able.extensions is not None and TASKS_EXTENSION in able.extensions


def _wants_tasks(ctx: Context) -> bool:
    wanted = (ctx.params or {}).get("notifications")
    return isinstance(wanted, dict) and "taskIds" in wanted


def _delivery(ctx: Context) -> Delivery:
    assert ctx.request is not None
    delivery: Delivery = ctx.request.scope[DELIVERY]
    return delivery


def _principal(ctx: Context) -> Principal:
    assert ctx.request is not None
    principal: Principal = ctx.request.scope[PRINCIPAL]
    return principal


def _header(ctx: Context) -> str | None:
    assert ctx.request is not None
    headers = ctx.request.scope["headers"]
    return next((value.decode("latin-1") for name, value in headers if name == _NAME_HEADER), None)


def _nothing() -> None:
    return None
