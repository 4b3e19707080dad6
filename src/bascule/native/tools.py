"""What a client's own hooks call through its session's MCP server; no model sees it.

Faster than a program that is started for every call: the connection is there already. Claude Code and Codex fill the
arguments in from what they would give a hook.
"""

import asyncio
from typing import Any

from bascule.foundation.errors import ApprovalRequired, BasculeError, PolicyDenied, Stopped
from bascule.kernel.tool import ADDS, Arguments, Result, Retry, Session, Tool, tool
from bascule.native.answers import dialog, refusal
from bascule.native.protocol import Client
from gabp import codec

# As long as a hook that is a program waits for a person (the hold of HTTP).
AGREED_SECONDS = 25.0
# A daemon that holds no call (`approval_hold_ms`) is not asked over and over.
_SHORTEST_HOLD_SECONDS = 0.5
_METHODS = {"PreToolUse": "native.before", "PostToolUse": "native.after", "PostToolUseFailure": "native.after"}


class HookArguments(Arguments, frozen=True, kw_only=True):
    client: Client
    event: str
    session: str
    cwd: str = ""
    tool: str = ""
    # The tool's arguments: JSON from Claude Code, an object from Codex.
    input: str | dict[str, Any] = ""
    id: str = ""
    agent: str = ""
    prompt: str = ""
    about: str = ""


@tool(
    "native_hook",
    "A client's hook",
    "For hooks of the client, not for models.",
    uses=("native.before", "native.after", "native.question", "sessions.note"),
    hints=ADDS,
    retry=Retry.NEVER,
    for_hooks=True,
)
async def native_hook(me: Session, arguments: HookArguments) -> Result:
    method = _METHODS.get(arguments.event, "sessions.note")
    try:
        answer = await me.call(method, {"client": arguments.client, "event": _event(arguments)})
    except Stopped as stopped:
        # A person has stopped everything: that holds for agents' own tools as well, whatever their mode is.
        return Result(refusal(arguments.client, stopped.message) if method == "native.before" else {})
    output: dict[str, Any] = answer.get("output", {})
    if question := answer.get("question"):
        if "waitMs" in answer:
            output = await _asked(me, question, answer["waitMs"] / 1000) or output
        elif await _agreed(me, question):
            output = {}
    return Result(output)


async def _agreed(me: Session, question: dict[str, Any]) -> bool:
    """Whether a person says yes while the client waits. If they say it later, the same call is let through then."""
    try:
        async with asyncio.timeout(AGREED_SECONDS):
            await me.call("native.question", question)
    except (BasculeError, TimeoutError):
        return False
    return True


async def _asked(me: Session, question: dict[str, Any], seconds: float) -> dict[str, Any]:
    """What the person says at the desk while the client's own dialog is open; nothing if they say it there."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            while True:
                began = loop.time()
                try:
                    answer = await me.call("native.question", question)
                except ApprovalRequired:
                    if loop.time() - began < _SHORTEST_HOLD_SECONDS:
                        return {}
                else:
                    output: dict[str, Any] = answer.get("output", {})
                    return output
    except PolicyDenied as denied:
        return dialog(allow=False, why=denied.message)
    except (BasculeError, TimeoutError):
        return {}


def _event(arguments: HookArguments) -> dict[str, Any]:
    """What the client would have given a hook that is a program."""
    event = {
        "hook_event_name": arguments.event,
        "session_id": arguments.session,
        "cwd": arguments.cwd,
        "tool_name": arguments.tool,
        "tool_use_id": arguments.id,
        "agent_id": arguments.agent,
        "prompt": arguments.prompt,
        "notification_type": arguments.about,
    }
    given = arguments.input
    if isinstance(given, str):
        try:
            given = codec.decode(given.encode(), dict[str, Any]) if given else {}
        except codec.BadJson:
            given = {}
    return {**{name: value for name, value in event.items() if value}, **({"tool_input": given} if given else {})}


HOOKS: tuple[Tool, ...] = (native_hook,)
