"""The mesh's methods, one row each."""

from typing import Annotated

import msgspec
from msgspec import Meta

from bascule.kernel.call import Call, node_of
from bascule.kernel.rows import (
    OTHER_NODE,
    PERSON_ONLY,
    Acts,
    Changes,
    Effect,
    Http,
    Nothing,
    Params,
    Reads,
    Result,
    Waits,
    always,
    rows_of,
)
from bascule.mesh.membership_protocol import (
    AcceptNodeParams,
    InitMeshParams,
    JoinMeshParams,
    MeshInviteParams,
    MeshInviteResult,
    MeshNodeParams,
    MeshNodeResult,
    MeshNodes,
    MeshStatus,
    NewMeshParams,
)
from bascule.mesh.protocol import Acked, Anchor, Cancel, Offer, Over, Reply

# -- what other nodes say: no route leads here, and no door of this machine --


class Envelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """What an item came in, for the record."""

    # SHA-256, as it came.
    digest: Annotated[str, Meta(max_length=64)]
    # The end of the sender's ledger when it was sealed.
    anchor: Anchor
    # From a mailbox; else it came directly.
    mailed: bool = False
    # When the life of its node began that made it.
    started: int = 0

    def details(self) -> dict[str, object]:
        return {"envelope": self.digest, "peer": str(self.anchor)}


def calling_node(call: Call) -> str:
    node = node_of(call.principal)
    assert node is not None, "the row is for other nodes alone"
    return node


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
    lasts="for this machine, until you take it back (bascule mesh forget NODE)",
)


class MetNode(Result, frozen=True, kw_only=True):
    """What a person answered about a machine of somebody else."""

    node: str
    # Whose machine it is; nothing when it is not in the mesh any more.
    owner: str | None = None
    # Whether its agents may write to ours.
    allowed: bool
    # Another machine has that name by now, and is asked about anew.
    replaced: bool = False


MESH_MET = Reads[Nothing, list[MetNode]](
    "mesh.met",
    "List the machines of other people whose agents may write to ours, or may not, as a person answered.",
    Http("GET", "/v1/mesh/met"),
)
MESH_FORGET = Changes[MeshNodeParams, MetNode](
    "mesh.forget",
    "Take back what was answered about another person's machine: its next message asks again.",
    Http("POST", "/v1/mesh/nodes/{node}/forget"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)

# -- membership --
#
# Whoever lets a machine in lets its agents write to those here: only a person does, and no rule asks in their place.

MESH_STATUS = Reads[Nothing, MeshStatus](
    "mesh.status",
    "Say which mesh this daemon is in, who is reachable, and what is wrong.",
    Http("GET", "/v1/mesh"),
)
MESH_NODES = Reads[Nothing, MeshNodes](
    "mesh.nodes", "List the nodes of the mesh, and those that ask to join.", Http("GET", "/v1/mesh/nodes")
)
MESH_NEW = Acts[NewMeshParams, MeshInviteResult](
    "mesh.new",
    "Begin a mesh with a server on this machine, and make a first join code.",
    Http("POST", "/v1/mesh/new"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
    asks=False,
)
MESH_INIT = Acts[InitMeshParams, MeshStatus](
    "mesh.init",
    "Begin a mesh on NATS servers that are there already.",
    Http("POST", "/v1/mesh/init"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
    asks=False,
)
MESH_INVITE = Changes[MeshInviteParams, MeshInviteResult](
    "mesh.invite",
    "Make a join code for another machine: good once, for ten minutes.",
    Http("POST", "/v1/mesh/invite"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)
MESH_JOIN = Acts[JoinMeshParams, MeshStatus](
    "mesh.join",
    "Ask to join a mesh, by its code or on its servers; a person there accepts.",
    Http("POST", "/v1/mesh/join"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
    asks=False,
)
MESH_ACCEPT = Changes[AcceptNodeParams, MeshNodeResult](
    "mesh.accept",
    "Let a node in whose five words were compared.",
    Http("POST", "/v1/mesh/nodes/{node}/accept"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)
MESH_DENY = Changes[MeshNodeParams, MeshNodeResult](
    "mesh.deny",
    "Say no to a node that asks to join.",
    Http("POST", "/v1/mesh/nodes/{node}/deny"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)
MESH_REVOKE = Changes[MeshNodeParams, MeshNodeResult](
    "mesh.revoke",
    "Take a node's card away: it is cut off at once.",
    Http("POST", "/v1/mesh/nodes/{node}/revoke"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)
MESH_KEEP = Changes[Nothing, MeshStatus](
    "mesh.keep",
    "Of two daemons with the same keys, say that this one stays.",
    Http("POST", "/v1/mesh/keep"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)
MESH_LEAVE = Changes[Nothing, MeshStatus](
    "mesh.leave",
    "Leave the mesh, or give up joining one: keys and cards are deleted here.",
    Http("POST", "/v1/mesh/leave"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)


# -- the ledger --


class PeerAnchor(Result, frozen=True, kw_only=True):
    """An end of our ledger that another machine was told: the newest one, or the last of a life before."""

    node: str
    seq: int
    head: str


class PeerAnchors(Result, frozen=True, kw_only=True):
    anchors: list[PeerAnchor]
    # Machines of the mesh that did not answer.
    silent: list[str] = []


MESH_ANCHORS = Waits[Nothing, PeerAnchors](
    "mesh.anchors", "Ask other machines which end of our ledger they hold.", Http("GET", "/v1/mesh/anchors")
)

METHODS = rows_of(globals())
