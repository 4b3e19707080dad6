"""The console behind its method rows: pairing, and the sessions that come of it."""

from collections.abc import Callable
from typing import NamedTuple

from bascule import __version__
from bascule.admin import console_protocol as rows
from bascule.admin.console_protocol import (
    ClaimParams,
    ConfirmParams,
    ConfirmResult,
    OwnSessionResult,
    PairingsParams,
    PairingView,
    PairParams,
    PairResult,
    RevokeParams,
    RevokeResult,
    SessionResult,
    SessionView,
)
from bascule.admin.pairing import Pairings
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Forbidden, NotFound
from bascule.foundation.timers import Timers
from bascule.kernel.call import BROWSER, Call, ConsoleSession, Grade
from bascule.kernel.identity.sessions import Session, Sessions
from bascule.kernel.journal import Transaction
from bascule.kernel.rows import Bound, Nothing


class ConsoleFacts(NamedTuple):
    """What a page is shown of the daemon it talks to."""

    daemon_id: str
    has_person: Callable[[], bool]
    count_passkeys: Callable[[], int] = lambda: 0
    is_stopped: Callable[[], bool] = lambda: False


class Console:
    def __init__(self, sessions: Sessions, clock: Clock, timers: Timers, facts: ConsoleFacts) -> None:
        self.sessions = sessions
        self._clock = clock
        self.pairings = Pairings(clock, timers)
        self._facts = facts

    def methods(self) -> list[Bound]:
        return [
            rows.CONSOLE_PAIR.bind(self.pair),
            rows.CONSOLE_CLAIM.bind(self.claim, abandon=self._lost),
            rows.CONSOLE_PAIRINGS.bind(self.list_pairings),
            rows.CONSOLE_CONFIRM.bind(self.confirm),
            rows.CONSOLE_SESSION.bind(self.own_session),
            rows.CONSOLE_SESSIONS.bind(self.list_sessions),
            rows.CONSOLE_REVOKE.bind(self.revoke),
            rows.CONSOLE_SIGN_OUT.bind(self.sign_out),
        ]

    # -- pairing --

    def pair(self, call: Call, params: PairParams) -> PairResult:
        page_session(call)
        pairing = self.pairings.ask(params.secret_hash)
        return PairResult(pairing_id=pairing.pairing_id, digits=pairing.digits, expires_at=rfc3339(pairing.expires_at))

    def claim(self, call: Call, params: ClaimParams) -> "SessionResult | Deferred[SessionResult | None] | None":
        page_session(call)
        claimed = self._claim(params)
        if claimed is not None:
            return claimed
        if not params.wait_ms or self.pairings.stopping:
            return None
        return self.pairings.wait(params.wait_ms, lambda: self._claim(params))

    def _claim(self, params: ClaimParams) -> SessionResult | None:
        pairing = self.pairings.claim(params.pairing_id, params.secret)
        return None if pairing is None else opened(self.sessions, Grade.PAIRED)

    def _lost(self, _params: ClaimParams, answer: SessionResult) -> None:
        """The page was gone before it got its token: nobody has it."""
        self.sessions.end(answer.session_id)

    def list_pairings(self, call: Call, params: PairingsParams) -> "list[PairingView] | Deferred[list[PairingView]]":
        found = self._pairings()
        if found or not params.wait_ms or self.pairings.stopping:
            return found
        return self.pairings.wait(params.wait_ms, self._pairings)

    def _pairings(self) -> list[PairingView]:
        return [
            PairingView(pairing_id=each.pairing_id, digits=each.digits, asked_at=rfc3339(each.asked_at))
            for each in self.pairings.asked()
        ]

    def confirm(self, call: Call, params: ConfirmParams, tx: Transaction) -> ConfirmResult:
        pairing = self.pairings.answer(params.pairing_id, accept=params.accept)
        if params.accept:
            # Once it is recorded: no session comes of what the ledger does not know.
            tx.after.append(lambda: self.pairings.confirm(pairing))
        tx.subject = pairing.pairing_id
        tx.details = {"accepted": params.accept, "process": getattr(call.connection, "peer", None)}
        return ConfirmResult(pairing_id=pairing.pairing_id, accepted=params.accept)

    # -- sessions --

    def own_session(self, call: Call, params: Nothing) -> OwnSessionResult:
        session = self._own(call)
        facts = self._facts
        return OwnSessionResult(
            session_id=session.session_id,
            grade=session.grade.wire,
            until=rfc3339(session.until_at),
            person_set=facts.has_person(),
            passkeys=facts.count_passkeys(),
            origin=self.sessions.origins[0] if self.sessions.origins else "",
            daemon=facts.daemon_id,
            stopped=facts.is_stopped(),
            version=__version__,
            now=rfc3339(self._clock.wall_ms()),
        )

    def list_sessions(self, call: Call, params: Nothing) -> list[SessionView]:
        own = call.session.session_id if call.session is not None else None
        return [
            SessionView(
                session_id=each.session_id,
                grade=each.grade.wire,
                since=rfc3339(each.since_at),
                last_seen=rfc3339(each.seen_at),
                until=rfc3339(each.until_at),
                current=each.session_id == own,
            )
            for each in self.sessions.all()
        ]

    def revoke(self, call: Call, params: RevokeParams, tx: Transaction) -> RevokeResult:
        if params.session_id is not None and self.sessions.get(params.session_id) is None:
            raise NotFound(f"no session {params.session_id}", hint="`bascule console --list` shows them")
        return self._end(params.session_id, tx)

    def sign_out(self, call: Call, params: Nothing, tx: Transaction) -> RevokeResult:
        return self._end(self._own(call).session_id, tx)

    def _end(self, session_id: str | None, tx: Transaction) -> RevokeResult:
        """At once, not after its commit: a full disk must not keep a session alive."""
        revoked = self.sessions.end(session_id)
        tx.subject = session_id or "every session"
        tx.details = {"revoked": revoked}
        return RevokeResult(revoked=revoked)

    def _own(self, call: Call) -> Session:
        session = self.sessions.get(call.session.session_id) if call.session is not None else None
        if session is None:
            raise NotFound("this call came with no session of the console", hint="open it with `bascule console`")
        return session


def opened(sessions: Sessions, grade: Grade, *, passkey_id: str | None = None) -> SessionResult:
    """A new session, as its page is answered."""
    token, session = sessions.open(grade, passkey_id=passkey_id)
    return SessionResult(token=token, session_id=session.session_id, grade=grade.wire, until=rfc3339(session.until_at))


def page_session(call: Call) -> ConsoleSession | None:
    """The session of the page that calls, None if it has none yet; a caller that is not a page is refused."""
    if call.session is None and call.principal != BROWSER:
        raise Forbidden("only a page of the console may do this", hint="open it with `bascule console`")
    return call.session
