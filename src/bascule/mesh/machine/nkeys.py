"""NATS's text form of Ed25519 keys, and the files that operators hand out.

    public key of a user = base32(prefix + 32 bytes + CRC-16)                        "U..."
    seed of a user       = base32(prefix of seeds and users + 32 bytes + CRC-16)     "SU..."

No I/O.
"""

import base64
import binascii
import itertools

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_SEED = 18 << 3
_USER = 20 << 3
_CRC_BYTES = 2
_JWT_LINE = "BEGIN NATS USER JWT"
_SEED_LINE = "BEGIN USER NKEY SEED"


class BadCreds(Exception):
    """Not a file that an operator of NATS hands out."""


def user_text(public: bytes) -> str:
    return _encode(bytes([_USER]) + public)


def read_seed(text: str) -> Ed25519PrivateKey:
    """The key behind a seed of a user."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error:
        raise BadCreds("its seed is not base32") from None
    body, crc = raw[:-_CRC_BYTES], raw[-_CRC_BYTES:]
    if len(body) != 34 or _crc(body) != crc:
        raise BadCreds("its seed is damaged")
    # The two prefixes share the first two bytes: three bits of the second are in the first.
    if body[0] & 0xF8 != _SEED or (body[0] & 7) << 5 | body[1] >> 3 != _USER:
        raise BadCreds("its seed is not that of a user")
    return Ed25519PrivateKey.from_private_bytes(body[2:])


def read_creds(text: str) -> tuple[bytes, Ed25519PrivateKey]:
    """The signed claim of who somebody is, and the key that proves it."""
    lines = [line.strip() for line in text.splitlines()]
    found = {
        mark: following
        for line, following in itertools.pairwise(lines)
        for mark in (_JWT_LINE, _SEED_LINE)
        if mark in line
    }
    for mark in (_JWT_LINE, _SEED_LINE):
        if not found.get(mark):
            raise BadCreds(f'it has no line below "{mark}"')
    return found[_JWT_LINE].encode(), read_seed(found[_SEED_LINE])


def _encode(body: bytes) -> str:
    return base64.b32encode(body + _crc(body)).rstrip(b"=").decode()


def _crc(body: bytes) -> bytes:
    return binascii.crc_hqx(body, 0).to_bytes(_CRC_BYTES, "little")
