"""The one way in: look up, decode once, quota, who, decide, record, act, record.

The order is fixed: it is security, not middleware. A call is answered with a value when nothing has to
be waited for, else with a future; no task is made here, so an allowed message costs microseconds and a
client that goes away just cancels its future. Consent has its place between decide and record; until
the first bridge that needs it, no rule can say `ask` (see `policy.rules`).
"""

import asyncio
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from bascule.audit.journal import Journal, Transaction
from bascule.audit.ports import Log
from bascule.call import LOCAL, PERSON, Call, Principal, agent_of
from bascule.errors import BasculeError, Forbidden, Internal, InvalidRequest, NotFound, PolicyDenied
from bascule.ids import new_fault_id
from bascule.policy.decision import Decision
from bascule.policy.engine import Policy
from bascule.protocols.methods import Record, Row, Shape, WhoKind
from bascule.wire import codec

_ALLOW = Decision.ALLOW


class Reader(Protocol):
    def __call__(self, call: Call, params: Any, /) -> Any:
        """A value, a future, or (streams) a `Stream`."""


class Writer(Protocol):
    def __call__(self, call: Call, params: Any, tx: Transaction, /) -> Any:
        """Change tables through `tx` and answer a value; dispatch commits."""


class Quota(Protocol):
    def take(self, principal: Principal) -> None:
        """Raise `Overloaded` when the principal calls too often."""


class Parties(Protocol):
    def __call__(self, ticket_id: str, /) -> tuple[Principal, Principal]:
        """Both sides of a ticket; raises `NotFound`."""


class Seen(Protocol):
    def __call__(self, principal: Principal, /) -> None:
        """An authenticated act of this principal: a sign of life."""


class Observe(Protocol):
    def __call__(self, method: str, outcome: str, seconds: float, /) -> None:
        """Count a call for the metrics."""


class Mounted(NamedTuple):
    row: Row
    handler: Any
    decoder: codec.Decoder[Any]
    # Gives back what a wait took when its client was gone before the answer could be written.
    abandon: Callable[[Any, Any], None] | None
    # Told once at mounting, because these are asked on every call.
    for_anyone: bool
    changes: bool
    streams: bool


