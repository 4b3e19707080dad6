"""The console's own methods: how a browser pairs, and which sessions there are."""

from typing import Annotated

from msgspec import Meta

from bascule.kernel.call import Grade
from bascule.kernel.rows import (
    BROWSER_PAGE,
    LOCAL_USER,
    Changes,
    Effect,
    Http,
    Nothing,
    Params,
    Reads,
    Result,
    Waits,
    rows_of,
)

# Below what any proxy or browser gives up at; a page that waits asks again.
MAX_PAIRING_WAIT_MS = 25_000
# An id, a secret or a hash and their names; who has shown nothing is read no more.
MAX_BROWSER_BODY = 4_096

Id = Annotated[str, Meta(min_length=1, max_length=64)]
WaitMs = Annotated[int, Meta(ge=0, le=MAX_PAIRING_WAIT_MS)]


class PairParams(Params, frozen=True, kw_only=True):
    # SHA-256, in hex, of a secret that never leaves the page before it is claimed.
    secret_hash: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]


class PairResult(Result, frozen=True, kw_only=True):
    pairing_id: str
    # Shown by the page, and by `bascule console`: a person compares them.
    digits: str
    expires_at: str


class ClaimParams(Params, frozen=True, kw_only=True):
    pairing_id: Id
    secret: Annotated[str, Meta(min_length=16, max_length=256)]
    wait_ms: WaitMs = 0


class SessionResult(Result, frozen=True, kw_only=True):
    """A session and the token that proves it: answered once, kept nowhere."""

    token: str
    session_id: str
    grade: str
    until: str


class PairingsParams(Params, frozen=True, kw_only=True):
    wait_ms: WaitMs = 0


class PairingView(Result, frozen=True, kw_only=True):
    pairing_id: str
    digits: str
    asked_at: str


class ConfirmParams(Params, frozen=True, kw_only=True):
    pairing_id: Id
    # Whether the digits are the same.
    accept: bool


class ConfirmResult(Result, frozen=True, kw_only=True):
    pairing_id: str
    accepted: bool


class OwnSessionResult(Result, frozen=True, kw_only=True):
    session_id: str
    # paired or signed_in.
    grade: str
    until: str
    # Whether there is a passphrase at all, and how many passkeys.
    person_set: bool
    passkeys: int
    # Where the console is served, and by which daemon: both are part of what a passkey signs.
    origin: str
    daemon: str
    # Whether everything is stopped.
    stopped: bool
    version: str
    # By the daemon's clock: that of the browser may be another, and what ends is counted by the daemon's.
    now: str


class SessionView(Result, frozen=True, kw_only=True):
    session_id: str
    grade: str
    since: str
    last_seen: str
    until: str
    # The one that asks.
    current: bool


class RevokeParams(Params, frozen=True, kw_only=True):
    # Unless given, every session ends.
    session_id: Id | None = None


class RevokeResult(Result, frozen=True, kw_only=True):
    revoked: int


CONSOLE_PAIR = Reads[PairParams, PairResult](
    "console.pair",
    "Ask to become a session of the console; a person compares the digits.",
    Http("POST", "/v1/console/pair", max_body=MAX_BROWSER_BODY),
    who=BROWSER_PAGE,
    proof=Grade.PAIRED,
)
CONSOLE_CLAIM = Waits[ClaimParams, SessionResult | None](
    "console.claim",
    "Wait until the pairing is confirmed, and get its session, once.",
    Http("POST", "/v1/console/claim", max_body=MAX_BROWSER_BODY),
    who=BROWSER_PAGE,
    proof=Grade.PAIRED,
)
CONSOLE_PAIRINGS = Waits[PairingsParams, list[PairingView]](
    "console.pairings", "List the pages that want to pair, or wait for one.", who=LOCAL_USER
)
CONSOLE_CONFIRM = Changes[ConfirmParams, ConfirmResult](
    "console.confirm", "Say whether the digits are the same.", effect=Effect.ADMIN, who=LOCAL_USER
)
CONSOLE_SESSION = Reads[Nothing, OwnSessionResult](
    "console.session",
    "Say what this session has shown, and where it is.",
    Http("GET", "/v1/console/session"),
    who=LOCAL_USER,
    proof=Grade.PAIRED,
)
CONSOLE_SESSIONS = Reads[Nothing, list[SessionView]](
    "console.sessions", "List the sessions of the console.", Http("GET", "/v1/console/sessions"), who=LOCAL_USER
)
CONSOLE_REVOKE = Changes[RevokeParams, RevokeResult](
    "console.revoke",
    "End one session of the console, or every one.",
    Http("POST", "/v1/console/revoke"),
    effect=Effect.ADMIN,
    who=LOCAL_USER,
    # To end a session takes nothing from the person but a session.
    proof=Grade.SIGNED_IN,
)
CONSOLE_SIGN_OUT = Changes[Nothing, RevokeResult](
    "console.signOut",
    "End this session of the console.",
    Http("POST", "/v1/console/signout"),
    effect=Effect.ADMIN,
    who=LOCAL_USER,
    proof=Grade.PAIRED,
)

METHODS = rows_of(globals())
