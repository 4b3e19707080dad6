"""WebAuthn ceremonies, checked: bytes in, a verdict out. No clock, no store, no session.

A browser signs `authenticatorData || SHA-256(clientDataJSON)`. The client data names the challenge and the page's
origin, the authenticator data the RP ID and whether a person was there and was verified. `CHECKS` is the order of
checks; the first that does not hold is the refusal. The counter is compared last, because only a valid signature says
anything about it.

Attestation is `none`: which model made a key is not our business. The public key is what the browser's
`getPublicKey()` returns, a SubjectPublicKeyInfo, so no CBOR is read. That the authenticator has the private key is
shown by a first assertion, without which nothing is enrolled.
"""

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from enum import IntFlag, StrEnum
from functools import lru_cache
from typing import Any, Final

import msgspec

from gabp import codec

# COSE algorithm numbers, in the order in which we would like a key to have them.
ES256: Final = -7
EDDSA: Final = -8
RS256: Final = -257
ALGORITHMS: Final = (ES256, EDDSA, RS256)

# Smaller ones can be factored; larger ones cost whole milliseconds of the daemon, and no authenticator makes them.
MIN_RSA_BITS: Final = 2_048
MAX_RSA_BITS: Final = 4_096

# WebAuthn level 3, 4: "at most 1023 bytes long".
MAX_CREDENTIAL_ID_BYTES: Final = 1_023
# Type, challenge, origin and a remark that Chromium adds now and then; evidence of it is kept in the ledger.
MAX_CLIENT_DATA_BYTES: Final = 1_024
# A credential id, a COSE key of RSA-4096 and a few extensions.
MAX_AUTHENTICATOR_DATA_BYTES: Final = 2_048
# RSA-4096; the others are below 80 bytes.
MAX_SIGNATURE_BYTES: Final = MAX_RSA_BITS // 8
# RSA-4096 as SubjectPublicKeyInfo is 550 bytes.
MAX_PUBLIC_KEY_BYTES: Final = 1_024
# Keys in use; parsing one costs more than checking a signature with it.
_REMEMBERED_KEYS: Final = 64

_RP_ID_HASH_BYTES = 32
_FLAGS_AT = _RP_ID_HASH_BYTES
_COUNTER_AT = _FLAGS_AT + 1
_HEAD_BYTES = _COUNTER_AT + 4
_AAGUID_BYTES = 16
_LENGTH_BYTES = 2
_BASE64URL = re.compile(r"[A-Za-z0-9_-]*\Z")


class Check(StrEnum):
    """What is looked at, in the order it is looked at."""

    FORM = "form"
    TYPE = "type"
    CHALLENGE = "challenge"
    TIME = "time"
    ORIGIN = "origin"
    FRAMED = "framed"
    RP_ID = "rp_id"
    USER_PRESENT = "user_present"
    USER_VERIFIED = "user_verified"
    CREDENTIAL = "credential"
    SIGNATURE = "signature"
    COUNTER = "counter"


class CeremonyRefused(Exception):
    """The ceremony does not prove what it should; `check` is the first thing that did not hold."""

    def __init__(self, check: Check, message: str) -> None:
        super().__init__(message)
        self.check = check
        self.message = message


class Flags(IntFlag):
    """WebAuthn level 3, 6.1."""

    USER_PRESENT = 0x01
    USER_VERIFIED = 0x04
    BACKUP_ELIGIBLE = 0x08
    BACKED_UP = 0x10
    ATTESTED = 0x40
    EXTENSIONS = 0x80


class ClientData(msgspec.Struct, frozen=True, rename="camel"):
    """What the browser says about the page; fields to come are allowed by the specification."""

    type: str
    challenge: str
    origin: str
    cross_origin: bool = False
    top_origin: str | None = None


class AuthenticatorData(msgspec.Struct, frozen=True):
    rp_id_hash: bytes
    flags: Flags
    counter: int
    # Of a registration alone.
    credential_id: bytes | None = None

    @property
    def synced(self) -> bool:
        """The key may leave the device that made it, so its counter stays at 0."""
        return Flags.BACKUP_ELIGIBLE in self.flags


class PublicKey(msgspec.Struct, frozen=True):
    # SubjectPublicKeyInfo in DER.
    spki: bytes
    algorithm: int


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What we asked for."""

    challenge: bytes
    # As browsers write it: scheme, host and port, nothing else.
    origins: tuple[str, ...]
    rp_id: str
    # Whether the answer came before the challenge ended, by the clocks of who asks.
    in_time: bool = True


class Assertion(msgspec.Struct, frozen=True, kw_only=True):
    """What `navigator.credentials.get()` gave the page."""

    credential_id: bytes
    authenticator_data: bytes
    client_data: bytes
    signature: bytes


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What `navigator.credentials.create()` gave the page."""

    credential_id: bytes
    public_key: PublicKey
    authenticator_data: bytes
    client_data: bytes


