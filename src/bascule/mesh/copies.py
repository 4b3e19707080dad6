"""Tickets from elsewhere: this daemon delivers them, and their home decides how they end."""

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache, partial

import msgspec

from bascule.foundation.clock import Clock
from bascule.foundation.errors import Conflict
from bascule.foundation.ids import COPY_ID_PREFIX
from bascule.kernel.call import Call, Principal, agent_of, agent_principal
from bascule.kernel.journal import Transaction
from bascule.kernel.ports import Incoming, IncomingReply, RemoteMail
from bascule.mesh.cards import Card
from bascule.mesh.courier import Courier
from bascule.mesh.home import USE_FOR_MS
from bascule.mesh.nodes import Nodes
from bascule.mesh.outbox import Outbox
from bascule.mesh.protocol import STATUSES, Acked, Cancel, Offer, Over, Reply, Taken
from bascule.mesh.records import Copy, OutItem
from bascule.mesh.rows import CancelParams, Envelope, OfferParams, OverParams, calling_node
from bascule.mesh.skew import SKEW_STOP_MS
from bascule.mesh.state import MeshState
from gabp import codec

_replace = msgspec.structs.replace
# Of an id as `new_ticket_id` makes it.
_TIME = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7")
# Of one node, kept until their time: each is a few hundred bytes. Over it the oldest are dropped, and offers as old as
# those are not taken any more.
MAX_COPIES_PER_NODE = 200_000
# Of a copy that somebody may still answer.
_OPEN = frozenset({"pending", "delivered", "timeout"})
# What an honest home says, by a clock that is as wrong as one may be.
LONGEST_USE_MS = USE_FOR_MS + SKEW_STOP_MS


@lru_cache(maxsize=1_024)
def copy_id(sign_key: str, ticket: str) -> str:
    """Ours for a ticket of theirs: nobody can choose it to be the id of another ticket here.

    It begins with the time in theirs, where there is one, so that what comes together lies together on disk too."""
    digest = hashlib.sha256(f"{sign_key}\0{ticket}".encode()).hexdigest()[:32]
    at = _TIME.match(ticket)
    return f"{COPY_ID_PREFIX}{at[1]}{at[2]}{digest}" if at is not None else COPY_ID_PREFIX + digest


def principal_of(item: Offer, node: str) -> Principal:
    """Who sent it, as everybody here sees it: a stranger, never `person`."""
    if item.sender_kind == "agent":
        return agent_principal(f"{item.sender}@{node}")
    return Principal(f"{item.sender_kind}@{node}")


def end_copies(tx: Transaction, state: MeshState, mail: RemoteMail, ids: Iterable[str], why: str) -> None:
    """Their home will never say how they end: what agents here say to them goes nowhere any more."""
    for id_ in ids:
        known = mail.known(id_)
        if known is not None and known.status in _OPEN:
            mail.mirror(tx, id_, "cancelled", late=False, reason=why)
        tx.put(state.copies, id_, None)


