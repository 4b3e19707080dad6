"""Params and results of the methods about membership. No secret is in any result but a join code, which is one."""

from typing import Annotated, Literal

from msgspec import Meta

from bascule.kernel.rows import Params, Result
from bascule.mesh.names import NodeText

# All addresses of this machine, and NATS's own port: what firewalls and people expect.
DEFAULT_LISTEN = "0.0.0.0:4222"
# As typed: with line ends and blanks in it.
MAX_CODE_TEXT_CHARS = 16_384
# A cluster of NATS has three or five.
MAX_SERVERS = 16

MeshName = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$(?!\n)", description="1 to 64 of A-Z a-z 0-9 . _ -")
]
# A person's name, as others are shown it.
OwnerName = Annotated[str, Meta(min_length=1, max_length=64)]
Listen = Annotated[str, Meta(pattern=r"^[A-Za-z0-9.:\[\]-]*:[0-9]{1,5}$(?!\n)", max_length=261)]
Servers = Annotated[list[Annotated[str, Meta(max_length=512)]], Meta(min_length=1, max_length=MAX_SERVERS)]
CredsFile = Annotated[str, Meta(pattern=r"^/", max_length=4_096, description="An absolute path")]


class NewMeshParams(Params, frozen=True, kw_only=True):
    mesh: MeshName
    # Default: what this machine is called.
    node: NodeText | None = None
    # "host:port"; without a host: all addresses.
    listen: Listen = DEFAULT_LISTEN
    # How others are shown whose node this is; default: the user's name.
    owner_name: OwnerName | None = None


class InitMeshParams(Params, frozen=True, kw_only=True):
    mesh: MeshName
    servers: Servers
    creds_file: CredsFile | None = None
    node: NodeText | None = None
    owner_name: OwnerName | None = None
    # On how many servers of the cluster each letter is.
    replicas: Annotated[int, Meta(ge=1, le=5)] = 1


class MeshInviteParams(Params, frozen=True, kw_only=True):
    # Whose node it will be; default: one's own.
    owner_name: OwnerName | None = None


class MeshInviteResult(Result, frozen=True, kw_only=True):
    code: str
    mesh: str
    node: str
    expires_at: str
    # Whose node it will be; empty: one's own.
    owner_name: str = ""
    # Where the other machine will look for this one.
    addresses: list[str] = []


class JoinMeshParams(Params, frozen=True, kw_only=True):
    code: Annotated[str, Meta(max_length=MAX_CODE_TEXT_CHARS)] | None = None
    servers: Servers | None = None
    creds_file: CredsFile | None = None
    node: NodeText | None = None
    # Alone, while this node waits on servers: the words that the person has compared with the other screen.
    words: Annotated[str, Meta(max_length=100)] | None = None


class MeshNodeParams(Params, frozen=True, kw_only=True):
    node: NodeText


class AcceptNodeParams(Params, frozen=True, kw_only=True):
    node: NodeText
    # Those that the person has compared with the other screen.
    words: Annotated[str, Meta(max_length=100)]
    # Whose node it is; default: as the code says, and without a code one's own.
    owner_name: OwnerName | None = None


class MeshNode(Result, frozen=True, kw_only=True):
    node: str
    # "waiting": for a person here.
    standing: Literal["member", "waiting", "revoked", "expired"]
    owner: str = ""
    # Of the same person as this node.
    own: bool = False
    # This node itself.
    here: bool = False
    # It holds the mesh key: accepting, inviting and revoking is done there.
    holder: bool = False
    # Left out while nothing is known.
    reachable: bool | None = None
    # When it was last heard of.
    since: str | None = None
    version: str = ""
    card_ends: str | None = None
    # Of one that waits: what its screen shows too, for the user of this machine alone.
    words: str | None = None
    asked_at: str | None = None
    ends_at: str | None = None
    # Messages that wait here for it.
    outbox_items: int = 0
    outbox_bytes: int = 0
    # How long the oldest of them waits.
    lag_ms: int | None = None


class MeshNodes(Result, frozen=True, kw_only=True):
    mesh: str | None = None
    nodes: list[MeshNode] = []


# How two of them begin that `bascule doctor` has checks of its own for.
CLOCK_DIFFERS = "the clock here differs"
CARD_ENDS = "this node's card ends"


class MeshFault(Result, frozen=True, kw_only=True):
    what: str
    remedy: str


class MeshJoining(Result, frozen=True, kw_only=True):
    # The node whose person is asked.
    holder: str
    words: str | None = None
    # Nothing is joined before a person here has compared them: `mesh.join` with these words.
    compare: bool = False
    asked_at: str
    ends_at: str


class MeshStatus(Result, frozen=True, kw_only=True):
    # none, waiting, member, revoked or cloned.
    standing: str
    mesh: str | None = None
    node: str | None = None
    owner: str | None = None
    holder: bool = False
    # What is connected to, and the version of NATS there.
    server: str | None = None
    server_version: str | None = None
    connected: bool = False
    # How far the clock here is ahead of the server's.
    clock_skew_ms: int | None = None
    card_ends: str | None = None
    # Of our own server.
    addresses: list[str] = []
    joining: MeshJoining | None = None
    # Why the last attempt to join ended.
    ended: str | None = None
    # Nodes that wait for a person here.
    asking: list[str] = []
    nodes: list[MeshNode] = []
    faults: list[MeshFault] = []


class MeshNodeResult(Result, frozen=True, kw_only=True):
    """What became of a node, and what is still to be done about it."""

    node: str
    standing: str
    owner: str = ""
    own: bool = False
    problem: str | None = None
