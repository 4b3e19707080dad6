"""A2A's tasks over the gate: a task is a ticket of the client's own, a context is a conversation of its own.

Each step is a call of the principal `a2a:<client>`, decided, counted and recorded as any other. Nothing of the a2a-sdk:
`machine/handler.py` makes its messages of what is here.
"""

import asyncio
import hashlib
from collections import OrderedDict
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from bascule.foundation.agreement import is_ticket_id
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Conflict, Forbidden, NotFound, PolicyDenied
from bascule.foundation.stream import Stream
from bascule.kernel.call import Call, Principal
from bascule.kernel.gate import Gate
from bascule.kernel.policy.decision import Decision
from gabp import codec

# Begins the ids of tickets and conversations that clients outside have made; what follows is a keyed digest, so that
# nobody on this machine can take an id before its message comes.
PREFIX = "a2a_"
# Ids that clients choose: a UUID with a prefix, twice over.
MAX_ID_CHARS = 256
# Tickets that one list looks at: more than a client can have open, with what it settled lately.
MAX_LISTED = 1_000
# Refused messages of one client whose tasks can still be asked for. They have no ticket, so they are kept in memory.
MAX_REFUSED = 100
# Of the words of such a message: whoever said more still has it.
MAX_REFUSED_BYTES = 2_048
_DIGEST_CHARS = 32


class State(StrEnum):
    """A2A's, as far as a ticket can be in them; the names are those of protocol 1.0 in lower case."""

    SUBMITTED = "submitted"
    WORKING = "working"
    COMPLETED = "completed"
    CANCELED = "canceled"
    REJECTED = "rejected"
    AUTH_REQUIRED = "auth_required"


OF_STATUS: dict[str, State] = {
    "pending": State.SUBMITTED,
    "delivered": State.WORKING,
    "responded": State.COMPLETED,
    # A late reply still completes it.
    "timeout": State.WORKING,
    "cancelled": State.CANCELED,
}
TERMINAL = frozenset({State.COMPLETED, State.CANCELED, State.REJECTED})


class Reply(msgspec.Struct, frozen=True, rename="camel"):
    payload: Any
    from_: str = msgspec.field(name="from")
    at: str
    late: bool = False


class _Ticket(msgspec.Struct, frozen=True, rename="camel"):
    """What is read of the broker's own view."""

    ticket_id: str
    target_agent: str
    status: str
    updated_at: str
    conversation_id: str | None = None
    reason: str | None = None
    group: str | None = None
    payload: Any = None
    metadata: dict[str, Any] | None = None
    replies: list[Reply] = []


class Task(NamedTuple):
    task_id: str
    context_id: str
    message_id: str
    state: State
    # RFC 3339.
    updated_at: str
    payload: Any
    replies: tuple[Reply, ...] = ()
    # Why it is in this state, where somebody said so.
    reason: str | None = None

    @property
    def over(self) -> bool:
        return self.state in TERMINAL or self.state is State.AUTH_REQUIRED


class Asked(NamedTuple):
    """A message of a client."""

    message_id: str
    context_id: str
    payload: Any


class Filter(NamedTuple):
    context_id: str = ""
    state: State | None = None
    after: str = ""


class UnknownTask(NotFound):
    """No such task of this client with this agent: whether it is somebody else's is not told."""


class NotCancelable(Conflict):
    """It is over, or its time is."""


_TICKET: codec.Decoder[_Ticket] = codec.Decoder(_Ticket, max_depth=codec.MAX_ANSWER_DEPTH)
_TICKETS: codec.Decoder[list[_Ticket]] = codec.Decoder(list[_Ticket], max_depth=codec.MAX_ANSWER_DEPTH)


