"""Waiting: long polls and streams on tickets and inboxes.

A waiter is a `Deferred`. Its holder may cancel it, and then it is gone from every list at once: that
is what keeps a killed long-poller from eating a message.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from bascule.broker.agents import Agents
from bascule.broker.bells import Bells
from bascule.broker.events import EventHub
from bascule.broker.inbox import MAX_HANDOVER_BYTES, Inbox
from bascule.broker.protocol import (
    AgentParams,
    EventsParams,
    InboxItem,
    InboxTakeParams,
    InboxTakeResult,
    InboxWatchParams,
    InboxWatchResult,
    ReplyView,
    ReplyWaitParams,
    SendResult,
    TicketParams,
    TicketStatus,
)
from bascule.broker.records import Ticket
from bascule.broker.state import BrokerState
from bascule.broker.views import inbox_item, is_settled, reply_view
from bascule.foundation.agreement import MAX_WAIT_MS
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Overloaded, Unavailable
from bascule.foundation.stream import Stream
from bascule.foundation.timers import Deadline
from bascule.kernel.call import Call, Principal, agent_principal
from bascule.kernel.journal import Journal
from bascule.kernel.link_protocol import CREDIT_WINDOW

# The one SSE event of (5.4) is named for how the ticket ended.
STREAM_EVENTS = {
    TicketStatus.RESPONDED: "reply",
    TicketStatus.TIMEOUT: "timeout",
    TicketStatus.CANCELLED: "cancelled",
    TicketStatus.DELIVERED: "delivered",
}


class Sharing(Protocol):
    """What waiting means to groups, whose members share a queue."""

    def wanted(self, agent_id: str, room: int) -> None:
        """The agent looks for messages now."""

    def freed(self, agent_id: str) -> None:
        """An agent may have room, or a group may have messages."""

    def put_back(self, ticket_ids: list[str]) -> None:
        """These were handed over and not acknowledged."""


class _ReplyWait(Deferred[Any]):
    """A wait for the end of a ticket; it is the answer to the call, too."""

    deadline: Deadline

    def __init__(self, principal: Principal, ticket_id: str, sent: SendResult | None) -> None:
        self.principal = principal
        self.ticket_id = ticket_id
        # Of an ask: what its caller gets, with the reply in it or without.
        self.sent = sent


class _Poll(Deferred[InboxTakeResult | None]):
    """A long poll on an inbox: takes up to `max` messages, once. It is the answer to the call, too."""

    deadline: Deadline

    def __init__(self, waits: "Waits", inbox: Inbox, max_: int, principal: Principal) -> None:
        self._waits = waits
        self.inbox = inbox
        self._max = max_
        self.principal = principal

    @property
    def room(self) -> int:
        return 0 if self.done() else self._max

    def give_credit(self) -> None:
        """A poll takes once; what comes back is for the next one."""

    def hand_over(self, ticket_ids: list[str]) -> None:
        self.inbox.receivers.pop(self, None)
        for ticket_id in ticket_ids:
            self.inbox.leases[ticket_id].receiver = None
        self.set_result(self._waits.taken(self.inbox, ticket_ids))


class _InboxStream:
    """A stream on an inbox: as many messages as it has credit for, more with every acknowledgement."""

    __slots__ = ("_credit", "_release", "_unread_bytes", "_waits", "inbox", "stream")

    def __init__(self, waits: "Waits", inbox: Inbox, release: Callable[[], None]) -> None:
        self._waits = waits
        self._release = release
        self.inbox = inbox
        self._credit = CREDIT_WINDOW
        self.stream = Stream(limit=CREDIT_WINDOW, on_close=self._closed)
        # Pushed and not taken by the edge yet.
        self._unread_bytes = 0
        self.stream.on_drained = self._drained
        waits.agents.connected(inbox.agent_id)

    @property
    def room(self) -> int:
        # A reader that is slow to take large messages gets no more of them meanwhile.
        return 0 if self._unread_bytes >= MAX_HANDOVER_BYTES else self._credit

    def give_credit(self) -> None:
        self._credit += 1

    def hand_over(self, ticket_ids: list[str]) -> None:
        self._credit -= len(ticket_ids)
        for ticket_id in ticket_ids:
            self._unread_bytes += self.inbox.size_of(ticket_id)
        for item in self._waits.items(self.inbox, ticket_ids):
            self.stream.push(item)

    def _drained(self) -> None:
        was_full = self._unread_bytes >= MAX_HANDOVER_BYTES
        self._unread_bytes = 0
        if was_full:
            # In its own turn of the loop: draining happens in the middle of handing over.
            self._waits.pump_soon(self.inbox.agent_id)

    def _closed(self) -> None:
        """The reader is gone: what it did not acknowledge is for the next one, now and not after the lease."""
        self._release()
        self.inbox.receivers.pop(self, None)
        self._waits.streams.discard(self.stream)
        self._waits.agents.disconnected(self.inbox.agent_id, gone=False)
        held = [ticket_id for ticket_id, lease in self.inbox.leases.items() if lease.receiver is self]
        self._waits.put_back(self.inbox, held)


class Waits:
    def __init__(self, state: BrokerState, events: EventHub, agents: Agents, journal: Journal) -> None:
        self._journal = journal
        state.on_return = self.pump_soon
        agents.on_revoked.append(self.evict)
        # What each principal holds open, so that all of it ends with its token.
        self._open: dict[Principal, dict[Stream | Deferred[Any], None]] = {}
        # An open inbox stream is a sign of life as long as it is open.
        self.agents = agents
        self._state = state
        self._events = events
        self._on_ticket: dict[str, dict[_ReplyWait | Stream, None]] = {}
        self.streams: set[Stream] = set()
        self._polls: set[_Poll] = set()
        self._stopping = False
        self.bells = Bells(state, events, self._hold, self._release)
        # Set by the part that shares messages out among the members of groups.
        self.groups: Sharing | None = None

    # -- methods --

    def wait_reply(self, call: Call, params: ReplyWaitParams) -> ReplyView | Deferred[ReplyView | None] | None:
        return self.ended(call.principal, params.ticket_id, params.wait_ms, params.after)

    def ended(
        self, principal: Principal, ticket_id: str, wait_ms: int, after: int = 0
    ) -> ReplyView | Deferred[ReplyView | None] | None:
        """How the ticket ended; or a `Deferred` of it, within this time; None when there is nothing to wait for."""
        ticket = self._state.ticket(ticket_id)
        if is_settled(ticket):
            return reply_view(self._state, ticket, after)
        if not wait_ms or self._stopping:
            return None
        return self._wait(principal, ticket_id, wait_ms, None)

    def asked(self, principal: Principal, wait_ms: int, sent: SendResult) -> SendResult | Deferred[SendResult]:
        """What was sent, with its reply once there is one within this time."""
        ticket = self._state.ticket(sent.ticket_id)
        if is_settled(ticket):
            return _with_reply(sent, reply_view(self._state, ticket))
        return sent if self._stopping else self._wait(principal, sent.ticket_id, wait_ms, sent)

    def _wait(self, principal: Principal, ticket_id: str, wait_ms: int, sent: SendResult | None) -> _ReplyWait:
        wait = _ReplyWait(principal, ticket_id, sent)
        self._hold(principal, wait)
        waiting = self._on_ticket.get(ticket_id)
        if waiting is None:
            self._on_ticket[ticket_id] = {wait: None}
        else:
            waiting[wait] = None
        wait.deadline = self._state.timers.after_ms(min(wait_ms, MAX_WAIT_MS), partial(self._nothing_yet, wait))
        wait.add_done_callback(self._wait_over)
        return wait

    def _wait_over(self, wait: _ReplyWait) -> None:
        self._release(wait.principal, wait)
        self._leave(wait.ticket_id, wait)
        self._state.timers.call_off(wait.deadline)

    def stream_reply(self, call: Call, params: TicketParams) -> Stream:
        ticket = self._state.ticket(params.ticket_id)

        def closed() -> None:
            self._release(call.principal, stream)
            self._leave(ticket.ticket_id, stream)

        stream = Stream(on_close=closed)
        self._hold(call.principal, stream)
        self._follow(stream, ticket.ticket_id)
        return stream

    def _follow(self, stream: Stream, ticket_id: str) -> None:
        """Answer with the end of the ticket when it is durable, or wait for it."""
        ticket = self._state.tickets.rows.get(ticket_id)
        if stream.closed:
            return
        if ticket is None or (self._stopping and not is_settled(ticket)):
            stream.end()
        elif not is_settled(ticket):
            self._on_ticket.setdefault(ticket_id, {})[stream] = None
        elif (durable := self._journal.durable()) is None:
            self._push_end(stream, ticket)
        else:
            durable.add_done_callback(lambda _: self._follow(stream, ticket_id))

    def take(self, call: Call, params: InboxTakeParams) -> Deferred[InboxTakeResult | None] | None:
        if self._state.groups and self.groups is not None:
            self.groups.wanted(params.agent_id, params.max)
        inbox = self._state.inbox(params.agent_id)
        # First come, first served: a poll that just arrived does not overtake one that waits.
        if not inbox.someone_waits():
            taken = inbox.take(params.max, self._expires(), None)
            if taken:
                self._leased(inbox)
                # A `Deferred`, though it is settled: what is handed over is durable already, and must be given
                # back at once should the client be gone before the answer is written.
                later: Deferred[InboxTakeResult | None] = Deferred()
                later.set_result(self.taken(inbox, taken))
                return later
        if not params.wait_ms or self._stopping:
            return None
        poll = _Poll(self, inbox, params.max, call.principal)
        self._hold(call.principal, poll)
        inbox.receivers[poll] = None
        self._polls.add(poll)
        poll.deadline = self._state.timers.after_ms(min(params.wait_ms, MAX_WAIT_MS), partial(self._nothing_yet, poll))
        poll.add_done_callback(self._poll_over)
        inbox.pump(self._expires, partial(self._leased, inbox))
        return poll

    def _poll_over(self, poll: _Poll) -> None:
        self._release(poll.principal, poll)
        poll.inbox.receivers.pop(poll, None)
        self._polls.discard(poll)
        self._state.timers.call_off(poll.deadline)

    def stream_inbox(self, call: Call, params: AgentParams) -> Stream:
        if self._stopping:
            raise Unavailable("the daemon is stopping", hint="try again in a moment", retry_after=1.0)
        self.check_room(call.principal)
        inbox = self._state.inbox(params.agent_id)
        receiver = _InboxStream(self, inbox, lambda: self._release(call.principal, receiver.stream))
        self._hold(call.principal, receiver.stream)
        inbox.receivers[receiver] = None
        self.streams.add(receiver.stream)
        inbox.pump(self._expires, partial(self._leased, inbox))
        if self.groups is not None:
            self.groups.freed(params.agent_id)
        return receiver.stream

    def watch(
        self, call: Call, params: InboxWatchParams
    ) -> InboxWatchResult | Deferred[InboxWatchResult | None] | None:
        if self._state.groups and self.groups is not None:
            self.groups.wanted(params.agent_id, 1)
        return self.bells.watch(call, params)

    def stream_events(self, call: Call, params: EventsParams) -> Stream:
        self.check_room(call.principal)
        stream = self._events.open(params, lambda: self._release(call.principal, stream))
        self._hold(call.principal, stream)
        return stream

    def give_back(self, params: InboxTakeParams, result: InboxTakeResult) -> None:
        """The poller was gone before its answer was written: the messages are for the next one."""
        self.put_back(self._state.inbox(params.agent_id), [item.ticket_id for item in result.messages])

    # -- what wakes them --

    def settled(self, ticket: Ticket) -> None:
        waiting = self._on_ticket.pop(ticket.ticket_id, None)
        if not waiting:
            return
        view = reply_view(self._state, ticket)
        for waiter in waiting:
            if isinstance(waiter, Stream):
                self._push_end(waiter, ticket)
            elif not waiter.done():
                waiter.set_result(view if waiter.sent is None else _with_reply(waiter.sent, view))

    def gone(self, ticket_id: str) -> None:
        """The ticket was dropped before it was settled: there is nothing left to wait for."""
        for waiter in list(self._on_ticket.pop(ticket_id, ())):
            if isinstance(waiter, Stream):
                waiter.end()
            else:
                _give_up(waiter, 0.0)

    def evict(self, agent_id: str) -> None:
        """The agent's token is no longer good: everything that was opened with it ends."""
        for held in list(self._open.get(agent_principal(agent_id), ())):
            if isinstance(held, Stream):
                # Closed first, so that what it holds goes back to the inbox and nothing more is pushed.
                held.close()
                held.end()
            else:
                _give_up(held, 0.0)

    def pump(self, agent_id: str) -> None:
        if self._state.groups and self.groups is not None:
            self.groups.freed(agent_id)
        inbox = self._state.inboxes.get(agent_id)
        if inbox is None or not inbox.waiting:
            return
        if inbox.receivers:
            inbox.pump(self._expires, partial(self._leased, inbox))
        # What nobody took is rung for.
        if agent_id in self.bells.watchers:
            self.bells.wake(inbox)

    def end(self) -> None:
        """The daemon stops: everybody who waits gets an answer now."""
        self._stopping = True
        for waiters in list(self._on_ticket.values()):
            for waiter in list(waiters):
                if isinstance(waiter, Stream):
                    waiter.end()
        self.answer_all()
        for stream in list(self.streams):
            stream.end()
        self.bells.end()

    def answer_all(self) -> int:
        """Long polls are answered that nothing has come yet; how many."""
        waits: list[Deferred[Any]] = [
            each for waiters in self._on_ticket.values() for each in waiters if isinstance(each, _ReplyWait)
        ]
        held = [*waits, *self._polls]
        for wait in held:
            _give_up(wait, 0.0)
        return len(held)

    def count(self) -> int:
        return sum(len(held) for held in self._open.values())

    # -- inside --

    def taken(self, inbox: Inbox, ticket_ids: list[str]) -> InboxTakeResult:
        return InboxTakeResult(messages=self.items(inbox, ticket_ids), remaining=inbox.waiting)

    def items(self, inbox: Inbox, ticket_ids: list[str]) -> list[InboxItem]:
        rows = self._state.tickets.rows
        return [inbox_item(self._state, rows[each], inbox.attempts[each]) for each in ticket_ids]

    def _nothing_yet(self, later: Deferred[Any], now: float) -> None:
        """Time is up. "Nothing yet" is about a ticket or an empty inbox, and waits until that is durable."""
        durable = self._journal.durable()
        if durable is None:
            _give_up(later, now)
        else:
            # Behind what comes back to the inbox when it could not be stored.
            durable.add_done_callback(lambda _: self._state.timers.after_ms(0, partial(_give_up, later)))

    def _expires(self) -> float:
        return self._state.clock.monotonic() + self._state.limits.lease_ms / 1000

    def _leased(self, inbox: Inbox) -> None:
        # All leases are equally long, so the first to be given is the first to end: one deadline per inbox.
        if not inbox.watched:
            inbox.watched = True
            self._state.timers.after_ms(self._state.limits.lease_ms, partial(self._leases_over, inbox))

    def _leases_over(self, inbox: Inbox, now: float) -> None:
        # Watched all the while: what is handed over again in here ends later than what is out already.
        self.put_back(inbox, list(itertools.takewhile(lambda each: inbox.leases[each].expires <= now, inbox.leases)))
        first = next(iter(inbox.leases.values()), None)
        if first is None:
            inbox.watched = False
        else:
            self._state.timers.at(first.expires, partial(self._leases_over, inbox))

    def put_back(self, inbox: Inbox, ticket_ids: list[str]) -> None:
        """Leases that ended without acknowledgement; an event names a message that always comes back."""
        for ticket_id in ticket_ids:
            if inbox.put_back(ticket_id) and inbox.attempts[ticket_id] == self._state.limits.undeliverable_after:
                self._events.emit(
                    "ticket.undeliverable",
                    ticket_id=ticket_id,
                    agent_id=inbox.agent_id,
                    detail=f"handed over {inbox.attempts[ticket_id]} times and never acknowledged",
                )
        if self.groups is not None:
            self.groups.put_back(ticket_ids)
        if ticket_ids:
            self.pump(inbox.agent_id)

    def pump_soon(self, agent_id: str) -> None:
        # Not at once: this is called in the middle of undoing.
        self._state.timers.after_ms(0, lambda _now: self.pump(agent_id))

    def _hold(self, principal: Principal, held: Stream | Deferred[Any]) -> None:
        """Count a wait or stream of this principal, until `_release`."""
        mine = self._open.get(principal)
        if mine is None:
            self._open[principal] = {held: None}
        else:
            self.check_room(principal)
            mine[held] = None

    def check_room(self, principal: Principal) -> None:
        limit = self._state.limits.max_waits
        if len(self._open.get(principal, ())) >= limit:
            raise Overloaded(
                f"{principal} holds {limit} waits already", hint="end some before opening more", retry_after=1.0
            )

    def _release(self, principal: Principal, held: Stream | Deferred[Any]) -> None:
        mine = self._open.get(principal)
        if mine is not None:
            mine.pop(held, None)
            if not mine:
                del self._open[principal]

    def _leave(self, ticket_id: str, waiter: _ReplyWait | Stream) -> None:
        waiting = self._on_ticket.get(ticket_id)
        if waiting is not None:
            waiting.pop(waiter, None)
            if not waiting:
                del self._on_ticket[ticket_id]

    def _push_end(self, stream: Stream, ticket: Ticket) -> None:
        stream.push((STREAM_EVENTS[ticket.status], reply_view(self._state, ticket)))
        stream.end()


def _give_up(later: Deferred[Any], _now: float) -> None:
    if later.done():
        return
    later.set_result(later.sent if isinstance(later, _ReplyWait) else None)


def _with_reply(sent: SendResult, reply: ReplyView) -> SendResult:
    return msgspec.structs.replace(sent, status=reply.status, reply=reply)
