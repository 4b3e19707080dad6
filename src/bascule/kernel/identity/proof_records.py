"""Proofs in the ledger: how they are written, and whether what is written there holds.

| record | says |
|---|---|
| `passkeys.confirm` | a key was enrolled: the key itself, and the assertion that showed its possession |
| `passkeys.keep` | retention is about to drop such a record: the keys in it, again |
| `passkeys.revoke`, `passkeys.suspend`, `person.reset` | it counts no longer |
| `person.prove` | what was signed, and the signature; its subject is the proof (or the session that was signed in) |
| any other, with `details.proof` | a call that was made with that proof |

`ProofWalk` reads these in the order of the chain and checks every signature again, with the key from the record of
its enrolment. Nothing else is needed, so a copy of the ledger is enough. A passphrase leaves no signature: such a proof
says only that the daemon compared it.
"""

import hashlib
from typing import Any, Final

import msgspec

from bascule.foundation.clock import rfc3339
from bascule.kernel.identity.proofs import PROOF_SECONDS, Challenge, StatedCall, Statement, challenge_of
from bascule.kernel.identity.webauthn import (
    MAX_AUTHENTICATOR_DATA_BYTES,
    MAX_CREDENTIAL_ID_BYTES,
    MAX_PUBLIC_KEY_BYTES,
    MAX_SIGNATURE_BYTES,
    Assertion,
    CeremonyRefused,
    Expected,
    PublicKey,
    from_base64url,
    to_base64url,
    verify_assertion,
)
from bascule.kernel.ledger import BEGUN, Record
from bascule.wire.canonical import NotCanonical, canonical

ENROLLED: Final = "passkeys.confirm"
KEPT: Final = "passkeys.keep"
REVOKED: Final = "passkeys.revoke"
SUSPENDED: Final = "passkeys.suspend"
RESET: Final = "person.reset"
PROVED: Final = "person.prove"
DECIDED: Final = "approvals.decide"

# What `details.by` says where nothing was signed.
TYPED: Final = "passphrase"

# `until` is made a moment before the record is.
_SLACK_MS: Final = 1_000
# How long before its call a proof can have been made: its own time, and the daemon's to record both.
_PROOF_REACH_MS: Final = round(PROOF_SECONDS * 2 * 1000)


class KeptKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A passkey as the ledger has it: whatever a signature is checked with."""

    credential_id: str
    public_key: str
    algorithm: int
    rp_id: str
    # The record it was enrolled with, and the one that ended it, where this is a copy (`passkeys.keep`).
    enrolled: int | None = None
    ended: int | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One assertion, with what was signed. `details` of a record."""

    statement: dict[str, Any]
    credential_id: str
    authenticator_data: str
    # As text, so that a person can read it; what is signed are its bytes.
    client_data: str
    signature: str


def evidence_of(challenge: Challenge, made: Assertion) -> dict[str, Any]:
    evidence = Evidence(
        statement=msgspec.to_builtins(challenge.statement),
        credential_id=to_base64url(made.credential_id),
        authenticator_data=to_base64url(made.authenticator_data),
        client_data=made.client_data.decode(),
        signature=to_base64url(made.signature),
    )
    plain: dict[str, Any] = msgspec.to_builtins(evidence)
    return plain


def passphrase_evidence(challenge: Challenge) -> dict[str, Any]:
    return {"statement": msgspec.to_builtins(challenge.statement), "by": TYPED}


def kept_keys(record: Record) -> dict[str, KeptKey]:
    """The passkeys that a record enrols or keeps, by their id; ValueError when it cannot be read."""
    if record.method not in (ENROLLED, KEPT) or record.outcome != "ok":
        return {}
    return msgspec.convert((record.details or {}).get("keys"), dict[str, KeptKey])


def rule_digest(text: str) -> str:
    """Of the text of a timed rule, which the record of the answer has in full."""
    return hashlib.sha256(text.encode()).hexdigest()


class Unproved(Exception):
    """What the ledger says was proved is not."""


class _Key:
    def __init__(self, kept: KeptKey, enrolled: int) -> None:
        self.kept = kept
        self.enrolled = enrolled
        self.ended = kept.ended

    def holds_at(self, seq: int) -> bool:
        return self.enrolled < seq and (self.ended is None or seq < self.ended)


