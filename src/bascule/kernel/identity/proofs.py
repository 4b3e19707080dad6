"""Proofs: what a person showed for exactly these calls, once.

    challenge:  open -> spend (at first sight, right or wrong)
    proof:      issue -> take, once for each call that the challenge names

A challenge is the SHA-256 of a *statement*: canonical JSON that names the daemon, the console's origin, the session and
every call. So a signature over it is a signature over these calls and nothing else. Both clocks must agree that there
is time left, as at the desk: a jump of either can end something early, and never makes it longer.

All of this is in memory and dies with the daemon. What was proved is kept by the ledger (`proof_records`).
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.errors import TooLarge
from bascule.foundation.ids import new_id, new_token
from bascule.kernel.call import ShownBy
from bascule.kernel.plain_params import plain_params
from bascule.wire.canonical import NotCanonical, canonical, digest

# Before the statement in what is hashed: no other use of a passkey signs such bytes.
DOMAIN = b"bascule console v1\0"
# Time to find the key and touch it, or to type a passphrase; a browser asks for no longer.
CHALLENGE_SECONDS = 60.0
# The page sends the calls at once; the rest is for a slow machine.
PROOF_SECONDS = 60.0
# Browsers that have not signed in have no session to count by; beyond this the oldest challenge is void.
MAX_OPEN_WITHOUT_SESSION = 16
# A touch each; more than these within a minute is a program.
MAX_PROOFS = 256


class StatedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call as a statement names it."""

    method: str
    # Keyed, because the ledger keeps it: without the key it says nothing about short params.
    digest: str
    # What the call means, for who reads the statement later: which approval, and what was decided.
    about: dict[str, Any] | None = None


class Statement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What is signed."""

    daemon: str
    origin: str
    purpose: str
    calls: tuple[StatedCall, ...]
    nonce: str
    expires_at: str
    # None: a browser that is about to sign in.
    session: str | None = None
    # Further addresses of the same console, by its user's settings.
    also_at: tuple[str, ...] = ()

    @property
    def origins(self) -> tuple[str, ...]:
        return (self.origin, *self.also_at)

    def canonical(self) -> bytes:
        return canonical(msgspec.to_builtins(self))

    def challenge(self) -> bytes:
        return challenge_of(self.canonical())


class AskedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call that a person is asked to prove themselves for."""

    method: str
    # As `call_digest` makes it.
    digest: str
    about: dict[str, Any] | None = None


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    challenge_id: str
    statement: Statement
    # The bytes that a browser signs.
    bytes: bytes
    calls: tuple[AskedCall, ...]
    session_id: str | None
    until: float
    expires_at: int


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    proof_id: str
    expires_at: int


class _Issued(msgspec.Struct):
    session_id: str
    # What is left of it, by method and digest; the same call twice is two entries.
    calls: list[tuple[str, str]]
    until: float
    expires_at: int
    by: ShownBy


def call_digest(method: str, params: Any) -> str:
    """SHA-256 over canonical JSON of the method and its params, with what stands at its default left out."""
    try:
        return digest({"method": method, "params": plain_params(params)})
    except NotCanonical as error:
        raise TooLarge(f"this call cannot be signed: {error}", hint="flatten its params") from error


def challenge_of(statement: bytes) -> bytes:
    return hashlib.sha256(DOMAIN + statement).digest()


class ProofBook(Protocol):
    """What the gate asks."""

    def shown_by(self, proof_id: str) -> ShownBy | None:
        """What was shown for a proof that is not spent yet."""

    def take(self, proof_id: str, session_id: str, method: str, digest: str) -> str | None:
        """Spend the proof for exactly this call: its id for the ledger, or None."""


