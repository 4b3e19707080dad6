"""A join code: one line that a person copies to another machine, and all that machine needs to ask for its card.

    bsc1-ONSWG4TFOQ...   "bsc1-", then base32 without padding of body + checksum
    body     = `JoinCode` as a MessagePack array: a JSON text would be twice as long
    checksum = the first 4 bytes of SHA-256("bascule-join-code-1\\0" + body)

It is a secret until it is used: whoever has it may ask to join, once, and a person still compares five words. In base32
upper and lower case mean the same, so a code may be read out and typed. No I/O.
"""

import base64
import binascii
import hashlib
from typing import Annotated

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Meta

from bascule.mesh.cards import text_of

PREFIX = "bsc1-"
# Long enough to walk to the other machine, short enough that a code left on a screen is soon worth nothing.
CODE_SECONDS = 600
# A machine has a few addresses that others reach it by; with more the code gets too long to copy.
MAX_ADDRESSES = 8
# A DNS name has 253, then come a colon and five digits; an IPv6 address has brackets.
MAX_ADDRESS_CHARS = 261
# All fields at their longest.
MAX_CODE_CHARS = 8_192
_CHECKSUM_BYTES = 4
_CHECKSUM_DOMAIN = b"bascule-join-code-1\0"
_PROOF_INFO = b"bascule-mesh-join-proof-1\0"

Address = Annotated[str, Meta(pattern=r"^[A-Za-z0-9.:\[\]_-]+:[0-9]{1,5}$(?!\n)", max_length=MAX_ADDRESS_CHARS)]
_Bytes32 = Annotated[bytes, Meta(min_length=32, max_length=32)]


class BadCode(Exception):
    """Not a join code, or one that was not copied whole; the text says which."""


class JoinCode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, array_like=True, gc=False):
    # "host:port", the likeliest first.
    addresses: Annotated[list[Address], Meta(min_length=1, max_length=MAX_ADDRESSES)]
    # SHA-256 of the server's certificate.
    certificate: _Bytes32
    mesh: Annotated[str, Meta(min_length=1, max_length=64)]
    # The public one.
    mesh_key: _Bytes32
    # Seed of the bus key that may only ask to join.
    secret: _Bytes32
    # Wall time.
    expires_ms: Annotated[int, Meta(ge=0, le=2**53)]


_CODES = msgspec.msgpack.Decoder(JoinCode)


def write_code(code: JoinCode) -> str:
    body = msgspec.msgpack.encode(code)
    return PREFIX + base64.b32encode(body + _checksum(body)).rstrip(b"=").decode()


def read_code(text: str) -> JoinCode:
    """However it was pasted: in lower case, cut by spaces and line ends."""
    packed = "".join(text.split())
    if len(packed) > MAX_CODE_CHARS:
        raise BadCode("it is too long for a join code")
    if packed[: len(PREFIX)].lower() != PREFIX:
        raise BadCode(f"a join code begins with {PREFIX}")
    letters = packed[len(PREFIX) :].upper()
    try:
        data = base64.b32decode(letters + "=" * (-len(letters) % 8))
    except (binascii.Error, ValueError):
        raise BadCode("it holds letters that no join code has, or some are missing") from None
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if checksum != _checksum(body):
        raise BadCode("a letter is wrong or missing: it was not copied whole")
    try:
        return _CODES.decode(body)
    except (msgspec.MsgspecError, ValueError):
        raise BadCode("another version of Bascule made it") from None


def bus_key(secret: bytes) -> Ed25519PrivateKey:
    """What the joiner logs in with while it asks."""
    return Ed25519PrivateKey.from_private_bytes(secret)


def proof_key(secret: bytes) -> Ed25519PrivateKey:
    """What the joiner signs its question with, to show that it has the code. Not the key that logs in: there a server
    chooses what is signed."""
    seed = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=_PROOF_INFO).derive(secret)
    return Ed25519PrivateKey.from_private_bytes(seed)


def public_text(key: Ed25519PrivateKey) -> str:
    return text_of(key.public_key().public_bytes_raw())


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(_CHECKSUM_DOMAIN + body).digest()[:_CHECKSUM_BYTES]