class ProofWalk:
    """Looks at every record, in order, and says what was done without proof."""

    # A forged ledger would otherwise list every record; the first few say where to look.
    MAX_FAULTS = 50

    def __init__(self, *, is_window: bool = False) -> None:
        """`is_window`: the store forgets its oldest records without keeping their keys (durability memory)."""
        self._is_window = is_window
        self.faults: list[str] = []
        # Signatures that hold.
        self.signatures = 0
        self._first: Record | None = None
        self._keys: dict[str, _Key] = {}
        self._credential_of: dict[str, str] = {}
        # The calls of each proof that no record has named yet.
        self._proofs: dict[str, list[StatedCall]] = {}
        self._challenges: dict[bytes, int] = {}
        # Signatures of keys whose enrolment was dropped by retention: the record that keeps the key comes later.
        self._waiting: dict[str, list[tuple[Record, Evidence]]] = {}

    def look(self, record: Record) -> None:
        if self._first is None:
            self._first = record
        try:
            if record.outcome == "ok":
                self._learn(record)
            # An effect outside of the store names its proof where it begins, every other record where it ends.
            if record.outcome in ("ok", BEGUN):
                self._use(record)
        except (Unproved, msgspec.ValidationError) as error:
            self._fault(record, str(error))

    def _learn(self, record: Record) -> None:
        """What the record says of keys and proofs."""
        if record.method == ENROLLED:
            self._enrol(record)
        elif record.method == KEPT:
            self._keep(record)
        elif record.method in (REVOKED, SUSPENDED):
            self._end(self._credential_of.get(record.subject or ""), record.seq)
        elif record.method == RESET:
            for credential_id in self._keys:
                self._end(credential_id, record.seq)
        elif record.method == PROVED:
            self._prove(record)

    def finish(self) -> None:
        for waiting in self._waiting.values() if not self._is_window else ():
            for record, _ in waiting:
                self._fault(record, "its key was never enrolled")
        self._waiting.clear()

    # -- keys --

    def _enrol(self, record: Record) -> None:
        evidence = msgspec.convert(record.details, Evidence)
        for passkey_id, kept in kept_keys(record).items():
            if passkey_id != record.subject or kept.credential_id != evidence.credential_id:
                raise Unproved("it enrols another key than the one that signed")
            if kept.credential_id in self._keys:
                raise Unproved("its key is enrolled already")
            self._check(record, evidence, kept)
            self._add(passkey_id, _Key(kept, record.seq))

    def _keep(self, record: Record) -> None:
        for passkey_id, kept in kept_keys(record).items():
            known = self._keys.get(kept.credential_id)
            if known is not None:
                if known.kept.public_key != kept.public_key or known.kept.algorithm != kept.algorithm:
                    raise Unproved("it changes a key")
                continue
            if self._begins_at_first or kept.enrolled is None or kept.enrolled >= self._start:
                raise Unproved("it keeps a key that was never enrolled")
            key = _Key(kept, kept.enrolled)
            self._add(passkey_id, key)
            for waiting, evidence in self._waiting.pop(kept.credential_id, ()):
                try:
                    self._check_with(key, waiting, evidence)
                except Unproved as error:
                    self._fault(waiting, str(error))

    def _add(self, passkey_id: str, key: _Key) -> None:
        self._keys[key.kept.credential_id] = key
        self._credential_of[passkey_id] = key.kept.credential_id

    def _end(self, credential_id: str | None, seq: int) -> None:
        key = self._keys.get(credential_id) if credential_id is not None else None
        if key is not None and key.ended is None:
            key.ended = seq

    # -- proofs --

    def _prove(self, record: Record) -> None:
        details = record.details or {}
        statement = msgspec.convert(details.get("statement"), Statement)
        if details.get("by") != TYPED:
            self._check_signed(record, msgspec.convert(details, Evidence))
        if statement.purpose == "calls" and record.subject is not None:
            self._proofs[record.subject] = list(statement.calls)

    def _check_signed(self, record: Record, evidence: Evidence) -> None:
        key = self._keys.get(evidence.credential_id)
        if key is not None:
            self._check_with(key, record, evidence)
        elif self._begins_at_first:
            raise Unproved("its key was never enrolled")
        else:
            self._waiting.setdefault(evidence.credential_id, []).append((record, evidence))

    def _check_with(self, key: _Key, record: Record, evidence: Evidence) -> None:
        if not key.holds_at(record.seq):
            raise Unproved("its key did not count at that time")
        self._check(record, evidence, key.kept)

    def _check(self, record: Record, evidence: Evidence, kept: KeptKey) -> None:
        """One signature, as it was checked when it was made."""
        statement = msgspec.convert(evidence.statement, Statement)
        try:
            challenge = challenge_of(canonical(evidence.statement))
            expected = Expected(
                challenge=challenge,
                origins=statement.origins,
                rp_id=kept.rp_id,
                in_time=rfc3339(record.at) <= statement.expires_at,
            )
            made = Assertion(
                credential_id=from_base64url(evidence.credential_id, MAX_CREDENTIAL_ID_BYTES),
                authenticator_data=from_base64url(evidence.authenticator_data, MAX_AUTHENTICATOR_DATA_BYTES),
                client_data=evidence.client_data.encode(),
                signature=from_base64url(evidence.signature, MAX_SIGNATURE_BYTES),
            )
            key = PublicKey(from_base64url(kept.public_key, MAX_PUBLIC_KEY_BYTES), kept.algorithm)
            verify_assertion(made, key, expected)
        except (CeremonyRefused, NotCanonical) as error:
            raise Unproved(str(error)) from None
        earlier = self._challenges.setdefault(challenge, record.seq)
        if earlier != record.seq:
            raise Unproved(f"it repeats the signature of record {earlier}")
        self.signatures += 1

    def _use(self, record: Record) -> None:
        """Find the call of the proof that it names, and strike it off: one call, one record."""
        proof_id = (record.details or {}).get("proof")
        if proof_id is None:
            if _needs_proof(record):
                raise Unproved("it names no proof")
            return
        calls = self._proofs.get(proof_id) if isinstance(proof_id, str) else None
        if calls is None:
            if self._may_be_dropped(record):
                return
            raise Unproved("its proof is not in the ledger, or does not hold")
        for call in calls:
            problem = _difference(call, record)
            if problem is None:
                calls.remove(call)
                return
        raise Unproved(problem if len(calls) == 1 and problem else "its proof is for other calls")

    # -- where the ledger begins --

    @property
    def _start(self) -> int:
        return self._first.seq if self._first is not None else 1

    @property
    def _begins_at_first(self) -> bool:
        return self._start == 1

    def _may_be_dropped(self, record: Record) -> bool:
        """The record of its proof may have been the last of a segment that retention dropped."""
        return not self._begins_at_first and self._first is not None and record.at - self._first.at < _PROOF_REACH_MS

    def _fault(self, record: Record, why: str) -> None:
        if len(self.faults) >= self.MAX_FAULTS:
            return
        if record.method == DECIDED:
            self.faults.append(f"record {record.seq}: approved without a valid signature: {why}")
        else:
            self.faults.append(f"record {record.seq}: {record.method} does not hold: {why}")


def _needs_proof(record: Record) -> bool:
    """An approval that came neither over a link connection, which the record names, nor with a proof."""
    details = record.details or {}
    return record.method == DECIDED and details.get("decision") == "approved" and not details.get("process")


def _difference(call: StatedCall, record: Record) -> str | None:
    """What the record says and the statement does not; None when it is this call."""
    if call.method != record.method:
        return f"its proof is for {call.method}"
    if record.method != DECIDED:
        return None
    about, details = call.about or {}, record.details or {}
    pairs = {
        "approvalId": record.subject,
        "decision": details.get("decision"),
        "principal": details.get("principal"),
        "method": details.get("method"),
        "paramsDigest": details.get("digest"),
    }
    if details.get("decision") == "approved":
        pairs["scope"] = details.get("scope")
    for name, value in pairs.items():
        if about.get(name) != value:
            return f"the person signed another {name}"
    if pairs.get("scope") == "rule":
        minutes = about.get("minutes")
        if about.get("offerDigest") != rule_digest(str(details.get("rule"))):
            return "the person signed another rule"
        latest = record.at + _SLACK_MS + minutes * 60_000 if isinstance(minutes, int) else 0
        if str(details.get("until")) > rfc3339(latest):
            return "the person signed fewer minutes"
    return None
