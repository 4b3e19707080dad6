"""The mesh bridge's method rows."""

from bascule.kernel.rows import PERSON_ONLY, Acts, Changes, Effect, Http, Nothing, Reads, rows_of
from bascule.mesh.membership_protocol import (
    AcceptParams,
    InitMeshParams,
    InviteParams,
    InviteResult,
    JoinParams,
    MeshNodes,
    MeshStatus,
    NewMeshParams,
    NodeParams,
    NodeResult,
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
MESH_NEW = Acts[NewMeshParams, InviteResult](
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
MESH_INVITE = Changes[InviteParams, InviteResult](
    "mesh.invite",
    "Make a join code for another machine: good once, for ten minutes.",
    Http("POST", "/v1/mesh/invite"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)
MESH_JOIN = Acts[JoinParams, MeshStatus](
    "mesh.join",
    "Ask to join a mesh, by its code or on its servers; a person there accepts.",
    Http("POST", "/v1/mesh/join"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
    asks=False,
)
MESH_ACCEPT = Changes[AcceptParams, NodeResult](
    "mesh.accept",
    "Let a node in whose five words were compared.",
    Http("POST", "/v1/mesh/nodes/{node}/accept"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)
MESH_DENY = Changes[NodeParams, NodeResult](
    "mesh.deny",
    "Say no to a node that asks to join.",
    Http("POST", "/v1/mesh/nodes/{node}/deny"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)
MESH_REVOKE = Changes[NodeParams, NodeResult](
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

METHODS = rows_of(globals())
