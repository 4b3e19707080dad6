"""An envelope: what one node says to another, signed by the one and readable by the other alone.

    envelope  = nonce (12) + ChaCha20-Poly1305(key of the pair, nonce, signature (64) + body)
    signature = Ed25519(sender's key, "bascule-mesh-1\\0" + dest + "\\0" + src + "\\0" + body)

The key of a pair comes from X25519 between the two nodes' box keys, so a letter to another node cannot be opened here.
The signature names the destination: a letter that was opened cannot be passed on as if it were for somebody else. The
sender's key for logging in to NATS is another one: with one key for both, a server could choose the nonce of the login
and get a signature that is good here.

No I/O: bytes in, bytes out.
"""

import os

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

# Begins everything that a node's key signs as a letter; cards and directories have words of their own.
DOMAIN = b"bascule-mesh-1\0"
_NONCE_BYTES = 12
_SIGNATURE_BYTES = 64
_TAG_BYTES = 16
# What an envelope adds to its body.
OVERHEAD = _NONCE_BYTES + _SIGNATURE_BYTES + _TAG_BYTES


class BadEnvelope(Exception):
    """Not from the node it says, not for us, or damaged on the way."""


class Pair:
    """We and one peer: made once, for deriving the key costs more than a letter."""

    def __init__(
        self,
        *,
        own: str,
        sign: Ed25519PrivateKey,
        box: X25519PrivateKey,
        peer: str,
        peer_sign: bytes,
        peer_box: bytes,
    ) -> None:
        self._sign = sign
        self._verify = Ed25519PublicKey.from_public_bytes(peer_sign)
        self._to_peer = DOMAIN + peer.encode() + b"\0" + own.encode() + b"\0"
        self._to_us = DOMAIN + own.encode() + b"\0" + peer.encode() + b"\0"
        shared = box.exchange(X25519PublicKey.from_public_bytes(peer_box))
        # Both names, in one order: each pair of nodes has a key of its own, whatever keys they reuse.
        info = DOMAIN + b"\0".join(sorted((own.encode(), peer.encode())))
        key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(shared)
        self._cipher = ChaCha20Poly1305(key)

    def seal(self, body: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        signature = self._sign.sign(self._to_peer + body)
        return nonce + self._cipher.encrypt(nonce, signature + body, None)

    def open(self, envelope: bytes) -> bytes:
        if len(envelope) < OVERHEAD:
            raise BadEnvelope("too short")
        try:
            opened = self._cipher.decrypt(envelope[:_NONCE_BYTES], envelope[_NONCE_BYTES:], None)
        except InvalidTag:
            raise BadEnvelope("not encrypted between this node and us") from None
        body = opened[_SIGNATURE_BYTES:]
        try:
            self._verify.verify(opened[:_SIGNATURE_BYTES], self._to_us + body)
        except InvalidSignature:
            raise BadEnvelope("its signature does not fit") from None
        return body
