"""What a client's own hooks call through its session's MCP server; no model sees it.

Faster than a program that is started for every call: the connection is there already. Claude Code and Codex fill the
arguments in from what they would give a hook.
"""

import asyncio
import base64
from typing import Any

from bascule.foundation.errors import BasculeError
from bascule.kernel.tool import ADDS, Arguments, Result, Retry, Session, Tool, tool
from bascule.local_client.hook_talk import Answer, Ask, converse
from bascule.native.answers import dialog, refusal
from bascule.native.protocol import Client
from gabp import codec


class HookArguments(Arguments, frozen=True, kw_only=True):
    client: Client
    event: str
    # Of any type: what is wrong with them is for the reader to say, and never an error that lets a call go on.
    session: Any = ""
    cwd: Any = ""
    tool: Any = ""
    # The tool's arguments: JSON from Claude Code, an object from Codex.
    input: Any = ""
    id: Any = ""
    agent: Any = ""
    prompt: Any = ""
    about: Any = ""


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
    raw = base64.b64encode(codec.encode(_event(arguments))).decode()
    talk = converse(arguments.event, {"client": arguments.client, "raw": raw}, asyncio.get_running_loop().time)
    try:
        ask = next(talk)
        while True:
            ask = talk.send(await _answer(me, ask))
    except StopIteration as stopped:
        end = stopped.value
    if end.refusal is not None:
        is_dialog = arguments.event == "PermissionRequest"
        return Result(dialog(allow=False, why=end.refusal) if is_dialog else refusal(arguments.client, end.refusal))
    return Result(end.output or {})


async def _answer(me: Session, ask: Ask) -> Answer:
    try:
        async with asyncio.timeout(ask.seconds):
            return Answer(await me.call(ask.method, ask.params))
    except BasculeError as error:
        return Answer(code=error.code, message=error.message)
    except TimeoutError:
        return Answer(code="timeout", message="the daemon did not answer in time")


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
        "tool_input": arguments.input,
    }
    # What an event does not have came as nothing.
    return {name: value for name, value in event.items() if value != ""}


HOOKS: tuple[Tool, ...] = (native_hook,)
