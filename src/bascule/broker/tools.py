"""The tools of the set `agents`: names and arguments as in the broker spec, section 6, as far as it has them."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from bascule.broker.forms import by_form
from bascule.broker.who_tools import SHOWN, co_workers, list_agents, pick
from bascule.foundation.agreement import is_agent_id, is_target, is_ticket_id
from bascule.foundation.errors import BasculeError, InvalidRequest
from bascule.kernel.tool import (
    ADDS,
    ANY,
    BOOLEAN,
    ENDS,
    LIST,
    READS,
    SETS,
    STRING,
    Arguments,
    Count,
    Names,
    Result,
    Retry,
    Session,
    Toolset,
    given,
    tool,
)
from bascule.programs.mcp_stdio import words

# The broker ends a ticket at its deadline; we listen a little longer, to receive that.
_SETTLE_MS = 200
_OPEN = ("pending", "delivered")
# The broker lists at most this many; we look through them for the caller's own.
_MAX_LISTED = 1_000
# The handle of the user of this machine, who can be asked.
_PERSON = "person"
# More is not a choice that a person makes at a glance; each is a key.
_MAX_CHOICES = 9
# What a model need not read.
_SELF_EVIDENT = {"metadata": {}, "attempts": 1, "expectReply": True}
_TICKET_FIELDS = ("ticketId", "from", "targetAgent", "status", "createdAt", "replyBy", "conversationId")
_LATE = "A late reply is kept: call await_reply again later, or ask another agent (co_workers)."

_Deadline = Annotated[int, Meta(ge=1, description="Reply deadline (default 30 min)")]
_Thread = Annotated[str, Meta(description="Any id; groups messages for show_conversation")]


_REPLY = {"ticketId": STRING, "status": STRING, "payload": ANY}


class SendMessageArguments(Arguments, frozen=True, kw_only=True):
    agent_id: Annotated[str, Meta(description="Handle, see co_workers")]
    payload: Annotated[str, Meta(description="Say what you want back")]
    timeout_ms: _Deadline | UnsetType = UNSET
    await_response: bool = True
    metadata: dict[str, Any] | UnsetType = UNSET
    conversation_id: _Thread | UnsetType = UNSET


@tool(
    "send_message",
    "Send message",
    "Ask another agent and get its reply. None within 45 s: status `pending` and a ticketId for await_reply. "
    "awaitResponse=false returns at once.",
    uses=("messages.send", "replies.wait"),
    hints=ADDS,
    retry=Retry.KEYED,
    result=_REPLY,
    always=("ticketId", "status"),
    waits=True,
)
async def send_message(me: Session, arguments: SendMessageArguments) -> Result:
    timeout_ms = me.default_timeout_ms if arguments.timeout_ms is UNSET else arguments.timeout_ms
    params: dict[str, Any] = {
        "agentId": arguments.agent_id if arguments.agent_id == _PERSON else _target(arguments.agent_id),
        "ticketId": me.call_id,
        "payload": arguments.payload,
        "metadata": arguments.metadata or {},
    }
    if timeout_ms is not None:
        params["timeoutMs"] = timeout_ms
    if arguments.conversation_id is not UNSET:
        params["conversationId"] = _ticket_id(arguments.conversation_id)
    sent = await me.call("messages.send", params)
    about = {"agentStatus": sent.get("agentStatus", "online")}
    if not arguments.await_response:
        return Result({"ticketId": me.call_id, "status": "pending", "next": "await_reply", **about})
    reply = await _reply_to(me, me.call_id, timeout_ms, settle_ms=_SETTLE_MS)
    # An agent that has answered was there.
    if reply["status"] != "responded":
        reply.update(about)
    return reply


class AskPersonArguments(Arguments, frozen=True, kw_only=True):
    question: str
    choices: Annotated[list[str], Meta(max_length=_MAX_CHOICES)] | UnsetType = UNSET
    timeout_ms: Count | UnsetType = UNSET


@tool(
    "ask_person",
    "Ask person",
    "Ask your user in words. An answer approves nothing.",
    uses=("messages.send", "replies.wait"),
    hints=ADDS,
    retry=Retry.KEYED,
    result={"status": STRING},
    always=("status",),
    waits=True,
)
async def ask_person(me: Session, arguments: AskPersonArguments) -> Result:
    choices = [] if arguments.choices is UNSET else arguments.choices
    if me.form is not None:
        return await by_form(me.form, me.handle, arguments.question, choices)
    question = {"question": arguments.question, "choices": choices} if choices else arguments.question
    timeout_ms = me.default_timeout_ms if arguments.timeout_ms is UNSET else arguments.timeout_ms
    params: dict[str, Any] = {"agentId": _PERSON, "ticketId": me.call_id, "payload": question}
    if timeout_ms is not None:
        params["timeoutMs"] = timeout_ms
    await me.call("messages.send", params)
    return await _reply_to(me, me.call_id, timeout_ms, settle_ms=_SETTLE_MS)


class AwaitReplyArguments(Arguments, frozen=True, kw_only=True):
    ticket_id: str
    timeout_ms: Annotated[int, Meta(ge=1, description="Your own patience; a call waits 45 s at most")] | UnsetType = (
        UNSET
    )


@tool(
    "await_reply",
    "Await reply",
    "Wait for the reply to a ticket you sent. `pending`: call again. `timeout`: a late reply is kept.",
    uses=("replies.wait",),
    hints=READS,
    retry=Retry.READ,
    result=_REPLY,
    always=("ticketId", "status"),
    waits=True,
)
async def await_reply(me: Session, arguments: AwaitReplyArguments) -> Result:
    own_ms = None if arguments.timeout_ms is UNSET else arguments.timeout_ms
    return await _reply_to(me, _ticket_id(arguments.ticket_id), own_ms)


async def _reply_to(me: Session, ticket: str, own_ms: int | None, settle_ms: int = 0) -> Result:
    own_time = own_ms is not None and own_ms <= me.slice_ms
    wait_ms = own_ms + settle_ms if own_ms is not None and own_time else me.slice_ms
    view = await me.call("replies.wait", {"ticketId": ticket}, wait_ms=wait_ms)
    status = "pending"
    if view is None:
        status = await _status_of(me, ticket)
        if status not in _OPEN:
            # Settled between the two calls.
            view = await me.call("replies.wait", {"ticketId": ticket}, wait_ms=0)
    if view is None:
        about = {"ticketId": ticket, "ticketStatus": status}
        if own_time:
            return Result({"status": "timeout", **about, "hint": _LATE})
        pending = Result({"status": "pending", **about, "next": "await_reply"})
        # The broker ends the ticket at its deadline, so this ends.
        pending.more = lambda: _reply_to(me, ticket, None)
        return pending
    if view["status"] == "responded":
        return Result({**view, "note": words.note(me.trust, view.get("from"))})
    out = Result({"ticketId": ticket, "status": view["status"], "ticketStatus": view["status"]})
    if view["status"] == "timeout":
        out["hint"] = _LATE
    return out


async def _status_of(me: Session, ticket: str) -> str:
    """Whether it was delivered; not worth failing the whole call for."""
    try:
        return str((await me.call("tickets.show", {"ticketId": ticket}))["status"])
    except BasculeError:
        return "pending"


class WaitForMessageArguments(Arguments, frozen=True, kw_only=True):
    wait_ms: Annotated[int, Meta(ge=0, description="Default and most 45000")] | UnsetType = UNSET


@tool(
    "wait_for_message",
    "Wait for message",
    "Receive the next message sent to you. Call it when a result has `unread`, or when you are done and "
    "others may need you. Answer with post_reply.",
    uses=("inbox.take", "inbox.ack"),
    hints=ADDS,
    retry=Retry.READ,
    result={"status": {"enum": ["message", "empty"]}, "from": STRING, "ticketId": STRING, "payload": ANY},
    always=("status",),
    waits=True,
)
async def wait_for_message(me: Session, arguments: WaitForMessageArguments) -> Result:
    wait_ms = me.slice_ms if arguments.wait_ms is UNSET else min(arguments.wait_ms, me.slice_ms)
    taken = await me.call("inbox.take", {"agentId": me.handle, "max": 1}, wait_ms=wait_ms)
    if not taken or not taken.get("messages"):
        empty = Result({"status": "empty", "next": "wait_for_message"})
        if arguments.wait_ms is UNSET:
            empty.more = lambda: wait_for_message.run(me, arguments)
        return empty
    message = taken["messages"][0]
    out = Result({"status": "message", **message, "note": words.note(me.trust, message["from"])})
    for field, plain in _SELF_EVIDENT.items():
        if out.get(field) == plain:
            del out[field]
    out.pop("leaseMs", None)
    if message.get("expectReply", True):
        out["next"] = "post_reply"
    if taken.get("remaining"):
        out["unread"] = taken["remaining"]
    # Only what the client has is acknowledged; anything else comes again.
    out.acknowledge = {"agentId": me.handle, "ticketIds": [message["ticketId"]]}
    return out


class PostReplyArguments(Arguments, frozen=True, kw_only=True):
    ticket_id: str
    payload: Annotated[Any, Meta(description="Text or JSON")]
    metadata: dict[str, Any] | UnsetType = UNSET


@tool(
    "post_reply",
    "Post reply",
    "Answer a message you received. Needs no shell, unlike bridge-reply.",
    uses=("replies.post",),
    hints=ADDS,
    retry=Retry.KEYED,
    result={"status": STRING, "first": BOOLEAN},
    always=("status",),
)
async def post_reply(me: Session, arguments: PostReplyArguments) -> Result:
    params = {"ticketId": _ticket_id(arguments.ticket_id), "payload": arguments.payload}
    return Result(await me.call("replies.post", {**params, "metadata": arguments.metadata or {}}))


class BroadcastMessageArguments(Arguments, frozen=True, kw_only=True):
    payload: str
    agent_ids: Annotated[Names, Meta(description="Default: all online")] | UnsetType = UNSET
    await_replies: Annotated[int, Meta(description="Wait for so many, 0 all")] | UnsetType = UNSET
    type: str | UnsetType = UNSET
    timeout_ms: Count | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    conversation_id: str | UnsetType = UNSET


@tool(
    "broadcast_message",
    "Broadcast message",
    "One message to several agents; then await_reply each ticket.",
    uses=("messages.broadcast", "replies.gather"),
    hints=ADDS,
    retry=Retry.KEYED,
    result={"tickets": LIST, "failed": LIST},
    always=("tickets",),
    waits=True,
)
async def broadcast_message(me: Session, arguments: BroadcastMessageArguments) -> Result:
    # The tickets' ids are made from this one, so that a repeated call sends nothing twice.
    params = {**given(arguments), "broadcastId": me.call_id}
    wanted = params.pop("awaitReplies", None)
    for each in params.get("agentIds", ()):
        _target(each)
    if "conversationId" in params:
        _ticket_id(params["conversationId"])
    if "timeoutMs" not in params and me.default_timeout_ms is not None:
        params["timeoutMs"] = me.default_timeout_ms
    sent = await me.call("messages.broadcast", params)
    out = Result(tickets=sent["tickets"])
    if sent.get("failed"):
        out["failed"] = sent["failed"]
    if not sent["tickets"]:
        out["note"] = "nobody else is online"
        return out
    if wanted is not None:
        out |= await _gathered(me, [each["ticketId"] for each in sent["tickets"]], wanted)
        if not out["open"]:
            return out
    out["next"] = "await_reply"
    return out


async def _gathered(me: Session, tickets: list[str], count: int) -> dict[str, Any]:
    """The first `count` answers, or all; what there is when the slice is over."""
    params: dict[str, Any] = {"ticketIds": tickets}
    if 0 < count < len(tickets):
        params["count"] = count
    gathered = await me.call("replies.gather", params, wait_ms=me.slice_ms)
    replies = [
        {**view, "note": words.note(me.trust, view.get("from"))} if view["status"] == "responded" else view
        for view in gathered.get("replies", ())
    ]
    # What one answer has no room for is read by `await_reply`, as what is still open.
    return {"replies": replies, "open": [*gathered.get("more", []), *gathered.get("open", [])]}


class CancelTicketArguments(Arguments, frozen=True, kw_only=True):
    ticket_id: str
    reason: str | UnsetType = UNSET


@tool(
    "cancel_ticket",
    "Cancel ticket",
    "Withdraw a message whose reply nobody needs any more.",
    uses=("tickets.cancel",),
    hints=ENDS,
    retry=Retry.KEYED,
    result={"ticketId": STRING, "status": STRING},
    always=("ticketId", "status"),
)
async def cancel_ticket(me: Session, arguments: CancelTicketArguments) -> Result:
    ticket = _ticket_id(arguments.ticket_id)
    view = await me.call("tickets.cancel", given(arguments))
    return Result({"ticketId": ticket, "status": view["status"]})


class ListTicketsArguments(Arguments, frozen=True, kw_only=True):
    status: Literal["pending", "delivered", "responded", "timeout", "cancelled"] | UnsetType = UNSET
    limit: Count | UnsetType = UNSET


@tool(
    "list_tickets",
    "List tickets",
    "Your messages, sent and received, newest first: states, no texts.",
    uses=("tickets.list",),
    hints=READS,
    retry=Retry.READ,
    result={"tickets": LIST},
    always=("tickets",),
)
async def list_tickets(me: Session, arguments: ListTicketsArguments) -> Result:
    params: dict[str, Any] = {"limit": _MAX_LISTED, "party": me.handle}
    if arguments.status is not UNSET:
        params["status"] = arguments.status
    views = await me.call("tickets.list", params)
    shown = views[: SHOWN if arguments.limit is UNSET else arguments.limit]
    out = Result(tickets=[pick(view, _TICKET_FIELDS) for view in shown])
    if len(views) > len(shown):
        out["more"] = len(views) - len(shown)
    return out


class ShowConversationArguments(Arguments, frozen=True, kw_only=True):
    conversation_id: str
    limit: Count | UnsetType = UNSET


@tool(
    "show_conversation",
    "Show conversation",
    "Read a conversation again, oldest first, with texts and replies.",
    uses=("conversations.show",),
    hints=READS,
    retry=Retry.READ,
    result={"tickets": LIST},
    always=("tickets",),
)
async def show_conversation(me: Session, arguments: ShowConversationArguments) -> Result:
    conversation = _ticket_id(arguments.conversation_id)
    limit = SHOWN if arguments.limit is UNSET else arguments.limit
    view = await me.call("conversations.show", {"conversationId": conversation, "limit": limit})
    tickets = []
    for ticket in view["tickets"]:
        shown = pick(ticket, (*_TICKET_FIELDS, "payload"))
        shown.pop("conversationId", None)
        if ticket.get("replies"):
            shown["replies"] = [pick(reply, ("from", "payload", "late")) for reply in ticket["replies"]]
        tickets.append(shown)
    about = f"What {me.handle} did not write is {words.note(me.trust)}"
    out = Result({"conversationId": conversation, "tickets": tickets, "note": about})
    if view.get("more"):
        out["older"] = True
    return out


class RegisterAgentArguments(Arguments, frozen=True, kw_only=True):
    agent_id: str
    type: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    heartbeat_interval_ms: int | UnsetType = UNSET
    groups: list[Any] | UnsetType = UNSET


@tool(
    "register_agent",
    "Register agent",
    "Change your handle. You have one already; only when asked to.",
    uses=("agents.register",),
    hints=SETS,
    retry=Retry.NEVER,
    result={"agentId": STRING, "status": STRING},
    always=("agentId", "status"),
    as_task=False,
)
async def register_agent(me: Session, arguments: RegisterAgentArguments) -> Result:
    _agent_id(arguments.agent_id)
    for group in arguments.groups or ():
        _agent_id(group)
    registered = await me.become(given(arguments))
    out = Result(agentId=arguments.agent_id, status="registered", you=me.handle)
    if registered.get("expiresAt"):
        out["expiresAt"] = registered["expiresAt"]
    return out


def _agent_id(text: object) -> str:
    if not isinstance(text, str) or not is_agent_id(text):
        raise InvalidRequest(f"{text!r} is not a handle: use 1 to 64 of A-Z a-z 0-9 . _ - (local and person are taken)")
    return text


def _target(text: str) -> str:
    if not is_target(text):
        raise InvalidRequest(
            f"{text!r} is not a handle: use 1 to 64 of A-Z a-z 0-9 . _ -, and handle@machine for another machine's"
        )
    return text


def _ticket_id(text: str) -> str:
    if not is_ticket_id(text):
        raise InvalidRequest(f"{text!r} is not a ticket id: use 1 to 128 of A-Z a-z 0-9 . _ -")
    return text


TOOLSET = Toolset(
    name="agents",
    sentence="talk to other agents: send, wait, reply, see who is there",
    by_default=True,
    tools=(
        send_message,
        ask_person,
        await_reply,
        wait_for_message,
        post_reply,
        co_workers,
        list_agents,
        broadcast_message,
        cancel_ticket,
        list_tickets,
        show_conversation,
        register_agent,
    ),
)
