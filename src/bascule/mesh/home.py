"""Tickets whose home is here and whose agents are elsewhere: this daemon alone says how they end."""

from functools import partial

import msgspec

from bascule.foundation.clock import Clock
from bascule.foundation.errors import Overloaded, TooLarge
from bascule.kernel.call import Call, agent_of
from bascule.kernel.journal import Transaction
from bascule.kernel.ports import IncomingReply, Outgoing, RemoteDelivery, RemoteMail
from bascule.mesh.courier import Courier
from bascule.mesh.nodes import ANY, Nodes
from bascule.mesh.outbox import Outbox
from bascule.mesh.protocol import Acked, Cancel, Confirmed, Offer, Over, Reply, Taken
from bascule.mesh.records import Arrival, HomeTicket, OutItem
from bascule.mesh.rows import AckedParams, Envelope, RefusedParams, ReplyParams, calling_node
from bascule.mesh.state import MeshState
from gabp import codec

_replace = msgspec.structs.replace
# A message is of use for as long as an offline agent's is kept, and an hour for clocks that differ.
USE_FOR_MS = 7 * 24 * 3_600_000 + 3_600_000
# A node that had a message for a group of any node and was not heard of for this long: another one gets it, too.
REOFFER_MS = 60_000
# Nobody of a group was free anywhere: a node keeps the offer for this long before the next one is asked again.
ASK_AROUND_MS = 5_000