class Copies:
    def __init__(
        self,
        *,
        state: MeshState,
        clock: Clock,
        mail: RemoteMail,
        nodes: Nodes,
        outbox: Outbox,
        courier: Courier,
        max_copies: int = MAX_COPIES_PER_NODE,
    ) -> None:
        self._state = state
        self._clock = clock
        self._mail = mail
        self._nodes = nodes
        self._outbox = outbox
        self._courier = courier
        self._max_copies = max_copies

    def id_of(self, node: str, ticket: str) -> str:
        return copy_id(self._nodes.last_key(node), ticket)

    # -- what home says --

    def offer(self, call: Call, params: OfferParams, tx: Transaction) -> None:
        item, node = params.item, calling_node(call)
        id_ = self.id_of(node, item.ticket)
        tx.subject = id_
        tx.details = {"to": item.target, "bytes": len(item.payload), **_origin(item, params.envelope)}
        self._mail.deliver(
            tx,
            Incoming(
                ticket_id=id_,
                sender=call.principal,
                target=item.target,
                payload=bytes(item.payload),
                metadata=item.metadata,
                expect_reply=item.expect_reply,
                left_ms=item.left_ms,
                conversation_id=item.conversation,
                # The next letter of a mailbox may withdraw what the one before it brings.
                kept_there=not params.envelope.mailed,
            ),
        )
        self._keep(tx, id_, Copy(node=node, home=item.ticket, use_by=item.use_by))
        tx.after.append(partial(self._courier.confirm, node, Taken(id=item.id, ticket=item.ticket)))

    def refuse(self, tx: Transaction, node: str, item: Offer, why: str, text: str) -> None:
        """For good: the same offer gets the same answer until its time is over."""
        refused = Copy(node=node, home=item.ticket, use_by=item.use_by, refused=why, text=text)
        self._keep(tx, self.id_of(node, item.ticket), refused)
        tx.after.append(
            partial(self._courier.confirm, node, Taken(id=item.id, ticket=item.ticket, refused=why, text=text))
        )

    def cancel(self, call: Call, params: CancelParams, tx: Transaction) -> None:
        item, node = params.item, calling_node(call)
        id_ = self.id_of(node, item.ticket)
        tx.subject = id_
        tx.details = _origin(item, params.envelope)
        known = self._state.copies.rows.get(id_)
        if known is None:
            # Before its offer, which must not be delivered when it comes.
            known = Copy(node=node, home=item.ticket, use_by=item.use_by)
        else:
            self._mail.mirror(tx, id_, "cancelled", late=False, reason=item.reason)
        self._keep(tx, id_, _replace(known, rank=item.rank))
        tx.after.append(partial(self._courier.confirm, node, Taken(id=item.id, ticket=item.ticket)))

    def over(self, call: Call, params: OverParams, tx: Transaction) -> None:
        item, node = params.item, calling_node(call)
        id_ = self.id_of(node, item.ticket)
        tx.subject = id_
        tx.details = _origin(item, params.envelope)
        known = self._state.copies.rows.get(id_)
        if known is None:
            # It is over at home, and was lost here: it must not be delivered again.
            known = Copy(node=node, home=item.ticket, use_by=item.use_by)
        elif known.replies == known.confirmed:
            # A reply that is on its way will be late at home, and home will say so.
            self._mail.mirror(tx, id_, item.status, late=item.late, reason=None)
        self._keep(tx, id_, _replace(known, rank=item.rank))
        tx.after.append(partial(self._courier.confirm, node, Taken(id=item.id, ticket=item.ticket)))

    def confirmed(self, tx: Transaction, item: OutItem, taken: Taken, envelope: Envelope) -> bool:
        """Home has our acknowledgement or reply; it says how the ticket is now. True if that changed something."""
        id_ = self.id_of(item.node, item.ticket)
        copy = self._state.copies.rows.get(id_)
        if copy is None:
            return False
        changed = False
        if item.kind == "reply":
            life, seq = max((copy.life, copy.seq), (envelope.started, envelope.anchor.seq))
            copy = _replace(copy, confirmed=min(copy.confirmed + 1, copy.replies), seq=seq, life=life)
        if taken.status in STATUSES and taken.rank >= copy.rank and copy.replies == copy.confirmed:
            copy = _replace(copy, rank=taken.rank)
            known = self._mail.known(id_)
            if known is not None and (known.status, known.late) != (taken.status, taken.late):
                self._mail.mirror(tx, id_, taken.status, late=taken.late, reason=known.reason)
                changed = True
        tx.put(self._state.copies, id_, copy)
        return changed

    # -- what agents here do --

    def acked(self, tx: Transaction, id_: str) -> None:
        copy, known = self._state.copies.rows.get(id_), self._mail.known(id_)
        # Home does not ask who has read what was withdrawn; and one that was revoked would never confirm it.
        if copy is not None and copy.node and known is not None and known.status != "cancelled":
            self._outbox.add(tx, copy.node, Acked(id=self._outbox.new_id(), ticket=copy.home), copy.use_by)

    def replied(self, tx: Transaction, id_: str, reply: IncomingReply) -> None:
        copy = self._state.copies.rows.get(id_)
        if copy is None or not copy.node:
            why = "a message is of use for a week" if copy is None else "this machine has left its mesh"
            raise Conflict(f"ticket {id_} is over where it was sent: {why}", hint="send a new message instead")
        tx.put(self._state.copies, id_, _replace(copy, replies=reply.number))
        self._courier.check_size(self._send_reply(tx, copy, reply))

    def again(self, tx: Transaction, node: str) -> int:
        """The same for replies: home was rolled back, see `Home.again`."""
        count = 0
        for id_ in self._state.confirmed_replies.lost(node, self._state.peer(node)):
            copy = self._state.copies.rows[id_]
            replies = self._mail.replies(id_)
            tx.put(self._state.copies, id_, _replace(copy, confirmed=0, seq=0, life=0))
            for reply in replies:
                self._send_reply(tx, copy, reply)
                count += 1
        return count

    def revoked(self, tx: Transaction, card: Card) -> None:
        """Another machine may take its name, and must not get what was for this one."""
        theirs = [
            id_
            for id_, copy in self._state.copies.rows.items()
            if copy.node == card.node and copy_id(card.sign, copy.home) == id_
        ]
        end_copies(tx, self._state, self._mail, theirs, f"{card.node} was revoked")

    def sweep(self, tx: Transaction) -> int:
        now = self._clock.wall_ms()
        over = [id_ for id_, copy in self._state.copies.rows.items() if copy.use_by <= now]
        for id_ in over:
            tx.put(self._state.copies, id_, None)
        return len(over)

    # -- inside --

    def _send_reply(self, tx: Transaction, copy: Copy, reply: IncomingReply) -> bytes:
        """The item as it is sent."""
        item = Reply(
            id=self._outbox.new_id(),
            ticket=copy.home,
            number=reply.number,
            sender=agent_of(reply.sender) or str(reply.sender),
            payload=msgspec.Raw(reply.payload),
            metadata=reply.metadata,
        )
        data = codec.encode(item)
        self._outbox.add(tx, copy.node, item, copy.use_by, data)
        return data

    def _keep(self, tx: Transaction, id_: str, copy: Copy) -> None:
        if id_ not in self._state.copies.rows and self._state.copies_of.get(copy.node, 0) >= self._max_copies:
            self._drop_oldest(tx, copy.node)
        # Home says how long, and a home that lies says for ever.
        longest = self._clock.wall_ms() + LONGEST_USE_MS
        tx.put(self._state.copies, id_, copy if copy.use_by <= longest else _replace(copy, use_by=longest))

    def _drop_oldest(self, tx: Transaction, node: str) -> None:
        """A tenth at once, so that this is rare."""
        mine = sorted((copy.use_by, id_) for id_, copy in self._state.copies.rows.items() if copy.node == node)[
            : max(1, self._max_copies // 10)
        ]
        for _, id_ in mine:
            tx.put(self._state.copies, id_, None)
        peer = self._state.peer(node)
        tx.put(self._state.peers, node, _replace(peer, floor=max(peer.floor, mine[-1][0])))


def _origin(item: Offer | Cancel | Over, envelope: Envelope) -> dict[str, object]:
    """Both sides' records refer to each other: the ticket at home, and the end of home's ledger then."""
    return {"home": item.ticket, **envelope.details()}