class _Ceremony(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    expected: Expected
    client: ClientData
    authenticator: AuthenticatorData


Checks = Mapping[Check, Callable[[_Ceremony], str | None]]


# -- base64url -------------------------------------------------------------------------------------


def from_base64url(text: str, limit: int) -> bytes:
    """Without padding, as WebAuthn's JSON has it; one text per value, or digests of texts would differ."""
    if len(text) > (limit * 4 + 2) // 3:
        raise CeremonyRefused(Check.FORM, f"a field is longer than {limit} bytes")
    if not _BASE64URL.match(text) or len(text) % 4 == 1:
        raise CeremonyRefused(Check.FORM, "a field is not base64url without padding")
    data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if to_base64url(data) != text:
        raise CeremonyRefused(Check.FORM, "a field is not base64url without padding")
    return data


def to_base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


# -- reading ---------------------------------------------------------------------------------------

_client_data = codec.decoder(ClientData)


def read_client_data(data: bytes) -> ClientData:
    if len(data) > MAX_CLIENT_DATA_BYTES:
        raise CeremonyRefused(Check.FORM, f"the client data is longer than {MAX_CLIENT_DATA_BYTES} bytes")
    try:
        client = _client_data.decode(data)
        # Of two equal keys one parser takes the first and another the last.
        codec.check_no_duplicate_keys(data)
        return client
    except codec.BadJson as error:
        raise CeremonyRefused(Check.FORM, f"the client data cannot be read: {error.message}") from None


def read_authenticator_data(data: bytes) -> AuthenticatorData:
    """The head, and the credential id where there is one. Keys and extensions behind them are CBOR, and not read."""
    if not _HEAD_BYTES <= len(data) <= MAX_AUTHENTICATOR_DATA_BYTES:
        raise CeremonyRefused(Check.FORM, "the authenticator data has a length that none can have")
    flags = Flags(data[_FLAGS_AT])
    rest = data[_HEAD_BYTES:]
    credential_id = None
    if Flags.ATTESTED in flags:
        start = _AAGUID_BYTES + _LENGTH_BYTES
        length = int.from_bytes(rest[_AAGUID_BYTES:start], "big")
        credential_id = rest[start : start + length]
        # A key follows, so there is more.
        if not 0 < length <= MAX_CREDENTIAL_ID_BYTES or len(rest) <= start + length:
            raise CeremonyRefused(Check.FORM, "the authenticator data ends within its credential")
    elif bool(rest) != (Flags.EXTENSIONS in flags):
        raise CeremonyRefused(Check.FORM, "the authenticator data and its flags differ about what follows")
    if Flags.BACKED_UP in flags and Flags.BACKUP_ELIGIBLE not in flags:
        raise CeremonyRefused(Check.FORM, "the authenticator says that a key was copied which cannot be")
    return AuthenticatorData(
        rp_id_hash=data[:_FLAGS_AT],
        flags=flags,
        counter=int.from_bytes(data[_COUNTER_AT:_HEAD_BYTES], "big"),
        credential_id=credential_id,
    )


# -- the checks that both ceremonies have ----------------------------------------------------------


def _type(ceremony: _Ceremony) -> str | None:
    return None if ceremony.client.type == ceremony.type else f"it is not a {ceremony.type} ceremony"


def _challenge(ceremony: _Ceremony) -> str | None:
    same = hmac.compare_digest(ceremony.client.challenge.encode(), to_base64url(ceremony.expected.challenge).encode())
    return None if same else "it answers another challenge"


def _time(ceremony: _Ceremony) -> str | None:
    return None if ceremony.expected.in_time else "it came too late"


def _origin(ceremony: _Ceremony) -> str | None:
    return None if ceremony.client.origin in ceremony.expected.origins else "it was made at another address"


def _framed(ceremony: _Ceremony) -> str | None:
    framed = ceremony.client.cross_origin or ceremony.client.top_origin is not None
    return "it was made inside a frame of another page" if framed else None


def _rp_id(ceremony: _Ceremony) -> str | None:
    wanted = hashlib.sha256(ceremony.expected.rp_id.encode()).digest()
    return None if ceremony.authenticator.rp_id_hash == wanted else "it is for another site (RP ID)"


def _user_present(ceremony: _Ceremony) -> str | None:
    return None if Flags.USER_PRESENT in ceremony.authenticator.flags else "nobody touched the key"


def _user_verified(ceremony: _Ceremony) -> str | None:
    if Flags.USER_VERIFIED in ceremony.authenticator.flags:
        return None
    return "the key did not verify who touched it (PIN, finger or face)"


CHECKS: Checks = {
    Check.TYPE: _type,
    Check.CHALLENGE: _challenge,
    Check.TIME: _time,
    Check.ORIGIN: _origin,
    Check.FRAMED: _framed,
    Check.RP_ID: _rp_id,
    Check.USER_PRESENT: _user_present,
    Check.USER_VERIFIED: _user_verified,
}


def _run(checks: Checks, ceremony: _Ceremony) -> None:
    for check, holds in checks.items():
        problem = holds(ceremony)
        if problem is not None:
            raise CeremonyRefused(check, problem)


# -- ceremonies ------------------------------------------------------------------------------------


def verify_registration(made: Registration, expected: Expected, *, checks: Checks = CHECKS) -> AuthenticatorData:
    """A new key, which the next assertion has to prove; raises `CeremonyRefused`. `checks`: fewer, in tests."""
    client, authenticator = read_client_data(made.client_data), read_authenticator_data(made.authenticator_data)
    _run(checks, _Ceremony(type="webauthn.create", expected=expected, client=client, authenticator=authenticator))
    if authenticator.credential_id is None or authenticator.credential_id != made.credential_id:
        raise CeremonyRefused(Check.CREDENTIAL, "the authenticator made another credential than the page says")
    _load(made.public_key)
    return authenticator


def verify_assertion(
    made: Assertion, key: PublicKey, expected: Expected, *, checks: Checks = CHECKS, signature: bool = True
) -> AuthenticatorData:
    """What the authenticator says, once all of it holds; raises `CeremonyRefused`.

    `checks` and `signature`: fewer, in tests that show what each of them is for.
    """
    client, authenticator = read_client_data(made.client_data), read_authenticator_data(made.authenticator_data)
    _run(checks, _Ceremony(type="webauthn.get", expected=expected, client=client, authenticator=authenticator))
    if signature and not _signed(key, made.signature, made.authenticator_data + _sha256(made.client_data)):
        raise CeremonyRefused(Check.SIGNATURE, "the signature is not this key's")
    return authenticator


def check_counter(last: int, now: int) -> None:
    """An authenticator that counts never repeats a number: another one has the same key. Synced keys stay at 0."""
    if now <= last and (now, last) != (0, 0):
        raise CeremonyRefused(Check.COUNTER, f"the key's counter went from {last} to {now}: there may be a copy of it")


# -- signatures ------------------------------------------------------------------------------------


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _signed(key: PublicKey, signature: bytes, data: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - see `_load`

    if len(signature) > MAX_SIGNATURE_BYTES:
        return False
    try:
        _load(key)(signature, data)
    except InvalidSignature:
        return False
    return True


@lru_cache(maxsize=_REMEMBERED_KEYS)
def _load(key: PublicKey) -> Callable[[bytes, bytes], Any]:
    """What checks signatures of this key, which must be of the kind that its algorithm says."""
    # Imported late: it takes tens of milliseconds, and a daemon without passkeys never needs it.
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - the line above
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - the line above
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa  # noqa: PLC0415 - the line above

    if len(key.spki) > MAX_PUBLIC_KEY_BYTES:
        raise CeremonyRefused(Check.CREDENTIAL, f"the public key is longer than {MAX_PUBLIC_KEY_BYTES} bytes")
    try:
        loaded = serialization.load_der_public_key(key.spki)
    except (ValueError, UnsupportedAlgorithm):
        raise CeremonyRefused(Check.CREDENTIAL, "the public key cannot be read") from None
    sha256 = hashes.SHA256()
    if key.algorithm == ES256 and isinstance(loaded, ec.EllipticCurvePublicKey):
        if isinstance(loaded.curve, ec.SECP256R1):
            curve_key, ecdsa = loaded, ec.ECDSA(sha256)
            return lambda signature, data: curve_key.verify(signature, data, ecdsa)
    elif key.algorithm == EDDSA and isinstance(loaded, ed25519.Ed25519PublicKey):
        return loaded.verify
    elif (
        key.algorithm == RS256
        and isinstance(loaded, rsa.RSAPublicKey)
        and MIN_RSA_BITS <= loaded.key_size <= MAX_RSA_BITS
    ):
        rsa_key, pkcs1 = loaded, padding.PKCS1v15()
        return lambda signature, data: rsa_key.verify(signature, data, pkcs1, sha256)
    raise CeremonyRefused(Check.CREDENTIAL, f"the public key is not one that we take for algorithm {key.algorithm}")
