"""Bells: notify an agent that messages wait, without taking them.

A hook, a wrapper or a script rings; the agent then fetches. What is recorded is only that a bell was rung,
by which and when: in memory, for the sender to see. A bell that rings for a message once (`skipRung`) cannot
make an agent that leaves its messages alone go round in circles.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from bascule.broker.events import EventHub
from bascule.broker.inbox import Inbox
from bascule.broker.protocol import InboxWatchParams, InboxWatchResult, SkipRung
from bascule.broker.state import BrokerState
from bascule.foundation.agreement import MAX_WAIT_MS
from bascule.foundation.deferred import Deferred
from bascule.kernel.call import Call, Principal, sender_name

# Senders named in one answer: it becomes one line for a model to read.
MAX_NAMED = 10
# Bells remembered per message. An agent has a hook or two and a wrapper; the oldest name makes room.
MAX_BELLS = 8


class _Watcher:
    """Somebody who waits for a message to be there."""

    __slots__ = ("later", "params")

    def __init__(self, params: InboxWatchParams, later: Deferred[InboxWatchResult | None]) -> None:
        self.params = params
        self.later = later

    @property
    def is_bell(self) -> bool:
        return self.params.by is not None and self.params.skip_rung is not SkipRung.NONE


class Bells:
    def __init__(
        self,
        state: BrokerState,
        events: EventHub,
        hold: Callable[[Principal, Deferred[Any]], None],
        release: Callable[[Principal, Deferred[Any]], None],
    ) -> None:
        self._state = state
        self._events = events
        # Counts a wait of this principal from one to the other, and ends it with its token.
        self._hold = hold
        self._release = release
        # By agent; an agent nobody watches is not in it.
        self.watchers: dict[str, dict[_Watcher, None]] = {}
        self._stopping = False

    def watch(
        self, call: Call, params: InboxWatchParams
    ) -> InboxWatchResult | Deferred[InboxWatchResult | None] | None:
        inbox = self._state.inbox(params.agent_id)
        seen = self._look(inbox, params)
        if seen is None and (not params.wait_ms or self._stopping):
            return None
        later: Deferred[InboxWatchResult | None] = Deferred()
        if seen is not None:
            # A `Deferred`, though it is settled: a ring that reached nobody is taken back.
            later.set_result(seen)
            return later
        watcher = _Watcher(params, later)
        self._hold(call.principal, later)
        if watcher.is_bell:
            self._supersede(params.agent_id, params.by)
        self.watchers.setdefault(params.agent_id, {})[watcher] = None
        timers = self._state.timers
        deadline = timers.after_ms(min(params.wait_ms, MAX_WAIT_MS), partial(_answer, later, None))

        def over(_: object) -> None:
            self._release(call.principal, later)
            timers.call_off(deadline)
            members = self.watchers.get(params.agent_id, {})
            members.pop(watcher, None)
            if not members:
                self.watchers.pop(params.agent_id, None)

        later.add_done_callback(over)
        return later

    def wake(self, inbox: Inbox) -> None:
        """Messages wait that nobody took."""
        for watcher in list(self.watchers.get(inbox.agent_id, ())):
            if not watcher.later.done() and (seen := self._look(inbox, watcher.params)) is not None:
                watcher.later.set_result(seen)

    def unring(self, params: InboxWatchParams, result: InboxWatchResult) -> None:
        """The waiter of this bell was gone before its ring arrived: the next one may ring."""
        if params.by is None or not params.record or result.superseded:
            return
        inbox = self._state.inbox(params.agent_id)
        for ticket_id in inbox.unleased():
            inbox.rung.get(ticket_id, {}).pop(params.by, None)
        inbox.rung_to.clear()
        self.wake(inbox)

    def end(self) -> None:
        self._stopping = True
        for members in list(self.watchers.values()):
            for watcher in list(members):
                _answer(watcher.later, None)

    def count(self) -> int:
        return sum(map(len, self.watchers.values()))

    # -- inside --

    def _look(self, inbox: Inbox, params: InboxWatchParams) -> InboxWatchResult | None:
        """What waits, if anything does that this watch counts; recorded as rung for when it says so."""
        if not inbox.unread or not self._has_news(inbox, params):
            return None
        named: dict[str, None] = {}
        for sender in inbox.senders():
            named[sender_name(Principal(sender))] = None
            if len(named) == MAX_NAMED:
                break
        oldest = next(inbox.unleased())
        if params.by is not None and params.record:
            for ticket_id in list(inbox.unleased()):
                self._ring(inbox, ticket_id, params.by)
        return InboxWatchResult(unread=inbox.unread, from_=list(named), oldest=oldest)

    def _has_news(self, inbox: Inbox, params: InboxWatchParams) -> bool:
        own = params.skip_rung is SkipRung.OWN
        if params.skip_rung is SkipRung.NONE or (own and params.by is None):
            # A look without a bell has rung for nothing.
            return True
        bell = (params.by or "") if own else ""
        for ticket_id in inbox.sent_after(inbox.rung_to.get(bell, 0)):
            if self._counts(inbox, ticket_id, params):
                return True
        inbox.all_are_rung(bell)
        return False

    def _counts(self, inbox: Inbox, ticket_id: str, params: InboxWatchParams) -> bool:
        bells = inbox.rung.get(ticket_id, ())
        return params.by not in bells if params.skip_rung is SkipRung.OWN else not bells

    def _ring(self, inbox: Inbox, ticket_id: str, by: str) -> None:
        bells = inbox.rung.setdefault(ticket_id, {})
        new = by not in bells
        bells[by] = self._state.clock.wall_ms()
        if not new:
            return
        if len(bells) > MAX_BELLS:
            oldest = next(iter(bells))
            del bells[oldest]
            inbox.rung_to.pop(oldest, None)
        ticket = self._state.tickets.rows[ticket_id]
        self._events.emit(
            "ticket.rung",
            ticket_id=ticket_id,
            agent_id=inbox.agent_id,
            sender=sender_name(Principal(ticket.sender)),
            status=ticket.status.value,
            detail=by,
        )

    def _supersede(self, agent_id: str, by: str | None) -> None:
        for watcher in list(self.watchers.get(agent_id, ())):
            if watcher.is_bell and watcher.params.by == by:
                _answer(watcher.later, InboxWatchResult(superseded=True))


def _answer(later: Deferred[InboxWatchResult | None], result: InboxWatchResult | None, _now: float = 0.0) -> None:
    if not later.done():
        later.set_result(result)
