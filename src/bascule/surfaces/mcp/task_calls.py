"""A tool call as a task: it waits as long as its task lives, for a message, a reply, a command's end or the person."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any

from bascule.foundation.backoff import Backoff
from bascule.foundation.deferred import Deferred, within
from bascule.foundation.errors import BasculeError
from bascule.kernel.consent.desk import Desk
from bascule.kernel.consent.records import Approval
from bascule.kernel.faults import log_fault
from bascule.kernel.journal_ports import Log
from bascule.kernel.tool import Result, Tool
from bascule.programs.mcp_stdio import words
from bascule.programs.mcp_stdio.mcp import INTERNAL_ERROR
from bascule.surfaces.mcp.calling import ToolCall, call_tool, content_of, go_on
from bascule.surfaces.mcp.forms import form_request
from bascule.surfaces.mcp.tasks import McpTask, Outcome, Status, waits_for

RESTARTED = (
    "Bascule was restarted while this call waited, and how far it came is not known. Look at what it was about before "
    "you make it again."
)


async def work(
    task: McpTask,
    me: ToolCall,
    tool: Tool,
    arguments: Any,
    *,
    desk: Desk,
    log: Log,
    forms: bool = False,
    finish: Callable[[Result], None] | None = None,
) -> Outcome:
    """The outcome of a tool call that may take half of its task's life; `finish` adds what only the door knows.

    With `forms` the client is asked with the task, not by the door's own way.
    """
    if forms:
        me.form = lambda message, schema: task.ask(form_request(message, schema))
    until = monotonic() + task.ttl_ms / 2000
    try:
        result = await me.run(_to_the_end(task, me, tool, arguments, desk=desk, until=until))
    except BasculeError as refused:
        return Outcome({"content": [{"type": "text", "text": words.describe(refused, tool.name)}], "isError": True})
    except Exception as error:  # noqa: BLE001 - the boundary: whoever asks for the task hears of it
        fault = log_fault(log, error, method="tools/call")
        text = f"internal error {fault}; `bascule logs` shows it"
        return Outcome(error={"code": INTERNAL_ERROR, "message": text})
    if finish is not None:
        finish(result)
    if result.acknowledge is None:
        return Outcome(content_of(result))
    return Outcome(content_of(result), delivered=lambda: me.acknowledge(result), lost=me.give_back)


async def work_again(task: McpTask, call: str, me: ToolCall, tool: Tool | None, *, desk: Desk, log: Log) -> Outcome:
    """After a restart of the daemon: the reply to the message of the call, if it was one. `tool` waits for replies."""
    if tool is not None:
        outcome = await work(task, me, tool, {"ticketId": call}, desk=desk, log=log)
        if outcome.result is not None and not outcome.result.get("isError"):
            return outcome
    return Outcome({"content": [{"type": "text", "text": RESTARTED}], "isError": True})


async def _to_the_end(task: McpTask, me: ToolCall, tool: Tool, arguments: Any, *, desk: Desk, until: float) -> Result:
    result = await call_tool(me, tool, arguments)
    pauses = Backoff()
    asked: str | None = None
    while result.more is not None and monotonic() < until:
        if result.awaits is not None:
            if result.awaits == asked:
                # Answered a moment ago, and what it allows has not begun yet.
                await asyncio.sleep(next(pauses))
            asked = result.awaits
            task.move(Status.WORKING, waits_for(result.awaits))
            if not await _settled(desk, result.awaits, until):
                break
            task.move(Status.WORKING)
        result = await go_on(me, tool, result)
    return result


async def _settled(desk: Desk, approval_id: str, until: float) -> bool:
    """Whether the question was answered, expired or withdrawn in time."""
    later: Deferred[Approval] = Deferred()

    def settle(approval: Approval) -> None:
        if not later.done():
            later.set_result(approval)

    desk.watch(approval_id, settle)
    return await within(max(0.0, until - monotonic()), later)


async def answered_at_once(task: McpTask, *, waits: bool, seconds: float) -> bool:
    """Whether the call has ended before its client needs a handle: one that waits gets it soon, any other when it
    is known that somebody has to be asked.
    """
    first: Deferred[None] = Deferred()

    def settle(_: Deferred[None]) -> None:
        if not first.done():
            first.set_result(None)

    task.ended.add_done_callback(settle)
    task.held.add_done_callback(settle)
    await within(seconds if waits else None, first)
    return task.has_ended
