"""Who stands behind an `@`: other machines, other protocols. The broker knows them by their port alone."""

from collections.abc import Iterable
from itertools import chain

from bascule.broker.records import Ticket
from bascule.foundation.errors import Conflict, NotFound
from bascule.kernel.journal import Transaction
from bascule.kernel.ports import Elsewhere, IncomingReply, Outgoing, RemoteAgent, RemoteDelivery


class Remotes:
    """By the word behind the `@`, and one for every other word. Tickets of nobody here pass without a word."""

    def __init__(self) -> None:
        self._by_word: dict[str, Elsewhere] = {}
        self._others: Elsewhere | None = None

    def add(self, elsewhere: Elsewhere | None, behind: str | None = None) -> None:
        if behind is None:
            self._others = elsewhere
        elif elsewhere is None:
            self._by_word.pop(behind, None)
        else:
            self._by_word[behind] = elsewhere

    def find(self, target: str) -> RemoteAgent | None:
        """Who is meant by a target that nobody here has; None for a bare handle where there is no elsewhere."""
        _, at, word = target.partition("@")
        elsewhere = self._behind(target) if at else self._others
        if elsewhere is not None or not at:
            return elsewhere.find(target) if elsewhere is not None else None
        raise NotFound(
            "agent not registered",
            hint=f"this daemon knows no machine {word!r}: it is in no mesh. `bascule mesh new` begins one, "
            "`bascule join` enters one",
            details={"agentId": target},
        )

    def agents(self) -> Iterable[RemoteAgent]:
        every = (*self._by_word.values(), *(() if self._others is None else (self._others,)))
        return chain.from_iterable(each.agents() for each in every)

    # -- tickets whose home is here --

    def send(self, tx: Transaction, message: Outgoing) -> None:
        elsewhere = self._behind(message.target)
        assert elsewhere is not None, "found before"
        elsewhere.send(tx, message)

    def ended(self, tx: Transaction, ticket: Ticket) -> None:
        """Home has decided: it was cancelled, or its time is over."""
        if (elsewhere := self._behind(ticket.target)) is not None:
            elsewhere.ended(tx, ticket.ticket_id, ticket.status.value)

    def delivery(self, ticket: Ticket) -> RemoteDelivery | None:
        elsewhere = self._behind(ticket.target)
        return elsewhere.delivery(ticket.ticket_id) if elsewhere is not None else None

    # -- copies --

    def acked(self, tx: Transaction, ticket: Ticket) -> None:
        if (elsewhere := self._behind(ticket.sender)) is not None:
            elsewhere.acked(tx, ticket.ticket_id)

    def replied(self, tx: Transaction, ticket: Ticket, reply: IncomingReply) -> None:
        if (elsewhere := self._behind(ticket.sender)) is None:
            raise Conflict(
                f"ticket {ticket.ticket_id} came from another machine, and this one is in no mesh any more",
                hint="nobody would get a reply: `bascule mesh status`",
            )
        elsewhere.replied(tx, ticket.ticket_id, reply)

    def dropped(self, tx: Transaction, ticket: Ticket) -> None:
        """Forgotten here: of either kind."""
        if (elsewhere := self._behind(ticket.sender if ticket.is_copy else ticket.target)) is not None:
            elsewhere.dropped(tx, ticket.ticket_id)

    def _behind(self, name: str) -> Elsewhere | None:
        return self._by_word.get(name.rpartition("@")[2], self._others)
