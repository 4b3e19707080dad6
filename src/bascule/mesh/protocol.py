"""What nodes say to each other: one envelope holds a list of items, each of one of seven kinds.

| kind | from, to | idempotent by |
|---|---|---|
| offer | home to copy | the copy, or what is left of it until `useBy` |
| cancel, over | home to copy | rank |
| acked, reply | copy to home | state; of a reply its number |
| receipt | both | nothing: it is not confirmed itself; it also says that an item is refused |
| hello | both | nothing |

Home is the daemon of the sender: it alone changes the status of a ticket. The receiver's daemon holds a copy and owns
delivery. An item stays in the outbox until the other side's receipt says that it is on its disk.
"""

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from bascule.foundation.ids import AGENT_ID_PATTERN, TICKET_ID_PATTERN
from gabp import codec

VERSION = 1
# Items in one envelope: enough for the commits of one turn, few enough for one turn of the receiver's loop.
MAX_ITEMS = 64

_Id = Annotated[str, Meta(pattern=TICKET_ID_PATTERN)]
_Handle = Annotated[str, Meta(pattern=AGENT_ID_PATTERN)]
_Rank = Annotated[int, Meta(ge=0, le=2**53)]
_Ms = Annotated[int, Meta(ge=0, le=2**53)]
_Text = Annotated[str, Meta(max_length=500)]
_Half = Annotated[str, Meta(pattern=r"^(?:[0-9a-f]{64})?$(?!\n)")]


