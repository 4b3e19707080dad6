"""What each tool does: generators that yield what they ask the daemon and return what the model gets.

They do no I/O and know no clock, so a test drives them by hand. A refused question is raised inside them at
the `yield`.
"""

from __future__ import annotations

from bascule.doors.exits import DoorError, NotRunning, Refusal, WrongUsage
from bascule.doors.values import NOT_YET, agent_id, new_ticket_id, ticket_id
from bascule.shim import tools, words

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    Tool = Callable[["Me", dict[str, Any]], Generator["Ask | Become", Any, dict[str, Any]]]
    Fallback = Callable[[str, dict[str, Any], str], dict[str, Any] | None]

# Clients give up on a tool call after 60 s and more; below that we answer and the model calls again.
SLICE_MS = 45_000
# A ticket's deadline is the daemon's to call; we listen a little longer, to hear it.
_SETTLE_MS = 200
_OPEN = ("pending", "delivered")
# The daemon lists at most this many; we look through them for the caller's own.
_MAX_LISTED = 1_000
# What a model reads at a glance; it may ask for more.
_SHOWN = 20


# Methods that the daemon may hold for its slice while a person decides; held equal to the rows by a test.
HELD = frozenset(
    {
        "spaces.open",
        "spaces.close",
        "runs.cancel",
        "runs.undo",
        "runs.commit",
        "processes.start",
        "processes.stop",
        "games.start",
        "games.connect",
        "games.stop",
        "games.kill",
        "games.call",
        "games.setState",
        "games.acknowledge",
        "games.attach",
        "desktop.windows",
        "desktop.observe",
        "desktop.find",
        "desktop.listModals",
        "desktop.waitUntil",
        "desktop.click",
        "desktop.doubleClick",
        "desktop.rightClick",
        "desktop.typeText",
        "desktop.hotkey",
        "desktop.scroll",
        "desktop.drag",
        "desktop.setValue",
        "desktop.focusWindow",
        "desktop.dismissModal",
    }
)


class Ask:
    """One request to the daemon."""

    __slots__ = ("held_ms", "method", "params", "repeat", "wait_ms")

    def __init__(
        self, method: str, params: dict[str, Any], *, wait_ms: int | None = None, repeat: bool = False
    ) -> None:
        self.method = method
        self.params = params
        # How long the daemon may hold it; sent as `waitMs`, less what a restart has used up.
        self.wait_ms = wait_ms
        # How much longer than usual the answer may take, though nothing is said about it.
        self.held_ms = SLICE_MS if method in HELD else 0
        # Safe to send again when the connection broke: a read, or a write under its own ticket id.
        self.repeat = repeat


def resolved(params: dict[str, Any]) -> dict[str, Any]:
    """The params with our handle in them, as it is when the question is sent: a first call may come before the name."""
    return {name: value() if callable(value) else value for name, value in params.items()}


