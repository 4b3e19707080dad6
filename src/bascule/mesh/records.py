"""What the mesh keeps: plain frozen Structs, stored as they are."""

from enum import StrEnum

import msgspec

from bascule.mesh.membership_records import Asking
from bascule.mesh.protocol import Anchor


class Standing(StrEnum):
    """Of this node in its mesh."""

    # It has asked to join; a person at another node has not accepted it yet.
    WAITING = "waiting"
    MEMBER = "member"
    # Its card was revoked.
    REVOKED = "revoked"
    # Two daemons live with its keys: a copied disk. Both stop until a person has said which one stays.
    CLONED = "cloned"


class Membership(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """This node's own place in a mesh: the one row `self` of its table."""

    mesh: str
    node: str
    standing: Standing
    # The public mesh key, and the secret one on the node that began the mesh.
    mesh_key: str
    mesh_secret: str | None = None
    # Seeds of the three keys (`cards.Keys`), as text.
    keys: tuple[str, str, str]
    owner: str
    owner_name: str = ""
    # Where NATS is: "nats://host:port" or "tls://host:port".
    servers: tuple[str, ...] = ()
    # The one certificate that is believed; None: the system's authorities.
    certificate: str | None = None
    # A file of another operator's with what to log in with; None: our bus key.
    creds_file: str | None = None
    # On how many servers each letter is, where we hold the mesh key: what was wiped there is made again like that.
    replicas: int = 1
    # We run the server: where it listens.
    hub_listen: str | None = None
    # While waiting.
    asking: Asking | None = None


# -- what is under way --


class OutItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Said to another node, and not confirmed by it yet."""

    node: str
    # The ticket's id at its home.
    ticket: str
    kind: str
    # The item as it is sent.
    data: bytes
    at: int
    use_by: int


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A node has said that our offer is on its disk."""

    at: int
    # The end of its ledger then. If it ever begins a life with less, it was rolled back and has lost the offer.
    seq: int
    # When the life began in which it said so.
    life: int = 0


class HomeTicket(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A ticket whose home is here and whose agent is elsewhere."""

    handle: str
    # Where it was offered: one node, of a group of any node perhaps several.
    nodes: tuple[str, ...]
    use_by: int
    # Counts the changes of its status.
    rank: int = 0
    arrived: dict[str, Arrival] = {}
    # The item of the newest offer.
    offered: str = ""
    # For a group of any node.
    any: bool = False
    # Then by node how many replies came from it: each node numbers its own.
    replies: dict[str, int] = {}
    # Of `nodes`, those that will never take it.
    refused: tuple[str, ...] = ()

    @property
    def has_one_node(self) -> bool:
        """Nobody else was asked, or will be."""
        return not self.any and len(self.nodes) == 1


class Copy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A ticket from elsewhere. It stays until `use_by`, longer than the ticket itself: it is what makes an offer that
    comes twice the same offer."""

    # Empty where it was one of a mesh that this node has left: nobody is told of it any more.
    node: str
    home: str
    use_by: int
    # Of the newest status of its home that was applied here.
    rank: int = 0
    # Replies that were made here, and that home has confirmed.
    replies: int = 0
    confirmed: int = 0
    # The end of home's ledger when it confirmed the last one, and when the life began in which it did.
    seq: int = 0
    life: int = 0
    # Why the offer was refused; such a copy has no ticket.
    refused: str | None = None
    text: str = ""


class Peer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of another node beside its card."""

    # Whether a person lets its agents write to ours; None: nobody has been asked.
    met: bool | None = None
    # Of the node that was meant: another one may come under its name.
    met_key: str = ""
    # The newest life that it told us of: its name, when it began, and with how many records in its ledger.
    life: str = ""
    started: int = 0
    began: int = 0
    # When the same life had begun by what it said before: it has to begin behind one that was lost to a backup.
    earlier_starts: list[int] = []
    # The newest end of its ledger that it told us, for `ledger verify --peers`; in which of its lives, and with which
    # key: a machine that was set up anew has another ledger, and another key.
    seq: int = 0
    head: str = ""
    anchor_life: int = 0
    anchor_key: str = ""
    # The last end of each life before that one, the newest last: what is cut off is told no more in the next one.
    ends: list[Anchor] = []
    # Offers to be used up to this time are not taken any more: what would make them the same offer was dropped.
    floor: int = 0

    def has_lost(self, life: int, seq: int) -> bool:
        """Whether it was rolled back since it said something in that life, with so many records in its ledger."""
        return seq > self.began and life < self.started and life not in self.earlier_starts


class OwnLife(msgspec.Struct, frozen=True):
    """By the wall time of its start: with how many records in the ledger a life of this daemon began."""

    began: int


class Cursor(msgspec.Struct, frozen=True):
    """By mailbox: the last letter that was read there."""

    number: int
