"""Ceremonies: what each check stops, and that the same attack succeeds where that check is left out."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from bascule.kernel.identity import webauthn
from bascule.kernel.identity.webauthn import (
    ALGORITHMS,
    CHECKS,
    EDDSA,
    ES256,
    RS256,
    Assertion,
    CeremonyRefused,
    Check,
    Expected,
    PublicKey,
    Registration,
    check_counter,
    from_base64url,
    read_authenticator_data,
    read_client_data,
    to_base64url,
    verify_assertion,
    verify_registration,
)
from soft_key import ATTESTED, BACKED_UP, ELIGIBLE, ORIGIN, PRESENT, RP_ID, VERIFIED, SoftKey, b64, unb64

CHALLENGE = bytes(range(32))


def expected(**changes: object) -> Expected:
    return Expected(**{"challenge": CHALLENGE, "origins": (ORIGIN,), "rp_id": RP_ID, **changes})


def asserted(key: SoftKey, challenge: bytes = CHALLENGE) -> Assertion:
    made = key.get(b64(challenge))
    return Assertion(
        credential_id=unb64(made["credentialId"]),
        authenticator_data=unb64(made["authenticatorData"]),
        client_data=unb64(made["clientDataJSON"]),
        signature=unb64(made["signature"]),
    )


def registered(key: SoftKey, challenge: bytes = CHALLENGE) -> Registration:
    made = key.create(b64(challenge))
    return Registration(
        credential_id=unb64(made["credentialId"]),
        public_key=PublicKey(key.spki, key.algorithm),
        authenticator_data=unb64(made["authenticatorData"]),
        client_data=unb64(made["clientDataJSON"]),
    )


def public(key: SoftKey) -> PublicKey:
    return PublicKey(key.spki, key.algorithm)


def without(check: Check) -> webauthn.Checks:
    return {each: holds for each, holds in CHECKS.items() if each is not check}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_honest_key_is_taken_whatever_its_algorithm(algorithm):
    key = SoftKey(algorithm)
    assert verify_registration(registered(key), expected()).credential_id == key.credential_id
    read = verify_assertion(asserted(key), public(key), expected())
    assert (read.counter, read.synced) == (2, False)


def test_the_checks_are_made_in_the_order_of_the_design():
    assert [*CHECKS, Check.SIGNATURE, Check.COUNTER] == [
        Check.TYPE,
        Check.CHALLENGE,
        Check.TIME,
        Check.ORIGIN,
        Check.FRAMED,
        Check.RP_ID,
        Check.USER_PRESENT,
        Check.USER_VERIFIED,
        Check.SIGNATURE,
        Check.COUNTER,
    ]


# -- attacks --


@dataclasses.dataclass
class Attack:
    name: str
    stopped_by: Check
    prepare: Callable[[SoftKey], None] = lambda _key: None
    expected: Expected = dataclasses.field(default_factory=expected)
    challenge: bytes = CHALLENGE


def _set(**changes: object) -> Callable[[SoftKey], None]:
    def prepare(key: SoftKey) -> None:
        for name, value in changes.items():
            setattr(key, name, value)

    return prepare


# The key signs what it says, as a real authenticator would whose browser or owner was led astray.
ATTACKS = [
    Attack("a registration is shown as an assertion", Check.TYPE, _set(client={"type": "webauthn.create"})),
    Attack("a payment is shown as an assertion", Check.TYPE, _set(client={"type": "payment.get"})),
    Attack("an old signature is shown for a new challenge", Check.CHALLENGE, challenge=os.urandom(32)),
    Attack("the signature for another approval is shown", Check.CHALLENGE, challenge=bytes(32)),
    Attack("the answer comes after a minute", Check.TIME, expected=expected(in_time=False)),
    Attack("a page at another port asks with the same RP ID", Check.ORIGIN, _set(origin="http://localhost:5052")),
    Attack("a page without a port asks", Check.ORIGIN, _set(origin="http://localhost")),
    Attack("a page behind TLS asks", Check.ORIGIN, _set(origin="https://localhost:5051")),
    Attack("a name that begins as ours asks", Check.ORIGIN, _set(origin="http://localhost:50510")),
    Attack("our page is inside a frame", Check.FRAMED, _set(client={"crossOrigin": True})),
    Attack("our page is inside a frame that names itself", Check.FRAMED, _set(client={"topOrigin": "http://evil"})),
    Attack("the key is one for another site", Check.RP_ID, _set(rp_id="evil.example")),
    Attack("nobody touched the key", Check.USER_PRESENT, _set(flags=VERIFIED)),
    Attack("the key cannot verify its user", Check.USER_VERIFIED, _set(flags=PRESENT)),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda each: each.name)
def test_a_ceremony_that_is_not_ours_is_refused(attack):
    key = SoftKey()
    attack.prepare(key)
    with pytest.raises(CeremonyRefused) as refused:
        verify_assertion(asserted(key, attack.challenge), public(key), attack.expected)
    assert refused.value.check is attack.stopped_by
    # The control: this check and no other stands in the way.
    made = asserted(key, attack.challenge)
    verify_assertion(made, public(key), attack.expected, checks=without(attack.stopped_by))


@pytest.mark.parametrize(
    "attack", [each for each in ATTACKS if each.stopped_by is not Check.TYPE], ids=lambda each: each.name
)
def test_a_registration_that_is_not_ours_is_refused(attack):
    key = SoftKey()
    attack.prepare(key)
    with pytest.raises(CeremonyRefused) as refused:
        verify_registration(registered(key, attack.challenge), attack.expected)
    assert refused.value.check is attack.stopped_by
    made = registered(key, attack.challenge)
    verify_registration(made, attack.expected, checks=without(attack.stopped_by))


def _forged_bit(made: Assertion) -> Assertion:
    """A key that did not verify its user, made to say that it did."""
    data = bytearray(made.authenticator_data)
    data[32] |= VERIFIED
    return Assertion(
        credential_id=made.credential_id,
        authenticator_data=bytes(data),
        client_data=made.client_data,
        signature=made.signature,
    )


def _swapped_challenge(made: Assertion) -> Assertion:
    """A signature over something else, with our challenge written over its own."""
    client = json.loads(made.client_data)
    client["challenge"] = b64(CHALLENGE)
    return Assertion(
        credential_id=made.credential_id,
        authenticator_data=made.authenticator_data,
        client_data=json.dumps(client).encode(),
        signature=made.signature,
    )


def _unsigned(made: Assertion) -> Assertion:
    return Assertion(
        credential_id=made.credential_id,
        authenticator_data=made.authenticator_data,
        client_data=made.client_data,
        signature=b"",
    )


@pytest.mark.parametrize(
    ("forge", "flags", "challenge"),
    [
        (_forged_bit, PRESENT, CHALLENGE),
        (_swapped_challenge, PRESENT | VERIFIED, bytes(32)),
        (_unsigned, PRESENT | VERIFIED, CHALLENGE),
    ],
    ids=["the UV bit is set afterwards", "the challenge is swapped", "nothing is signed"],
)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_was_changed_after_it_was_signed_is_refused(forge, flags, challenge, algorithm):
    key = SoftKey(algorithm)
    key.flags = flags
    forged = forge(asserted(key, challenge))
    with pytest.raises(CeremonyRefused) as refused:
        verify_assertion(forged, public(key), expected())
    assert refused.value.check is Check.SIGNATURE
    verify_assertion(forged, public(key), expected(), signature=False)


def test_another_key_signs_in_vain():
    mine, other = SoftKey(), SoftKey()
    with pytest.raises(CeremonyRefused) as refused:
        verify_assertion(asserted(other), public(mine), expected())
    assert refused.value.check is Check.SIGNATURE
    verify_assertion(asserted(other), public(other), expected())


@pytest.mark.parametrize(("last", "now"), [(5, 5), (5, 4), (5, 0), (1, 1)])
def test_a_counter_that_does_not_grow_is_a_copy_of_the_key(last, now):
    with pytest.raises(CeremonyRefused) as refused:
        check_counter(last, now)
    assert refused.value.check is Check.COUNTER


@pytest.mark.parametrize(("last", "now"), [(0, 0), (0, 1), (5, 6), (5, 2**32 - 1)])
def test_a_counter_that_grows_or_was_never_used_is_fine(last, now):
    check_counter(last, now)


# -- keys --


def _spki(private) -> bytes:
    return private.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


@pytest.mark.parametrize(
    ("spki", "algorithm"),
    [
        (_spki(ec.generate_private_key(ec.SECP384R1())), ES256),
        (_spki(ec.generate_private_key(ec.SECP256K1())), ES256),
        (_spki(rsa.generate_private_key(65537, 1024)), RS256),
        (SoftKey(ES256).spki, EDDSA),
        (SoftKey(EDDSA).spki, RS256),
        (SoftKey(ES256).spki, -35),
        (SoftKey(ES256).spki, 0),
        (b"", ES256),
        (b"\x30\x00", ES256),
        (bytes(webauthn.MAX_PUBLIC_KEY_BYTES + 1), RS256),
    ],
    ids=[
        "P-384",
        "secp256k1",
        "RSA-1024",
        "EC as EdDSA",
        "Ed25519 as RSA",
        "ES384",
        "0",
        "empty",
        "no key",
        "too long",
    ],
)
def test_a_key_of_another_kind_is_refused(spki, algorithm):
    key = SoftKey()
    made = registered(key)
    other = Registration(
        credential_id=made.credential_id,
        public_key=PublicKey(spki, algorithm),
        authenticator_data=made.authenticator_data,
        client_data=made.client_data,
    )
    with pytest.raises(CeremonyRefused) as refused:
        verify_registration(other, expected())
    assert refused.value.check is Check.CREDENTIAL


def test_a_registration_names_the_credential_that_was_made():
    key = SoftKey()
    made = registered(key)
    other = Registration(
        credential_id=os.urandom(32),
        public_key=made.public_key,
        authenticator_data=made.authenticator_data,
        client_data=made.client_data,
    )
    with pytest.raises(CeremonyRefused) as refused:
        verify_registration(other, expected())
    assert refused.value.check is Check.CREDENTIAL


def test_a_synced_key_says_so():
    key = SoftKey()
    key.flags |= ELIGIBLE | BACKED_UP
    assert verify_assertion(asserted(key), public(key), expected()).synced


# -- reading --

HEAD = bytes(32)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HEAD,
        HEAD + bytes(4),
        HEAD + bytes([PRESENT]) + bytes(4) + b"more",
        HEAD + bytes([0x80]) + bytes(4),
        HEAD + bytes([ATTESTED]) + bytes(4),
        HEAD + bytes([ATTESTED]) + bytes(4) + bytes(16) + b"\x00\x20" + bytes(32),
        HEAD + bytes([ATTESTED]) + bytes(4) + bytes(16) + b"\x00\x00" + b"key",
        HEAD + bytes([BACKED_UP]) + bytes(4),
        bytes(webauthn.MAX_AUTHENTICATOR_DATA_BYTES + 1),
    ],
)
def test_authenticator_data_that_none_makes_is_refused(data):
    with pytest.raises(CeremonyRefused) as refused:
        read_authenticator_data(data)
    assert refused.value.check is Check.FORM


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"type":"webauthn.get","challenge":"x"}',
        b'{"type":"webauthn.get","challenge":"x","origin":5}',
        b'{"type":"webauthn.get","challenge":"x","origin":"a","origin":"b"}',
        b'{"type":"webauthn.get","challenge":"x","origin":"a","crossOrigin":"false"}',
        b'\xff{"type":"webauthn.get","challenge":"x","origin":"a"}',
        b'{"type":"webauthn.get","challenge":"x","origin":"' + b"a" * webauthn.MAX_CLIENT_DATA_BYTES + b'"}',
    ],
)
def test_client_data_that_no_browser_makes_is_refused(text):
    with pytest.raises(CeremonyRefused) as refused:
        read_client_data(text)
    assert refused.value.check is Check.FORM


def test_fields_to_come_are_allowed_in_client_data():
    text = b'{"type":"webauthn.get","challenge":"x","origin":"a","other_keys_can_be_added_here":"do not compare"}'
    assert read_client_data(text).origin == "a"


@given(st.binary(max_size=200))
def test_any_bytes_are_authenticator_data_or_refused(data):
    try:
        read = read_authenticator_data(data)
    except CeremonyRefused:
        return
    assert read.rp_id_hash == data[:32]
    assert 0 <= read.counter < 2**32


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_any_bytes_are_client_data_or_refused(data):
    with contextlib.suppress(CeremonyRefused):
        read_client_data(data)


@given(st.binary(max_size=100))
def test_base64url_is_read_back_as_it_was_written(data):
    assert from_base64url(to_base64url(data), 100) == data


@given(st.text(max_size=50))
def test_a_text_is_the_one_base64url_of_its_bytes_or_refused(text):
    with contextlib.suppress(CeremonyRefused):
        assert to_base64url(from_base64url(text, 100)) == text


HONEST = SoftKey()
MADE = asserted(HONEST)


@given(
    st.sampled_from(["authenticator_data", "client_data", "signature"]),
    st.integers(min_value=0, max_value=10_000),
    st.integers(min_value=1, max_value=255),
)
def test_an_assertion_with_one_changed_byte_is_refused(field, at, change):
    data = bytearray(getattr(MADE, field))
    data[at % len(data)] ^= change
    fields = {name: getattr(MADE, name) for name in ("credential_id", "authenticator_data", "client_data", "signature")}
    with pytest.raises(CeremonyRefused):
        verify_assertion(Assertion(**{**fields, field: bytes(data)}), public(HONEST), expected())


@given(st.binary(max_size=600))
def test_no_bytes_are_a_signature(signature):
    fields = {name: getattr(MADE, name) for name in ("credential_id", "authenticator_data", "client_data")}
    with pytest.raises(CeremonyRefused) as refused:
        verify_assertion(Assertion(**fields, signature=signature), public(HONEST), expected())
    assert refused.value.check is Check.SIGNATURE