class Proofs:
    """Open challenges, and what was proved and not used yet."""

    def __init__(
        self,
        clock: Clock,
        key: bytes,
        daemon_id: str,
        *,
        challenge_seconds: float = CHALLENGE_SECONDS,
        proof_seconds: float = PROOF_SECONDS,
    ) -> None:
        self._clock = clock
        self._key = key
        self._challenge_seconds = challenge_seconds
        self._proof_seconds = proof_seconds
        self._daemon_id = daemon_id
        # In the order they were opened.
        self._open: dict[str, Challenge] = {}
        self._of_session: dict[str, str] = {}
        self._issued: dict[str, _Issued] = {}

    # -- challenges --

    def open(
        self, purpose: str, session_id: str | None, origins: tuple[str, ...], calls: Iterable[AskedCall] = ()
    ) -> Challenge:
        """A new challenge. One is open per session: the one before it is void."""
        self._make_room()
        if session_id is not None:
            self._close(self._of_session.get(session_id))
        asked = tuple(calls)
        expires_at = self._clock.wall_ms() + round(self._challenge_seconds * 1000)
        statement = Statement(
            daemon=self._daemon_id,
            origin=origins[0],
            also_at=origins[1:],
            purpose=purpose,
            session=session_id,
            calls=tuple(
                StatedCall(method=each.method, digest=self.keyed(each.digest), about=each.about) for each in asked
            ),
            nonce=new_token(),
            expires_at=rfc3339(expires_at),
        )
        challenge = Challenge(
            challenge_id=new_id("chl"),
            statement=statement,
            bytes=statement.challenge(),
            calls=asked,
            session_id=session_id,
            until=self._clock.monotonic() + self._challenge_seconds,
            expires_at=expires_at,
        )
        self._open[challenge.challenge_id] = challenge
        if session_id is not None:
            self._of_session[session_id] = challenge.challenge_id
        return challenge

    def spend(self, challenge_id: str, session_id: str | None) -> Challenge | None:
        """The challenge, which is open no longer, whatever comes of it; None if it was not this session's."""
        challenge = self._close(challenge_id)
        return challenge if challenge is not None and challenge.session_id == session_id else None

    def is_open(self, challenge_id: str) -> bool:
        return challenge_id in self._open

    def in_time(self, challenge: Challenge) -> bool:
        return self._left(challenge.until, challenge.expires_at)

    def keyed(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), "sha256").hexdigest()

    # -- proofs --

    def prepare(self) -> Proof:
        """The name of the proof to come; it counts once it is `issued`."""
        return Proof(proof_id=new_id("prf"), expires_at=self._clock.wall_ms() + round(self._proof_seconds * 1000))

    def issue(self, proof: Proof, challenge: Challenge, by: ShownBy = "passphrase") -> None:
        """The record of it is durable: from now on its calls may be made."""
        assert challenge.session_id is not None
        for old in [each for each, issued in self._issued.items() if not self._left(issued.until, issued.expires_at)]:
            del self._issued[old]
        while len(self._issued) >= MAX_PROOFS:
            del self._issued[next(iter(self._issued))]
        self._issued[proof.proof_id] = _Issued(
            session_id=challenge.session_id,
            calls=[(each.method, each.digest) for each in challenge.calls],
            until=self._clock.monotonic() + self._proof_seconds,
            expires_at=proof.expires_at,
            by=by,
        )

    def shown_by(self, proof_id: str) -> ShownBy | None:
        issued = self._issued.get(proof_id)
        return issued.by if issued is not None else None

    def take(self, proof_id: str, session_id: str, method: str, digest: str) -> str | None:
        """Spend the proof for exactly this call: its id for the ledger, or None.

        A call that it is not for takes nothing from it: whoever sends one has no use of the rest.
        """
        issued = self._issued.get(proof_id)
        if issued is None or issued.session_id != session_id or (method, digest) not in issued.calls:
            return None
        if not self._left(issued.until, issued.expires_at):
            del self._issued[proof_id]
            return None
        issued.calls.remove((method, digest))
        if not issued.calls:
            del self._issued[proof_id]
        return proof_id

    def end_session(self, session_id: str) -> None:
        """The session is over: nothing of it is left."""
        self._close(self._of_session.get(session_id))
        for proof_id in [each for each, issued in self._issued.items() if issued.session_id == session_id]:
            del self._issued[proof_id]

    # -- inside --

    def _close(self, challenge_id: str | None) -> Challenge | None:
        challenge = self._open.pop(challenge_id, None) if challenge_id is not None else None
        if challenge is not None and challenge.session_id is not None:
            del self._of_session[challenge.session_id]
        return challenge

    def _make_room(self) -> None:
        """Forget what is past its time, and the oldest of too many browsers without a session."""
        without = []
        for challenge_id, challenge in list(self._open.items()):
            if not self.in_time(challenge):
                self._close(challenge_id)
            elif challenge.session_id is None:
                without.append(challenge_id)
        for challenge_id in without[: max(0, len(without) - MAX_OPEN_WITHOUT_SESSION + 1)]:
            self._close(challenge_id)

    def _left(self, until: float, expires_at: int) -> bool:
        return self._clock.monotonic() < until and self._clock.wall_ms() < expires_at
