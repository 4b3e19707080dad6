"""One membership at work: the broker's port `Elsewhere` on one side, the reader of the post on the other.

Says who is here, hears who else is, and notices when a node was restored from a backup, revoked or copied. Letters are
read in `arrivals`, what agents here say goes through `home` and `copies` into the outbox.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from bascule import __version__
from bascule.foundation.clock import Clock
from bascule.foundation.ids import new_id
from bascule.foundation.timers import Timers
from bascule.kernel.call import DAEMON
from bascule.kernel.event_ring import EventRing, Fact, Kind
from bascule.kernel.gate import Gate
from bascule.kernel.journal import Journal, Transaction
from bascule.kernel.journal_ports import Log
from bascule.kernel.ports import IncomingReply, Outgoing, RemoteAgent, RemoteDelivery, RemoteMail
from bascule.mesh.arrivals import Arrivals
from bascule.mesh.cards import Card, sign_directory
from bascule.mesh.closed_post import CLOSED
from bascule.mesh.copies import Copies
from bascule.mesh.courier import Courier
from bascule.mesh.home import Home
from bascule.mesh.identity import Identity
from bascule.mesh.listing import free_groups, signed_listing
from bascule.mesh.meetings import Meetings
from bascule.mesh.nodes import LIFE_SIGN_SECONDS, Cards, Node, Nodes
from bascule.mesh.outbox import Outbox
from bascule.mesh.own_lives import OwnLives
from bascule.mesh.pauses import Pauses
from bascule.mesh.ports import Board, Post
from bascule.mesh.protocol import MAX_LIVES, MAX_REVOKED_LIST, Anchor, Hello, LifeSign, ListedAgent, Listing
from bascule.mesh.records import Cursor
from bascule.mesh.skew import SKEW_STOP_MS
from bascule.mesh.state import MeshState

_replace = msgspec.structs.replace
# The list of agents is put on its board this long after a change: a client that reconnects is one change.
LISTING_MS = 500
# A list of revoked cards is sent to one node once in so long, however often it says that it has an older one.
REVOCATIONS_SECONDS = 60.0
# The cursor follows the letters at this distance: one commit for many, and what is read twice is done once.
CURSOR_MS = 50


class Engine:
    """Implements `kernel.ports.Elsewhere` and `mesh.ports.Reader`."""

    def __init__(
        self,
        identity: Identity,
        *,
        state: MeshState,
        cards: Cards,
        mail: RemoteMail,
        gate: Gate,
        journal: Journal,
        clock: Clock,
        timers: Timers,
        events: EventRing,
        log: Log,
        max_items: int,
        max_bytes: int,
    ) -> None:
        self.identity = identity
        self.life = new_id("lif")
        self.lives = OwnLives(state.lives, journal, clock)
        self.post: Post = CLOSED
        self._state = state
        self._mail = mail
        self._journal = journal
        self._clock = clock
        self._timers = timers
        self._events = events
        self._log = log
        self.nodes = Nodes(identity, cards, clock)
        self.outbox = Outbox(state.out, clock, timers, max_items=max_items, max_bytes=max_bytes)
        self.courier = Courier(
            table=state.out,
            outbox=self.outbox,
            nodes=self.nodes,
            post=self.post,
            journal=journal,
            timers=timers,
            lives=self.lives,
        )
        parts: dict[str, Any] = {
            "state": state,
            "clock": clock,
            "mail": mail,
            "nodes": self.nodes,
            "outbox": self.outbox,
            "courier": self.courier,
        }
        self.home = Home(**parts)
        self.copies = Copies(**parts)
        self._arrivals = Arrivals(
            **parts,
            home=self.home,
            copies=self.copies,
            gate=gate,
            journal=journal,
            timers=timers,
            log=log,
            publish=events.publish,
            on_hello=self._receive_hello,
            on_lost_life=self._lost_life,
            on_stranger=self._ask_about,
        )
        # Of another person's machine the outbox has what waited for a yes.
        self.meetings = Meetings(state, journal, clock, self.nodes, call=self._arrivals.call, on_answer=self.hello)
        # Why nothing is sent or taken any more; None while all is well.
        self.halted: str | None = None
        # Called with the reason when this node must stop: its disk was copied.
        self.on_halt: Callable[[str], None] = lambda _why: None
        # Called with a node that is reachable again.
        self.on_seen: Callable[[str], None] = lambda _node: None
        # Called with a list of revoked cards that another node has sent.
        self.on_revocations: Callable[[bytes], None] = lambda _signed: None
        self._cards = cards
        # Nodes that have an older list than we; and when each got ours.
        self._to_inform: set[str] = set()
        self._informed_at: dict[str, float] = {}
        self._mailbox = ""
        self._read = 0
        self._cursor_due = False
        self._listing_due = False
        self._seen_ourselves = False
        self._other_life = ""
        self._closed = False
        self._signs_life = False
        self._pauses = Pauses(timers)
        # Nodes whose hello is to be answered.
        self._to_answer: set[str] = set()
        # How often each node has had this life begin later.
        self._moved_by: dict[str, int] = {}
        self.nodes.on_alive = self._alive
        self.nodes.on_ourselves = self._see_ourselves
        self.nodes.on_twin_stopped = self._twin_stopped
        self.nodes.has_free_member = mail.has_free_member
        self.courier.allowed = lambda: self.halted is None
        # Called with each hello, for `ledger verify --peers`.
        self.on_hello: list[Callable[[str, Hello], None]] = []

    # -- its life --

    def attach(self, post: Post) -> None:
        """There is a post now; it says when it is open."""
        self.post = self.courier.post = post
        if not self._signs_life:
            self._signs_life = True
            self.lives.record()
            self._timers.after_ms(LIFE_SIGN_SECONDS * 1000, self._life_sign_due)

    def detach(self) -> None:
        """There is none any more: what is said from now on waits in the outbox."""
        self._store_cursor(0.0)
        self.post = self.courier.post = CLOSED

    def close(self) -> None:
        """This node is not a member any more, or not this one."""
        self._pauses.close()
        self._closed = True
        self.detach()
        self.outbox.close()

    def halt(self, why: str) -> None:
        if self.halted is None:
            self.halted = why
            self._log("mesh_halted", level="error", why=why)
            self._publish("halted", text=why)
            self.on_halt(why)

    # -- what the post brings --

    def opened(self, mailbox: str) -> int:
        self._mailbox = mailbox
        known = self._state.cursors.rows.get(mailbox)
        self._read = known.number if known is not None else 0
        self._timers.after_ms(0, self._greet)
        return self._read

    def closed(self) -> None:
        self._publish("post_closed")

    def live(self, src: str, data: bytes) -> None:
        if self._takes_letters() and (node := self._arrivals.receive(src, data)) is not None:
            self.nodes.note_letter(node)

    def mailed(self, src: str, data: bytes, number: int) -> None:
        if self._takes_letters():
            self._arrivals.receive(src, data, mailed=True)
        self._read = max(self._read, number)
        if not self._cursor_due:
            self._cursor_due = True
            self._timers.after_ms(CURSOR_MS, self._store_cursor)

    def posted(self, board: Board, key: str, value: bytes | None, age_ms: int) -> None:
        # Cards are for whoever keeps them.
        if board is not Board.CARDS:
            self.nodes.posted(board, key, value, age_ms)

    def _takes_letters(self) -> bool:
        skew = self.post.state.skew_ms
        return self.halted is None and not self._closed and (skew is None or abs(skew) < SKEW_STOP_MS)

    def _store_cursor(self, _now: float) -> None:
        """Behind the commits of what was read: never ahead of them, for commits are durable in their order."""
        self._cursor_due = False
        known = self._state.cursors.rows.get(self._mailbox)
        if self._closed or not self._read or (known is not None and known.number >= self._read):
            return
        tx = Transaction()
        for mailbox in list(self._state.cursors.rows):
            if mailbox != self._mailbox:
                tx.put(self._state.cursors, mailbox, None)
        tx.put(self._state.cursors, self._mailbox, Cursor(self._read))
        self._journal.commit_quietly(tx)

    # -- hello, signs of life, rolling back --

    def _greet(self, _now: float) -> None:
        """The post is open: say that we are here, and since when."""
        self._give_up_too_large()
        self._put_listing(0.0)
        self._put_life_sign(first=True)
        for node in self.nodes.all():
            self.hello(node.card.node)
            self.outbox.again(node.card.node)

    def _give_up_too_large(self) -> None:
        """What was accepted while no server was known, or with one that took more, ends now and not after a week."""
        most = self.courier.max_item_bytes
        over = [each for each in self._state.out.rows.items() if len(each[1].data) > most]
        tx = Transaction()
        self._arrivals.receipts.give_up(tx, over, "too_large")
        for _, item in over:
            if item.kind == "offer":
                self._undeliverable(tx, item.ticket, f"the server between the machines takes {most} bytes")
        if tx.puts:
            self._journal.commit(tx, DAEMON, "mesh.too_large")

    def hello(self, name: str, *, answer: bool = False) -> None:
        node = self.nodes.get(name)
        if node is None:
            return
        held = self._state.peer(name)
        is_of_it = held.anchor_key == node.card.sign
        yours = Anchor(held.seq, held.head) if held.seq and is_of_it else None
        number, signed = self._cards.revocations()
        sends_list = name in self._to_inform and len(signed) <= MAX_REVOKED_LIST
        self._to_inform.discard(name)
        self.courier.send_unconfirmed(
            node,
            Hello(
                life=self.life,
                began=self.lives.began,
                started=self.lives.started,
                lives=self.lives.listed(),
                version=__version__,
                yours=yours,
                ends=held.ends if is_of_it else [],
                known_start=held.started if is_of_it else 0,
                revoked=number,
                revoked_list=signed.decode() if sends_list else "",
                answer=answer,
            ),
        )

    def _receive_hello(self, node: Node, hello: Hello) -> None:
        name = node.card.node
        self._learn_life(node, hello)
        moved = self._moved_by.get(name, 0)
        if moved < MAX_LIVES and self.lives.begin_behind(hello.known_start):
            # Else we stay an earlier life to that node, and it ignores how we began. More than once, for a letter of a
            # second life that was lost may come to it late; but one that lies must not have us greet all others without
            # end.
            self._moved_by[name] = moved + 1
            self._greet(0.0)
        for callback in self.on_hello:
            callback(name, hello)
        if hello.revoked_list:
            self.on_revocations(hello.revoked_list.encode())
        if hello.revoked < self._cards.revocations()[0] and self._may_inform(name):
            # Put back from a backup, perhaps, and a machine is a member to it that is not one any more.
            self._to_inform.add(name)
            self._to_answer.add(name)
        if hello.answer or hello.started < self._state.peer(name).started:
            # It asks, or does not know a life of its own that we have heard of.
            self._to_answer.add(name)
        self._pauses.act(name, partial(self._greeted, node))

    def _may_inform(self, name: str) -> bool:
        now = self._clock.monotonic()
        if now - self._informed_at.get(name, float("-inf")) < REVOCATIONS_SECONDS:
            return False
        self._informed_at[name] = now
        return True

    def _greeted(self, node: Node) -> None:
        self._answer(node)
        self.outbox.again(node.card.node)

    def _answer(self, node: Node) -> None:
        self._say_again(node)
        if node.card.node in self._to_answer:
            self._to_answer.discard(node.card.node)
            self.hello(node.card.node)

    def _alive(self, node: Node) -> None:
        if node.life_sign is not None:
            self._learn_life(node, node.life_sign)
        self._pauses.act(node.card.node, partial(self._greeted, node))
        self._publish("node_online", id_=node.card.node)
        self.on_seen(node.card.node)

    def _lost_life(self, node: Node) -> None:
        """Its letter is of a life before the newest that we heard of: it may live in it, and not know that one."""
        self._to_answer.add(node.card.node)
        self._pauses.act_unless_more_waits(node.card.node, partial(self._answer, node))

    def _learn_life(self, node: Node, sign: Hello | LifeSign) -> None:
        """A node whose new life begins with fewer records than it has told us of was rolled back: what it confirmed
        behind them goes again (`_say_again`). An earlier life began with fewer of course."""
        name, peer = node.card.node, self._state.peer(node.card.node)
        if sign.started <= peer.started:
            return
        if sign.life == peer.life:
            # It has lost nothing: it only begins behind a life that somebody else has heard of.
            peer = _replace(peer, earlier_starts=[*peer.earlier_starts, peer.started][-MAX_LIVES:])
        else:
            # The least of those that we did not hear of: it may have been rolled back in one before this.
            missed = [life.began for life in sign.lives if life.started > peer.started]
            peer = _replace(peer, life=sign.life, began=min([sign.began.seq, *missed]), earlier_starts=[])
        tx = Transaction()
        tx.put(self._state.peers, name, _replace(peer, started=sign.started))
        self._journal.commit_quietly(tx)

    def _say_again(self, node: Node) -> None:
        name = node.card.node
        self._arrivals.receipts.take_out()
        began = self._state.peer(name).began
        tx = Transaction()
        count = self.home.again(tx, name) + self.copies.again(tx, name)
        if tx.puts:
            tx.subject, tx.details = name, {"again": count, "began": began}
            self._journal.commit(tx, DAEMON, "mesh.restored")
            self._log("mesh_node_restored", level="warning", node=name, again=count)

    def _life_sign_due(self, _now: float) -> None:
        if self._closed:
            return
        self._timers.after_ms(LIFE_SIGN_SECONDS * 1000, self._life_sign_due)
        self._put_life_sign()

    def _put_life_sign(self, *, first: bool = False) -> None:
        if self.halted is not None or not self.post.state.open:
            return
        if first:
            self._seen_ourselves = False
        groups = {group for agent in self._mail.agents() for group in agent.groups}
        free = free_groups(filter(self._mail.has_free_member, groups))
        sign = LifeSign(
            life=self.life,
            began=self.lives.began,
            started=self.lives.started,
            lives=self.lives.listed(),
            version=__version__,
            free=free,
        )
        value = sign_directory(self.identity.keys.sign, self.identity.node, sign)
        self.post.put(Board.LIVE, self.identity.node, value)

    def _see_ourselves(self, sign: LifeSign) -> None:
        """Our own name on the board of the living. Another life than ours, after ours was seen there, is another
        daemon with our keys."""
        if sign.life == self.life:
            self._seen_ourselves = True
        elif self.lives.is_one_before(sign.started):
            # One of our own before this: whoever runs the server can repeat it for ever. A double has begun since.
            return
        elif self._seen_ourselves and sign.life != self._other_life:
            # Perhaps the last sign of our own life before, on its way for long. One that lives gives another.
            self._other_life = sign.life
        elif self._seen_ourselves:
            self._stop_as_twin()

    def _twin_stopped(self, life: str) -> None:
        if life == self.life:
            self._stop_as_twin()

    def _stop_as_twin(self) -> None:
        """And have the other one stop, which may have seen nothing yet: only a person knows which of the two stays."""
        if self.halted is None:
            listing = Listing(agents=[], twin=self._other_life)
            value = sign_directory(self.identity.keys.sign, self.identity.node, listing)
            self.post.put(Board.DIRECTORY, self.identity.node, value)
            self.halt("another daemon lives with the keys of this one: its disk was copied")

    def agents_changed(self) -> None:
        if not self._listing_due:
            self._listing_due = True
            self._timers.after_ms(LISTING_MS, self._put_listing)

    def _put_listing(self, _now: float) -> None:
        self._listing_due = False
        if self.halted is not None or self._closed:
            return
        agents = [
            ListedAgent(handle=each.agent_id, type=each.type, online=each.status == "online", groups=list(each.groups))
            for each in self._mail.agents()
        ]
        self.post.put(Board.DIRECTORY, self.identity.node, signed_listing(self.identity, agents))

    def _ask_about(self, stranger: Node) -> str | None:
        return self.meetings.ask(stranger)

    # -- the broker's port --

    def find(self, target: str) -> RemoteAgent | None:
        return self.nodes.find(target)

    def agents(self) -> "list[RemoteAgent]":
        return list(self.nodes.agents())

    def send(self, tx: Transaction, message: Outgoing) -> None:
        self.home.send(tx, message)

    def ended(self, tx: Transaction, ticket_id: str, status: str) -> None:
        self.home.ended(tx, ticket_id)

    def dropped(self, tx: Transaction, ticket_id: str) -> None:
        # Of a copy nothing: it stays until `use_by`, so that its offer is not taken a second time.
        self.home.dropped(tx, ticket_id)

    def acked(self, tx: Transaction, ticket_id: str) -> None:
        self.copies.acked(tx, ticket_id)

    def replied(self, tx: Transaction, ticket_id: str, reply: IncomingReply) -> None:
        self.copies.replied(tx, ticket_id, reply)

    def delivery(self, ticket_id: str) -> RemoteDelivery | None:
        return self.home.delivery(ticket_id)

    # -- now and then --

    def sweep(self, tx: Transaction) -> int:
        """What nobody will ever confirm ends visibly; copies whose time is over go."""
        self._arrivals.receipts.take_out()
        self.outbox.reconcile()
        while self._arrivals.newly_held:
            name = self._arrivals.newly_held.pop()
            tx.put(self._state.peers, name, self._state.peer(name))
        now = self._clock.wall_ms()
        over = [each for each in self._state.out.rows.items() if each[1].use_by <= now]
        self._arrivals.receipts.give_up(tx, over, "late")
        for _, item in over:
            if item.kind == "offer":
                self._undeliverable(tx, item.ticket, f"{item.node} was not reached in time")
        for item in self.home.late_items():
            self.home.offer_elsewhere(tx, item)
        return self.copies.sweep(tx)

    def _undeliverable(self, tx: Transaction, ticket_id: str, why: str) -> None:
        if self._mail.known(ticket_id) is not None:
            self._mail.refuse(tx, ticket_id, why)

    def card_changed(self, name: str) -> None:
        """A node has a card, another one, or none that counts any more."""
        if self.nodes.get(name) is not None:
            self.nodes.card_changed(name)
            self.hello(name)
            self.outbox.again(name)

    def revoked(self, card: Card) -> None:
        """It is not a node any more: what was open with it ends, visibly. Asked again at every start."""
        tx = Transaction()
        its = [each for each in self._state.out.rows.items() if each[1].node == card.node]
        self._arrivals.receipts.give_up(tx, its, "revoked")
        for ticket_id, ticket in list(self._state.home.rows.items()):
            if card.node in ticket.nodes and not self.home.drop_node(tx, ticket_id, ticket, card.node):
                self._undeliverable(tx, ticket_id, f"{card.node} was revoked")
                # To others that were asked, of which nothing was heard.
                self.home.ended(tx, ticket_id)
        self.copies.revoked(tx, card)
        self._arrivals.newly_held.discard(card.node)
        if card.node in self._state.peers.rows:
            tx.put(self._state.peers, card.node, None)
        if tx.puts:
            tx.subject = card.node
            self._journal.commit(tx, DAEMON, "mesh.revoked")
        self._publish("node_revoked", id_=card.node)

    def _publish(self, event: str, *, id_: str | None = None, text: str | None = None) -> None:
        self._events.publish(Fact(kind=Kind.NODE, event=event, id=id_, text=text))
