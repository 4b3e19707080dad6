"""Passkeys as methods: how one is enrolled, and how a person proves that exactly these calls are theirs."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from bascule.kernel.call import Grade
from bascule.kernel.limits import MAX_CALLS_PER_PROOF, MAX_PASSPHRASE_CHARS
from bascule.kernel.rows import (
    BROWSER_PAGE,
    LOCAL_USER,
    PERSON_ONLY,
    Changes,
    Effect,
    Http,
    Nothing,
    Params,
    Reads,
    Result,
    rows_of,
)

# A few words by which its owner knows it again.
MAX_NAME_CHARS = 64
# Twenty answers with their reasons, of 4 bytes a character at most.
MAX_CHALLENGE_BODY = 128 * 1024
# Four fields of base64url at their longest (`Base64Url`), and room for their names and the short ones.
MAX_CEREMONY_BODY = 20 * 1024

Id = Annotated[str, Meta(min_length=1, max_length=64)]
# Base64url without padding. How many bytes it may be is checked where it is read (`kernel.identity.webauthn`).
Base64Url = Annotated[str, Meta(max_length=4_096)]


class AskedCallParams(Params, frozen=True, kw_only=True):
    method: Annotated[str, Meta(min_length=1, max_length=200)]
    # As they will be sent; what stands at its default may be left out.
    params: dict[str, Any] = {}


class ChallengeParams(Params, frozen=True, kw_only=True):
    purpose: Literal["sign-in", "calls"]
    calls: Annotated[list[AskedCallParams], Meta(max_length=MAX_CALLS_PER_PROOF)] = []


class AllowedCredential(Result, frozen=True, kw_only=True):
    id: str
    transports: list[str] = []


class ChallengeResult(Result, frozen=True, kw_only=True):
    challenge_id: str
    # Base64url: SHA-256 over `bascule console v1`, a zero byte and the statement.
    challenge: str
    # Canonical JSON, exactly as it was hashed.
    statement: str
    allow_credentials: list[AllowedCredential]
    rp_id: str
    expires_at: str
    # Whether a passphrase can be typed instead.
    passphrase: bool


class AssertionParams(Params, frozen=True, kw_only=True):
    """What `navigator.credentials.get()` gave, in base64url."""

    credential_id: Base64Url
    authenticator_data: Base64Url
    client_data_json: Base64Url = field(name="clientDataJSON")
    signature: Base64Url


class ProveParams(Params, frozen=True, kw_only=True):
    challenge_id: Id
    # One of the two.
    assertion: AssertionParams | None = None
    passphrase: Annotated[str, Meta(min_length=1, max_length=MAX_PASSPHRASE_CHARS)] | None = None


class ProveResult(Result, frozen=True, kw_only=True):
    # Of purpose calls: what `Bascule-Proof` names, for each of these calls once.
    proof_id: str | None = None
    expires_at: str | None = None
    # Of purpose sign-in: the session that takes the place of the one that asked.
    token: str | None = None
    session_id: str | None = None
    grade: str | None = None
    until: str | None = None


class PasskeyView(Result, frozen=True, kw_only=True):
    passkey_id: str
    name: str
    created_at: str
    last_used_at: str | None = None
    # Its counter went back, so there may be a copy of it: it counts no longer.
    suspended: bool = False
    # It may be on several devices of its owner.
    synced: bool = False


class InviteResult(Result, frozen=True, kw_only=True):
    # To be typed into the page.
    code: str
    expires_at: str


class BeginParams(Params, frozen=True, kw_only=True):
    code: Annotated[str, Meta(min_length=1, max_length=32)]
    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]


class BeginResult(Result, frozen=True, kw_only=True):
    challenge_id: str
    # PublicKeyCredentialCreationOptions as JSON, with base64url where the browser wants bytes.
    options: dict[str, Any]


class FinishParams(Params, frozen=True, kw_only=True):
    """What `navigator.credentials.create()` gave, in base64url."""

    challenge_id: Id
    credential_id: Base64Url
    # SubjectPublicKeyInfo: `response.getPublicKey()`.
    public_key: Base64Url
    algorithm: int
    authenticator_data: Base64Url
    client_data_json: Base64Url = field(name="clientDataJSON")
    transports: Annotated[list[Annotated[str, Meta(max_length=32)]], Meta(max_length=8)] = []


class ConfirmParams(Params, frozen=True, kw_only=True):
    challenge_id: Id
    assertion: AssertionParams


class ConfirmResult(Result, frozen=True, kw_only=True):
    passkey_id: str
    name: str


class PasskeyParams(Params, frozen=True, kw_only=True):
    passkey_id: Id


class PasskeyRevoked(Result, frozen=True, kw_only=True):
    passkey_id: str


PERSON_CHALLENGE = Reads[ChallengeParams, ChallengeResult](
    "person.challenge",
    "Ask for a challenge to sign in with, or for exactly these calls.",
    Http("POST", "/v1/person/challenge", max_body=MAX_CHALLENGE_BODY),
    who=BROWSER_PAGE,
    proof=Grade.PAIRED,
)
PERSON_PROVE = Changes[ProveParams, ProveResult](
    "person.prove",
    "Answer a challenge with a passkey or the passphrase, once.",
    Http("POST", "/v1/person/prove", max_body=MAX_CEREMONY_BODY),
    # To say who one is does nothing to the world, and a page that has shown nothing may do nothing else.
    effect=Effect.READ,
    who=BROWSER_PAGE,
    proof=Grade.PAIRED,
)
PASSKEYS_LIST = Reads[Nothing, list[PasskeyView]](
    "passkeys.list", "List the person's passkeys.", Http("GET", "/v1/passkeys"), who=LOCAL_USER
)
PASSKEYS_INVITE = Changes[Nothing, InviteResult](
    "passkeys.invite",
    "Make the code with which a page of the console enrols one passkey; only the person may.",
    Http("POST", "/v1/passkeys/invite"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)
PASSKEYS_BEGIN = Changes[BeginParams, BeginResult](
    "passkeys.begin",
    "Spend the code, and get what the browser makes a passkey with.",
    Http("POST", "/v1/passkeys/begin", max_body=MAX_CEREMONY_BODY),
    effect=Effect.ADMIN,
    who=LOCAL_USER,
    proof=Grade.PAIRED,
)
PASSKEYS_FINISH = Changes[FinishParams, ChallengeResult](
    "passkeys.finish",
    "Show the new passkey; its first signature has to follow.",
    Http("POST", "/v1/passkeys/finish", max_body=MAX_CEREMONY_BODY),
    effect=Effect.ADMIN,
    who=LOCAL_USER,
    proof=Grade.PAIRED,
)
PASSKEYS_CONFIRM = Changes[ConfirmParams, ConfirmResult](
    "passkeys.confirm",
    "Show that the new passkey signs; from now on it counts.",
    Http("POST", "/v1/passkeys/confirm", max_body=MAX_CEREMONY_BODY),
    effect=Effect.ADMIN,
    who=LOCAL_USER,
    proof=Grade.PAIRED,
)
PASSKEYS_REVOKE = Changes[PasskeyParams, PasskeyRevoked](
    "passkeys.revoke",
    "End a passkey; only the person may.",
    Http("POST", "/v1/passkeys/{passkeyId}/revoke"),
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)

METHODS = rows_of(globals())
