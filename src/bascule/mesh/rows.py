"""The mesh's methods, one row each."""

from typing import Annotated

import msgspec
from msgspec import Meta

from bascule.kernel.rows import OTHER_NODE, Changes, Effect, Nothing, Params, always, rows_of
from bascule.mesh.protocol import Acked, Anchor, Cancel, Offer, Over, Reply

# -- what other nodes say: no route leads here, and no door of this machine --


class Envelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """What an item came in, for the record."""

    # SHA-256, as it came.
    digest: Annotated[str, Meta(max_length=64)]
    # The end of the sender's ledger when it was sealed.
    anchor: Anchor


class OfferParams(Params, frozen=True, kw_only=True):
    item: Offer
    envelope: Envelope


class CancelParams(Params, frozen=True, kw_only=True):
    item: Cancel
    envelope: Envelope


class OverParams(Params, frozen=True, kw_only=True):
    item: Over
    envelope: Envelope


class AckedParams(Params, frozen=True, kw_only=True):
    item: Acked
    envelope: Envelope


class ReplyParams(Params, frozen=True, kw_only=True):
    item: Reply
    envelope: Envelope


class RefusedParams(Params, frozen=True, kw_only=True):
    """Of a receipt: the other node will never take our offer."""

    ticket: Annotated[str, Meta(max_length=128)]
    why: Annotated[str, Meta(max_length=32)]
    text: Annotated[str, Meta(max_length=500)] = ""


class MeetParams(Params, frozen=True, kw_only=True):
    node: Annotated[str, Meta(max_length=32)]
    owner: Annotated[str, Meta(max_length=64)]
    # Its owner is ours.
    own: bool


OFFER = Changes[OfferParams, None](
    "mesh.offer", "Take a message of an agent of another machine.", effect=Effect.MESSAGE, who=OTHER_NODE
)
CANCEL = Changes[CancelParams, None](
    "mesh.cancel",
    "Withdraw a message that another machine sent.",
    effect=Effect.MESSAGE,
    who=OTHER_NODE,
    stopped=always,
)
OVER = Changes[OverParams, None](
    "mesh.over",
    "Note that the sender on another machine stopped waiting.",
    effect=Effect.MESSAGE,
    who=OTHER_NODE,
    stopped=always,
)
ACKED = Changes[AckedParams, None](
    "mesh.acked",
    "Note that an agent of another machine has a message of ours.",
    effect=Effect.MESSAGE,
    who=OTHER_NODE,
    stopped=always,
)
REPLY = Changes[ReplyParams, None](
    "mesh.reply", "Take the reply of an agent of another machine.", effect=Effect.MESSAGE, who=OTHER_NODE
)
REFUSED = Changes[RefusedParams, None](
    "mesh.refused",
    "End a ticket that another machine will never take.",
    effect=Effect.MESSAGE,
    who=OTHER_NODE,
    stopped=always,
)
MEET = Changes[MeetParams, None](
    "mesh.meet",
    "Let the agents of another machine write to ours.",
    effect=Effect.MESSAGE,
    who=OTHER_NODE,
    asks=True,
)

METHODS = rows_of(globals())

__all__ = ["METHODS", "Nothing"]