class Become:
    """Change who this process is."""

    __slots__ = ("groups", "heartbeat_ms", "kind", "metadata", "name")

    def __init__(
        self,
        name: str,
        kind: str | None,
        metadata: dict[str, Any],
        heartbeat_ms: int | None,
        groups: list[str] | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.metadata = metadata
        self.heartbeat_ms = heartbeat_ms
        self.groups = groups


class Me:
    """What a tool knows of the process it runs in."""

    def __init__(
        self,
        handle: Callable[[], str],
        default_timeout_ms: int | None,
        slice_ms: int = SLICE_MS,
        trust: str = words.DEFAULT_TRUST,
        *,
        directory: str | None = None,
        fallback: Fallback | None = None,
    ) -> None:
        self.handle = handle
        self.default_timeout_ms = default_timeout_ms
        self.slice_ms = slice_ms
        self.trust = trust
        # Where the client started us: the space of the workspace's tools. Nothing a model says changes it.
        self.directory = directory
        # What some tools can do without a daemon; off unless the user said so.
        self.fallback = fallback


class Result(dict[str, "Any"]):
    """A tool's result, and what goes beside it."""

    # Asked when it has been handed to the client.
    afterwards: Ask | None = None
    # Pictures, as MCP content.
    images: list[dict[str, Any]] | tuple[()] = ()


def send_message(me: Me, arguments: dict[str, Any]) -> Generator[Ask, Any, dict[str, Any]]:
    ticket = new_ticket_id()
    timeout_ms = arguments.get("timeoutMs", me.default_timeout_ms)
    params = {
        "agentId": agent_id(arguments["agentId"]),
        "ticketId": ticket,
        "payload": arguments["payload"],
        "metadata": arguments.get("metadata", {}),
    }
    if timeout_ms is not None:
        params["timeoutMs"] = timeout_ms
    if "conversationId" in arguments:
        params["conversationId"] = ticket_id(arguments["conversationId"])
    sent = yield Ask("messages.send", params, repeat=True)
    about = {"agentStatus": sent.get("agentStatus", "online")}
    if not arguments.get("awaitResponse", True):
        return {"ticketId": ticket, "status": "pending", "next": "await_reply", **about}
    reply = yield from _reply_to(me, ticket, timeout_ms, settle_ms=_SETTLE_MS)
    # Whoever has answered was there.
    return reply if reply["status"] == "responded" else {**about, **reply}


def await_reply(me: Me, arguments: dict[str, Any]) -> Generator[Ask, Any, dict[str, Any]]:
    return (yield from _reply_to(me, ticket_id(arguments["ticketId"]), arguments.get("timeoutMs")))


def _reply_to(me: Me, ticket: str, own_ms: int | None, settle_ms: int = 0) -> Generator[Ask, Any, dict[str, Any]]:
    own_time = own_ms is not None and own_ms <= me.slice_ms
    wait_ms = own_ms + settle_ms if own_ms is not None and own_time else me.slice_ms
    view = yield Ask("replies.wait", {"ticketId": ticket}, wait_ms=wait_ms, repeat=True)
    status = "pending"
    if view is None:
        status = yield from _status_of(ticket)
        if status not in _OPEN:
            # Settled between the two questions.
            view = yield Ask("replies.wait", {"ticketId": ticket}, wait_ms=0, repeat=True)
    if view is None:
        about = {"ticketId": ticket, "ticketStatus": status}
        if own_time:
            return {"status": "timeout", **about, "hint": _LATE}
        return {"status": "pending", **about, "next": "await_reply"}
    if view["status"] == "responded":
        return {**view, "note": words.note(me.trust, view.get("from"))}
    out = {"ticketId": ticket, "status": view["status"], "ticketStatus": view["status"]}
    return {**out, "hint": _LATE} if view["status"] == "timeout" else out


def _status_of(ticket: str) -> Generator[Ask, Any, str]:
    """Whether it was delivered; not worth failing the whole call for."""
    try:
        return str((yield Ask("tickets.show", {"ticketId": ticket}, repeat=True))["status"])
    except DoorError:
        return "pending"


def wait_for_message(me: Me, arguments: dict[str, Any]) -> Generator[Ask, Any, dict[str, Any]]:
    wait_ms = min(arguments.get("waitMs", me.slice_ms), me.slice_ms)
    taken = yield Ask("inbox.take", {"agentId": me.handle, "max": 1}, wait_ms=wait_ms, repeat=True)
    handle = me.handle()
    if not taken or not taken.get("messages"):
        return {"status": "empty", "next": "wait_for_message"}
    message = taken["messages"][0]
    out = Result(status="message", **message, note=words.note(me.trust, message["from"]))
    for field, plain in _SELF_EVIDENT.items():
        if out.get(field) == plain:
            del out[field]
    out.pop("leaseMs", None)
    if message.get("expectReply", True):
        out["next"] = "post_reply"
    if taken.get("remaining"):
        out["unread"] = taken["remaining"]
    # Only what the client was handed is acknowledged; anything else comes again when its lease is over.
    out.afterwards = Ask("inbox.ack", {"agentId": handle, "ticketIds": [message["ticketId"]]}, repeat=True)
    return out


def post_reply(_me: Me, arguments: dict[str, Any]) -> Generator[Ask, Any, dict[str, Any]]:
    params = {
        "ticketId": ticket_id(arguments["ticketId"]),
        "payload": arguments["payload"],
        "metadata": arguments.get("metadata", {}),
    }
    return dict((yield Ask("replies.post", params, repeat=True)))


def broadcast_message(me: Me, arguments: dict[str, Any]) -> Generator[Ask, Any, dict[str, Any]]:
    # Its own id makes it safe to repeat: the daemon makes the tickets' ids from it.
    params = {**arguments, "broadcastId": new_ticket_id()}
    wanted = params.pop("awaitReplies", None)
    if "agentIds" in arguments:
        params["agentIds"] = [agent_id(each) for each in arguments["agentIds"]]
    if "conversationId" in arguments:
        ticket_id(arguments["conversationId"])
    if "timeoutMs" not in arguments and me.default_timeout_ms is not None:
        params["timeoutMs"] = me.default_timeout_ms
    sent = yield Ask("messages.broadcast", params, repeat=True)
    out = {"tickets": sent["tickets"]}
    if sent.get("failed"):
        out["failed"] = sent["failed"]
    if not sent["tickets"]:
        return {**out, "note": "nobody else is online"}
    if wanted is not None:
        out |= yield from _gathered(me, [each["ticketId"] for each in sent["tickets"]], wanted)
        if not out["open"]:
            return out
    return {**out, "next": "await_reply"}


def _gathered(me: Me, tickets: list[str], count: int) -> Generator[Ask, Any, dict[str, Any]]:
    """The first `count` answers, or all; what there is when the slice is over."""
    params: dict[str, Any] = {"ticketIds": tickets}
    if 0 < count < len(tickets):
        params["count"] = count
    said = yield Ask("replies.gather", params, wait_ms=me.slice_ms, repeat=True)
    replies = [
        {**view, "note": words.note(me.trust, view.get("from"))} if view["status"] == "responded" else view
        for view in said.get("replies", ())
    ]
    return {"replies": replies, "open": said.get("open", [])}


def cancel_ticket(_me: Me, arguments: dict[str, Any]) -> Generator[Ask, Any, dict[str, Any]]:
    ticket = ticket_id(arguments["ticketId"])
    view = yield Ask("tickets.cancel", arguments, repeat=True)
    return {"ticketId": ticket, "status": view["status"]}


def list_tickets(me: Me, arguments: dict[str, Any]) -> Generator[Ask, Any, dict[str, Any]]:
    params: dict[str, Any] = {"limit": _MAX_LISTED, "party": me.handle}
    if "status" in arguments:
        params["status"] = arguments["status"]
    views = yield Ask("tickets.list", params, repeat=True)
    shown = views[: arguments.get("limit", _SHOWN)]
    out: dict[str, Any] = {"tickets": [_pick(view, _TICKET_FIELDS) for view in shown]}
    if len(views) > len(shown):
        out["more"] = len(views) - len(shown)
    return out


def show_conversation(me: Me, arguments: dict[str, Any]) -> Generator[Ask, Any, dict[str, Any]]:
    params = {"conversationId": ticket_id(arguments["conversationId"]), "limit": arguments.get("limit", _SHOWN)}
    view = yield Ask("conversations.show", params, repeat=True)
    tickets = []
    for ticket in view["tickets"]:
        shown = _pick(ticket, (*_TICKET_FIELDS, "payload"))
        shown.pop("conversationId", None)
        if ticket.get("replies"):
            shown["replies"] = [_pick(reply, ("from", "payload", "late")) for reply in ticket["replies"]]
        tickets.append(shown)
    about = f"What {me.handle()} did not write is {words.note(me.trust)}"
    return {"conversationId": params["conversationId"], "tickets": tickets, "note": about}


# What a model need not read.
_SELF_EVIDENT = {"metadata": {}, "attempts": 1, "expectReply": True}
_TICKET_FIELDS = ("ticketId", "from", "targetAgent", "status", "createdAt", "replyBy", "conversationId")


def _pick(view: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    return {field: view[field] for field in fields if view.get(field) is not None}


def co_workers(me: Me, _arguments: dict[str, Any]) -> Generator[Ask, Any, dict[str, Any]]:
    agents = yield Ask("agents.list", {}, repeat=True)
    handle = me.handle()
    others = []
    for agent in agents:
        if agent["agentId"] != handle:
            others.append(_pick(agent, ("agentId", "type", "status")))
            cwd = agent.get("metadata", {}).get("cwd")
            if cwd is not None:
                others[-1]["cwd"] = cwd
    return {"agents": others, "you": handle}


def list_agents(me: Me, arguments: dict[str, Any]) -> Generator[Ask, Any, dict[str, Any]]:
    agents = yield Ask("agents.list", arguments, repeat=True)
    return {"agents": agents, "you": me.handle()}


def register_agent(me: Me, arguments: dict[str, Any]) -> Generator[Become, Any, dict[str, Any]]:
    name = agent_id(arguments["agentId"])
    groups = [agent_id(each) for each in arguments["groups"]] if "groups" in arguments else None
    yield Become(
        name, arguments.get("type"), arguments.get("metadata", {}), arguments.get("heartbeatIntervalMs"), groups
    )
    return {"agentId": name, "status": "registered", "you": me.handle()}


def _forward(name: str, method: str) -> Tool:
    """A tool that is one method of the house: a bridge's row is all it needs."""

    def call(_me: Me, arguments: dict[str, Any]) -> Generator[Ask, Any, dict[str, Any]]:
        reads = tools.BY_NAME[name]["annotations"].get("readOnlyHint", False)
        said = yield Ask(method, arguments, repeat=reads)
        return dict(said) if isinstance(said, dict) else {"result": said}

    return call


TOOLS: dict[str, Tool] = {
    "send_message": send_message,
    "await_reply": await_reply,
    "wait_for_message": wait_for_message,
    "post_reply": post_reply,
    "co_workers": co_workers,
    "list_agents": list_agents,
    "broadcast_message": broadcast_message,
    "cancel_ticket": cancel_ticket,
    "list_tickets": list_tickets,
    "show_conversation": show_conversation,
    "register_agent": register_agent,
}


def _tool(name: str) -> Tool | None:
    if name in TOOLS:
        return TOOLS[name]
    if name.startswith("games_"):
        from bascule.shim import games  # noqa: PLC0415 - only who plays pays for it

        return games.TOOLS.get(name)
    if name.startswith("desktop_"):
        from bascule.shim import desktop  # noqa: PLC0415 - only who uses a screen pays for it

        return desktop.TOOLS.get(name)
    from bascule.shim import workspace  # noqa: PLC0415 - only who works in files pays for it

    return workspace.TOOLS.get(name)


def answer(me: Me, name: str, arguments: dict[str, Any]) -> Generator[Ask | Become, Any, dict[str, Any]]:
    """The tool's result, with the number of unread messages on it when there are any."""
    tool = _tool(name) or _forward(name, tools.METHODS[name])
    try:
        result = yield from tool(me, arguments)
    except NotRunning:
        # Nobody listens, so nothing was done yet.
        reduced = me.fallback(name, arguments, me.handle()) if me.fallback is not None else None
        if reduced is None:
            raise
        return reduced
    except Refusal as refused:
        if refused.status != NOT_YET:
            raise
        # Not a failure: the model goes on with something else, or tells its user, and calls again.
        result = words.awaiting(refused, name, tools.BY_NAME[name]["outputSchema"])
    if "unread" in result or name == "wait_for_message":
        return result
    try:
        beat = yield Ask("agents.heartbeat", {"agentId": me.handle()}, repeat=True)
    except (DoorError, WrongUsage):
        return result
    if beat.get("unread"):
        result["unread"] = beat["unread"]
    return result


_LATE = "A late reply is kept: call await_reply again later, or ask another agent (co_workers)."
