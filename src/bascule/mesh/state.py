"""The mesh's tables."""

from typing import Any

import msgspec

from bascule.kernel.journal import Table
from bascule.kernel.journal_ports import JournalStore
from bascule.mesh.records import Copy, Cursor, HomeTicket, Membership, OutItem, OwnLife, Peer


class MeshState:
    def __init__(self, store: JournalStore) -> None:
        self.membership: Table[Membership] = Table("mesh_membership", Membership)
        self.out: Table[OutItem] = Table("mesh_out", OutItem)
        self.home: Table[HomeTicket] = Table("mesh_home", HomeTicket)
        self.copies: Table[Copy] = Table("mesh_copies", Copy, self._copy_changed)
        self.peers: Table[Peer] = Table("mesh_peers", Peer)
        self.cursors: Table[Cursor] = Table("mesh_cursors", Cursor)
        self.lives: Table[OwnLife] = Table("mesh_lives", OwnLife)
        # By node: how many copies are kept.
        self.copies_of: dict[str, int] = {}
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

    def _copy_changed(self, _key: str, old: Copy | None, new: Copy | None) -> None:
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
