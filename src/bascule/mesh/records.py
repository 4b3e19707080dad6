"""What the mesh keeps: plain frozen Structs, stored as they are."""

from enum import StrEnum

import msgspec

from bascule.mesh.knock import Party


class Standing(StrEnum):
    """Of this node in its mesh."""

    # It has asked to join; a person at another node has not accepted it yet.
    WAITING = "waiting"
    MEMBER = "member"
    # Its card was revoked.
    REVOKED = "revoked"
    # Two daemons live with its keys: a copied disk. Both stop until a person has said which one stays.
    CLONED = "cloned"


class Asking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a waiting node needs to go on after a restart."""

    # Of the code; None: it logs in with a creds file.
    secret: str | None = None
    # Ours, and what the holder of the mesh key has shown (see `knock`).
    number: str
    holder: Party
    holder_number: str
    asked_at: int
    # Wall time here after which nobody is asked any more.
    ends_at: int


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
    # As it was signed; None while waiting.
    card: bytes | None = None
    # Where NATS is: "nats://host:port" or "tls://host:port".
    servers: tuple[str, ...] = ()
    # The one certificate that is believed; None: the system's authorities.
    certificate: str | None = None
    # A file of another operator's with what to log in with; None: our bus key.
    creds_file: str | None = None
    # We run the server: where it listens.
    hub_listen: str | None = None
    joined_at: int = 0
    # While waiting.
    asking: Asking | None = None


class KnownCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A card as it was signed; under the key `_revoked` the list of those revoked."""

    signed: bytes
    at: int


class Invitation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A code that was made here, by its public bus key. The code itself is not kept."""

    # Who signs with it has the code.
    proof_key: str
    expires_at: int
    # Of the card that it leads to.
    owner: str
    owner_name: str = ""
    # The signing key of the one node that asked with it.
    used_by: str | None = None


class RequestState(StrEnum):
    ASKED = "asked"
    ACCEPTED = "accepted"
    DENIED = "denied"


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node that asks to be let in, by its signing key."""

    joiner: Party
    commitment: str
    # The joiner's number and ours.
    number: str
    holder_number: str
    words: str
    invitation: str | None = None
    version: str = ""
    asked_at: int
    ends_at: int
    state: RequestState = RequestState.ASKED
    card: bytes | None = None
