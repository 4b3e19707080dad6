"""What a client's own hooks call through its session's MCP server; no model sees it.

Faster than a program that is started for every call: the connection is there already. Claude Code fills the arguments
in from what it would give a hook, each as a text.
"""

from typing import Any

from bascule.foundation.errors import Stopped
from bascule.kernel.tool import ADDS, Arguments, Result, Retry, Session, Tool, tool
from bascule.native.answers import refusal
from bascule.native.protocol import Client
from gabp import codec

_METHODS = {"PreToolUse": "native.before", "PostToolUse": "native.after", "PostToolUseFailure": "native.after"}


class HookArguments(Arguments, frozen=True, kw_only=True):
    client: Client
    event: str
    session: str
    cwd: str = ""
    tool: str = ""
    # The tool's arguments, as JSON.
    input: str = ""
    id: str = ""
    agent: str = ""
    prompt: str = ""
    about: str = ""


@tool(
    "native_hook",
    "A client's hook",
    "For hooks of the client, not for models.",
    uses=("native.before", "native.after", "sessions.note"),
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
    return Result(answer.get("output", {}))


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
    try:
        given = codec.decode(arguments.input.encode(), dict[str, Any]) if arguments.input else {}
    except codec.BadJson:
        given = {}
    return {**{name: value for name, value in event.items() if value}, **({"tool_input": given} if given else {})}


HOOKS: tuple[Tool, ...] = (native_hook,)