class _Guarded(asyncio.Future[Any]):
    """What a waiting caller holds. Its cancelling reaches the waiter at once, not with the next round of the loop."""

    def __init__(self, inner: "asyncio.Future[Any]") -> None:
        super().__init__(loop=inner.get_loop())
        self._inner = inner

    def cancel(self, msg: Any | None = None) -> bool:
        self._inner.cancel()
        return super().cancel(msg)


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
    ) -> None:
        self.policy = policy
        # Methods that a caller without a token may use for any agent: only with `--auth off`, only on TCP.
        self._plain = plain
        self._journal = journal
        self._quota = quota
        self._parties = parties
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
            give_back = (abandon or {}).get(row.name)
            self.methods[row.name] = Mounted(
                row,
                handlers[row.name],
                codec.decoder(row.params),
                give_back,
                for_anyone=row.who.kind is WhoKind.ANYONE,
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
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda future: self._finish_future(call, future, start))
        else:
            self._finish(call, "ok", start)
        return answer

    def _carry(self, call: Call) -> Any:
        mounted = self.methods.get(call.method)
        if mounted is None:
            raise NotFound(f"no method {call.method!r}", hint="docs/reference lists the methods")
        row = mounted.row
        params = call.params
        if not isinstance(params, row.params):
            try:
                params = call.params = mounted.decoder.decode(params)
            except codec.BadJson as error:
                raise InvalidRequest(error.message, details={"method": row.name}) from error
        self._quota.take(call.principal)
        try:
            if call.method in self._plain and call.door == "tcp" and call.principal == LOCAL:
                call.as_owner = True
            elif not mounted.for_anyone:
                self._check_who(row, call.principal, params)
            rule = self._decide(row, call.principal, params)
        except (Forbidden, PolicyDenied) as error:
            self._record_refusal(call, row, error)
            raise
        self._seen(call.principal)
        if mounted.changes:
            return self._change(call, mounted, params, rule)
        answer = mounted.handler(call, params)
        if mounted.streams:
            return answer
        if isinstance(answer, asyncio.Future):
            return self._guarded(call, answer)
        return self._when_settled(call, self._journal.newest(), answer, lambda: mounted.handler(call, params))

    def _change(self, call: Call, mounted: Mounted, params: Any, rule: str) -> Any:
        """Act and record in one transaction; a refusal undoes what the handler had begun."""
        tx = Transaction()
        try:
            answer = mounted.handler(call, params, tx)
        except BasculeError as error:
            tx.undo()
            if isinstance(error, Forbidden) or tx.subject is not None:
                self._record_refusal(call, mounted.row, error, tx)
            raise
        except BaseException:
            tx.undo()
            raise
        if isinstance(answer, asyncio.Future):
            # Slow work (scrypt) finishes elsewhere and commits by itself.
            return self._guarded(call, answer)
        if not tx.changes and tx.subject is None:
            # A retry of what is stored already: nothing new to record.
            return self._when_settled(call, self._journal.newest(), answer)
        return self._when_settled(call, self._journal.commit(tx, call.principal, call.method, rule=rule), answer)

    def _decide(self, row: Row, principal: Principal, params: Any) -> str:
        """The name of the rule that allows it."""
        verdict = self.policy.decide(principal, row.name, row.effect, lambda: params)
        if verdict.decision is not _ALLOW:
            raise PolicyDenied(
                verdict.reason, hint=verdict.suggestion, details={"rule": verdict.rule, "method": row.name}
            )
        return verdict.rule

    def _check_who(self, row: Row, principal: Principal, params: Any) -> None:
        who = row.who
        match who.kind:
            case WhoKind.ANYONE:
                return
            case WhoKind.SELF:
                agent_id = getattr(params, who.field)
                if agent_of(principal) == agent_id:
                    return
                raise Forbidden(
                    f"{principal} may not act as {agent_id}",
                    hint=f"use the agentToken that registering {agent_id} returned; helpers take --agent {agent_id}",
                )
            case WhoKind.PARTY:
                if principal == PERSON or principal in self._parties(getattr(params, who.field)):
                    return
                raise Forbidden(
                    f"{principal} is not a side of ticket {getattr(params, who.field)}",
                    hint="only the sender and the addressee may; act with that agent's token",
                )
            case WhoKind.LOCAL:
                if principal in (LOCAL, PERSON):
                    return
                raise Forbidden(
                    f"{principal} may not call {row.name}",
                    hint="run the bascule command in your own terminal",
                )
            case WhoKind.PERSON:
                if principal == PERSON:
                    return
                raise Forbidden(
                    f"only the person may call {row.name}",
                    hint="set a passphrase with `bascule person set`; the command asks for it on your terminal",
                )

    def _when_settled(self, call: Call, seq: int, answer: Any, again: Callable[[], Any] | None = None) -> Any:
        """Nothing is told before it is durable, whoever wrote it. A read looks `again` if that was undone."""
        durable = self._journal.settled(seq)
        if durable is None:
            return answer
        told: asyncio.Future[Any] = durable.get_loop().create_future()

        def tell(future: asyncio.Future[None]) -> None:
            if told.done():
                return
            error = future.exception()
            if error is None:
                told.set_result(answer)
            elif again is None:
                told.set_exception(error)
            else:
                self._tell_again(call, told, again)

        durable.add_done_callback(tell)
        return told

    def _tell_again(self, call: Call, told: "asyncio.Future[Any]", again: Callable[[], Any]) -> None:
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
            waiting = self._guarded(call, answer)
        else:
            # Newer writes may be under way by now.
            waiting = self._when_settled(call, self._journal.newest(), answer, again)
        if not isinstance(waiting, asyncio.Future):
            told.set_result(waiting)
            return

        def copy(done: "asyncio.Future[Any]") -> None:
            if told.done():
                return
            if done.cancelled():
                told.cancel()
            elif (error := done.exception()) is not None:
                told.set_exception(error)
            else:
                told.set_result(done.result())

        def let_go(_: "asyncio.Future[Any]") -> None:
            waiting.cancel()

        waiting.add_done_callback(copy)
        told.add_done_callback(let_go)

    def _guarded(self, call: Call, inner: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
        """A handler's own future as the caller may have it: faults become ids, a lost answer is given back."""
        outer = _Guarded(inner)

        def inner_done(_: "asyncio.Future[Any]") -> None:
            if inner.cancelled():
                outer.cancel()
                return
            error = inner.exception()
            if outer.done():
                # Cancelled in the very moment the answer came.
                if error is None:
                    self.abandoned(call, inner.result())
            elif error is None:
                outer.set_result(inner.result())
            else:
                outer.set_exception(error if isinstance(error, BasculeError) else self._internal(call, error))

        inner.add_done_callback(inner_done)
        return outer

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
        self._log(
            "call",
            method=call.method,
            principal=call.principal,
            door=call.door,
            outcome=error.code,
            subject=ticket or agent,
            agent=agent if ticket else None,
        )

    def abandoned(self, call: Call, answer: Any) -> None:
        """The client was gone before its answer could be written: give back what the wait took."""
        mounted = self.methods[call.method]
        if mounted.abandon is not None and answer is not None:
            mounted.abandon(call.params, answer)

    def _finish_future(self, call: Call, future: "asyncio.Future[Any]", start: float) -> None:
        if future.cancelled():
            self._finish(call, "cancelled", start)
            return
        error = future.exception()
        self._finish(call, error.code if isinstance(error, BasculeError) else "ok", start)

    def _finish(self, call: Call, outcome: str, start: float) -> None:
        seconds = perf_counter() - start
        subject = _subject(call.params)
        agent = getattr(call.params, "agent_id", None)
        # A name a peer invented must not become a series of its own.
        self._observe(call.method if call.method in self.methods else "unknown", outcome, seconds)
        self._log(
            "call",
            method=call.method,
            principal=call.principal,
            door=call.door,
            outcome=outcome,
            subject=subject,
            agent=agent if agent != subject else None,
            ms=seconds * 1000,
        )

    def _internal(self, call: Call, error: BaseException) -> Internal:
        """Invariant I4: the peer hears an id, the log has the rest."""
        fault = new_fault_id()
        self._log("fault", level="error", id=fault, method=call.method, principal=call.principal, error=error)
        return Internal(f"internal error {fault}", hint=f"`bascule logs` shows what happened: look for {fault}")


def _subject(params: Any) -> str | None:
    """What a call is about, for log and ledger: a ticket, else an agent."""
    return getattr(params, "ticket_id", None) or getattr(params, "agent_id", None)
