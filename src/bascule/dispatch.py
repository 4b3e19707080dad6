"""The one way in: look up, decode once, quota, who, decide, record, act, record.

The order is fixed: it is security, not middleware. A call is answered with a value when nothing has to
be waited for, else with a `Later`; no task is made here, so an allowed message costs microseconds and a
client that goes away just cancels what it waits for. Consent has its place between decide and record; until
the first bridge that needs it, no rule can say `ask` (see `policy.rules`).
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from bascule.audit.journal import Journal, Transaction
from bascule.audit.ports import Log, LogLine
from bascule.call import LOCAL, PERSON, Call, Principal, agent_principal
from bascule.errors import BasculeError, Forbidden, Internal, InvalidRequest, NotFound, PolicyDenied
from bascule.ids import new_fault_id
from bascule.later import Later, from_future
from bascule.policy.decision import Decision
from bascule.policy.engine import Policy
from bascule.protocols.methods import Record, Row, Shape, WhoKind
from bascule.wire import codec

_ALLOW = Decision.ALLOW


class Reader(Protocol):
    def __call__(self, call: Call, params: Any, /) -> Any:
        """A value, a `Later`, a future of the loop's, or (streams) a `Stream`."""


class Writer(Protocol):
    def __call__(self, call: Call, params: Any, tx: Transaction, /) -> Any:
        """Change tables through `tx` and answer a value; dispatch commits."""


class Quota(Protocol):
    def take(self, principal: Principal) -> None:
        """Raise `Overloaded` when the principal calls too often."""


class Parties(Protocol):
    def __call__(self, ticket_id: str, /) -> tuple[Principal, ...]:
        """Both sides of a ticket; raises `NotFound`."""


class Starter(Protocol):
    def __call__(self, id_: str, /) -> Principal:
        """Who started the run or command, or opened the space; raises `NotFound`."""


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


# Raises `Forbidden` when the call is not this principal's to make.
_Ownership = Callable[[Principal, Any], None]


class Mounted(NamedTuple):
    row: Row
    handler: Any
    decoder: codec.Decoder[Any]
    # Gives back what a wait took when its client was gone before the answer could be written.
    abandon: Callable[[Any, Any], None] | None
    # Told once at mounting, because these are asked on every call.
    name: str
    params: type
    ownership: _Ownership | None
    plain: bool
    changes: bool
    streams: bool


