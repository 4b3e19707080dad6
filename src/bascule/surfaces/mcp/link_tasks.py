"""Tasks of one session that the stdio program carries: its calls that become tasks, and what it asks about them."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from bascule.foundation.errors import NotFound
from bascule.kernel.call import Principal
from bascule.kernel.consent.desk import Desk
from bascule.kernel.journal_ports import Log
from bascule.kernel.tool import Result, Tool
from bascule.programs.mcp_stdio import mcp
from bascule.surfaces.mcp import task_protocol
from bascule.surfaces.mcp.calling import ToolCall
from bascule.surfaces.mcp.task_calls import answered_at_once, work, work_again
from bascule.surfaces.mcp.tasks import McpTask, McpTasks

# What to do when the client has an answer, and when it will never have it.
Handover = tuple[Callable[[], None], Callable[[], None]]


class LinkTasks:
    def __init__(
        self,
        tasks: McpTasks,
        desk: Desk,
        log: Log,
        notify: Callable[[dict[str, Any]], None],
        grace_seconds: float,
    ) -> None:
        self._tasks = tasks
        self._desk = desk
        self._log = log
        self._notify = notify
        self._grace = grace_seconds
        # Those whose client this session has.
        self._mine: dict[str, McpTask] = {}
        # Of each open stream of 2026-07-28, and under None of the calls of 2025-11-25.
        self._followed: dict[int | str | None, list[tuple[McpTask, Callable[[McpTask], None]]]] = {}

    def wanted(self, principal: Principal, request: mcp.Request, tool: Tool) -> bool:
        """Whether this call may, or has to, become a task."""
        may = tool.as_task and not tool.for_hooks
        if request.modern:
            # An agent that has too many is answered as one whose client takes none.
            return may and request.takes_tasks and self._tasks.has_room(principal)
        if "task" not in request.params:
            return False
        task_protocol.wanted_ttl(request.params)
        if not may:
            raise task_protocol.TaskFault(mcp.METHOD_NOT_FOUND, f"{tool.name} cannot be a task; call it without `task`")
        return True

    async def call(
        self,
        principal: Principal,
        me: ToolCall,
        tool: Tool,
        request: mcp.Request,
        finish: Callable[[Result], None],
    ) -> tuple[dict[str, Any], Handover | None]:
        """The answer to a call: its result if that comes soon, else the handle of a task."""
        arguments = request.params.get("arguments") or {}
        ttl_ms = None if request.modern else task_protocol.wanted_ttl(request.params)
        begin = partial(work, me=me, tool=tool, arguments=arguments, desk=self._desk, log=self._log, finish=finish)
        begin = partial(begin, forms=request.modern and me.form is not None)
        task = self._tasks.start(principal, me.call_id, begin, ttl_ms=ttl_ms)
        if request.modern and task.expiry is None:
            try:
                at_once = await answered_at_once(task, waits=tool.waits, seconds=self._grace)
            except asyncio.CancelledError:
                # The client has no handle yet, so this is a call like any other.
                self._tasks.drop(task)
                raise
            if at_once:
                return self._answered(task, request)
        if task.expiry is None:
            self._tasks.publish(task)
        self._mine[task.task_id] = task
        if not request.modern:
            self._follow(None, task, lambda method, params: self._notify(mcp.notification(method, params)))
        return request.answer(task_protocol.created(task, modern=request.modern)), None

    def _answered(self, task: McpTask, request: mcp.Request) -> tuple[dict[str, Any], Handover | None]:
        outcome = task.outcome
        self._tasks.release(task)
        if outcome.result is None:
            error = outcome.error or {"code": mcp.INTERNAL_ERROR, "message": "cancelled"}
            raise task_protocol.TaskFault(int(error["code"]), str(error["message"]))
        handover = (task.delivered, task.lost) if outcome.delivered is not None else None
        return request.answer(dict(outcome.result)), handover

    async def respond(
        self, principal: Principal, request: mcp.Request, me: ToolCall, awaits_reply: Tool | None
    ) -> tuple[dict[str, Any], Handover | None]:
        """`me` and the tool that waits for a reply are for a task of an earlier life of the daemon."""
        again = partial(work_again, me=me, tool=awaits_reply, desk=self._desk, log=self._log)
        self._tasks.revive(principal, request.params.get("taskId"), again)
        answer = await task_protocol.respond(
            self._tasks,
            principal,
            request.method,
            request.params,
            modern=request.modern,
            declared=request.takes_tasks,
        )
        self._use(principal, request.params.get("taskId"))
        task = answer.task
        # What did not arrive is asked for again: the task keeps it.
        handover = (task.delivered, _nothing) if task is not None and task.outcome.delivered is not None else None
        return request.answer(answer.result), handover

    def listen(self, principal: Principal, request: mcp.Request, wanted: object) -> list[str]:
        """Follow these tasks on an open stream; those that this agent has are agreed to."""
        if not request.takes_tasks:
            raise task_protocol.missing_capability()
        ids = wanted if isinstance(wanted, list) else []
        mine = {each.task_id: each for each in self._tasks.of(principal)}
        agreed = [mine[each] for each in dict.fromkeys(map(str, ids)) if each in mine]
        for task in agreed:
            self._use(principal, task.task_id)
            self._follow(
                request.number, task, lambda method, params: self._notify(request.on_subscription(method, params))
            )
        return [each.task_id for each in agreed]

    def _use(self, principal: Principal, task_id: object) -> None:
        """Its client is here now."""
        with contextlib.suppress(NotFound):
            task = self._tasks.find(principal, task_id)
            self._mine[task.task_id] = task
        # What has ended needs no client.
        self._mine = {name: task for name, task in self._mine.items() if not task.has_ended}

    def unfollow(self, number: int | str | None) -> None:
        for task, watcher in self._followed.pop(number, ()):
            task.watchers.remove(watcher)

    def close(self) -> None:
        """The connection is gone; the tasks go on for a client that comes back."""
        for task in self._mine.values():
            self._tasks.client_left(task)
        for number in list(self._followed):
            self.unfollow(number)

    def _follow(self, number: int | str | None, task: McpTask, send: Callable[[str, dict[str, Any]], None]) -> None:
        modern = number is not None

        def watcher(changed: McpTask) -> None:
            send(*task_protocol.status_notification(changed, modern=modern))

        task.watchers.append(watcher)
        self._followed.setdefault(number, []).append((task, watcher))


def _nothing() -> None:
    return None