class Home:
    def __init__(
        self,
        *,
        state: MeshState,
        clock: Clock,
        mail: RemoteMail,
        nodes: Nodes,
        outbox: Outbox,
        courier: Courier,
    ) -> None:
        self._state = state
        self._clock = clock
        self._mail = mail
        self._nodes = nodes
        self._outbox = outbox
        self._courier = courier

    # -- what agents here do --

    def send(self, tx: Transaction, message: Outgoing) -> None:
        handle, _, node = message.target.partition("@")
        ticket = HomeTicket(handle=handle, nodes=(), use_by=message.at + USE_FOR_MS, any=node == ANY)
        if ticket.any:
            node = self._nodes.candidates(handle)[0]
        self._offer(tx, message, ticket, node)

    def _offer(self, tx: Transaction, message: Outgoing, ticket: HomeTicket, node: str) -> None:
        agent = agent_of(message.sender)
        item = Offer(
            id=self._outbox.new_id(),
            ticket=message.ticket_id,
            sender=agent or "-",
            sender_kind="agent" if agent is not None else str(message.sender),
            target=ticket.handle,
            payload=msgspec.Raw(message.payload),
            metadata=message.metadata,
            expect_reply=message.expect_reply,
            left_ms=message.timeout_ms,
            use_by=ticket.use_by,
            conversation=message.conversation_id,
            any=ticket.any,
        )
        data = codec.encode(item)
        self._courier.check_size(data)
        self._outbox.check_room(node, len(data))
        self._outbox.add(tx, node, item, ticket.use_by, data)
        nodes = (*(each for each in ticket.nodes if each != node), node)
        tx.put(self._state.home, message.ticket_id, _replace(ticket, nodes=nodes, offered=item.id))

    def ended(self, tx: Transaction, ticket_id: str) -> None:
        ticket = self._state.home.rows.get(ticket_id)
        if ticket is None:
            return
        ticket = _replace(ticket, rank=ticket.rank + 1)
        tx.put(self._state.home, ticket_id, ticket)
        for node in ticket.nodes:
            self._say_end(tx, ticket_id, ticket, node)

    def dropped(self, tx: Transaction, ticket_id: str) -> None:
        if ticket_id in self._state.home.rows:
            tx.put(self._state.home, ticket_id, None)

    def delivery(self, ticket_id: str) -> RemoteDelivery | None:
        ticket = self._state.home.rows.get(ticket_id)
        if ticket is None:
            return None
        if ticket.arrived:
            return RemoteDelivery("arrived", max(each.at for each in ticket.arrived.values()))
        item = self._state.out.rows.get(ticket.offered)
        if item is None:
            return None
        mailed_at = self._outbox.mailed_at(ticket.offered, item.node)
        return RemoteDelivery("outbox", item.at) if mailed_at is None else RemoteDelivery("mailed", mailed_at)

    # -- what copies say --

    def acked(self, call: Call, params: AckedParams, tx: Transaction) -> None:
        item = params.item
        self._record(tx, item, params.envelope)
        before = self._mail.known(item.ticket)
        self._mail.acknowledge(tx, item.ticket)
        self._after_change(tx, calling_node(call), params, before.status if before is not None else None)

    def reply(self, call: Call, params: ReplyParams, tx: Transaction) -> None:
        item = params.item
        tx.subject = item.ticket
        before = self._mail.known(item.ticket)
        # Of several nodes another one could be the first to say its reply again.
        kept_there = (ticket := self._state.home.rows.get(item.ticket)) is not None and ticket.has_one_node
        reply = IncomingReply(call.principal, item.number, bytes(item.payload), item.metadata, kept_there)
        self._mail.answer(tx, item.ticket, reply)
        self._record(tx, item, params.envelope)
        self._after_change(tx, calling_node(call), params, before.status if before is not None else None)

    def refused(self, call: Call, params: RefusedParams, tx: Transaction) -> None:
        tx.subject = params.ticket
        tx.details = {"why": params.why}
        reason = f"{calling_node(call)} does not take it: {params.text or params.why}"
        self._mail.refuse(tx, params.ticket, reason)

    def taken(self, item: Acked | Reply, refused: str | None = None) -> Taken:
        """A receipt for what a copy said, with how the ticket is now."""
        ticket, known = self._state.home.rows.get(item.ticket), self._mail.known(item.ticket)
        if ticket is None or known is None:
            return Taken(id=item.id, ticket=item.ticket, refused=refused or "unknown")
        return Taken(
            id=item.id,
            ticket=item.ticket,
            status=known.status,
            rank=ticket.rank,
            late=known.late,
            refused=refused,
        )

    def arrived(self, tx: Transaction, item: OutItem, envelope: Envelope) -> None:
        """A node has our offer, or how the ticket ended, on its disk."""
        ticket = self._state.home.rows.get(item.ticket)
        if ticket is None:
            return
        known, is_offer = ticket.arrived.get(item.node), item.kind == "offer"
        if ticket.any and known is None and not is_offer:
            # It had nobody free, and has nothing.
            return
        # What it said since, its reply perhaps, was on its disk later than this.
        if known is None or (known.life, known.seq) < (envelope.started, envelope.anchor.seq):
            arrived = {**ticket.arrived, item.node: self._arrival(envelope)}
            tx.put(self._state.home, item.ticket, _replace(ticket, arrived=arrived))
        # It may have been rolled back in between, and not know what it said in the life before. And before it took an
        # offer to any node, it may have been told how that ended, and had nothing to end.
        if (known is not None and known.life < envelope.started) or (ticket.any and is_offer):
            self._say_end(tx, item.ticket, ticket, item.node)

    def offer_elsewhere(self, tx: Transaction, item: OutItem) -> bool:
        """Nobody is free there, or nobody answers: another node of the group gets the offer. False if none is left
        that was not asked."""
        ticket = self._state.home.rows.get(item.ticket)
        message = self._mail.outgoing(item.ticket)
        if ticket is None or message is None or not ticket.any:
            return False
        for node in self._nodes.candidates(ticket.handle):
            if node not in ticket.nodes and self._try_offer(tx, message, ticket, node):
                return True
        return False

    def pass_on(self, tx: Transaction, item: OutItem) -> bool:
        """This node will never take it: another one of the group gets the offer, unless one has it. False if none is
        left."""
        ticket = self._state.home.rows.get(item.ticket)
        message = self._mail.outgoing(item.ticket)
        if ticket is None or message is None or not ticket.any:
            return False
        ticket = _replace(ticket, refused=(*ticket.refused, item.node))
        tx.put(self._state.home, item.ticket, ticket)
        return bool(ticket.arrived) or self._offer_to_other(tx, message, ticket)

    def _offer_to_other(self, tx: Transaction, message: Outgoing, ticket: HomeTicket) -> bool:
        """First to those that were not asked."""
        having = (each for each in self._nodes.candidates(ticket.handle) if each not in ticket.refused)
        others = sorted(having, key=lambda each: each in ticket.nodes)
        return any(self._try_offer(tx, message, ticket, each) for each in others)

    def _try_offer(self, tx: Transaction, message: Outgoing, ticket: HomeTicket, node: str) -> bool:
        """False where there is no room for it: there is no caller here who could be told."""
        try:
            self._offer(tx, message, ticket, node)
        except (Overloaded, TooLarge):
            return False
        return True

    def drop_node(self, tx: Transaction, ticket_id: str, ticket: HomeTicket, revoked: str) -> bool:
        """A node that had the offer was revoked. False if no other node has it, or gets it now."""
        nodes = tuple(each for each in ticket.nodes if each != revoked)
        arrived = {each: when for each, when in ticket.arrived.items() if each != revoked}
        was_last = ticket.nodes[-1] == revoked
        ticket = _replace(ticket, nodes=nodes, arrived=arrived)
        tx.put(self._state.home, ticket_id, ticket)
        if not was_last:
            return True
        message = self._mail.outgoing(ticket_id)
        is_offered = ticket.any and message is not None and self._offer_to_other(tx, message, ticket)
        return is_offered or bool(arrived)

    def ask_around(self, tx: Transaction, item: OutItem) -> bool:
        """Nobody is free there: a node that was not asked gets the offer. Once all were, the one that was asked longest
        ago, after a pause: somebody may be free there by now. False while this node keeps the offer."""
        if self.offer_elsewhere(tx, item):
            return True
        ticket = self._state.home.rows.get(item.ticket)
        message = self._mail.outgoing(item.ticket)
        if ticket is None or message is None:
            # Answered by another one, withdrawn or over: whoever is free there later need not have it.
            return True
        if not ticket.any or self._clock.wall_ms() - item.at < ASK_AROUND_MS:
            return False
        having = self._nodes.candidates(ticket.handle)
        others = [node for node in ticket.nodes if node not in (item.node, *ticket.refused) and node in having]
        if not others:
            return False
        return self._try_offer(tx, message, ticket, others[0])

    def again(self, tx: Transaction, node: str) -> int:
        """Offers go again that a node confirmed in a life before this one, behind the record that this one began with:
        it was rolled back."""
        count = 0
        for ticket_id in self._state.confirmed_offers.lost(node, self._state.peer(node)):
            ticket = self._state.home.rows[ticket_id]
            arrived = {each: when for each, when in ticket.arrived.items() if each != node}
            ticket = _replace(ticket, arrived=arrived)
            message = self._mail.outgoing(ticket_id)
            if message is None:
                tx.put(self._state.home, ticket_id, ticket)
            elif not self._try_offer(tx, message, ticket, node):
                # Its arrival stays, so that the next hello tries again.
                continue
            self._say_end(tx, ticket_id, ticket, node, alone=message is None)
            count += 1
        return count

    def _say_end(self, tx: Transaction, ticket_id: str, ticket: HomeTicket, node: str, *, alone: bool = False) -> None:
        """Tell a node how the ticket ended; nothing while it is open."""
        known = self._mail.known(ticket_id)
        if known is None or known.status in ("pending", "delivered"):
            return
        item: Confirmed
        if known.status == "cancelled":
            item = Cancel(
                id=self._outbox.new_id(), ticket=ticket_id, rank=ticket.rank, reason=known.reason, use_by=ticket.use_by
            )
        else:
            item = Over(
                id=self._outbox.new_id(),
                ticket=ticket_id,
                rank=ticket.rank,
                use_by=ticket.use_by,
                status=known.status,
                late=known.late,
                alone=alone,
                any=ticket.any,
            )
        self._outbox.add(tx, node, item, ticket.use_by)

    def late_items(self) -> list[OutItem]:
        """Of a group of any node: offers that nobody confirmed for a while."""
        before = self._clock.wall_ms() - REOFFER_MS
        return [
            item
            for item in self._state.out.rows.values()
            if item.kind == "offer"
            and item.at <= before
            and (ticket := self._state.home.rows.get(item.ticket)) is not None
            and ticket.any
        ]

    # -- inside --

    def _after_change(self, tx: Transaction, node: str, params: AckedParams | ReplyParams, before: str | None) -> None:
        item = params.item
        ticket, known = self._state.home.rows.get(item.ticket), self._mail.known(item.ticket)
        if ticket is not None and known is not None:
            # If it is rolled back to before this, it has forgotten what it just said.
            arrived = {**ticket.arrived, node: self._arrival(params.envelope)}
            rank = ticket.rank + (known.status != before)
            ticket = _replace(ticket, rank=rank, arrived=arrived)
            if ticket.any and isinstance(item, Reply):
                ticket = _replace(ticket, replies={**ticket.replies, node: item.number})
            tx.put(self._state.home, item.ticket, ticket)
            for other in ticket.nodes if ticket.any and known.status != before else ():
                if other != node:
                    # Who has not read it yet need not.
                    self._say_end(tx, item.ticket, ticket, other)
            if params.envelope.started < self._state.peer(node).started:
                # It may have been rolled back since, and not know that it said this.
                self._say_end(tx, item.ticket, ticket, node, alone=True)
        # As the ticket is with this commit: what changes it before this one has landed may never be on disk.
        tx.after.append(partial(self._courier.confirm, node, self.taken(item)))

    def _arrival(self, envelope: Envelope) -> Arrival:
        return Arrival(self._clock.wall_ms(), envelope.anchor.seq, envelope.started)

    def _record(self, tx: Transaction, item: Acked | Reply, envelope: Envelope) -> None:
        tx.subject = item.ticket
        tx.details = {**(tx.details or {}), **envelope.details()}