class Item(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", omit_defaults=True, gc=False):
    """Unknown fields are passed over: a newer node may say more."""


class Anchor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The newest durable record of the sender's ledger."""

    seq: Annotated[int, Meta(ge=0)] = 0
    head: Annotated[str, Meta(pattern=r"^(?:[0-9a-f]{64})?$(?!\n)")] = ""

    @classmethod
    def of(cls, head: tuple[int, bytes]) -> "Anchor":
        """`head`: number and hash of a record."""
        return cls(head[0], head[1].hex() if head[0] else "")

    def __str__(self) -> str:
        """As records name it."""
        return f"{self.seq}:{self.head}"


class Confirmed(Item, frozen=True, kw_only=True):
    """An item that is kept until its receipt comes."""

    # Never used twice, not even by a node that was restored from a backup: a receipt for what it said before must not
    # be taken for one of what it says now.
    id: _Id
    # The ticket's id at home.
    ticket: _Id


class Offer(Confirmed, frozen=True, kw_only=True, tag="offer"):
    # Who sent it there: an agent's handle, or `local` or `person` with `sender_kind`.
    sender: _Handle
    sender_kind: Annotated[str, Meta(pattern=r"^(?:agent|local|person)$(?!\n)")] = "agent"
    # An agent or group of the receiver.
    target: _Handle
    payload: msgspec.Raw
    metadata: dict[str, Any] = {}
    expect_reply: bool = True
    # What is left of the time to reply, and the wall time after which the item is not acted on any more.
    left_ms: _Ms
    use_by: _Ms
    conversation: _Id | None = None
    # Sent to a group of any node: a node without a free member refuses it as `busy`.
    any: bool = False


class Cancel(Confirmed, frozen=True, kw_only=True, tag="cancel"):
    rank: _Rank
    reason: _Text | None = None
    use_by: _Ms


class Over(Confirmed, frozen=True, kw_only=True, tag="over"):
    """Home says how the ticket is: its sender stopped waiting; or, to a node that was restored from a backup and has
    forgotten it, how it ended."""

    rank: _Rank
    use_by: _Ms
    status: Annotated[str, Meta(pattern=r"^(?:timeout|responded|delivered)$(?!\n)")] = "timeout"
    late: bool = False
    # No offer comes with it: a node that does not know the ticket only keeps that it is over.
    alone: bool = False
    # Sent to a group of any node: one that had nobody free does not know the ticket, and need not.
    any: bool = False


class Acked(Confirmed, frozen=True, kw_only=True, tag="acked"):
    pass


class Reply(Confirmed, frozen=True, kw_only=True, tag="reply"):
    # 1 for the first; home takes only the next one.
    number: Annotated[int, Meta(ge=1, le=1_000)]
    sender: _Handle
    payload: msgspec.Raw
    metadata: dict[str, Any] = {}


# Of `Taken.refused`: what ends a ticket, and after what home tries again.
FINAL = frozenset({"unknown", "policy", "late", "too_large"})
PASSING = frozenset({"full", "busy"})


# Of `Taken.status`: what a ticket can be. Another value is of a newer node, or of one that lies, and is ignored.
STATUSES = frozenset({"pending", "delivered", "responded", "timeout", "cancelled"})


class Taken(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """One item of a receipt. From home it also says how the ticket is now."""

    id: _Id
    ticket: _Id
    status: Annotated[str, Meta(max_length=16)] | None = None
    rank: _Rank = 0
    late: bool = False
    # Why it is not taken: of an offer `FINAL` or `PASSING`, of a reply `cancelled`, `unknown` or `full`.
    refused: Annotated[str, Meta(max_length=32)] | None = None
    text: _Text = ""


class Receipt(Item, frozen=True, kw_only=True, tag="receipt"):
    taken: Annotated[list[Taken], Meta(max_length=1_000)]


class Life(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """When a life of the daemon began, and with how many records in its ledger."""

    started: _Ms
    began: Annotated[int, Meta(ge=0)]


# The newest ones, the oldest first: whoever did not hear of one of them must know how little it began with.
MAX_LIVES = 16
# The longest list of revoked cards that is in a hello, in bytes: some thousand of them, which a server with the least
# `max_payload` takes. A longer one is on the board alone.
MAX_REVOKED_LIST = 256 * 1024
Lives: TypeAlias = Annotated[list[Life], Meta(max_length=MAX_LIVES)]


class Hello(Item, frozen=True, kw_only=True, tag="hello"):
    # One life of the sender's daemon, and the end of its ledger when that began.
    life: Annotated[str, Meta(max_length=64)]
    began: Anchor
    # Wall time when it began: a hello of an earlier life may come late.
    started: _Ms = 0
    lives: Lives = []
    version: Annotated[str, Meta(max_length=32)] = ""
    # The newest anchor of the receiver that the sender holds, and the last of its lives before.
    yours: Anchor | None = None
    ends: Annotated[list[Anchor], Meta(max_length=MAX_LIVES)] = []
    # When the newest life of the receiver began that the sender has heard of.
    known_start: _Ms = 0
    # The number of the newest list of revoked cards that the sender has.
    revoked: Annotated[int, Meta(ge=0)] = 0
    # That list as it was signed, for a receiver that has an older one.
    revoked_list: Annotated[str, Meta(max_length=MAX_REVOKED_LIST)] = ""
    # The receiver should answer with one.
    answer: bool = False


AnyItem: TypeAlias = Offer | Cancel | Over | Acked | Reply | Receipt | Hello


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    v: int
    # When the life of the sender's daemon began, see `Hello`.
    started: _Ms = 0
    # Of signed letters: see `envelope`. The sender's half of a key, and the one of the receiver that it holds.
    half: _Half = ""
    held: _Half = ""
    anchor: Anchor
    items: Annotated[list[AnyItem], Meta(max_length=MAX_ITEMS)]


BODY: codec.Decoder[Body] = codec.Decoder(Body, max_depth=codec.MAX_ANSWER_DEPTH)


# More groups than a machine has; those that are left out are asked as if nobody there were free.
MAX_FREE_GROUPS = 100
# As many as a daemon registers unless it is told otherwise.
MAX_LISTED = 10_000


class LifeSign(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """What a node puts on the board of the living, signed."""

    life: Annotated[str, Meta(max_length=64)]
    began: Anchor
    started: _Ms = 0
    lives: Lives = []
    version: Annotated[str, Meta(max_length=32)] = ""
    # Groups that have a free member; how many is not said, the number is 1.
    free: Annotated[dict[str, int], Meta(max_length=MAX_FREE_GROUPS)] = {}


class ListedAgent(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    handle: _Handle
    type: Annotated[str, Meta(max_length=64)] = "agent"
    online: bool = True
    groups: Annotated[list[_Handle], Meta(max_length=16)] = []


class Listing(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """A node's agents, as it says itself."""

    agents: Annotated[list[ListedAgent], Meta(max_length=MAX_LISTED)]
    # Of a daemon that has stopped because another one has its keys: the life of that other one, which must stop too. It
    # stays on the board, so that it is read even by one whose consumer was just deleted by its double.
    twin: Annotated[str, Meta(max_length=64)] = ""


LIFE_SIGN: codec.Decoder[LifeSign] = codec.Decoder(LifeSign)
LISTING: codec.Decoder[Listing] = codec.Decoder(Listing)
