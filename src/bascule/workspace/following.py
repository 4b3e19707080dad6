"""A run's answer that goes on: a caller who can wait longer than one call may take has the end of the run."""

from collections.abc import Awaitable, Callable
from typing import Any

from bascule.kernel.tool import Result, Session

RunView = dict[str, Any]


async def followed(me: Session, space: str, run: RunView, shown: Callable[[RunView], Awaitable[Result]]) -> Result:
    """The run as `shown` says it; while it runs or waits for the person, with the way to what follows."""
    out = await shown(run)

    async def more() -> Result:
        params = {"spaceId": space, "runId": run["runId"]}
        return await followed(me, space, await me.call("runs.wait", params, wait_ms=me.slice_ms), shown)

    if run["status"] == "running":
        out.more = more
    elif run["status"] == "awaiting_approval":
        asked = [each["details"]["approvalId"] for each in run["events"] if "approvalId" in each.get("details", {})]
        out.awaits, out.more = (asked[-1], more) if asked else (None, None)
    return out
