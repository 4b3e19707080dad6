"""This node, as the others know it."""

from typing import NamedTuple

from bascule.mesh.cards import Card, Keys, bytes_of
from bascule.mesh.envelope import Pair
from bascule.mesh.membership import keys_of
from bascule.mesh.records import Membership


class Identity(NamedTuple):
    node: str
    owner: str
    keys: Keys

    def is_same(self, other: "Identity") -> bool:
        """A connection and its engine serve both."""
        return (self.node, self.keys.seeds) == (other.node, other.keys.seeds)

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
    return Identity(membership.node, membership.owner, keys_of(membership))
