"""What happens to tickets by itself: a reply that is overdue, an end, an id that is forgotten.

All in this life's clock, because a jump of the wall clock must not throw anything away.
"""

import itertools
from collections.abc import Callable
from functools import partial

from bascule.broker.records import Ticket
from bascule.broker.state import BrokerState
from bascule.broker.views import is_settled
from bascule.foundation.timers import Deadline

# A full disk is not emptied within milliseconds.
RETRY_SECONDS = 1.0
# Expired in one turn, so that a busy half hour's tickets do not hold up the loop when their time is over.
MAX_ENDS_AT_ONCE = 200


class Lifetimes:
    def __init__(
        self, state: BrokerState, *, on_timeout: Callable[[Ticket], None], on_end: Callable[[Ticket], None]
    ) -> None:
        self._state = state
        self._on_timeout = on_timeout
        self._on_end = on_end
        # The reply deadline of each that waits for a reply.
        self._due: dict[str, Deadline] = {}
        # When each that is settled goes, the first to go first.
        self._ends: dict[str, float] = {}
        self._ends_watched = False
        # When each was sent, and when the memory of each expired id ends (the oldest first).
        self._sent_at: dict[str, float] = {}
        self._forget_at: dict[str, float] = {}
        self._resume()

    def __contains__(self, ticket_id: str) -> bool:
        """Whether something will happen to it."""
        return ticket_id in self._due or ticket_id in self._ends

    # -- called by tickets --

    def sent(self, ticket_id: str, at: float, timeout_ms: int) -> None:
        self._sent_at[ticket_id] = at
        due = partial(self._reply_due, ticket_id)
        self._due[ticket_id] = self._state.timers.after_ms(timeout_ms, due, since=at)

    def copied(self, ticket_id: str, at: float) -> None:
        """A copy: whether a reply is overdue is its home's to say."""
        self._sent_at[ticket_id] = at

    def settled(self, ticket_id: str) -> None:
        self._no_reply_due(ticket_id)
        # Moved to the end if it was there: a message that was fetched after its timeout lives on from now.
        self._ends.pop(ticket_id, None)
        self._ends[ticket_id] = self._state.clock.monotonic() + self._state.limits.ticket_ttl_ms / 1000
        if not self._ends_watched:
            self._watch_ends()

    def gone(self, ticket_id: str) -> None:
        self._no_reply_due(ticket_id)
        self._ends.pop(ticket_id, None)
        self._sent_at.pop(ticket_id, None)
        self._forget_at[ticket_id] = self._state.clock.monotonic() + self._state.limits.remember_ms / 1000

    def forgotten(self, ticket_id: str) -> None:
        # Two sweeps may have met.
        self._forget_at.pop(ticket_id, None)

    def expect_reply_by(self, ticket_id: str, when: float) -> None:
        self._due[ticket_id] = self._state.timers.at(when, partial(self._reply_due, ticket_id))

    def end_at(self, ticket_id: str, when: float) -> None:
        self._state.timers.at(when, lambda _now: self._end(ticket_id))

    # -- what is over --

    def long_undelivered(self) -> list[Ticket]:
        """Messages nobody fetched for as long as an offline agent is kept."""
        now = self._state.clock.monotonic()
        cut = now - self._state.limits.agent_retention_ms / 1000
        return [
            ticket
            for ticket in self._state.tickets.rows.values()
            # What is for elsewhere ends when whoever passes it on gives up.
            if ticket.undelivered and not ticket.is_for_elsewhere and self._sent_at.get(ticket.ticket_id, now) <= cut
        ]

    def forgettable_ids(self) -> list[str]:
        """Ids of expired tickets that were remembered long enough."""
        now = self._state.clock.monotonic()
        over = max(0, len(self._forget_at) - self._state.limits.max_remembered)
        due = itertools.takewhile(lambda item: item[0] < over or item[1][1] <= now, enumerate(self._forget_at.items()))
        return [ticket_id for _, (ticket_id, _) in due]

    # -- inside --

    def _resume(self) -> None:
        """After a restart: what is left of each deadline, never more than it was."""
        state = self._state
        now, wall = state.clock.monotonic(), state.clock.wall_ms()
        ttl, remember = state.limits.ticket_ttl_ms, state.limits.remember_ms
        for ticket_id, entry in sorted(state.remembered.rows.items(), key=lambda item: item[1].until):
            self._forget_at[ticket_id] = now + min(max(0, entry.until - wall), remember) / 1000
        ends: list[tuple[float, str]] = []
        for ticket_id, ticket in state.tickets.rows.items():
            undelivered = ticket.undelivered
            if undelivered:
                self._sent_at[ticket_id] = now - max(0, wall - ticket.created_at) / 1000
            if not is_settled(ticket):
                if ticket.is_copy:
                    continue
                left = min(max(0, ticket.reply_by - wall), ticket.reply_by - ticket.created_at)
                self.expect_reply_by(ticket_id, now + left / 1000)
            elif not undelivered:
                since = max(ticket.settled_at or 0, ticket.acked_at or 0)
                left = min(max(0, since + ttl - wall), ttl)
                ends.append((now + left / 1000, ticket_id))
        self._ends.update((ticket_id, when) for when, ticket_id in sorted(ends))
        self._watch_ends()

    def _reply_due(self, ticket_id: str, now: float) -> None:
        ticket = self._state.tickets.rows.get(ticket_id)
        if ticket is None:
            self._due.pop(ticket_id, None)
        elif is_settled(ticket):
            # Its end is on its way to the disk. Once there, this deadline is called off; should it be undone, this
            # deadline counts again.
            self.expect_reply_by(ticket_id, now + RETRY_SECONDS)
        else:
            self._on_timeout(ticket)

    def _no_reply_due(self, ticket_id: str) -> None:
        deadline = self._due.pop(ticket_id, None)
        if deadline is not None:
            self._state.timers.call_off(deadline)

    def _watch_ends(self) -> None:
        # All live equally long once settled, so the first to be settled is the first to go: one deadline for all.
        if self._ends and not self._ends_watched:
            self._ends_watched = True
            self._state.timers.at(next(iter(self._ends.values())), self._ends_due)

    def _ends_due(self, now: float) -> None:
        self._ends_watched = False
        over = itertools.takewhile(lambda item: item[1] <= now, self._ends.items())
        for ticket_id, _ in list(itertools.islice(over, MAX_ENDS_AT_ONCE)):
            del self._ends[ticket_id]
            self._end(ticket_id)
        self._watch_ends()

    def _end(self, ticket_id: str) -> None:
        ticket = self._state.tickets.rows.get(ticket_id)
        # The wait may be over when the delivery is not: then it stays until fetched, or a week.
        if ticket is not None and not ticket.undelivered:
            self._on_end(ticket)
