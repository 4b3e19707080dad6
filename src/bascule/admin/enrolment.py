"""How a passkey becomes the person's.

    invite (the person, with a passphrase on a terminal or a fresh proof) -> a code, shown there
    begin  (a page of the console, with the code)                         -> the browser makes a key
    finish (the same page)                                                -> the key must sign once
    confirm                                                               -> recorded; from now on it counts

The code is what a page without a person has not got: an agent that opens the console can pair nothing and enrol
nothing by itself.
"""

import hmac
import os
import secrets
from typing import Any

import msgspec

from bascule.admin.ceremonies import (
    RP_ID,
    assertion_of,
    challenge_result,
    expected_of,
    origins_of,
    refusal,
    unknown_challenge,
)
from bascule.admin.console import page_session
from bascule.admin.passkey_protocol import (
    AllowedCredential,
    BeginParams,
    BeginResult,
    ChallengeResult,
    ConfirmParams,
    ConfirmResult,
    FinishParams,
    InviteResult,
)
from bascule.admin.passkeys import Passkeys, kept_key
from bascule.admin.records import PasskeyRecord
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.errors import Conflict, Forbidden
from bascule.foundation.ids import new_id
from bascule.kernel.call import Call
from bascule.kernel.identity.proof_records import ENROLLED, evidence_of
from bascule.kernel.identity.proofs import CHALLENGE_SECONDS, AskedCall, Challenge, Proofs
from bascule.kernel.identity.sessions import Sessions
from bascule.kernel.identity.webauthn import (
    ALGORITHMS,
    MAX_AUTHENTICATOR_DATA_BYTES,
    MAX_CLIENT_DATA_BYTES,
    MAX_CREDENTIAL_ID_BYTES,
    MAX_PUBLIC_KEY_BYTES,
    CeremonyRefused,
    PublicKey,
    Registration,
    from_base64url,
    to_base64url,
    verify_assertion,
    verify_registration,
)
from bascule.kernel.journal import Transaction
from bascule.kernel.rows import Nothing

# Time to open the console and type eight letters.
INVITE_SECONDS = 180.0
# A person mistypes; a guesser of 40 bits is not helped.
INVITE_TRIES = 5
# Crockford's: no I, L, O or U, which look like others.
_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CODE_LETTERS = 8
_ENROL = "enrol"
# Apart from every other key on the same authenticator: none replaces another.
_USER_ID_BYTES = 16


class _Invite(msgspec.Struct):
    code: str
    until: float
    expires_at: int
    tries: int = 0


