"""Envelopes on their way: what one commit made due for a node rides together, and its receipts with it."""

from collections.abc import Callable, Iterable
from functools import partial

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import TooLarge
from bascule.foundation.timers import Deadline, Timers
from bascule.kernel.journal import Journal, Table
from bascule.mesh.envelope import OVERHEAD
from bascule.mesh.nodes import Node, Nodes
from bascule.mesh.outbox import Outbox
from bascule.mesh.own_lives import OwnLives
from bascule.mesh.ports import Post
from bascule.mesh.protocol import MAX_ITEMS, VERSION, Anchor, Item, Receipt, Taken
from bascule.mesh.records import OutItem
from gabp import codec

# Receipts wait this long for something to ride with; they are in nobody's way.
RECEIPTS_MS = 50
# In one that goes directly: the other machine answers what came with the first one while it reads the second.
MAX_LIVE_ITEMS = 16
# An envelope is not filled further than this: one that is lost costs less, and the receiver's loop turns.
MAX_BATCH_BYTES = 256 * 1024
# What `{"v":1,"half":"…","held":"…","anchor":[…],"items":[]}` takes beside its items.
_FRAME_BYTES = 512


class Courier:
    def __init__(
        self,
        *,
        table: Table[OutItem],
        outbox: Outbox,
        nodes: Nodes,
        post: Post,
        journal: Journal,
        timers: Timers,
        lives: OwnLives,
    ) -> None:
        self._items = table
        self._outbox = outbox
        self._nodes = nodes
        # Set again with every new one.
        self.post = post
        self._journal = journal
        self._timers = timers
        self._lives = lives
        # By node: what is to be sent in the next turn, directly or into the mailbox.
        self._due: dict[str, dict[str, bool]] = {}
        self._flushing: set[str] = set()
        self._receipts: dict[str, list[Taken]] = {}
        self._receipts_due: dict[str, Deadline] = {}
        # False while nothing may be sent: this node is a clone, or revoked.
        self.allowed: Callable[[], bool] = lambda: True
        outbox.on_due = self._item_due

    def confirm(self, node: str, taken: Taken) -> None:
        """Say that an item is on our disk, or why it is not."""
        self._receipts.setdefault(node, []).append(taken)
        if len(self._receipts[node]) >= MAX_ITEMS:
            self._flush_soon(node)
        elif node not in self._receipts_due:
            self._receipts_due[node] = self._timers.after_ms(RECEIPTS_MS, partial(self._receipts_are_due, node))

    def _receipts_are_due(self, node: str, _now: float) -> None:
        self._receipts_due.pop(node, None)
        self._flush_soon(node)

    def _pop_receipts(self, name: str) -> list[Taken]:
        deadline = self._receipts_due.pop(name, None)
        if deadline is not None:
            self._timers.call_off(deadline)
        return self._receipts.pop(name, [])

    def send_unconfirmed(self, node: Node, item: Item) -> None:
        """What is not confirmed: directly if the node is there, and into its mailbox if it may be away."""
        if not self.allowed():
            return
        letter = self._signed(node, [codec.encode(item)])
        self.post.send(node.card.node, letter)
        if not self._nodes.is_reachable(node):
            self.post.mail(node.card.node, letter)

    def _item_due(self, name: str, item_ids: Iterable[str], mail: bool) -> None:
        due = self._due.setdefault(name, {})
        for item_id in item_ids:
            due[item_id] = mail or due.get(item_id, False)
        self._flush_soon(name)

    def _flush_soon(self, name: str) -> None:
        """Behind the batch that landed, or in a turn of its own: what is committed together is sent together."""
        if name not in self._flushing:
            self._flushing.add(name)
            if self._journal.landing:
                self._journal.on_landed.append(partial(self._flush, name))
            else:
                self._timers.after_ms(0, lambda _now: self._flush(name))

    def _flush(self, name: str) -> None:
        self._flushing.discard(name)
        due = self._due.pop(name, {})
        node = self._nodes.get(name)
        if node is None or not self.allowed() or not self.post.state.open:
            # What waits stays in the outbox; receipts are asked for again by those who want them.
            self._pop_receipts(name)
            return
        reachable = self._nodes.is_reachable(node)
        rows = self._items.rows
        # Cancels first: an offer is handed over when it comes, and the cancel behind it would be too late.
        there = [each for each in due if each in rows]
        cancels = [each for each in there if rows[each].kind == "cancel"]
        ordered = cancels + [each for each in there if rows[each].kind != "cancel"] if cancels else there
        mail = [each for each in ordered if due[each] or not reachable]
        live = ordered if reachable else []
        if mail:
            # It is away, or has not said that it has them: in another life it cannot open what is not signed.
            node.pair.end_session()
        if live or name in self._receipts:
            self._send(node, live, mail=not reachable)
        if mail:
            # A node that did not answer within a second gets both ways: it may be there, and NATS may be not.
            self._mail(node, mail)

    def _send(self, node: Node, item_ids: list[str], *, mail: bool) -> None:
        most = MAX_ITEMS if mail else MAX_LIVE_ITEMS
        for batch in self._batches(node.card.node, item_ids, most, receipts=True):
            if mail:
                self.post.mail(node.card.node, self._signed(node, batch[1]))
            elif node.pair.in_session:
                self.post.send(node.card.node, node.pair.seal_in_session(self._body(b"", batch[1])))
            else:
                self.post.send(node.card.node, self._signed(node, batch[1]))

    def _mail(self, node: Node, item_ids: list[str]) -> None:
        name = node.card.node
        for ids, items in self._batches(name, item_ids, MAX_ITEMS, receipts=False):
            mailed = self.post.mail(name, self._signed(node, items))
            mailed.add_done_callback(partial(self._mailed, name, ids))

    def _mailed(self, name: str, ids: list[str], mailed: Deferred[None]) -> None:
        # A failure is in the post's state, and the item goes again.
        if not mailed.cancelled() and mailed.exception() is None:
            self._outbox.was_mailed(name, ids)

    def _batches(
        self, name: str, item_ids: list[str], most: int, *, receipts: bool
    ) -> Iterable[tuple[list[str], list[bytes]]]:
        """Items as they go into one envelope each, with the ids of those that are kept until they are confirmed."""
        items: list[bytes] = []
        ids: list[str] = []
        size = 0
        for item_id, data in self._pieces(name, item_ids, receipts=receipts):
            if items and (len(items) >= most or size + len(data) > MAX_BATCH_BYTES):
                yield ids, items
                items, ids, size = [], [], 0
            items.append(data)
            size += len(data)
            if item_id is not None:
                ids.append(item_id)
        if items:
            yield ids, items

    def _pieces(self, name: str, item_ids: list[str], *, receipts: bool) -> Iterable[tuple[str | None, bytes]]:
        """Receipts, which nobody waits for, and then items by their ids."""
        taken = self._pop_receipts(name) if receipts else []
        for at in range(0, len(taken), MAX_ITEMS):
            yield None, codec.encode(Receipt(taken=taken[at : at + MAX_ITEMS]))
        for item_id in item_ids:
            yield item_id, self._items.rows[item_id].data

    def _signed(self, node: Node, items: list[bytes]) -> bytes:
        halves = b'"half":"%b","held":"%b",' % (node.pair.own_half.encode(), node.pair.peer_half.encode())
        return node.pair.seal(self._body(halves, items))

    def _body(self, halves: bytes, items: list[bytes]) -> bytes:
        anchor = codec.encode(Anchor.of(self._journal.durable_head))
        return b'{"v":%d,"started":%d,%b"anchor":%b,"items":[%b]}' % (
            *(VERSION, self._lives.started, halves, anchor, b",".join(items)),
        )

    @property
    def max_item_bytes(self) -> int:
        return self.post.max_bytes - OVERHEAD - _FRAME_BYTES

    def check_size(self, item: bytes) -> None:
        if len(item) > self.max_item_bytes:
            raise TooLarge(
                f"the message is {len(item)} bytes with its envelope; the server between the machines takes "
                f"{self.max_item_bytes}",
                hint="send a reference to a file, or have the server's max_payload raised",
            )
