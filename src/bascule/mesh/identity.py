"""This node, as the others know it."""

from typing import NamedTuple

from bascule.mesh.cards import Card, Keys, bytes_of
from bascule.mesh.envelope import Pair
from bascule.mesh.records import Membership


class Identity(NamedTuple):
    node: str
    mesh: str
    # The public mesh key.
    mesh_key: str
    owner: str
    keys: Keys

    def pair_with(self, card: Card) -> Pair:
        return Pair(
            own=self.node,
            sign=self.keys.sign,
            box=self.keys.box,
            peer=card.node,
            peer_sign=bytes_of(card.sign),
            peer_box=bytes_of(card.box),
        )


def identity_of(membership: Membership) -> Identity:
    sign, box, bus = map(bytes_of, membership.keys)
    return Identity(membership.node, membership.mesh, membership.mesh_key, membership.owner, Keys(sign, box, bus))
