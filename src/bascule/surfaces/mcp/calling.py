"""One tool call: the tool's function with its way to the gate, and the result as MCP shows it.

The calls inside a tool are those of the agent that the connection or token names; each is decided, counted and
recorded as any other. What a wait took from the inbox is given back when the client cannot have it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from bascule.foundation.backoff import Backoff
from bascule.foundation.deferred import Deferred, within
from bascule.foundation.errors import ApprovalRequired, BasculeError, InvalidRequest, Overloaded, Unavailable
from bascule.kernel.call import Call, Principal, agent_of
from bascule.kernel.gate import Gate
from bascule.kernel.tool import AskForm, Result, Retry, Session, Tool
from bascule.programs.mcp_stdio import words
from bascule.programs.mcp_stdio.mcp import SLICE_MS
from gabp import codec

T = TypeVar("T")

# Clients show the newest line; more often would only cost.
PROGRESS_SECONDS = 5.0
# An answer that is there by then needs no task: most commands, a message that waits in the inbox.
GRACE_SECONDS = 1.0
# How long a call that may be repeated waits for a gate that is overloaded.
BUSY_SECONDS = 10.0

_plain = codec.decoder(Any, max_depth=codec.MAX_ANSWER_DEPTH)
_BLANK: Mapping[Any, Any] = {"string": "", "integer": 0, "boolean": False, "array": [], "object": {}}

Become = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
Progress = Callable[[float], Awaitable[None]]
# Learns what the call waits for, and None when it waits no more.
Hold = Callable[[Deferred[Any] | None], None]


class ClientGone(Exception):
    """There is nobody left to answer."""


class Facts(NamedTuple):
    """What a call has of the session it belongs to."""

    # Where its calls come in, for the log.
    door: str
    trust: str = words.DEFAULT_TRUST
    default_timeout_ms: int | None = None
    directory: str | None = None
    slice_ms: int = SLICE_MS
    progress_seconds: float = PROGRESS_SECONDS
    busy_seconds: float = BUSY_SECONDS
    grace_seconds: float = GRACE_SECONDS


class ToolCall:
    """A `Session` for the function of one tool, or for reading a resource."""

    def __init__(
        self,
        gate: Gate,
        principal: Callable[[], Principal],
        facts: Facts,
        call_id: str,
        *,
        become: Become,
        repeats: bool,
        progress: Progress | None = None,
        hold: Hold | None = None,
        form: AskForm | None = None,
    ) -> None:
        self.call_id = call_id
        self.form = form
        self.slice_ms = facts.slice_ms
        self.trust = facts.trust
        self.default_timeout_ms = facts.default_timeout_ms
        self.directory = facts.directory
        self._become = become
        self._gate = gate
        self._principal = principal
        self._facts = facts
        self._repeats = repeats
        self._progress = progress
        self._hold = hold
        self._started = monotonic()
        # What waits have given us, to be given back when the client cannot have it.
        self._taken: list[tuple[Call, Any]] = []

    @property
    def handle(self) -> str:
        return agent_of(self._principal()) or ""

    @property
    def stopped(self) -> str | None:
        """What an agent reads while everything is stopped, beside whatever it asked for."""
        return None if self._gate.halt is None else self._gate.halt.refusal().message

    async def call(self, method: str, params: Mapping[str, Any], *, wait_ms: int | None = None) -> Any:
        if wait_ms is not None:
            params = {**params, "waitMs": wait_ms}
        pauses = Backoff()
        until = monotonic() + self._facts.busy_seconds
        while True:
            call = self._call(method, params)
            try:
                answer = self._gate.call(call)
                if isinstance(answer, Deferred):
                    answer = await self._wait(call, answer)
                    self._taken.append((call, answer))
                return _plain.decode(codec.encode(answer))
            except (Overloaded, Unavailable) as busy:
                pause = max(busy.retry_after or 0.0, next(pauses))
                if not self._repeats or monotonic() + pause > until:
                    raise
            await asyncio.sleep(pause)

    async def become(self, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._become(wanted)

    async def run(self, work: Awaitable[T]) -> T:
        """What a tool's function returns; what it took is given back when it fails."""
        try:
            return await work
        except BaseException:
            self.give_back()
            raise

    def acknowledge(self, result: Result) -> None:
        """The client has it. If this fails, the message comes again."""
        self._taken.clear()
        if result.acknowledge is not None:
            try:
                self._gate.call(self._call("inbox.ack", result.acknowledge))
            except BasculeError:
                return

    def give_back(self) -> None:
        taken, self._taken = self._taken, []
        for call, answer in taken:
            self._gate.abandoned(call, answer)

    async def _wait(self, call: Call, later: Deferred[Any]) -> Any:
        if self._hold is not None:
            self._hold(later)
        try:
            while self._progress is not None and not await within(self._facts.progress_seconds, later):
                await self._progress(round(monotonic() - self._started, 3))
            return await later
        except asyncio.CancelledError:
            if later.cancelled() and not _is_cancelled():
                raise ClientGone from None
            # If the answer came in the same moment, it is for the next one who asks.
            if not later.cancel() and not later.cancelled() and later.exception() is None:
                self._gate.abandoned(call, later.result())
            raise
        finally:
            if self._hold is not None:
                self._hold(None)

    def _call(self, method: str, params: Mapping[str, Any]) -> Call:
        try:
            decoded = codec.convert(params, self._gate.methods[method].row.params)
        except codec.BadJson as error:
            raise InvalidRequest(error.message, details={"method": method}) from error
        return Call(self._principal(), method, decoded, door=self._facts.door)


