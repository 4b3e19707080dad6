"""How a person proves that a page of the console is theirs, or that exactly these calls are.

A challenge names what it is for. It is spent by the first answer, right or wrong: by a passkey's signature over it, or
by the passphrase, typed for this answer alone. What was shown is recorded before it counts.
"""

from asyncio import Future
from typing import Any

from bascule.admin.approvals import DecideParams
from bascule.admin.ceremonies import (
    assertion_of,
    challenge_result,
    expected_of,
    origins_of,
    refusal,
    unknown_challenge,
)
from bascule.admin.console import opened, page_session
from bascule.admin.passkey_protocol import (
    AskedCallParams,
    AssertionParams,
    ChallengeParams,
    ChallengeResult,
    ProveParams,
    ProveResult,
)
from bascule.admin.passkeys import Passkeys, public_key
from bascule.admin.person import Person
from bascule.foundation.clock import rfc3339
from bascule.foundation.errors import Forbidden, InvalidRequest, NotFound
from bascule.kernel.call import PERSON, Call, Grade, ShownBy
from bascule.kernel.consent.desk import Desk
from bascule.kernel.consent.questions import rule_text
from bascule.kernel.gate import Gate
from bascule.kernel.identity.proof_records import evidence_of, passphrase_evidence, rule_digest
from bascule.kernel.identity.proofs import AskedCall, Challenge, Proofs, call_digest
from bascule.kernel.identity.sessions import Sessions
from bascule.kernel.identity.webauthn import CeremonyRefused, verify_assertion
from bascule.kernel.journal import Transaction
from bascule.kernel.limits import MAX_CALLS_PER_PROOF
from gabp import codec

SIGN_IN = "sign-in"
CALLS = "calls"


class Proving:
    def __init__(
        self, *, passkeys: Passkeys, proofs: Proofs, sessions: Sessions, person: Person, desk: Desk, gate: Gate
    ) -> None:
        self._passkeys = passkeys
        self._proofs = proofs
        self._sessions = sessions
        self._person = person
        self._desk = desk
        self._gate = gate
        sessions.on_end.append(proofs.end_session)
        passkeys.on_end.append(sessions.end_of_passkey)

    # -- asking --

    def challenge(self, call: Call, params: ChallengeParams) -> ChallengeResult:
        session = page_session(call)
        calls: list[AskedCall] = []
        if params.purpose == CALLS:
            if session is None or call.principal != PERSON:
                raise Forbidden("only a person who has signed in proves calls", hint="sign in first")
            if not params.calls:
                raise InvalidRequest(
                    "`calls` names what is to be proved, and is empty", hint=f"name 1 to {MAX_CALLS_PER_PROOF} calls"
                )
            calls = [self._asked(each) for each in params.calls]
        elif params.calls:
            raise InvalidRequest("to sign in is to prove no calls", hint="leave `calls` out, or say purpose calls")
        challenge = self._proofs.open(
            params.purpose, session.session_id if session is not None else None, origins_of(self._sessions), calls
        )
        return challenge_result(challenge, self._passkeys.allowed(), passphrase=self._person.is_set)

    def _asked(self, asked: AskedCallParams) -> AskedCall:
        method = self._gate.methods.get(asked.method)
        if method is None or method.is_operation:
            raise NotFound(f"no method {asked.method!r}", hint="docs/reference lists the methods")
        # As the gate will see it: decoded, so that a default that is written out is the same call.
        decoded = method.decoded(Call(PERSON, asked.method, codec.encode(asked.params), door="daemon")).params
        about = self._about(decoded) if isinstance(decoded, DecideParams) else None
        return AskedCall(method=asked.method, digest=call_digest(asked.method, decoded), about=about)

    def _about(self, params: DecideParams) -> dict[str, Any]:
        """What an answer decides, in the words of the record that will be made of it."""
        question = self._desk.find(params.approval_id).question
        about: dict[str, Any] = {
            "approvalId": params.approval_id,
            "principal": question.principal,
            "method": question.method,
            "paramsDigest": self._desk.keyed(question.digest),
            "decision": params.decision,
        }
        if params.decision == "approved":
            about["scope"] = params.scope
        if params.scope == "rule":
            about["minutes"] = params.minutes
            if params.offer is not None and 1 <= params.offer <= len(question.offers):
                exact = question.exact if params.offer == 1 else None
                about["offerDigest"] = rule_digest(rule_text(question.offers[params.offer - 1], exact=exact))
        if params.reason is not None:
            about["reasonDigest"] = self._desk.keyed(params.reason)
        return about

    # -- answering --

    def prove(self, call: Call, params: ProveParams, tx: Transaction) -> "ProveResult | Future[ProveResult]":
        session = page_session(call)
        challenge = self._proofs.spend(params.challenge_id, session.session_id if session is not None else None)
        if challenge is None or challenge.statement.purpose not in (SIGN_IN, CALLS):
            raise unknown_challenge()
        if (params.assertion is None) == (params.passphrase is None):
            raise InvalidRequest("answer with `assertion` or with `passphrase`", hint="ask for a new challenge first")
        if params.assertion is not None:
            return self._by_passkey(call, challenge, params.assertion, tx)
        assert params.passphrase is not None
        if not self._proofs.in_time(challenge):
            raise unknown_challenge()

        def right() -> ProveResult:
            tx.details = passphrase_evidence(challenge)
            return self._proved(challenge, tx)

        return self._person.with_passphrase(params.passphrase, right, call, tx)

    def _by_passkey(self, call: Call, challenge: Challenge, params: AssertionParams, tx: Transaction) -> ProveResult:
        passkey = self._passkeys.find(params.credential_id)
        try:
            made = assertion_of(params)
            authenticator = verify_assertion(made, public_key(passkey), expected_of(self._proofs, challenge))
        except CeremonyRefused as refused:
            raise refusal("this proves nothing", refused) from None
        self._passkeys.use(tx, passkey, authenticator, call.principal)
        tx.details = evidence_of(challenge, made)
        return self._proved(challenge, tx, passkey.passkey_id)

    def _proved(self, challenge: Challenge, tx: Transaction, passkey_id: str | None = None) -> ProveResult:
        """What it gives, once its record is durable."""
        if challenge.statement.purpose == SIGN_IN:
            return self._sign_in(challenge, tx, passkey_id)
        proof = self._proofs.prepare()
        by: ShownBy = "passphrase" if passkey_id is None else "passkey"
        tx.after.append(lambda: self._proofs.issue(proof, challenge, by))
        tx.subject = proof.proof_id
        return ProveResult(proof_id=proof.proof_id, expires_at=rfc3339(proof.expires_at))

    def _sign_in(self, challenge: Challenge, tx: Transaction, passkey_id: str | None) -> ProveResult:
        """A new session, in place of the one that asked. If it cannot be recorded, nothing has changed."""
        session = opened(self._sessions, Grade.SIGNED_IN, passkey_id=passkey_id)

        def replaced() -> None:
            if challenge.session_id is not None:
                self._sessions.end(challenge.session_id)

        def settled(_: object) -> None:
            # Undone, or the page has left: nobody has its token.
            if tx.cancelled() or tx.exception() is not None:
                self._sessions.end(session.session_id)

        tx.after.append(replaced)
        tx.add_done_callback(settled)
        tx.subject = session.session_id
        return ProveResult(token=session.token, session_id=session.session_id, grade=session.grade, until=session.until)
