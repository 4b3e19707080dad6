"""WebAuthn between a page and `kernel.identity.webauthn`: what both enrolling and proving send, expect and refuse."""

from bascule.admin.passkey_protocol import AllowedCredential, AssertionParams, ChallengeResult
from bascule.foundation.clock import rfc3339
from bascule.foundation.errors import BasculeError, Conflict, Forbidden
from bascule.kernel.identity.proofs import Challenge, Proofs
from bascule.kernel.identity.sessions import Sessions
from bascule.kernel.identity.webauthn import (
    MAX_AUTHENTICATOR_DATA_BYTES,
    MAX_CLIENT_DATA_BYTES,
    MAX_CREDENTIAL_ID_BYTES,
    MAX_SIGNATURE_BYTES,
    Assertion,
    CeremonyRefused,
    Check,
    Expected,
    from_base64url,
    to_base64url,
)

# Browsers take `localhost` with any port, and no address (127.0.0.1): see docs/console.md.
RP_ID = "localhost"

PIN_HINT = (
    "this key cannot tell who touches it. Set a PIN: Chromium does it at chrome://settings/securityKeys, a YubiKey "
    "also with `ykman fido access change-pin`; a laptop or phone needs a screen lock. Then begin again"
)


def origins_of(sessions: Sessions) -> tuple[str, ...]:
    """Where the console is served; it is part of what is signed."""
    if not sessions.origins:
        raise Conflict("the console is not served", hint="`bascule status` says why; `console_port` names its port")
    return sessions.origins


def expected_of(proofs: Proofs, challenge: Challenge) -> Expected:
    return Expected(
        challenge=challenge.bytes,
        origins=challenge.statement.origins,
        rp_id=RP_ID,
        in_time=proofs.in_time(challenge),
    )


def assertion_of(params: AssertionParams) -> Assertion:
    return Assertion(
        credential_id=from_base64url(params.credential_id, MAX_CREDENTIAL_ID_BYTES),
        authenticator_data=from_base64url(params.authenticator_data, MAX_AUTHENTICATOR_DATA_BYTES),
        client_data=from_base64url(params.client_data_json, MAX_CLIENT_DATA_BYTES),
        signature=from_base64url(params.signature, MAX_SIGNATURE_BYTES),
    )


def challenge_result(challenge: Challenge, allowed: list[AllowedCredential], *, passphrase: bool) -> ChallengeResult:
    return ChallengeResult(
        challenge_id=challenge.challenge_id,
        challenge=to_base64url(challenge.bytes),
        statement=challenge.statement.canonical().decode(),
        allow_credentials=allowed,
        rp_id=RP_ID,
        expires_at=rfc3339(challenge.expires_at),
        passphrase=passphrase,
    )


def refusal(what: str, refused: CeremonyRefused) -> BasculeError:
    hint = PIN_HINT if refused.check is Check.USER_VERIFIED else "begin again; a challenge is good for one try"
    return Forbidden(f"{what}: {refused.message}", hint=hint, details={"check": refused.check.value})


def unknown_challenge() -> BasculeError:
    return Forbidden(
        "this challenge is not open, or no longer",
        hint="ask for a new one: each is good for one try within a minute, and a session has one at a time",
    )
