"""The mesh's tables."""

from typing import Any

import msgspec

from bascule.kernel.journal import Table
from bascule.kernel.journal_ports import JournalStore
from bascule.mesh.records import Copy, Cursor, HomeTicket, Membership, OutItem, OwnLife, Peer


class Confirmed:
    """What each node has confirmed, by the life in which it did.

    A hello asks what its node has lost. A look at every row for that was free for who sends hellos, and not for us.
    """

    def __init__(self) -> None:
        # By node and life: the keys with the ends of its ledger, and the highest of these that was ever among them.
        self._lives: dict[str, dict[int, tuple[dict[str, int], int]]] = {}

    def add(self, node: str, life: int, seq: int, key: str) -> None:
        lives = self._lives.setdefault(node, {})
        keys, highest = lives.get(life, ({}, 0))
        keys[key] = seq
        lives[life] = (keys, max(highest, seq))

    def remove(self, node: str, life: int, key: str) -> None:
        lives = self._lives[node]
        keys = lives[life][0]
        del keys[key]
        if not keys:
            del lives[life]
            if not lives:
                del self._lives[node]

    def lost(self, node: str, peer: Peer) -> list[str]:
        """What it confirmed and has lost since."""
        return [
            key
            for life, (keys, highest) in self._lives.get(node, {}).items()
            if peer.has_lost(life, highest)
            for key, seq in keys.items()
            if peer.has_lost(life, seq)
        ]


class MeshState:
    def __init__(self, store: JournalStore) -> None:
        self.membership: Table[Membership] = Table("mesh_membership", Membership)
        self.out: Table[OutItem] = Table("mesh_out", OutItem)
        self.home: Table[HomeTicket] = Table("mesh_home", HomeTicket, self._home_changed)
        self.copies: Table[Copy] = Table("mesh_copies", Copy, self._copy_changed)
        self.peers: Table[Peer] = Table("mesh_peers", Peer)
        self.cursors: Table[Cursor] = Table("mesh_cursors", Cursor)
        self.lives: Table[OwnLife] = Table("mesh_lives", OwnLife)
        # By node: how many copies are kept.
        self.copies_of: dict[str, int] = {}
        self.confirmed_offers = Confirmed()
        self.confirmed_replies = Confirmed()
        tables: tuple[Table[Any], ...] = (
            self.membership,
            self.out,
            self.home,
            self.copies,
            self.peers,
            self.cursors,
            self.lives,
        )
        for table in tables:
            for key, row in store.load(table.name, table.type):
                table.apply(key, row)

    def peer(self, node: str) -> Peer:
        return self.peers.rows.get(node) or _NEW_PEER

    def _home_changed(self, key: str, old: HomeTicket | None, new: HomeTicket | None) -> None:
        before = old.arrived if old is not None else {}
        after = new.arrived if new is not None else {}
        if before is after:
            return
        for node, arrival in before.items():
            self.confirmed_offers.remove(node, arrival.life, key)
        for node, arrival in after.items():
            self.confirmed_offers.add(node, arrival.life, arrival.seq, key)

    def _copy_changed(self, key: str, old: Copy | None, new: Copy | None) -> None:
        if old is not None and old.confirmed:
            self.confirmed_replies.remove(old.node, old.life, key)
        if new is not None and new.confirmed:
            self.confirmed_replies.add(new.node, new.life, new.seq, key)
        for copy, step in ((old, -1), (new, 1)):
            if copy is not None:
                left = self.copies_of.get(copy.node, 0) + step
                if left:
                    self.copies_of[copy.node] = left
                else:
                    del self.copies_of[copy.node]


_NEW_PEER = Peer()
TABLES: dict[str, type[msgspec.Struct]] = {
    "mesh_membership": Membership,
    "mesh_out": OutItem,
    "mesh_home": HomeTicket,
    "mesh_copies": Copy,
    "mesh_peers": Peer,
    "mesh_cursors": Cursor,
    "mesh_lives": OwnLife,
}