class Dispatch:
    """Rows and their handlers, behind the gates that every call passes."""

    def __init__(
        self,
        *,
        policy: Policy,
        journal: Journal,
        quota: Quota,
        parties: Parties,
        seen: Seen,
        log: Log,
        observe: Observe,
        plain: frozenset[str] = frozenset(),
        starters: Mapping[str, Starter] | None = None,
    ) -> None:
        self.policy = policy
        # Methods that a caller without a token may use for any agent: only with `--auth off`, only on TCP.
        self._plain = plain
        self._journal = journal
        self._quota = quota
        self._parties = parties
        # By the parameter that names what was started: run_id, process_id, space_id.
        self._starters = dict(starters or {})
        self._seen = seen
        self._log = log
        self._observe = observe
        self.methods: dict[str, Mounted] = {}

    def mount(
        self,
        rows: tuple[Row, ...],
        handlers: Mapping[str, Reader | Writer],
        abandon: Mapping[str, Callable[[Any, Any], None]] | None = None,
    ) -> None:
        """Every row gets its handler and every handler has a row (invariant I2)."""
        names = {row.name for row in rows}
        if names != set(handlers):
            raise ValueError(f"rows and handlers differ: {sorted(names ^ set(handlers))}")
        if taken := names & set(self.methods):
            raise ValueError(f"mounted already: {sorted(taken)}")
        for row in rows:
            self.methods[row.name] = Mounted(
                row,
                handlers[row.name],
                codec.decoder(row.params),
                (abandon or {}).get(row.name),
                name=row.name,
                params=row.params,
                ownership=self._ownership(row),
                plain=row.name in self._plain,
                changes=row.record is not Record.NONE,
                streams=row.shape is Shape.STREAM,
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
        rule = self._judge(call, mounted, params)
        self._seen(call.principal)
        if mounted.changes:
            return self._change(call, mounted, params, rule)
        answer = mounted.handler(call, params)
        if mounted.streams or isinstance(answer, Later):
            return answer
        if isinstance(answer, asyncio.Future):
            return self._from_elsewhere(call, answer)
        if self._journal.idle:
            return answer
        return self._when_settled(call, self._journal.newest(), answer, lambda: mounted.handler(call, params))

    def _judge(self, call: Call, mounted: Mounted, params: Any) -> str:
        """Whose call it may be, then what the policy says: the name of the rule that allows it."""
        principal = call.principal
        try:
            if mounted.plain and call.door == "tcp" and principal == LOCAL:
                call.as_owner = True
            elif mounted.ownership is not None:
                mounted.ownership(principal, params)
            verdict = self.policy.known(principal, mounted.name) or self.policy.decide(
                principal, mounted.name, mounted.row.effect, lambda: params
            )
            if verdict.decision is not _ALLOW:
                raise PolicyDenied(  # noqa: TRY301 - recorded below like a refusal by ownership
                    verdict.reason, hint=verdict.suggestion, details={"rule": verdict.rule, "method": mounted.name}
                )
        except (Forbidden, PolicyDenied) as error:
            self._record_refusal(call, mounted.row, error)
            raise
        return verdict.rule

    def _change(self, call: Call, mounted: Mounted, params: Any, rule: str) -> Any:
        """Act and record in one transaction; a refusal undoes what the handler had begun."""
        tx = Transaction()
        try:
            answer = mounted.handler(call, params, tx)
        except BasculeError as error:
            tx.undo()
            before = self._journal.settled(self._journal.newest())
            if isinstance(error, Forbidden) or tx.subject is not None:
                self._record_refusal(call, mounted.row, error, tx)
            if before is None:
                raise
            return _refused_after(before, error)
        except BaseException:
            tx.undo()
            raise
        if isinstance(answer, asyncio.Future):
            # Slow work (scrypt) finishes elsewhere and commits by itself.
            return self._from_elsewhere(call, answer)
        if not tx.changes and tx.subject is None:
            # A retry of what is stored already: nothing new to record.
            seq = self._journal.newest()
        else:
            seq = self._journal.commit(tx, call.principal, call.method, "ok", rule)
        if tx.then is not None:
            return self._and_then(call, seq, tx.then, answer)
        return answer if self._journal.idle else self._when_settled(call, seq, answer)

    def _and_then(self, call: Call, seq: int, then: Callable[[Any], Any], answer: Any) -> Any:
        """What was done has something to wait for; like every answer, that is told only once it is durable."""
        waiting = then(answer)
        durable = self._journal.settled(seq)
        if durable is None:
            return waiting
        if not isinstance(waiting, Later):
            return self._when_settled(call, seq, waiting)
        told: Later[Any] = Later()

        def look(_: object) -> None:
            if told.done() or not durable.done():
                return
            if (error := durable.exception()) is not None:
                told.set_exception(error)
            elif waiting.done():
                told.take_over(waiting)

        durable.add_done_callback(look)
        waiting.add_done_callback(look)
        told.add_done_callback(lambda _: waiting.cancel())
        return told

    def _ownership(self, row: Row) -> _Ownership | None:
        """Whose call it may be, made once from the row."""
        match row.who.kind:
            case WhoKind.ANYONE:
                return None
            case WhoKind.SELF:
                return partial(_check_self, attrgetter(row.who.field))
            case WhoKind.PARTY:
                return partial(_check_party, attrgetter(row.who.field), self._parties)
            case WhoKind.STARTER:
                return partial(_check_starter, attrgetter(row.who.field), self._starters[row.who.field])
            case WhoKind.LOCAL:
                return partial(_check_local, row.name)
            case WhoKind.PERSON:
                return partial(_check_person, row.name)

    def _when_settled(self, call: Call, seq: int, answer: Any, again: Callable[[], Any] | None = None) -> Any:
        """Nothing is told before it is durable, whoever wrote it. A read looks `again` if that was undone."""
        durable = self._journal.settled(seq)
        if durable is None:
            return answer
        told: Later[Any] = Later()

        def tell(settled: "Later[None]") -> None:
            if told.done():
                return
            error = settled.exception()
            if error is None:
                told.set_result(answer)
            elif again is None:
                told.set_exception(error)
            else:
                self._tell_again(call, told, again)

        durable.add_done_callback(tell)
        return told

    def _tell_again(self, call: Call, told: Later[Any], again: Callable[[], Any]) -> None:
        """What a read saw was undone: it looks once more, at what is durable now; a wait goes on waiting."""
        try:
            answer = again()
        except BasculeError as refusal:
            told.set_exception(refusal)
            return
        except Exception as error:  # noqa: BLE001 - I4: whoever waits hears an id, not silence
            told.set_exception(self._internal(call, error))
            return
        if isinstance(answer, asyncio.Future):
            answer = self._from_elsewhere(call, answer)
        elif not isinstance(answer, Later):
            # Newer writes may be under way by now.
            answer = self._when_settled(call, self._journal.newest(), answer, again)
        if not isinstance(answer, Later):
            told.set_result(answer)
            return
        waiting = answer

        waiting.add_done_callback(told.take_over)
        told.add_done_callback(lambda _: waiting.cancel())

    def _from_elsewhere(self, call: Call, future: "asyncio.Future[Any]") -> Later[Any]:
        """Work of another thread or task, as the caller may have it: faults become ids."""
        answer = from_future(future)
        told: Later[Any] = Later()

        def tell(_: "Later[Any]") -> None:
            if told.done():
                return
            if answer.cancelled():
                told.cancel()
            elif (error := answer.exception()) is None:
                told.set_result(answer.result())
            else:
                told.set_exception(error if isinstance(error, BasculeError) else self._internal(call, error))

        answer.add_done_callback(tell)
        told.add_done_callback(lambda _: answer.cancel())
        return told

    def _record_refusal(self, call: Call, row: Row, error: BasculeError, failed: Transaction | None = None) -> None:
        """Refusals are decisions, and decisions are recorded; the caller's answer does not wait for it."""
        if row.record is Record.NONE:
            return
        tx = Transaction()
        tx.subject = (failed.subject if failed else None) or _subject(call.params)
        tx.details = {"reason": error.message}
        rule = error.details.get("rule") if error.details else None
        self._journal.commit(tx, call.principal, row.name, error.code, rule)

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


def _refused_after(durable: Later[None], refusal: BasculeError) -> Later[Any]:
    """A refusal tells what is ("ticket cancelled"), so it too waits until that is durable; if it never is, 507."""
    told: Later[Any] = Later()

    def tell(settled: Later[None]) -> None:
        if not told.done():
            told.set_exception(settled.exception() or refusal)

    durable.add_done_callback(tell)
    return told


def _check_self(named: Callable[[Any], str], principal: Principal, params: Any) -> None:
    agent_id = named(params)
    if principal != agent_principal(agent_id):
        raise Forbidden(
            f"{principal} may not act as {agent_id}",
            hint=f"use the agentToken that registering {agent_id} returned; helpers take --agent {agent_id}",
        )


def _check_party(named: Callable[[Any], str], parties: Parties, principal: Principal, params: Any) -> None:
    if principal != PERSON and principal not in parties(named(params)):
        raise Forbidden(
            f"{principal} is not a side of ticket {named(params)}",
            hint="only the sender and the addressee may; act with that agent's token",
        )


def _check_starter(named: Callable[[Any], str], starter: Starter, principal: Principal, params: Any) -> None:
    id_ = named(params)
    if principal != PERSON and principal != starter(id_):
        raise Forbidden(
            f"{principal} did not start {id_}",
            hint="only whoever started it may, and the person: unlock with the passphrase (`bascule person set`)",
        )


def _check_local(method: str, principal: Principal, _params: Any) -> None:
    if principal not in (LOCAL, PERSON):
        raise Forbidden(f"{principal} may not call {method}", hint="run the bascule command in your own terminal")


def _check_person(method: str, principal: Principal, _params: Any) -> None:
    if principal != PERSON:
        raise Forbidden(
            f"only the person may call {method}",
            hint="set a passphrase with `bascule person set`; the command asks for it on your terminal",
        )


def _subject(params: Any) -> str | None:
    """What a call is about, for log and ledger: a ticket, else an agent."""
    return getattr(params, "ticket_id", None) or getattr(params, "agent_id", None)