def _is_cancelled() -> bool:
    """Whether it is the running task that was cancelled, and not what it waits for."""
    task = asyncio.current_task()
    return task is not None and bool(task.cancelling())


async def call_tool(me: ToolCall, tool: Tool, arguments: Any) -> Result:
    """The tool's result, with the number of unread messages on it when there are any."""
    ignored = [name for name in tool.ignored if isinstance(arguments, dict) and name in arguments]
    if ignored:
        arguments = {name: value for name, value in arguments.items() if name not in ignored}
    try:
        decoded = codec.convert(arguments, tool.arguments)
    except codec.BadJson as error:
        raise InvalidRequest(f"{tool.name}: {error.message}") from error
    result = await _attempt(tool, lambda: tool.run(me, decoded))
    if ignored:
        result["note"] = f"{', '.join(ignored)}: known from GABS, without meaning here"
    return await _with_news(me, tool, result)


async def go_on(me: ToolCall, tool: Tool, result: Result) -> Result:
    """The result that `result.more` leads to."""
    assert result.more is not None
    return await _with_news(me, tool, await _attempt(tool, result.more))


async def _attempt(tool: Tool, run: Callable[[], Awaitable[Result]]) -> Result:
    try:
        return await run()
    except ApprovalRequired as refused:
        # Not a failure: the model goes on with something else, or tells its user, and calls again.
        result = _awaiting(refused, tool)
        result.awaits, result.more = result["approvalId"], run
        return result


async def _with_news(me: ToolCall, tool: Tool, result: Result) -> Result:
    if tool.for_hooks:
        return result
    if me.stopped is not None:
        result["stopped"] = me.stopped
    if "unread" in result or result.acknowledge is not None or tool.name == "wait_for_message":
        return result
    try:
        beat = await me.call("agents.heartbeat", {"agentId": me.handle})
    except BasculeError:
        return result
    if beat.get("unread"):
        result["unread"] = beat["unread"]
    return result


async def register_again(me: Session, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """Change what is known of the agent that calls; what is not named stays."""
    known = next(agent for agent in await me.call("agents.list", {}) if agent["agentId"] == me.handle)
    params: dict[str, Any] = {
        "agentId": me.handle,
        "type": wanted.get("type") or known["type"],
        "metadata": known.get("metadata", {}) | wanted.get("metadata", {}),
    }
    if wanted.get("heartbeatIntervalMs"):
        params["heartbeatIntervalMs"] = wanted["heartbeatIntervalMs"]
    if "groups" in wanted:
        params["groups"] = wanted["groups"]
    registered: dict[str, Any] = await me.call("agents.register", params)
    return registered


def repeats(tool: Tool) -> bool:
    return tool.retry is not Retry.NEVER


def content_of(result: Result) -> dict[str, Any]:
    """The result of `tools/call`."""
    content = [{"type": "text", "text": text_of(result)}, *result.images]
    return {"content": content, "structuredContent": dict(result), "isError": result.failed}


def text_of(result: Result) -> str:
    """The structured result for clients that read text only."""
    return codec.encode(result).decode()


def _awaiting(refused: ApprovalRequired, tool: Tool) -> Result:
    """The result of a call that waits for a person: what to do, in the shape that the tool promises."""
    return Result(
        {
            **{name: _BLANK.get(tool.result[name].get("type")) for name in tool.always},
            "status": "awaiting_approval",
            "approvalId": (refused.details or {}).get("approvalId"),
            "reason": refused.message,
            "next": tool.name,
            "hint": f"not done yet: {refused.hint}",
        }
    )