class Tasks:
    """One client and one published agent at a time: both come from the door, neither from a message."""

    def __init__(self, gate: Gate, key: bytes, *, max_refused: int = MAX_REFUSED) -> None:
        self._gate = gate
        self._key = key
        self._max_refused = max_refused
        # By client; then by agent and task.
        self._refused: dict[Principal, OrderedDict[tuple[str, str], Task]] = {}

    async def send(self, client: Principal, handle: str, asked: Asked, now: str) -> Task:
        """The same message again is the same task."""
        task_id = self._id(client, handle, asked.message_id)
        # Made up where the client gave none, and the same when it asks again.
        context_id = asked.context_id or self._id(client, handle, task_id, "context")
        params = {
            "agentId": handle,
            "payload": asked.payload,
            "ticketId": task_id,
            "metadata": {"a2a": {"messageId": asked.message_id, "contextId": context_id}},
            "conversationId": self._conversation(client, context_id),
        }
        try:
            await self._call(client, "messages.send", params)
        except (PolicyDenied, NotFound) as error:
            # Published, and nobody is registered by that name now: the same to a client as being refused.
            state = State.REJECTED if isinstance(error, NotFound) else self._refusal(client, params)
            task = Task(task_id, context_id, asked.message_id, state, now, asked.payload, reason=error.message)
            self._remember(client, handle, task)
            return task
        self._refused_of(client).pop((handle, task_id), None)
        return await self.show(client, handle, task_id)

    async def show(self, client: Principal, handle: str, task_id: str) -> Task:
        if (refused := self._refused_of(client).get((handle, task_id))) is not None:
            return refused
        if not is_ticket_id(task_id):
            raise UnknownTask("no such task")
        try:
            shown = await self._call(client, "tickets.show", {"ticketId": task_id})
        except (Forbidden, NotFound):
            raise UnknownTask("no such task") from None
        ticket = _TICKET.decode(codec.encode(shown))
        if handle not in (ticket.target_agent, ticket.group):
            raise UnknownTask("no such task")
        return _task(ticket)

    async def list_tasks(self, client: Principal, handle: str, wanted: Filter) -> list[Task]:
        """The newest change first; what was asked and answered is not among them."""
        params = {"agentId": handle, "limit": MAX_LISTED}
        listed = _TICKETS.decode(codec.encode(await self._call(client, "tickets.list", params)))
        conversation = self._conversation(client, wanted.context_id) if wanted.context_id else None
        found = [
            _task(each)
            for each in listed
            if (conversation is None or each.conversation_id == conversation)
            and (wanted.state is None or OF_STATUS[each.status] is wanted.state)
            and each.updated_at >= wanted.after
        ]
        return sorted(found, key=lambda task: (task.updated_at, task.task_id), reverse=True)

    async def cancel(self, client: Principal, handle: str, task_id: str) -> Task:
        task = await self.show(client, handle, task_id)
        if task.state in TERMINAL and task.state is not State.CANCELED:
            raise NotCancelable(f"the task is {task.state.value}")
        if self._refused_of(client).pop((handle, task_id), None) is not None:
            # Nobody has it: there is nothing to withdraw.
            return task._replace(state=State.CANCELED)
        try:
            await self._call(client, "tickets.cancel", {"ticketId": task_id})
        except Conflict as error:
            raise NotCancelable(error.message) from None
        return await self.show(client, handle, task_id)

    async def settled(self, client: Principal, handle: str, task_id: str) -> Task:
        """Wait until it is answered or withdrawn, its time is over, or the daemon stops."""
        task = await self.show(client, handle, task_id)
        if not task.over:
            stream = await self._call(client, "replies.stream", {"ticketId": task_id})
            assert isinstance(stream, Stream)
            await _first(stream)
            task = await self.show(client, handle, task_id)
        return task

    # -- inside --

    async def _call(self, client: Principal, method: str, params: dict[str, Any]) -> Any:
        answer = self._gate.call(Call(client, method, codec.encode(params), door="a2a"))
        return await answer if isinstance(answer, Deferred) else answer

    def _refusal(self, client: Principal, params: dict[str, Any]) -> State:
        verdict = self._gate.verdict(client, "messages.send", params)
        return State.AUTH_REQUIRED if verdict.decision is Decision.ASK else State.REJECTED

    def _refused_of(self, client: Principal) -> dict[tuple[str, str], Task]:
        return self._refused.get(client) or OrderedDict()

    def _remember(self, client: Principal, handle: str, task: Task) -> None:
        size = len(codec.encode(task.payload))
        if size > MAX_REFUSED_BYTES:
            task = task._replace(payload=f"({size} bytes; of a message that was refused they are not kept)")
        mine = self._refused.setdefault(client, OrderedDict())
        mine[handle, task.task_id] = task
        mine.move_to_end((handle, task.task_id))
        while len(mine) > self._max_refused:
            mine.popitem(last=False)

    def _conversation(self, client: Principal, context_id: str) -> str:
        """Two clients that say the same context are in two conversations, and in none of this machine."""
        return self._id(client, context_id, "conversation")

    def _id(self, *parts: str) -> str:
        text = "\0".join((*parts, "a2a")).encode("utf-8", "surrogatepass")
        return PREFIX + hashlib.sha256(self._key + b"\0" + text).hexdigest()[:_DIGEST_CHARS]


async def _first(stream: Stream) -> None:
    """Until it brings something, or is over."""
    ready = asyncio.Event()
    stream.on_ready = ready.set
    try:
        while not (stream.drain()[0] or stream.ended):
            await ready.wait()
            ready.clear()
    finally:
        stream.close()


def _task(ticket: _Ticket) -> Task:
    known = (ticket.metadata or {}).get("a2a", {})
    return Task(
        task_id=ticket.ticket_id,
        context_id=known.get("contextId", ""),
        message_id=known.get("messageId", ""),
        state=OF_STATUS[ticket.status],
        updated_at=ticket.updated_at,
        payload=ticket.payload,
        replies=tuple(ticket.replies),
        reason="no reply came in time; a late one still completes this"
        if ticket.status == "timeout"
        else ticket.reason,
    )
