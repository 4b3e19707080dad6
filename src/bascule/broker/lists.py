"""Lists of tickets and conversations, page by page, newest first: each costs what it answers, and a search a bound."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from bascule.broker.inbox import MAX_HANDOVER_BYTES
from bascule.broker.protocol import (
    ConversationParams,
    ConversationsListParams,
    ConversationSummary,
    ConversationView,
    TicketsListParams,
    TicketView,
)
from bascule.broker.records import Ticket
from bascule.broker.state import BrokerState
from bascule.broker.views import is_party, sides, size_of, ticket_view
from bascule.foundation.clock import rfc3339
from bascule.foundation.errors import NotFound
from bascule.kernel.call import PERSON, Call, Principal, is_outside, sender_name
from gabp import codec

# What one search looks at: it takes some milliseconds, and nothing else happens meanwhile. `before` looks further back.
MAX_SEARCHED_TICKETS: Final = 2_000
MAX_SEARCHED_BYTES: Final = 4 * 1024 * 1024
# Names of one conversation in a list; a broadcast has hundreds.
MAX_NAMED_MEMBERS: Final = 32


class Lists:
    def __init__(
        self,
        state: BrokerState,
        *,
        max_searched_tickets: int = MAX_SEARCHED_TICKETS,
        max_searched_bytes: int = MAX_SEARCHED_BYTES,
    ) -> None:
        self._state = state
        self._max_tickets = max_searched_tickets
        self._max_bytes = max_searched_bytes

    def tickets(self, call: Call, params: TicketsListParams) -> list[TicketView]:
        before = self._before(call.principal, params.before)
        found: Iterable[Ticket] = self._state.index.find(
            status=params.status,
            addressee=params.agent_id,
            party=params.party,
            before=before,
            # Who is not on this machine sees what it sent itself.
            sender=call.principal if is_outside(call.principal) else None,
        )
        if params.text is not None:
            found = self._search(found, call.principal, params.text)
        return [
            ticket_view(self._state, ticket, call.principal, payloads=False) for ticket in islice(found, params.limit)
        ]

    def _before(self, principal: Principal, ticket_id: str | None) -> int | None:
        if ticket_id is None:
            return None
        ticket = self._state.ticket(ticket_id)
        if is_outside(principal) and ticket.sender != principal:
            raise NotFound("unknown ticket", hint="name one of your own")
        return ticket.number

    def conversations(self, call: Call, params: ConversationsListParams) -> list[ConversationSummary]:
        index = self._state.conversation_index
        before = None
        if params.before is not None:
            known = index.get(params.before)
            if known is None:
                raise _unknown_conversation()
            before = known.newest
        found = islice(index.newest_first(before), params.limit)
        return [
            ConversationSummary(
                conversation_id=conversation_id,
                tickets=len(index.tickets[conversation_id]),
                open=each.open,
                last_at=rfc3339(self._state.ticket(next(reversed(index.tickets[conversation_id]))).created_at),
                members=list(islice(each.names, MAX_NAMED_MEMBERS)),
            )
            for conversation_id, each in found
        ]

    def conversation(self, call: Call, params: ConversationParams) -> ConversationView:
        tickets = self._state.conversations.get(params.conversation_id, {})
        before = self._before(call.principal, params.before)
        mine = (
            ticket
            for ticket in map(self._state.ticket, reversed(tickets))
            if call.principal in (*sides(ticket), PERSON) and (before is None or ticket.number < before)
        )
        newest: list[TicketView] = []
        room = MAX_HANDOVER_BYTES
        more = False
        for ticket in islice(mine, params.limit + 1):
            room -= size_of(self._state.message(ticket.ticket_id))
            more = len(newest) == params.limit or (bool(newest) and room < 0)
            if more:
                break
            view = ticket_view(self._state, ticket, call.principal, payloads=True, room=max(0, room))
            room -= sum(len(reply.payload) for reply in view.replies)
            newest.append(view)
        if not newest and before is None:
            raise _unknown_conversation()
        return ConversationView(conversation_id=params.conversation_id, tickets=newest[::-1], more=more)

    def _search(self, tickets: Iterable[Ticket], principal: Principal, text: str) -> Iterator[Ticket]:
        """Ids and names of all; payloads only where the caller may read them anyway."""
        wanted = text.casefold()
        # As it stands in JSON, with its escapes.
        in_payload = codec.encode(text).decode()[1:-1].casefold()
        left = self._max_bytes
        for ticket in islice(tickets, self._max_tickets):
            names = (ticket.ticket_id, ticket.target, sender_name(Principal(ticket.sender)))
            if any(wanted in each.casefold() for each in (*names, ticket.conversation_id or "", ticket.group or "")):
                yield ticket
            elif is_party(ticket, principal):
                for number in range(ticket.replies + 1):
                    if left <= 0:
                        return
                    payload = bytes(self._state.message(ticket.ticket_id, number).payload)
                    left -= len(payload)
                    if in_payload in payload.decode().casefold():
                        yield ticket
                        break


def _unknown_conversation() -> NotFound:
    return NotFound("unknown conversation", hint="only its sides can read it, until its tickets expire")
