"""Who is in the mesh: a card binds a node's name to its keys and its owner, signed by the mesh key.

One authority instead of a pairing of every two nodes. No I/O.
"""

import base64
from typing import Annotated, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from msgspec import Meta

from bascule.mesh.names import RESERVED_NODES, NodeText
from bascule.wire.canonical import canonical
from gabp import codec

V = TypeVar("V", bound=msgspec.Struct)

# A stolen laptop whose revocation never arrives is out after this long; the mesh key's holder renews in time.
CARD_DAYS = 90
DAY_MS = 24 * 3_600_000
_CARD_DOMAIN = b"bascule-mesh-card-1\0"
_REVOKED_DOMAIN = b"bascule-mesh-revoked-1\0"
_DIRECTORY_DOMAIN = b"bascule-mesh-directory-1\0"
# More than a team ever revokes; the list is one value on a board.
MAX_REVOKED = 10_000

# 32 bytes as unpadded URL-safe base64.
KeyText = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{43}$(?!\n)")]


class BadCard(Exception):
    """Not signed by the mesh key, of another mesh, or over."""


class _Wire(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", gc=False):
    """What nodes show each other; nothing unknown is passed over, for all of it is signed."""


class Card(_Wire, frozen=True, kw_only=True):
    mesh: Annotated[str, Meta(min_length=1, max_length=64)]
    node: NodeText
    # Ed25519, for letters.
    sign: KeyText
    # X25519, for letters.
    box: KeyText
    # Ed25519, for logging in to NATS: never the one for letters (see `envelope`).
    bus: KeyText
    # Whose node: an id that the nodes of one person share.
    owner: Annotated[str, Meta(min_length=1, max_length=64)]
    # How people call the owner.
    owner_name: Annotated[str, Meta(max_length=64)] = ""
    not_after: Annotated[int, Meta(ge=0)]
    # A newer card of a node takes the place of an older one.
    serial: Annotated[int, Meta(ge=1)] = 1


class Revoked(_Wire, frozen=True, kw_only=True):
    """Everything that was ever revoked. Numbers rise: a list with a lower one is an older one."""

    mesh: Annotated[str, Meta(min_length=1, max_length=64)]
    number: Annotated[int, Meta(ge=0)] = 0
    # Signing keys, not names: a node may come again with new keys.
    keys: Annotated[list[KeyText], Meta(max_length=MAX_REVOKED)] = []


class Signed(_Wire, frozen=True, kw_only=True):
    """`body` is JSON text, kept as it was signed."""

    body: str
    signature: str


class Keys:
    """A node's own three keys."""

    def __init__(self, sign: bytes, box: bytes, bus: bytes) -> None:
        """Three seeds of 32 bytes."""
        self.seeds = (sign, box, bus)
        self.sign = Ed25519PrivateKey.from_private_bytes(sign)
        self.box = X25519PrivateKey.from_private_bytes(box)
        self.bus = Ed25519PrivateKey.from_private_bytes(bus)

    @classmethod
    def new(cls) -> "Keys":
        return cls(
            Ed25519PrivateKey.generate().private_bytes_raw(),
            X25519PrivateKey.generate().private_bytes_raw(),
            Ed25519PrivateKey.generate().private_bytes_raw(),
        )

    @property
    def public(self) -> tuple[str, str, str]:
        """sign, box, bus as they stand in a card."""
        return (
            text_of(self.sign.public_key().public_bytes_raw()),
            text_of(self.box.public_key().public_bytes_raw()),
            text_of(self.bus.public_key().public_bytes_raw()),
        )


def text_of(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).rstrip(b"=").decode()


def bytes_of(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def is_box_key(text: str) -> bool:
    """Some 32 bytes are no key to exchange with: every pair with such a node would be refused, at every other node."""
    try:
        _NOBODY.exchange(X25519PublicKey.from_public_bytes(bytes_of(text)))
    except ValueError:
        return False
    return True


def sign_card(mesh_key: Ed25519PrivateKey, card: Card) -> bytes:
    return _sign(mesh_key, _CARD_DOMAIN, card)


def read_card(mesh_key: str, mesh: str, data: bytes) -> Card:
    """`mesh_key` is the public one; whether the card is over is asked where the time is known."""
    card = _verified(mesh_key, _CARD_DOMAIN, data, _CARDS)
    if card.mesh != mesh:
        raise BadCard(f"a card of the mesh {card.mesh}")
    if card.node in RESERVED_NODES:
        raise BadCard(f"{card.node} is not a name for a node")
    return card


def sign_revoked(mesh_key: Ed25519PrivateKey, revoked: Revoked) -> bytes:
    return _sign(mesh_key, _REVOKED_DOMAIN, revoked)


def read_revoked(mesh_key: str, mesh: str, data: bytes) -> Revoked:
    revoked = _verified(mesh_key, _REVOKED_DOMAIN, data, _REVOKED)
    if revoked.mesh != mesh:
        raise BadCard(f"a list of the mesh {revoked.mesh}")
    return revoked


def sign_directory(key: Ed25519PrivateKey, node: str, value: msgspec.Struct) -> bytes:
    """What a node says of its own agents: by its own key."""
    return _sign(key, _DIRECTORY_DOMAIN + node.encode() + b"\0", value)


def read_directory(sign: str, node: str, data: bytes, decoder: codec.Decoder[V]) -> V:
    return _verified(sign, _DIRECTORY_DOMAIN + node.encode() + b"\0", data, decoder)


# Any key does: what cannot be exchanged with one cannot with any.
_NOBODY = X25519PrivateKey.from_private_bytes(b"\1" * 32)
_SIGNED: codec.Decoder[Signed] = codec.Decoder(Signed)
_CARDS: codec.Decoder[Card] = codec.Decoder(Card)
_REVOKED: codec.Decoder[Revoked] = codec.Decoder(Revoked)


def _sign(key: Ed25519PrivateKey, domain: bytes, value: msgspec.Struct) -> bytes:
    body = canonical(msgspec.to_builtins(value))
    signature = key.sign(domain + body)
    return codec.encode(Signed(body=body.decode(), signature=text_of(signature)))


def _verified(key: str, domain: bytes, data: bytes, decoder: codec.Decoder[V]) -> V:
    try:
        signed = _SIGNED.decode(data)
        body = signed.body.encode()
        Ed25519PublicKey.from_public_bytes(bytes_of(key)).verify(bytes_of(signed.signature), domain + body)
        return decoder.decode(body)
    except InvalidSignature:
        raise BadCard("its signature does not fit") from None
    except (codec.BadJson, ValueError) as error:
        raise BadCard(f"not readable: {error}") from None
