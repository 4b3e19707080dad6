"""A second opinion: py_webauthn takes what we take of a ceremony, and refuses what we refuse."""

import os

import pytest
import webauthn as other
from webauthn.helpers.exceptions import WebAuthnException

from bascule.kernel.identity.webauthn import (
    ALGORITHMS,
    Assertion,
    CeremonyRefused,
    Expected,
    PublicKey,
    Registration,
    check_counter,
    verify_assertion,
    verify_registration,
)
from soft_key import ATTESTED, BACKED_UP, ELIGIBLE, ORIGIN, PRESENT, RP_ID, VERIFIED, SoftKey, b64, unb64

CHALLENGE = os.urandom(32)


def expected():
    return Expected(challenge=CHALLENGE, origins=(ORIGIN,), rp_id=RP_ID)


def attestation_object(authenticator_data: bytes) -> bytes:
    """{"fmt": "none", "attStmt": {}, "authData": ...} in CBOR."""
    length = len(authenticator_data).to_bytes(2, "big")
    return b"\xa3cfmtdnonegattStmt\xa0hauthData\x59" + length + authenticator_data


def theirs_of_registration(made):
    return other.verify_registration_response(
        credential={
            "id": made["credentialId"],
            "rawId": made["credentialId"],
            "type": "public-key",
            "response": {
                "clientDataJSON": made["clientDataJSON"],
                "attestationObject": b64(attestation_object(unb64(made["authenticatorData"]))),
            },
        },
        expected_challenge=CHALLENGE,
        expected_rp_id=RP_ID,
        expected_origin=ORIGIN,
        require_user_verification=True,
    )


def ours_of_registration(made):
    return verify_registration(
        Registration(
            credential_id=unb64(made["credentialId"]),
            public_key=PublicKey(unb64(made["publicKey"]), made["algorithm"]),
            authenticator_data=unb64(made["authenticatorData"]),
            client_data=unb64(made["clientDataJSON"]),
        ),
        expected(),
    )


def theirs(key, made, last):
    answer = other.verify_authentication_response(
        credential={
            "id": made["credentialId"],
            "rawId": made["credentialId"],
            "type": "public-key",
            "response": {name: made[name] for name in ("authenticatorData", "clientDataJSON", "signature")},
        },
        expected_challenge=CHALLENGE,
        expected_rp_id=RP_ID,
        expected_origin=ORIGIN,
        credential_public_key=key.cose,
        credential_current_sign_count=last,
        require_user_verification=True,
    )
    return answer.new_sign_count


def ours(key, made, last):
    authenticator = verify_assertion(
        Assertion(
            credential_id=unb64(made["credentialId"]),
            authenticator_data=unb64(made["authenticatorData"]),
            client_data=unb64(made["clientDataJSON"]),
            signature=unb64(made["signature"]),
        ),
        PublicKey(key.spki, key.algorithm),
        expected(),
    )
    check_counter(last, authenticator.counter)
    return authenticator.counter


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("flags", [PRESENT | VERIFIED, PRESENT | VERIFIED | ELIGIBLE | BACKED_UP])
def test_both_take_an_honest_registration(algorithm, flags):
    key = SoftKey(algorithm)
    key.flags = flags
    made = key.create(b64(CHALLENGE))
    assert ours_of_registration(made).credential_id == theirs_of_registration(made).credential_id


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_both_take_an_honest_assertion(algorithm):
    key = SoftKey(algorithm, counter=7)
    made = key.get(b64(CHALLENGE))
    assert ours(key, made, 6) == theirs(key, made, 6) == 7


LIES = [
    {"client": {"type": "webauthn.create"}},
    {"client": {"challenge": b64(bytes(32))}},
    {"origin": "http://localhost:5052"},
    {"origin": "https://localhost:5051"},
    {"rp_id": "example.com"},
    {"flags": VERIFIED},
    {"flags": PRESENT},
    {"flags": PRESENT | VERIFIED | BACKED_UP},
    {"counter": 6},
    {"counter": 0},
]


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_both_refuse_an_assertion_that_is_not_what_was_asked_for(lie):
    key = SoftKey(counter=7)
    for name, value in lie.items():
        setattr(key, name, value)
    made = key.get(b64(CHALLENGE))
    with pytest.raises(CeremonyRefused):
        ours(key, made, 6)
    with pytest.raises(WebAuthnException):
        theirs(key, made, 6)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("field", ["authenticatorData", "clientDataJSON", "signature"])
@pytest.mark.parametrize("place", [0, 33, -1])
def test_both_refuse_a_changed_byte(algorithm, field, place):
    key = SoftKey(algorithm)
    made = key.get(b64(CHALLENGE))
    data = bytearray(unb64(made[field]))
    data[place] ^= 1
    made[field] = b64(bytes(data))
    with pytest.raises(CeremonyRefused):
        ours(key, made, 0)
    # What it cannot parse it leaves to the libraries below it, whose errors are their own.
    with pytest.raises(Exception, match=r".*"):
        theirs(key, made, 0)


def test_the_other_library_reads_the_same_key_out_of_the_authenticator_data():
    key = SoftKey()
    made = key.create(b64(CHALLENGE))
    assert unb64(made["authenticatorData"])[32] & ATTESTED
    assert theirs_of_registration(made).credential_public_key == key.cose
