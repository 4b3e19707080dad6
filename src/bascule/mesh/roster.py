"""Who is in the mesh, as far as this node knows: cards that the mesh key signed, and the list of those revoked.

A card counts while its key is not on the list and its time is not over. A list with a lower number than the one that is
known is an old one, and so is a card with a lower serial: whoever repeats what was on a board before gains nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from bascule.foundation.clock import Clock
from bascule.kernel.journal import Table, Transaction
from bascule.kernel.journal_ports import JournalStore
from bascule.mesh.cards import BadCard, Card, Revoked, read_card, read_revoked
from bascule.mesh.membership_records import KnownCard

TABLE: Final = "mesh_cards"
# Not a name that a node can have.
REVOKED_KEY: Final = "_revoked"
# Nodes of one mesh: what was measured, with room. Each card is a row that every node keeps.
MAX_NODES = 5_000


class Roster:
    def __init__(self, store: JournalStore, clock: Clock, identity: Callable[[], tuple[str, str] | None]) -> None:
        """`identity`: the name and the public key of our mesh; None while there is none."""
        self._clock = clock
        self._identity = identity
        self.table: Table[KnownCard] = Table(TABLE, KnownCard, self._changed)
        self._cards: dict[str, Card] = {}
        self._revoked: Revoked | None = None
        self._revoked_keys: frozenset[str] = frozenset()
        # Called with a node when what is known of it has changed and is durable; with `_revoked` for the list.
        self.on_change: list[Callable[[str], None]] = []
        self._loading = list(store.load(TABLE, KnownCard))

    def load(self) -> None:
        """Once our own place is known, for what is stored is read with the key of our mesh; once in a life."""
        for key, row in self._loading:
            self.table.apply(key, row)
        self._loading.clear()

    # -- looking --

    def card(self, node: str) -> Card | None:
        """The card that letters of this node are checked with; None: there is none that counts now."""
        card = self._cards.get(node)
        if card is None or self.is_revoked(card) or card.not_after <= self._clock.wall_ms():
            return None
        return card

    def known(self, node: str) -> Card | None:
        """The newest card of that name, whether it counts or not."""
        return self._cards.get(node)

    def all(self) -> Iterator[Card]:
        return iter(self._cards.values())

    def is_revoked(self, card: Card) -> bool:
        return self.is_revoked_key(card.sign)

    def is_revoked_key(self, sign: str) -> bool:
        return sign in self._revoked_keys

    @property
    def revoked_keys(self) -> frozenset[str]:
        return self._revoked_keys

    def revocations(self) -> tuple[int, bytes]:
        """The newest list of revoked cards: its number, and as it was signed. 0: there is none."""
        row = self.table.rows.get(REVOKED_KEY)
        return (0, b"") if row is None or self._revoked is None else (self._revoked.number, row.signed)

    def signed(self, key: str) -> bytes | None:
        row = self.table.rows.get(key)
        return None if row is None else row.signed

    # -- changing --

    def learn(self, tx: Transaction, key: str, data: bytes) -> bool:
        """What a board or an answer brought; whether it is new. `BadCard` for what the mesh key has not signed."""
        mesh, mesh_key = self._must_have_identity()
        if key == REVOKED_KEY:
            return self._learn_revoked(tx, read_revoked(mesh_key, mesh, data), data)
        card = read_card(mesh_key, mesh, data)
        if card.node != key:
            raise BadCard(f"the card of {card.node} under the name {key}")
        old = self._cards.get(key)
        if old is not None and card.serial <= old.serial:
            return False
        if old is None and len(self._cards) >= MAX_NODES:
            raise BadCard(f"more than {MAX_NODES} nodes")
        self.put(tx, key, data)
        return True

    def _learn_revoked(self, tx: Transaction, revoked: Revoked, data: bytes) -> bool:
        """A key that was revoked stays so, whatever a newer list says: the machine that signs them may have forgotten
        one, because it was put back from a backup."""
        number, newest = self.revocations()
        if revoked.number <= number and self._revoked_keys.issuperset(revoked.keys):
            return False
        self.put(tx, REVOKED_KEY, data if revoked.number > number else newest, self._revoked_keys.union(revoked.keys))
        return True

    def put(self, tx: Transaction, key: str, data: bytes, revoked: Iterable[str] = ()) -> None:
        """What this node itself has signed or checked."""
        tx.put(self.table, key, KnownCard(signed=data, at=self._clock.wall_ms(), revoked=sorted(revoked)))
        tx.after.append(partial(self._notify, key))

    def clear(self, tx: Transaction) -> None:
        for key in list(self.table.rows):
            tx.put(self.table, key, None)
            tx.after.append(partial(self._notify, key))

    def _notify(self, key: str) -> None:
        for each in self.on_change:
            each(key)

    def _must_have_identity(self) -> tuple[str, str]:
        identity = self._identity()
        if identity is None:
            raise BadCard("this node is in no mesh")
        return identity

    def _changed(self, key: str, _old: KnownCard | None, new: KnownCard | None) -> None:
        """The index over the table; also when a change is undone."""
        identity = self._identity()
        if key == REVOKED_KEY:
            self._revoked = (
                None if new is None or identity is None else read_revoked(identity[1], identity[0], new.signed)
            )
            self._revoked_keys = frozenset() if self._revoked is None else frozenset(self._revoked.keys)
            if new is not None:
                self._revoked_keys |= frozenset(new.revoked)
        elif new is None or identity is None:
            self._cards.pop(key, None)
        else:
            self._cards[key] = read_card(identity[1], identity[0], new.signed)