class _Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A key on its way: made, not proved yet."""

    name: str
    key: PublicKey | None = None
    credential_id: str = ""
    transports: tuple[str, ...] = ()


class Enrolment:
    def __init__(self, passkeys: Passkeys, proofs: Proofs, sessions: Sessions, clock: Clock) -> None:
        self._passkeys = passkeys
        self._proofs = proofs
        self._sessions = sessions
        self._clock = clock
        self._invite: _Invite | None = None
        # By the challenge that it has to answer next; one per session, as challenges are.
        self._candidates: dict[str, _Candidate] = {}

    def invite(self, call: Call, params: Nothing, tx: Transaction) -> InviteResult:
        """A new code; the one before it is void."""
        self._passkeys.check_room()
        letters = "".join(secrets.choice(_LETTERS) for _ in range(_CODE_LETTERS))
        code = f"{letters[:4]}-{letters[4:]}"
        expires_at = self._clock.wall_ms() + round(INVITE_SECONDS * 1000)
        made = _Invite(code, self._clock.monotonic() + INVITE_SECONDS, expires_at)

        def valid() -> None:
            self._invite = made

        tx.after.append(valid)
        tx.subject = "passkeys"
        tx.details = {"process": getattr(call.connection, "peer", None)}
        return InviteResult(code=code, expires_at=rfc3339(expires_at))

    def begin(self, call: Call, params: BeginParams, tx: Transaction) -> BeginResult:
        session_id = _session_id(call)
        origins = origins_of(self._sessions)
        self._spend_code(params.code)
        challenge = self._proofs.open(_ENROL, session_id, origins)
        self._remember(challenge, _Candidate(name=params.name))
        tx.subject = "passkeys"
        tx.details = {"session": session_id}
        return BeginResult(
            challenge_id=challenge.challenge_id,
            options={
                "rp": {"id": RP_ID, "name": "Bascule"},
                "user": {
                    "id": to_base64url(os.urandom(_USER_ID_BYTES)),
                    "name": params.name,
                    "displayName": f"Bascule: {params.name}",
                },
                "challenge": to_base64url(challenge.bytes),
                "pubKeyCredParams": [{"type": "public-key", "alg": each} for each in ALGORITHMS],
                "timeout": round(CHALLENGE_SECONDS * 1000),
                "attestation": "none",
                "authenticatorSelection": {"residentKey": "discouraged", "userVerification": "required"},
                "excludeCredentials": [{"type": "public-key", **_plain(each)} for each in self._passkeys.allowed()],
            },
        )

    def finish(self, call: Call, params: FinishParams, tx: Transaction) -> ChallengeResult:
        session_id = _session_id(call)
        challenge, candidate = self._spend(params.challenge_id, session_id)
        try:
            made = Registration(
                credential_id=from_base64url(params.credential_id, MAX_CREDENTIAL_ID_BYTES),
                public_key=PublicKey(from_base64url(params.public_key, MAX_PUBLIC_KEY_BYTES), params.algorithm),
                authenticator_data=from_base64url(params.authenticator_data, MAX_AUTHENTICATOR_DATA_BYTES),
                client_data=from_base64url(params.client_data_json, MAX_CLIENT_DATA_BYTES),
            )
            verify_registration(made, expected_of(self._proofs, challenge))
        except CeremonyRefused as refused:
            raise refusal("the passkey was not taken", refused) from None
        self._check_new(params.credential_id)
        possession = AskedCall(method=ENROLLED, digest=to_base64url(made.public_key.spki))
        following = self._proofs.open(_ENROL, session_id, challenge.statement.origins, [possession])
        self._remember(
            following,
            _Candidate(
                name=candidate.name,
                key=made.public_key,
                credential_id=params.credential_id,
                transports=tuple(params.transports),
            ),
        )
        allowed = AllowedCredential(id=params.credential_id, transports=params.transports)
        return challenge_result(following, [allowed], passphrase=False)

    def confirm(self, call: Call, params: ConfirmParams, tx: Transaction) -> ConfirmResult:
        challenge, candidate = self._spend(params.challenge_id, _session_id(call))
        key = candidate.key
        if key is None or params.assertion.credential_id != candidate.credential_id:
            raise Forbidden("another passkey signed than the one that was made", hint="begin again with a new code")
        try:
            made = assertion_of(params.assertion)
            authenticator = verify_assertion(made, key, expected_of(self._proofs, challenge))
        except CeremonyRefused as refused:
            raise refusal("the passkey was not taken", refused) from None
        self._check_new(candidate.credential_id)
        passkey = self._passkeys.enrol(
            tx,
            lambda number: PasskeyRecord(
                passkey_id=new_id("pk"),
                name=candidate.name,
                credential_id=candidate.credential_id,
                public_key=to_base64url(key.spki),
                algorithm=key.algorithm,
                rp_id=RP_ID,
                created_at=self._clock.wall_ms(),
                enrolled=number,
                record=number,
                transports=candidate.transports,
                synced=authenticator.synced,
                counter=authenticator.counter,
            ),
        )
        tx.subject = passkey.passkey_id
        tx.details = {"keys": {passkey.passkey_id: _plain(kept_key(passkey))}, **evidence_of(challenge, made)}
        return ConfirmResult(passkey_id=passkey.passkey_id, name=passkey.name)

    # -- inside --

    def _spend_code(self, typed: str) -> None:
        invite = self._invite
        if invite is not None and not (
            self._clock.monotonic() < invite.until and self._clock.wall_ms() < invite.expires_at
        ):
            invite = self._invite = None
        right = invite is not None and hmac.compare_digest(_letters(typed).encode(), _letters(invite.code).encode())
        if right:
            self._invite = None
            return
        if invite is not None:
            invite.tries += 1
            if invite.tries >= INVITE_TRIES:
                self._invite = None
        raise Forbidden(
            "this code is wrong, or can no longer be used",
            hint="`bascule person passkey add` in a terminal shows a code; it is good once, for 3 minutes",
        )

    def _check_new(self, credential_id: str) -> None:
        if self._passkeys.with_credential(credential_id) is not None:
            raise Conflict("this passkey is enrolled already", hint="use another key, or keep this one")

    def _remember(self, challenge: Challenge, candidate: _Candidate) -> None:
        # A challenge that was replaced or ran out takes its candidate along.
        for gone in [each for each in self._candidates if not self._proofs.is_open(each)]:
            del self._candidates[gone]
        self._candidates[challenge.challenge_id] = candidate

    def _spend(self, challenge_id: str, session_id: str) -> tuple[Challenge, _Candidate]:
        challenge = self._proofs.spend(challenge_id, session_id)
        candidate = self._candidates.pop(challenge_id, None)
        if challenge is None or candidate is None:
            raise unknown_challenge()
        return challenge, candidate


def _session_id(call: Call) -> str:
    session = page_session(call)
    assert session is not None, "the rows are for `local`: a page without a session does not get here"
    return session.session_id


def _letters(code: str) -> str:
    """As it is meant: people leave out the dash, write small letters, and read O for 0."""
    return "".join(each for each in code.upper() if each.isalnum()).translate(str.maketrans("OIL", "011"))


def _plain(value: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain
