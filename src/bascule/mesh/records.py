"""What the mesh keeps: plain frozen Structs, stored as they are."""

from enum import StrEnum

import msgspec


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
