"""An envelope: what one node says to another, signed by the one and readable by the other alone.

    envelope  = nonce (12) + ChaCha20-Poly1305(key of the pair, nonce, signature (64) + body)
    signature = Ed25519(sender's key, "bascule-mesh-1\\0" + dest + "\\0" + src + "\\0" + body)
    in a session:
    envelope  = nonce (12) + ChaCha20-Poly1305(key of the session, nonce, body), which also covers what a signature
                begins with: "bascule-mesh-1\\0" + dest + "\\0" + src + "\\0"

The key of a pair comes from X25519 between the two nodes' box keys, so a letter to another node cannot be opened here.
The signature names the destination: a letter that was opened cannot be passed on as if it were for somebody else. The
sender's key for logging in to NATS is another one: with one key for both, a server could choose the nonce of the login
and get a signature that is good here.

A signature and its check take longer than all else that happens to a letter. So signed letters also bring one half of
a key, new in each life of a daemon (X25519), and say which half of the other side the sender holds. The key of the
session comes from both halves, each signed by its node for the other: nobody else can make such an envelope. It is used
for letters that go directly, once the other side is known to hold our half. Those for a mailbox may be read by a later
life and are always signed. Nobody keeps the halves, so stolen keys open no letter of a session later.

No I/O: bytes in, bytes out.
"""

import os
from typing import NamedTuple

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


class Opened(NamedTuple):
    body: bytes
    # Else it was sealed with the key of the session.
    signed: bool


class Pair:
    """We and one peer: made once in a life, for deriving the key costs more than a letter."""

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
        self._cipher = ChaCha20Poly1305(_derive(shared, info))
        self._info = info
        # Made when it is first needed: a large mesh has many nodes that are never written to.
        self._half: X25519PrivateKey | None = None
        self._own_half = ""
        # The other side's, of its newest life that we heard of.
        self._peer_half = ""
        self._peer_started = 0
        self._session: ChaCha20Poly1305 | None = None
        # The other side holds our half.
        self._is_held = False

    # -- the session

    @property
    def in_session(self) -> bool:
        return self._session is not None and self._is_held

    @property
    def own_half(self) -> str:
        """In hex, for the other side."""
        if self._half is None:
            self._half = X25519PrivateKey.generate()
            self._own_half = self._half.public_key().public_bytes_raw().hex()
        return self._own_half

    @property
    def peer_half(self) -> str:
        """As we hold it; empty while we have none."""
        return self._peer_half

    def learn(self, started: int, half: str, held: str) -> None:
        """What a signed letter says: when its sender's life began, its half, and the one that it holds of ours."""
        if half != self._peer_half and (not half or started < self._peer_started):
            # Of an earlier life, whose half must not take the place of a later one's. Or of one whose clock went back,
            # or of an older version: that cannot open what is sealed for the session.
            self._is_held = False
            return
        if half != self._peer_half:
            own = self.own_half
            assert self._half is not None
            try:
                shared = self._half.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(half)))
            except ValueError:
                # A point of small order: there is no secret between us.
                return
            halves = "\0".join(sorted((own, half))).encode()
            self._session = ChaCha20Poly1305(_derive(shared, self._info + b"\0session\0" + halves))
            self._peer_half = half
            self._is_held = False
        self._peer_started = max(started, self._peer_started)
        if held == self.own_half:
            self._is_held = True
        elif held:
            # A letter of an earlier life of ours came to it late, or once more, after it had given up waiting: it can
            # open nothing of this session, and says so. One that holds nothing said this before it had our half.
            self._is_held = False

    def end_session(self) -> None:
        """The other side does not answer: what goes next is signed, and its next letter begins a session again."""
        self._is_held = False
        self._peer_started = 0

    # -- letters

    def seal(self, body: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        signature = self._sign.sign(self._to_peer + body)
        return nonce + self._cipher.encrypt(nonce, signature + body, None)

    def seal_in_session(self, body: bytes) -> bytes:
        assert self._session is not None, "whoever calls has asked `in_session`"
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._session.encrypt(nonce, body, self._to_peer)

    def open(self, envelope: bytes) -> Opened:
        if self._session is not None and len(envelope) >= _NONCE_BYTES + _TAG_BYTES:
            try:
                body = self._session.decrypt(envelope[:_NONCE_BYTES], envelope[_NONCE_BYTES:], self._to_us)
            except InvalidTag:
                # Signed, of another life, or not from there at all.
                pass
            else:
                # It could not have made it otherwise.
                self._is_held = True
                return Opened(body, signed=False)
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
        return Opened(body, signed=True)


def _derive(shared: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(shared)
