"""The one way in: look up, decode once, quota, who, decide, consent, record, act, record.

The order is fixed: it is security, not middleware. A call is answered with a value when nothing has to
be waited for, else with a `Later`; no task is made here, so an allowed message costs microseconds and a
client that goes away just cancels what it waits for. How answers wait for the disk is in `audit.telling`, how
callers wait for a person in `approval.holding`, how effects outside the store are recorded in `approval.ahead`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from bascule.approval.ahead import Ahead
from bascule.approval.desk import Desk
from bascule.approval.effects import Effects
from bascule.approval.holding import Draw, HeldCall, Steps
from bascule.audit.journal import Journal, Transaction
from bascule.audit.ports import Log, LogLine
from bascule.audit.refusals import Refusals
from bascule.audit.telling import Telling, from_elsewhere, refused_after
from bascule.call import LOCAL, Call, Principal
from bascule.errors import BasculeError, Forbidden, Internal, InvalidRequest, NotFound, PolicyDenied
from bascule.identity.ownership import Ownership, Parties, Starter, ownership
from bascule.ids import new_fault_id
from bascule.later import Later
from bascule.policy.decision import Decision, Verdict
from bascule.policy.engine import Policy
from bascule.protocols.methods import Bound, Consent, Record, Row, Shape
from bascule.wire import codec

# Members of an Enum class are slow to read, and these are read for every call.
_ALLOW, _ASK = Decision.ALLOW, Decision.ASK
_JOINED, _BEHIND, _AHEAD = Record.JOINED, Record.BEHIND, Record.AHEAD
_WAIT = Shape.WAIT


class Quota(Protocol):
    def take(self, principal: Principal) -> None:
        """Raise `Overloaded` when the principal calls too often."""


class Seen(Protocol):
    def __call__(self, principal: Principal, /) -> None:
        """An authenticated act of this principal: a sign of life."""


class Observe(Protocol):
    def __call__(self, method: str, outcome: str, seconds: float, /) -> None:
        """Count a call for the metrics."""


class _CallLine(LogLine, frozen=True, gc=False, tag_field="event", tag="call"):
    """What the log says about every call."""

    method: str
    principal: str
    door: str
    outcome: str
    subject: str | None = None
    agent: str | None = None
    ms: float | None = None


class Mounted(NamedTuple):
    row: Row
    handler: Any
    decoder: codec.Decoder[Any]
    # Gives back what a wait took when its client was gone before the answer could be written.
    abandon: Callable[[Any, Any], None] | None
    # Told once at mounting, because these are asked on every call.
    name: str
    params: type
    ownership: Ownership | None
    plain: bool
    record: Record
    streams: bool
    # A person can be asked about it.
    holds: bool
    draw: Draw | None


class Dispatch:
    """Rows and their handlers, behind the gates that every call passes."""

    def __init__(
        self,
        *,
        policy: Policy,
        journal: Journal,
        refusals: Refusals,
        quota: Quota,
        parties: Parties,
        seen: Seen,
        log: Log,
        observe: Observe,
        desk: Desk,
        effects: Effects,
        plain: frozenset[str] = frozenset(),
        starters: Mapping[str, Starter] | None = None,
    ) -> None:
        self.policy = policy
        # Methods that a caller without a token may use for any agent: only with `--auth off`, only on TCP.
        self._plain = plain
        self._journal = journal
        self._refusals = refusals
        self._telling = Telling(journal)
        self._desk = desk
        self._effects = effects
        self._quota = quota
        self._parties = parties
        # By the parameter that names what was started: run_id, process_id, space_id.
        self._starters = dict(starters or {})
        self._seen = seen
        self._log = log
        self._observe = observe
        self.methods: dict[str, Mounted] = {}

    def mount(self, bound: Iterable[Bound]) -> None:
        """Rows and their handlers, checked against each other by `Row.bind` (invariant I2)."""
        for row, handler, abandon, resolve in bound:
            if row.name in self.methods:
                raise ValueError(f"mounted already: {row.name}")
            self.methods[row.name] = Mounted(
                row,
                handler,
                codec.decoder(row.params),
                abandon,
                name=row.name,
                params=row.params,
                ownership=ownership(row, self._parties, self._starters),
                plain=row.name in self._plain,
                record=row.record,
                streams=row.shape is Shape.STREAM,
                holds=row.consent is Consent.HOLD,
                draw=resolve,
            )

    def call(self, call: Call) -> Any:
        """Carry out one call. `call.params` is raw JSON, or the params Struct an edge has decoded."""
        start = perf_counter()
        try:
            answer = self._carry(call)
        except BasculeError as error:
            self._finish(call, error.code, start)
            raise
        except Exception as error:
            internal = self._internal(call, error)
            self._finish(call, internal.code, start)
            raise internal from error
        if isinstance(answer, Later):
            answer.add_done_callback(partial(self._finish_later, call, start))
        else:
            self._finish(call, "ok", start)
        return answer

    def _carry(self, call: Call) -> Any:
        mounted = self.methods.get(call.method)
        if mounted is None:
            raise NotFound(f"no method {call.method!r}", hint="docs/reference lists the methods")
        params = call.params
        if type(params) is not mounted.params:
            try:
                params = call.params = mounted.decoder.decode(params)
            except codec.BadJson as error:
                raise InvalidRequest(error.message, details={"method": mounted.name}) from error
        self._quota.take(call.principal)
        verdict = self._judge(call, mounted, params)
        self._seen(call.principal)
        if mounted.holds:
            return self._consent(call, mounted, params, verdict)
        return self._act(call, mounted, params, verdict.rule)

    def _judge(self, call: Call, mounted: Mounted, params: Any) -> Verdict:
        """Whose call it may be, then what the policy says: `allow`, or `ask` where a person can be asked."""
        principal = call.principal
        try:
            if mounted.plain and call.door == "tcp" and principal == LOCAL:
                call.as_owner = True
            elif mounted.ownership is not None:
                mounted.ownership(principal, params)
            verdict = self.policy.known(principal, mounted.name) or self.policy.decide(
                principal, mounted.name, mounted.row.effect, lambda: params
            )
            if verdict.decision is not _ALLOW and not (mounted.holds and verdict.decision is _ASK):
                raise _denied(verdict, mounted.name)
        except (Forbidden, PolicyDenied) as error:
            self._record_refusal(call, mounted.row, error)
            raise
        return verdict

    def _consent(self, call: Call, mounted: Mounted, params: Any, verdict: Verdict) -> Any:
        """A person can be asked about it: see `approval.holding`, which comes back to `_judge` and `_act`."""
        if verdict.decision is _ALLOW and mounted.draw is None:
            return self._act(call, mounted, params, verdict.rule)

        def deny(stricter: Verdict) -> BasculeError:
            refusal = _denied(stricter, mounted.name)
            self._record_refusal(call, mounted.row, refusal)
            return refusal

        steps = Steps(
            judge=partial(self._judge, call, mounted, params),
            act=partial(self._act, call, mounted, params),
            deny=deny,
            fault=partial(self._internal, call),
        )
        held = HeldCall(call, mounted.row, params, mounted.draw, steps, journal=self._journal, desk=self._desk)
        return held.carry(verdict)

    def _act(self, call: Call, mounted: Mounted, params: Any, rule: str, approval_id: str | None = None) -> Any:
        """Everybody has said yes. A grant is spent in the transaction that records what it is spent for."""
        if mounted.record is _JOINED:
            return self._change(call, mounted, params, rule, approval_id)
        if mounted.record is _AHEAD or mounted.record is _BEHIND:
            begun = self._effects.begin(
                call.principal,
                mounted.name,
                subject=_subject(params) or call.subject,
                rule=rule,
                approval_id=approval_id,
                run_id=getattr(params, "run_id", None),
            )
            act = partial(mounted.handler, call, params)
            first = mounted.record is _AHEAD or approval_id is not None or call.ahead
            fault = partial(self._internal, call)
            return Ahead(self._effects, begun, act, fault, first=first, waits=mounted.row.shape is _WAIT).told
        answer = mounted.handler(call, params)
        if mounted.streams or isinstance(answer, Later):
            return answer
        if isinstance(answer, asyncio.Future):
            return from_elsewhere(partial(self._internal, call), answer)
        if self._journal.idle:
            return answer
        again = partial(mounted.handler, call, params)
        return self._telling.when_settled(partial(self._internal, call), self._journal.newest(), answer, again)

    def _change(self, call: Call, mounted: Mounted, params: Any, rule: str, approval_id: str | None) -> Any:
        """Act and record in one transaction; a refusal undoes what the handler had begun."""
        tx = Transaction()
        try:
            if approval_id is not None:
                self._desk.spend(tx, approval_id)
                self._desk.settle(tx, approval_id)
            answer = mounted.handler(call, params, tx)
        except BasculeError as error:
            tx.undo()
            before = self._journal.settled(self._journal.newest())
            if isinstance(error, Forbidden) or tx.subject is not None:
                self._record_refusal(call, mounted.row, error, tx)
            if before is None:
                raise
            return refused_after(before, error)
        except BaseException:
            tx.undo()
            raise
        if isinstance(answer, asyncio.Future):
            # Slow work (scrypt) finishes elsewhere and commits by itself.
            return from_elsewhere(partial(self._internal, call), answer)
        if approval_id is not None:
            tx.details = {**(tx.details or {}), "approval": approval_id}
        return self._commit(call, tx, rule, answer)

    def _commit(self, call: Call, tx: Transaction, rule: str, answer: Any) -> Any:
        if not tx.changes and tx.subject is None:
            # A retry of what is stored already: nothing new to record.
            seq = self._journal.newest()
        else:
            seq = self._journal.commit(tx, call.principal, call.method, "ok", rule)
        if tx.then is not None:
            return self._telling.and_then(partial(self._internal, call), seq, tx.then(answer))
        if self._journal.idle:
            return answer
        return self._telling.when_settled(partial(self._internal, call), seq, answer)

    def _record_refusal(self, call: Call, row: Row, error: BasculeError, failed: Transaction | None = None) -> None:
        """Refusals are decisions, and decisions are recorded; the caller's answer does not wait for it."""
        if row.record is Record.NONE:
            return
        self._refusals.record(
            call.principal,
            row.name,
            error.code,
            rule=error.details.get("rule") if error.details else None,
            subject=(failed.subject if failed else None) or _subject(call.params) or call.subject,
            reason=error.message,
        )

    def refused(self, call: Call, error: BasculeError, agent: str | None, ticket: str | None) -> None:
        """An edge could not even make params of what came: counted and logged like every call.

        Not the reason: it quotes what was sent.
        """
        self._observe(call.method, error.code, 0.0)
        about = (ticket or agent, agent if ticket else None)
        self._log(_CallLine(call.method, call.principal, call.door, error.code, *about))

    def abandoned(self, call: Call, answer: Any) -> None:
        """The client was gone before its answer could be written: give back what the wait took."""
        mounted = self.methods[call.method]
        if mounted.abandon is not None and answer is not None:
            mounted.abandon(call.params, answer)

    def _finish_later(self, call: Call, start: float, answer: Later[Any]) -> None:
        if answer.cancelled():
            self._finish(call, "cancelled", start)
            return
        error = answer.exception()
        self._finish(call, error.code if isinstance(error, BasculeError) else "ok", start)

    def _finish(self, call: Call, outcome: str, start: float) -> None:
        seconds = perf_counter() - start
        params = call.params
        method = call.method
        agent = getattr(params, "agent_id", None)
        subject = getattr(params, "ticket_id", None)
        if subject is None:
            subject, agent = agent, None
        # A name a peer invented must not become a series of its own.
        self._observe(method if method in self.methods else "unknown", outcome, seconds)
        ms = int(seconds * 1_000_000) / 1000
        self._log(_CallLine(method, call.principal, call.door, outcome, subject, agent, ms))

    def _internal(self, call: Call, error: BaseException) -> Internal:
        """Invariant I4: the peer hears an id, the log has the rest."""
        fault = new_fault_id()
        self._log("fault", level="error", id=fault, method=call.method, principal=call.principal, error=error)
        return Internal(f"internal error {fault}", hint=f"`bascule logs` shows what happened: look for {fault}")


def _denied(verdict: Verdict, method: str) -> PolicyDenied:
    hint = verdict.suggestion
    if verdict.decision is _ASK and hint is None:
        hint = "the policy wants a person to be asked, and nobody can be asked about this method"
    return PolicyDenied(verdict.reason, hint=hint, details={"rule": verdict.rule, "method": method})


_SUBJECTS = ("ticket_id", "agent_id", "run_id", "process_id", "approval_id", "space_id", "game_id")


def _subject(params: Any) -> str | None:
    """What a call is about, for log and ledger."""
    for name in _SUBJECTS:
        found: str | None = getattr(params, name, None)
        if found:
            return found
    return None
