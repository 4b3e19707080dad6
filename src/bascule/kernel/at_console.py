"""What a caller at the console must have shown: asked by `Gate._admit` alone, between ownership and policy.

| caller | principal | what it may |
|---|---|---|
| a page without a session | `browser` | the rows whose `who` is `browser`, whatever the policy says |
| a paired session | `local` | what `local` may; what only the person may asks it to sign in |
| a signed-in session | `person` | what the row's `proof` says: nothing more, or a proof for exactly this call |
"""

from bascule.foundation.errors import Forbidden, ProofRequired
from bascule.kernel.call import BROWSER, PERSON, Call, ConsoleSession, Grade
from bascule.kernel.identity.proofs import ProofBook, call_digest
from bascule.kernel.mounted import Mounted
from bascule.kernel.rows import WhoKind


def check_at_console(call: Call, method: Mounted, proofs: ProofBook | None) -> None:
    """Raise `Forbidden` or `ProofRequired`, or spend the proof that the call came with."""
    session = call.session
    if session is None:
        _check_browser(call, method)
        return
    if method.ownership is not None:
        try:
            method.ownership(call.principal, call.params)
        except Forbidden:
            if session.grade is not Grade.PAIRED:
                raise
            # Not this principal's, and perhaps not the person's either.
            method.ownership(PERSON, call.params)
            raise _required(method.name, Grade.SIGNED_IN) from None
    if call.principal == PERSON and session.spent is None:
        session.spent = _prove(call, session, method, proofs)


def _check_browser(call: Call, method: Mounted) -> None:
    if call.principal != BROWSER or method.row.who.kind is not WhoKind.BROWSER:
        raise Forbidden("this page has shown nothing yet", hint="pair it with `bascule console`, or sign in")


def _prove(call: Call, session: ConsoleSession, method: Mounted, proofs: ProofBook | None) -> str | None:
    wanted = method.row.proof
    grade = wanted if isinstance(wanted, Grade) else wanted(call.params)
    if grade <= session.grade:
        return None
    spent = None
    if proofs is not None and session.proof_id is not None:
        digest = call_digest(method.name, call.params)
        session.by = proofs.shown_by(session.proof_id)
        spent = proofs.take(session.proof_id, session.session_id, method.name, digest)
    if spent is None:
        raise _required(method.name, grade)
    return spent


def _required(method: str, grade: Grade) -> ProofRequired:
    if grade is Grade.FRESH:
        hint = "touch your passkey, or type the passphrase, for exactly this call; a proof is good once, for a minute"
    else:
        hint = "sign in with your passkey or the passphrase"
    return ProofRequired(
        f"{method} needs more than this session has shown", hint=hint, details={"grade": grade.wire, "method": method}
    )
