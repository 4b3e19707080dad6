"""An authenticator and its browser in software: makes passkeys and signs, as honestly as a test wants.

It writes CBOR by hand, so that a library of others can read what it made (`tests/identity/test_webauthn_opinion.py`).
"""

import hashlib
import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

# COSE numbers.
ES256, EDDSA, RS256 = -7, -8, -257
ORIGIN = "http://localhost:5051"
RP_ID = "localhost"

PRESENT, VERIFIED, ELIGIBLE, BACKED_UP, ATTESTED = 0x01, 0x04, 0x08, 0x10, 0x40


def b64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def unb64(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


class SoftKey:
    """One credential. What it says of itself can be changed before it signs."""

    def __init__(self, algorithm: int = ES256, *, counter: int = 1) -> None:
        self.algorithm = algorithm
        self.credential_id = os.urandom(32)
        # Of the next ceremony; None: it does not count, as synced keys do not.
        self.counter: int | None = counter
        self.flags = PRESENT | VERIFIED
        self.rp_id = RP_ID
        self.origin = ORIGIN
        # More fields of the client data, or others.
        self.client: dict[str, object] = {}
        match algorithm:
            case -7:
                self._private = ec.generate_private_key(ec.SECP256R1())
            case -8:
                self._private = ed25519.Ed25519PrivateKey.generate()
            case _:
                self._private = rsa.generate_private_key(65537, 2048)

    # -- what it is --

    @property
    def id(self) -> str:
        return b64(self.credential_id)

    @property
    def spki(self) -> bytes:
        return self._private.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    @property
    def cose(self) -> bytes:
        public = self._private.public_key()
        if self.algorithm == ES256:
            numbers = public.public_numbers()
            x, y = numbers.x.to_bytes(32, "big"), numbers.y.to_bytes(32, "big")
            return bytes.fromhex("a5010203262001215820") + x + bytes.fromhex("225820") + y
        if self.algorithm == EDDSA:
            raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
            return bytes.fromhex("a4010103272006215820") + raw
        assert self.algorithm == RS256
        n = public.public_numbers().n.to_bytes(256, "big")
        return bytes.fromhex("a401030339010020590100") + n + bytes.fromhex("2143010001")

    # -- what it makes --

    def client_data(self, type_: str, challenge: bytes) -> bytes:
        plain = {"type": type_, "challenge": b64(challenge), "origin": self.origin, "crossOrigin": False, **self.client}
        return json.dumps({name: value for name, value in plain.items() if value is not None}).encode()

    def authenticator_data(self, *, attested: bool = False) -> bytes:
        count = 0 if self.counter is None else self.counter
        if self.counter is not None:
            self.counter += 1
        head = hashlib.sha256(self.rp_id.encode()).digest()
        flags = self.flags | (ATTESTED if attested else 0)
        data = head + bytes([flags]) + count.to_bytes(4, "big")
        if attested:
            data += bytes(16) + len(self.credential_id).to_bytes(2, "big") + self.credential_id + self.cose
        return data

    def sign(self, authenticator_data: bytes, client_data: bytes) -> bytes:
        data = authenticator_data + hashlib.sha256(client_data).digest()
        if self.algorithm == ES256:
            return self._private.sign(data, ec.ECDSA(hashes.SHA256()))
        if self.algorithm == EDDSA:
            return self._private.sign(data)
        return self._private.sign(data, padding.PKCS1v15(), hashes.SHA256())

    def create(self, challenge: str) -> dict[str, object]:
        """What the page sends after `navigator.credentials.create()`."""
        return {
            "credentialId": self.id,
            "publicKey": b64(self.spki),
            "algorithm": self.algorithm,
            "authenticatorData": b64(self.authenticator_data(attested=True)),
            "clientDataJSON": b64(self.client_data("webauthn.create", unb64(challenge))),
            "transports": ["internal"],
        }

    def get(self, challenge: str) -> dict[str, str]:
        """What the page sends after `navigator.credentials.get()`."""
        authenticator_data = self.authenticator_data()
        client_data = self.client_data("webauthn.get", unb64(challenge))
        return {
            "credentialId": self.id,
            "authenticatorData": b64(authenticator_data),
            "clientDataJSON": b64(client_data),
            "signature": b64(self.sign(authenticator_data, client_data)),
        }
