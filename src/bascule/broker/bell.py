"""The bell as a tool that a client's hooks call through its session's own server; no model sees it.

A program that is started for every prompt and every tool takes 90 ms of each; this takes one.
"""

from bascule.kernel.tool import READS, Arguments, Result, Retry, Session, Tool, tool
from bascule.local_client.bell import line


class BellArguments(Arguments, frozen=True, kw_only=True):
    event: str
    client: str = "claude"
    # Of a subagent, which has no inbox of its own.
    agent: str = ""


@tool(
    "bell_hook",
    "A client's hook",
    "For hooks of the client, not for models.",
    uses=("inbox.watch",),
    hints=READS,
    retry=Retry.READ,
    for_hooks=True,
)
async def bell_hook(me: Session, arguments: BellArguments) -> Result:
    """One line of context when messages wait. After a tool only for those that no bell was rung for yet."""
    if arguments.agent:
        return Result()
    skip = "any" if arguments.event == "PostToolUse" else "none"
    asked = {"agentId": me.handle, "waitMs": 0, "skipRung": skip, "by": f"{arguments.client} {arguments.event}"[:64]}
    seen = await me.call("inbox.watch", asked)
    if not seen:
        return Result()
    about = {"hookEventName": arguments.event, "additionalContext": line(me.handle, seen)}
    return Result(hookSpecificOutput=about)


HOOKS: tuple[Tool, ...] = (bell_hook,)
