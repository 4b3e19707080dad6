"""Who is there: tools of the set `agents` that list agents and what clients' sessions do."""

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from bascule.foundation.errors import BasculeError
from bascule.kernel.tool import LIST, READS, STRING, Arguments, NoArguments, Result, Retry, Session, given, tool

# What a model reads at a glance; it may ask for more.
SHOWN = 20
_SESSION_FIELDS = (
    "client",
    "session",
    "agent",
    "state",
    "probably",
    "evidence",
    "ageMs",
    "directory",
    "pane",
    "notice",
)


def pick(view: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    return {field: view[field] for field in fields if view.get(field) is not None}


@tool(
    "co_workers",
    "Co-workers",
    "Whom you can write to: handle, type, status, directory.",
    uses=("agents.list",),
    hints=READS,
    retry=Retry.READ,
    result={"agents": LIST, "you": STRING},
    always=("agents", "you"),
)
async def co_workers(me: Session, _arguments: NoArguments) -> Result:
    others = []
    for agent in await me.call("agents.list", {}):
        if agent["agentId"] != me.handle:
            # How long its machine is away says whether an answer may come soon.
            seen = ("lastHeartbeat",) if agent["status"] == "unreachable" else ()
            others.append(pick(agent, ("agentId", "type", "status", *seen)))
            cwd = agent.get("metadata", {}).get("cwd")
            if cwd is not None:
                others[-1]["cwd"] = cwd
    return Result(agents=others, you=me.handle)


class ListAgentsArguments(Arguments, frozen=True, kw_only=True):
    type: str | UnsetType = UNSET
    status: Literal["online", "offline", "unknown", "unreachable"] | UnsetType = UNSET


@tool(
    "list_agents",
    "List agents",
    "All agents, metadata, sessions; co_workers is shorter.",
    uses=("agents.list", "sessions.list"),
    hints=READS,
    retry=Retry.READ,
    result={"agents": LIST, "you": STRING},
    always=("agents", "you"),
)
async def list_agents(me: Session, arguments: ListAgentsArguments) -> Result:
    out = Result(agents=await me.call("agents.list", given(arguments)), you=me.handle)
    try:
        sessions = await me.call("sessions.list", {})
    except BasculeError:
        # A daemon without that bridge.
        return out
    if sessions:
        # The newest come first.
        live = [each for each in sessions if each["state"] != "ended"][:SHOWN]
        out["sessions"] = [pick(each, _SESSION_FIELDS) for each in live]
    return out
