"""Waiting for several tickets at once: a broadcast's answers, all of them or the first few."""

from collections.abc import Callable
from functools import partial

from bascule.broker.inbox import MAX_HANDOVER_BYTES
from bascule.broker.protocol import GatherParams, GatherResult, ReplyView, TicketStatus
from bascule.broker.records import Ticket
from bascule.broker.state import BrokerState
from bascule.broker.views import is_party, is_settled, reply_view, size_of
from bascule.broker.waits import Waits
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Forbidden
from bascule.kernel.call import Call
from bascule.kernel.journal import Journal


class _Gatherer:
    """One answer that comes of several."""

    def __init__(self, look: Callable[[], GatherResult], journal: Journal) -> None:
        self._look = look
        self._journal = journal
        self.waiting: list[Deferred[ReplyView | None]] = []
        self.later: Deferred[GatherResult] = Deferred()
        self.later.add_done_callback(self._over)

    def wait_for(self, one: Deferred[ReplyView | None] | ReplyView | None) -> None:
        if isinstance(one, Deferred):
            self.waiting.append(one)
            one.add_done_callback(self._one_more)

    def _one_more(self, one: Deferred[ReplyView | None]) -> None:
        if self.later.done() or one.cancelled():
            return
        result = self._look()
        # Nothing came of this one: its time is over, and so is everybody's.
        if result.done or one.exception() is not None or one.result() is None:
            # Others of them may have ended in a commit that is still on its way.
            durable = self._journal.durable()
            if durable is None:
                self.later.set_result(result)
            else:
                durable.add_done_callback(self._answer)

    def _answer(self, _: Deferred[None]) -> None:
        if not self.later.done():
            self.later.set_result(self._look())

    def _over(self, _: Deferred[GatherResult]) -> None:
        for one in self.waiting:
            one.cancel()


class Gathering:
    def __init__(self, state: BrokerState, waits: Waits, journal: Journal) -> None:
        self._state = state
        self._waits = waits
        self._journal = journal

    def gather(self, call: Call, params: GatherParams) -> GatherResult | Deferred[GatherResult]:
        ticket_ids = list(dict.fromkeys(params.ticket_ids))
        for ticket_id in ticket_ids:
            if not is_party(self._state.ticket(ticket_id), call.principal):
                raise Forbidden(f"ticket {ticket_id} is not yours", hint="only its two sides may wait for its answer")
        look = partial(self._look, ticket_ids, params)
        so_far = look()
        if so_far.done or not params.wait_ms:
            return so_far
        gatherer = _Gatherer(look, self._journal)
        try:
            for ticket_id in so_far.open:
                gatherer.wait_for(self._waits.ended(call.principal, ticket_id, params.wait_ms))
        except BaseException:
            gatherer.later.cancel()
            raise
        # The daemon may be stopping, and then nobody waits any more.
        return gatherer.later if gatherer.waiting else so_far

    def _look(self, ticket_ids: list[str], params: GatherParams) -> GatherResult:
        rows = self._state.tickets.rows
        # A ticket that expired while others were waited for has nothing to say any more.
        known = [rows[ticket_id] for ticket_id in ticket_ids if ticket_id in rows]
        settled = [ticket for ticket in known if is_settled(ticket)]
        still = [ticket.ticket_id for ticket in known if not is_settled(ticket)]
        answered = sum(ticket.status is TicketStatus.RESPONDED for ticket in settled)
        replies = self._views(settled)
        wanted = params.count if params.count is not None else len(ticket_ids)
        # No more can come, or fewer than are wanted: waiting longer would change nothing.
        done = not still or answered >= wanted or (params.count is not None and answered + len(still) < wanted)
        more = [ticket.ticket_id for ticket in settled[len(replies) :]]
        return GatherResult(replies=replies, more=more, open=still, done=done)

    def _views(self, settled: list[Ticket]) -> list[ReplyView]:
        """The first of them, as many as fit into one answer; at least one."""
        room = MAX_HANDOVER_BYTES
        views: list[ReplyView] = []
        for ticket in settled:
            if ticket.replies:
                room -= size_of(self._state.message(ticket.ticket_id, 1))
            if views and room < 0:
                break
            view = reply_view(self._state, ticket, room=max(0, room))
            room -= sum(len(reply.payload) for reply in view.replies)
            views.append(view)
        return views
