"""What a client can do, as programs: which call, what may be repeated, how long to wait.

Repeated after a lost connection, because repeating them changes nothing: reads; waits; sends and replies,
which carry their ticket id; acknowledgements; broadcasts, whose tickets are named after the broadcast. All
else is done at most once, and a connection lost under it is `OutcomeUnknown`.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias, TypedDict, Unpack

import msgspec

from bascule.admin.protocol import StatusResult
from bascule.bridge_list import methods_of
from bascule.broker.protocol import (
    AgentsListParams,
    AgentStatus,
    AgentView,
    BroadcastParams,
    BroadcastResult,
    CancelParams,
    ConversationParams,
    ConversationView,
    GatherParams,
    GatherResult,
    InboxAckParams,
    InboxAckResult,
    ReplyParams,
    ReplyResult,
    ReplyView,
    ReplyWaitParams,
    SendParams,
    SendResult,
    TicketParams,
    TicketsListParams,
    TicketStatus,
    TicketView,
)
from bascule.client.durations import Duration, milliseconds, seconds
from bascule.client.faults import (
    ClientClosed,
    ConnectionLost,
    NotRunning,
    OutcomeUnknown,
    ReplyTimeout,
    TicketCancelled,
)
from bascule.client.steps import FirstOf, Params, Pause, Program, Reconnect, Request
from bascule.foundation.agreement import MAX_WAIT_MS
from bascule.foundation.backoff import Backoff
from bascule.foundation.clock import Clock, SystemClock
from bascule.foundation.errors import BasculeError, InvalidRequest, Overloaded, Unavailable
from bascule.foundation.ids import new_ticket_id
from bascule.kernel.rows import Effect, Nothing, Row, Shape

# A daemon restarts within two seconds; after ten it is not restarting.
RETRY_SECONDS = 10.0
# Someone who waits for a reply for minutes would rather see a slow restart through.
PATIENCE_SECONDS = 60.0
# The daemon clamps a wait to this; longer waits are several.
SLICE_SECONDS = MAX_WAIT_MS / 1000
# What an answer may take beside the time it was asked to wait: a commit on a slow disk, not more.
ANSWER_SECONDS = 15.0
# The ticket's own deadline is the daemon's to call; this is how much longer than it we listen for that.
GRACE_SECONDS = 2.0

ROWS: dict[str, Row] = {row.name: row for row in methods_of()}

# What `ask` and `wait` answer: status, payload, metadata, from_, latency_ms, late, replies.
Reply: TypeAlias = ReplyView


class AskOptions(TypedDict, total=False):
    """What may be said about a message that wants a reply."""

    metadata: dict[str, Any]
    # How long the ticket waits for its reply; the daemon's setting (30 minutes) when left out.
    timeout: Duration | None
    # Chosen here when left out, so that a retry is recognised as one.
    ticket_id: str | None
    conversation_id: str | None
    # Refuse instead of queueing when the agent is known but offline.
    require_online: bool


class SendOptions(AskOptions, total=False):
    """What may be said about any message."""

    expect_reply: bool


class Verbs:
    """Programs for one client."""

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        retry_seconds: float = RETRY_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        slice_seconds: float = SLICE_SECONDS,
    ) -> None:
        clock = clock or SystemClock()
        self._now = clock.monotonic
        self._wall_ms = clock.wall_ms
        self._retry_seconds = retry_seconds
        self._patience_seconds = patience_seconds
        self._slice_seconds = slice_seconds

    # -- messages --

    def send(self, agent_id: str, payload: Any, **options: Unpack[SendOptions]) -> Program[SendResult]:
        expect_reply = options.get("expect_reply", True)
        return self._repeated(self._sending(agent_id, payload, options, expect_reply=expect_reply), bounded=True)

    def _sending(self, agent_id: str, payload: Any, options: AskOptions, *, expect_reply: bool = True) -> Request:
        params = SendParams(
            agent_id=agent_id,
            payload=payload,
            ticket_id=options.get("ticket_id") or new_ticket_id(self._wall_ms()),
            metadata=options.get("metadata") or {},
            expect_reply=expect_reply,
            timeout_ms=milliseconds(options.get("timeout")),
            conversation_id=options.get("conversation_id"),
            require_online=options.get("require_online", False),
        )
        return Request("messages.send", params, SendResult)

    def ask(self, agent_id: str, payload: Any, **options: Unpack[AskOptions]) -> Program[Reply]:
        timeout = options.get("timeout")
        until = None if timeout is None else self._now() + seconds(timeout) + GRACE_SECONDS
        request = self._sending(agent_id, payload, options)
        sent: SendResult
        try:
            sent = yield self._held(request, until)
        except ConnectionLost as lost:
            # The same message again is recognised by its id, and then waited for.
            sent = yield from self._repeated(request, bounded=True, unanswered=lost.sent)
        except (Overloaded, Unavailable):
            sent = yield from self._repeated(request, bounded=True)
        if sent.reply is not None:
            return _judged(sent.reply)
        _, reply = yield from self._settled((sent.ticket_id,), until)
        return reply

    def wait(self, ticket_id: str, timeout: Duration | None) -> Program[Reply]:
        _, reply = yield from self._settled((ticket_id,), self._until(timeout))
        return reply

    def wait_any(self, ticket_ids: Iterable[str], timeout: Duration | None) -> Program[tuple[str, Reply]]:
        unique = tuple(dict.fromkeys(ticket_ids))
        if not unique:
            raise InvalidRequest("no tickets to wait for", hint="give wait_any at least one ticket id")
        return self._settled(unique, self._until(timeout))

    def reply(self, ticket_id: str, payload: Any, metadata: dict[str, Any] | None) -> Program[ReplyResult]:
        params = ReplyParams(ticket_id=ticket_id, payload=payload, metadata=metadata or {})
        return self._repeated(Request("replies.post", params, ReplyResult), bounded=True)

    def ack(self, agent_id: str, ticket_id: str) -> Program[InboxAckResult]:
        params = InboxAckParams(agent_id=agent_id, ticket_ids=[ticket_id])
        return self._repeated(Request("inbox.ack", params, InboxAckResult), bounded=True)

    def cancel(self, ticket_id: str, reason: str | None) -> Program[TicketView]:
        return self._once(Request("tickets.cancel", CancelParams(ticket_id=ticket_id, reason=reason), TicketView))

    def broadcast(
        self,
        payload: Any,
        *,
        agent_ids: Iterable[str] | None,
        type_: str | None,
        metadata: dict[str, Any] | None,
        timeout: Duration | None,
        expect_reply: bool,
        broadcast_id: str | None,
        conversation_id: str | None,
    ) -> Program[BroadcastResult]:
        params = BroadcastParams(
            payload=payload,
            agent_ids=None if agent_ids is None else list(agent_ids),
            type=type_,
            broadcast_id=broadcast_id or new_ticket_id(self._wall_ms()),
            metadata=metadata or {},
            expect_reply=expect_reply,
            timeout_ms=milliseconds(timeout),
            conversation_id=conversation_id,
        )
        return self._repeated(Request("messages.broadcast", params, BroadcastResult), bounded=True)

    def gather(self, ticket_ids: Iterable[str], count: int | None, timeout: Duration | None) -> Program[GatherResult]:
        """The answers to several tickets: all, or the first `count`; what there is when the time is over."""
        wanted = list(ticket_ids)
        until = None if timeout is None else self._now() + seconds(timeout)
        while True:
            left = self._slice_seconds if until is None else max(0.0, min(until - self._now(), self._slice_seconds))
            params = GatherParams(ticket_ids=wanted, count=count, wait_ms=int(left * 1000))
            request = Request("replies.gather", params, GatherResult, within=left + ANSWER_SECONDS)
            result: GatherResult = yield from self._repeated(request)
            if result.done or (until is not None and self._now() >= until):
                break
        while result.more:
            params = GatherParams(ticket_ids=result.more, wait_ms=0)
            rest = yield from self._repeated(Request("replies.gather", params, GatherResult))
            result = msgspec.structs.replace(result, replies=[*result.replies, *rest.replies], more=rest.more)
        return result

    # -- reads --

    def agents(self, type_: str | None, status: str | None) -> Program[list[AgentView]]:
        wanted = None if status is None else _status(AgentStatus, status)
        return self._repeated(Request("agents.list", AgentsListParams(type=type_, status=wanted), list[AgentView]))

    def tickets(self, status: str | None, agent_id: str | None, limit: int) -> Program[list[TicketView]]:
        wanted = None if status is None else _status(TicketStatus, status)
        params = TicketsListParams(status=wanted, agent_id=agent_id, limit=limit)
        return self._repeated(Request("tickets.list", params, list[TicketView]))

    def ticket(self, ticket_id: str) -> Program[TicketView]:
        return self._repeated(Request("tickets.show", TicketParams(ticket_id=ticket_id), TicketView))

    def conversation(self, conversation_id: str, limit: int) -> Program[ConversationView]:
        params = ConversationParams(conversation_id=conversation_id, limit=limit)
        return self._repeated(Request("conversations.show", params, ConversationView))

    def status(self) -> Program[StatusResult]:
        return self._repeated(Request("daemon.status", Nothing(), StatusResult))

    def call(self, method: str, params: Params, result: Any) -> Program[Any]:
        """Any method by name. One this client does not know is taken for an effect."""
        row = ROWS.get(method)
        request = Request(method, params, result)
        if row is None or row.effect is not Effect.READ:
            return self._once(request)
        if row.shape is Shape.STREAM:
            raise InvalidRequest(f"{method} is a stream", hint="read it with messages(), events() or wait()")
        return self._repeated(request)

    # -- how they are carried through --

    def _held(self, request: Request, until: float | None) -> Request:
        """The same send, answered when its ticket is settled or the first slice of the wait is over."""
        left = self._slice_seconds if until is None else until - self._now()
        slice_ = min(max(left, 0.0), self._slice_seconds)
        assert isinstance(request.params, SendParams)
        params = msgspec.structs.replace(request.params, wait_ms=int(slice_ * 1000))
        return request._replace(params=params, within=slice_ + ANSWER_SECONDS)

    def _repeated(self, request: Request, *, bounded: bool = False, unanswered: bool = False) -> Program[Any]:
        """For what may be repeated: through restarts and busy spells, for `retry_seconds` at most.

        `bounded`: also give up on a daemon that is connected but does not answer. Reads are not, for some of
        them (`ledger.verify`) take as long as there are records.
        """
        deadline = self._now() + self._retry_seconds
        pauses = Backoff()
        # A read that got no answer has changed nothing.
        effect = ROWS[request.method].effect is not Effect.READ
        while True:
            try:
                left = deadline - self._now()
                return (yield request._replace(within=max(0.0, left)) if bounded else request)
            except ConnectionLost as lost:
                unanswered = unanswered or (effect and lost.sent)
                trouble: BasculeError = lost
                pause = next(pauses)
            except (Overloaded, Unavailable) as busy:
                trouble = busy
                pause = max(busy.retry_after or 0.0, next(pauses))
            if self._now() + pause >= deadline:
                raise _unknown(request) if unanswered else trouble
            yield Pause(pause)
            if isinstance(trouble, ConnectionLost):
                try:
                    yield Reconnect(deadline - self._now())
                except (NotRunning, ClientClosed) as gone:
                    if unanswered:
                        raise _unknown(request) from gone
                    raise

    def _once(self, request: Request) -> Program[Any]:
        """For effects: a connection known to be gone is made again first, one lost under the call is not."""
        while True:
            try:
                return (yield request)
            except ConnectionLost as lost:
                if lost.sent:
                    raise _unknown(request) from lost
            yield Reconnect(self._retry_seconds)

    def _until(self, timeout: Duration | None) -> float | None:
        return None if timeout is None else self._now() + seconds(timeout)

    def _settled(self, ticket_ids: tuple[str, ...], until: float | None) -> Program[tuple[str, Reply]]:
        """The first of the tickets that settles, in slices, across restarts of the daemon."""
        now = self._now
        pauses = Backoff()
        while True:
            left = self._slice_seconds if until is None else until - now()
            slice_ = min(max(left, 0.0), self._slice_seconds)
            began = now()
            try:
                index, view = yield FirstOf(tuple(_waiting(each, slice_) for each in ticket_ids))
            except ConnectionLost:
                yield Pause(next(pauses))
                yield from self._back(ticket_ids, until)
                continue
            except (Overloaded, Unavailable) as busy:
                pause = max(busy.retry_after or 0.0, next(pauses))
            else:
                if view is not None:
                    return ticket_ids[index], _judged(view)
                # A daemon that is stopping answers at once: do not ask it a thousand times.
                early = now() - began < slice_ / 2
                pause = next(pauses) if early else 0.0
                pauses = pauses if early else Backoff()
            if until is not None and now() + pause >= until:
                raise ReplyTimeout(ticket_ids)
            if pause:
                yield Pause(pause)

    def _back(self, ticket_ids: tuple[str, ...], until: float | None) -> Program[None]:
        """A live connection again, by the end of the wait or of our patience."""
        left = self._patience_seconds if until is None else max(0.0, until - self._now())
        try:
            yield Reconnect(min(left, self._patience_seconds))
        except NotRunning as gone:
            if until is not None and left <= self._patience_seconds:
                raise ReplyTimeout(ticket_ids) from gone
            gone.details = {**(gone.details or {}), "ticketIds": list(ticket_ids)}
            raise


def _waiting(ticket_id: str, slice_: float) -> Request:
    params = ReplyWaitParams(ticket_id=ticket_id, wait_ms=int(slice_ * 1000))
    return Request("replies.wait", params, ReplyView | None, within=slice_ + ANSWER_SECONDS)


def _judged(view: ReplyView) -> Reply:
    if view.status is TicketStatus.TIMEOUT:
        raise ReplyTimeout((view.ticket_id,), view.status)
    if view.status is TicketStatus.CANCELLED:
        raise TicketCancelled(view.ticket_id)
    return view


def _unknown(request: Request) -> OutcomeUnknown:
    ticket_id = getattr(request.params, "ticket_id", None)
    look = f"look with ticket({ticket_id!r})" if ticket_id else "look at the ledger: bascule ledger tail"
    return OutcomeUnknown(
        f"the daemon went away before it answered {request.method}: it may have been done",
        hint=f"{look} before you do it again",
        details={"method": request.method} | ({"ticketId": ticket_id} if ticket_id else {}),
    )


def _status(kind: Any, status: str) -> Any:
    try:
        return kind(status)
    except ValueError:
        raise InvalidRequest(f"`status`: {status!r} is not one of {', '.join(each.value for each in kind)}") from None
