"""The gate: every call of every door, and every operation of a run, passes here. Nothing acts otherwise.

    call:     decode -> admit -> a row inside the store is executed at once: no task, no closure
                              -> else one coroutine, for doors and operations alike:
    outside:  resolve -> admit again with its facts -> ask where a rule says so -> prepare -> begin -> act -> finish

The order is fixed: it is security, not middleware.

1. `_admit` (quota, stopped or not, ownership, proof, policy) alone calls the first four, `_decide` the policy.
2. Which way a row goes is fixed when it is mounted.
3. Every durable step is a named function, so that a failpoint can be set at its edges.

A call is answered with a value when nothing has to be waited for, else with a `Deferred`. Reads and refusals wait for
the commits they rest on, and a read looks again if those were undone. A caller that leaves before `begin` withdraws its
call; after it the effect belongs to the daemon.
"""

import asyncio
import inspect
from collections.abc import Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Protocol

import msgspec

from bascule.foundation.deferred import Deferred, from_future
from bascule.foundation.errors import BasculeError, Forbidden, NotFound, PolicyDenied, Stopped, Unauthenticated
from bascule.foundation.tasks import Tasks
from bascule.kernel.asking import question_of
from bascule.kernel.at_console import check_at_console
from bascule.kernel.call import BROWSER, Call, Principal, agent_principal, proof_of, subject_of
from bascule.kernel.call_log import CallLog
from bascule.kernel.consent.desk import Desk
from bascule.kernel.consent.questions import lost, params_and_digest, refusal_of, timed_text
from bascule.kernel.consent.records import Approval
from bascule.kernel.consent.states import ApprovalState
from bascule.kernel.effects import UNKNOWN, Effects, RecordedEffect
from bascule.kernel.halt import Halt
from bascule.kernel.identity.ownership import Parties, Starter
from bascule.kernel.identity.proofs import ProofBook
from bascule.kernel.journal import AfterCommit, Journal, Reading, Transaction
from bascule.kernel.mounted import Complete, Mounted, mounted
from bascule.kernel.passage import Answer, Passage, resumed
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.kernel.policy.engine import Policy
from bascule.kernel.policy.programs import ProgramRules
from bascule.kernel.refusals import Refusals
from bascule.kernel.resolution import PLAIN, Resolution
from bascule.kernel.rows import Bound, Record, Row, Shape

# Members of an Enum class are slow to read, and these are read for every call.
_ALLOW, _ASK, _DENY = Decision.ALLOW, Decision.ASK, Decision.DENY
_JOINED = Record.JOINED
# What an effect that has begun gets to end by itself when the daemon stops.
CLOSE_SECONDS = 5.0


class Quota(Protocol):
    def take(self, principal: Principal) -> None:
        """Raise `Overloaded` when the principal calls too often."""


class OnActivity(Protocol):
    def __call__(self, principal: Principal, /) -> None:
        """An authenticated act of this principal: a sign of life."""


class Gate:
    def __init__(
        self,
        *,
        policy: Policy,
        journal: Journal,
        refusals: Refusals,
        quota: Quota,
        call_log: CallLog,
        desk: Desk,
        effects: Effects,
        proofs: ProofBook | None = None,
    ) -> None:
        # The one in force: a person may accept another at any moment.
        self.policy = policy
        self.desk = desk
        self.effects = effects
        self.call_log = call_log
        self.methods: dict[str, Mounted] = {}
        self.journal = journal
        self._refusals = refusals
        self._quota = quota
        # What persons at the console have shown; None where there is no console.
        self._proofs = proofs
        self._tasks = Tasks(call_log.task_failed)
        # Those to come, of callers that still wait.
        self._answers: set[Answer] = set()
        # Set while everything is stopped: what the row does not leave open is refused.
        self.halt: Halt | None = None

    def connect(self, *, parties: Parties, seen: OnActivity, starters: Mapping[str, Starter]) -> None:
        """What the bridges provide, which are made after the gate; before anything is mounted."""
        self._parties = parties
        self._seen = seen
        # By the parameter that names what was started: run_id, process_id, space_id.
        self._starters = starters

    def mount(self, bound: Iterable[Bound], complete: Complete | None = None) -> None:
        """Rows and their handlers, which `Row.bind` has checked against each other (invariant I2)."""
        for each in bound:
            self._add(mounted(each, self._parties, self._starters, complete))

    def mount_operations(self, rows: Iterable[Row]) -> None:
        """Calls inside a run: rules name them, and no door leads to them."""
        for row in rows:
            self._add(mounted(Bound(row, None), self._parties, self._starters))

    def _add(self, method: Mounted) -> None:
        if method.name in self.methods:
            raise ValueError(f"mounted already: {method.name}")
        self.methods[method.name] = method

    # -- one call --

    def call(self, call: Call) -> Any:
        """Execute a call of a door. `call.params` is raw JSON, or the params Struct that the door has decoded."""
        start = perf_counter()
        try:
            method = self._find(call.method)
            if type(call.params) is not method.params:
                call = method.decoded(call)
            verdict = self._admit(call, method)
            self._seen(call.principal)
            if not method.inside:
                answer = self._start(call, method, verdict)
            elif method.changes:
                answer = self._change(call, method, verdict.rule, None)
            else:
                answer = self._read(call, method)
        except Exception as error:
            refusal = self.call_log.translate(call, error)
            self.call_log.ended(call, refusal.code, start, known=call.method in self.methods)
            if refusal is error:
                raise
            raise refusal from error
        if isinstance(answer, Deferred):
            answer.add_done_callback(partial(self.call_log.answered, call, start))
        else:
            self.call_log.ended(call, "ok", start)
        return answer

    def _find(self, name: str) -> Mounted:
        method = self.methods.get(name)
        if method is None or method.is_operation:
            raise NotFound(f"no method {name!r}", hint="docs/reference lists the methods")
        return method

    async def operate(self, passage: Passage) -> Any:
        """Execute an operation of a run. It has no door, so it is neither counted nor measured as a call."""
        passage.in_task = True
        return await self._outside(passage, self._admit(passage.call, passage.method, passage=passage))

    # -- admitting --

    def _admit(
        self,
        call: Call,
        method: Mounted,
        resolution: Resolution | None = None,
        *,
        passage: Passage | None = None,
    ) -> Verdict:
        """Whose call it may be, what was shown for it, and what the policy says of it: `allow`, or `ask` where a person
        can be asked.

        Of a method that is resolved, the first word is about its params alone: a denial needs no look at the world.
        """
        principal, params = call.principal, call.params
        if passage is None and not method.urgent:
            self._quota.take(principal)
        try:
            if self.halt is not None and not method.while_stopped(params):
                raise self.halt.refusal()
            if resolution is None and (call.session is not None or principal == BROWSER):
                check_at_console(call, method, self._proofs)
            elif resolution is None and method.ownership is not None and not call.as_owner:
                method.ownership(principal, params)
            judged = params if method.complete is None else method.complete(params)
            verdict = self._decide(principal, method.row, judged)
            if resolution is not None:
                verdict = self._judge(call, method, verdict, resolution, passage.run_id if passage else None)
            if verdict.decision is _DENY or (verdict.decision is _ASK and not method.asks):
                raise _denied(verdict, method.name)
        except (Forbidden, PolicyDenied, Stopped) as error:
            if passage is not None:
                passage.before_refusal()
            found = resolution or PLAIN
            about = passage.run_id if passage is not None else None
            self._record_refusal(call, method.row, error, about, subject_of(params), found.subject)
            found.adapted(error)
            raise
        return verdict

    def _decide(self, principal: Principal, row: Row, params: Any) -> Verdict:
        return self.policy.cached_verdict(principal, row.name) or self.policy.decide(
            principal, row.name, row.effect, lambda: params
        )

    def _judge(
        self, call: Call, method: Mounted, verdict: Verdict, resolution: Resolution, run_id: str | None
    ) -> Verdict:
        """The strictest of what the policy says of the params, of what they resolve to, and of what the bridge says."""
        principal, row = call.principal, method.row
        if resolution.facts is not None:
            verdict = _stricter(verdict, self._decide(principal, row, resolution.facts))
        if resolution.verdict is not None:
            verdict = _stricter(verdict, resolution.verdict)
        verdict = self._apply_timed_rule(verdict, principal, row, call.params, run_id=run_id, facts=resolution.facts)
        if resolution.leads_to is not None:
            there = self.verdict(principal, method.name, resolution.leads_to, run_id=run_id)
            if there.decision > verdict.decision:
                return msgspec.structs.replace(there, reason=f"{there.reason} ({resolution.led})")
        return verdict

    def verdict(
        self,
        principal: Principal,
        method: str,
        params: Any,
        *,
        run_id: str | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> Verdict:
        """What would be decided about a call, timed rules included. Nothing is counted, recorded or executed."""
        row = self.methods[method].row
        verdict = self._decide(principal, row, params if facts is None else facts)
        return self._apply_timed_rule(verdict, principal, row, params, run_id=run_id, facts=facts)

    def _apply_timed_rule(
        self,
        verdict: Verdict,
        principal: Principal,
        row: Row,
        params: Any,
        *,
        run_id: str | None,
        facts: Mapping[str, Any] | None,
    ) -> Verdict:
        """What a person's timed rule makes of an `ask`; a `deny` is never overruled."""
        if verdict.decision is not _ASK:
            return verdict
        timed = self.desk.timed(principal, row.name, row.effect, params, run_id, over=verdict.rule, facts=facts)
        if timed is None:
            return verdict
        return msgspec.structs.replace(
            verdict,
            decision=_ALLOW,
            rule=timed.rule_id,
            reason=f"a person said for a while: {timed_text(timed)}",
            suggestion=None,
            cacheable=False,
            timed_rule=timed.rule.name,
        )

    def program_rules(self, principal: Principal) -> ProgramRules:
        """What the sandbox enforces when this principal's programs are really executed."""
        return self.policy.program_rules(principal)

    # -- inside the store --

    def _read(self, call: Call, method: Mounted) -> Any:
        answer = method.handler(call, call.params)
        if method.streams or isinstance(answer, Deferred):
            return answer
        if isinstance(answer, asyncio.Future):
            return from_future(answer, partial(self.call_log.translate, call))
        if self.journal.idle:
            return answer
        reading = Reading(answer, partial(self._read, call, method), partial(self.call_log.translate, call))
        self.journal.answer_after(reading)
        return reading

    def _change(self, call: Call, method: Mounted, rule: str, approval_id: str | None) -> Any:
        """Act and record in one transaction; a refusal undoes what the handler had begun."""
        tx = Transaction()
        try:
            if approval_id is not None:
                self.effects.spend(tx, approval_id)
                self.desk.settle(tx, approval_id)
            answer = method.handler(call, call.params, tx)
        except BasculeError as error:
            tx.undo()
            idle = self.journal.idle
            if isinstance(error, Forbidden) or tx.subject is not None:
                self._record_refusal(call, method.row, error, tx.subject, subject_of(call.params))
            if idle:
                raise
            # It says what is ("ticket cancelled"), so it waits until that is durable.
            refusal: AfterCommit[Any] = AfterCommit(error)
            self.journal.answer_after(refusal)
            return refusal
        except BaseException:
            tx.undo()
            raise
        if isinstance(answer, asyncio.Future):
            # Slow work (scrypt) finishes elsewhere and commits by itself; its record names the proof (`proof_of`).
            return from_future(answer, partial(self.call_log.translate, call))
        if approval_id is not None:
            tx.details = {**(tx.details or {}), "approval": approval_id}
        if proof := proof_of(call):
            tx.details = {**(tx.details or {}), **proof}
        return self._commit(call, tx, rule, answer)

    def _commit(self, call: Call, tx: Transaction, rule: str, answer: Any) -> Any:
        """The transaction is the answer to come."""
        tx.answer = answer
        if tx.subject is not None or tx.puts:
            self.journal.commit(tx, call.principal, call.method, "ok", rule)
        elif self.journal.idle:
            # A retry of what is stored already: nothing new to record.
            tx.landed()
        else:
            self.journal.answer_after(tx)
        if tx.then is not None:
            answer = tx.answer = tx.then(answer)
            if isinstance(answer, Deferred) and not tx.done():
                tx.add_done_callback(lambda _: answer.cancel())
        return answer if tx.done() else tx

    # -- outside the store --

    def _start(self, call: Call, method: Mounted, verdict: Verdict) -> Any:
        """Until it has to wait for something; only what waits becomes a task."""
        passage = Passage(self, call, method)
        work = self._outside(passage, verdict)
        try:
            waiting = work.send(None)
        except StopIteration as done:
            return done.value
        except asyncio.CancelledError:
            # What the handler waits for was called off already.
            called_off: Deferred[Any] = Deferred()
            called_off.cancel()
            return called_off
        answer = Answer(passage)

        async def rest() -> None:
            passage.in_task = True
            try:
                result = await resumed(work, waiting)
            except asyncio.CancelledError:
                answer.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - I4: the caller gets an id, not silence
                if not answer.done():
                    answer.set_exception(self.call_log.translate(call, error))
            else:
                if not answer.done():
                    answer.set_result(result)

        answer.task = self._tasks.start(rest(), call.method)
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)
        return answer

    async def _outside(self, passage: Passage, verdict: Verdict) -> Any:
        """From the first word of the policy to the answer; see the top of this module."""
        call, method = passage.call, passage.method
        resolution = await passage.resolve()
        approval: Approval | None = None
        while True:
            verdict = self._admit(call, method, resolution, passage=passage)
            asks = verdict.decision is _ASK and passage.must_ask(verdict)
            # A run that goes on after an answer spends the grant it was given, whatever is decided by now.
            if not (asks or passage.asked_before):
                grant = None
                break
            if resolution.describe is not None:
                resolution = await resolution.describe(verdict)
            digest = params_and_digest(call.params, resolution.bound)[1]
            grant = self.desk.grant_for(call.principal, method.name, digest, passage.run_id)
            if grant is not None or not asks:
                break
            if approval is not None:
                raise lost(approval, digest)
            if resolution.illustrate is not None and not self.desk.is_known(call.principal, method.name, digest):
                resolution = await resolution.illustrate()
                continue
            approval = await passage.ask(question_of(passage, verdict, resolution), resolution, verdict)
            if approval.state is not ApprovalState.APPROVED:
                raise resolution.adapted(refusal_of(approval, has_person=self.desk.has_person()))
            # Minutes have passed: the policy is asked again.
            self._admit(call, method, passage=passage)
            resolution = await (passage.resolve if resolution.renew is None else resolution.renew)()
        if (withdrawn := passage.withdrawn()) is not None:
            raise withdrawn
        approval_id = grant.approval_id if grant is not None else None
        if method.row.record is _JOINED:
            passage.begun = True
            answer = self._change(call, method, verdict.rule, approval_id)
            return await answer if isinstance(answer, Deferred) else answer
        return await self._record_and_act(passage, verdict, resolution, approval_id)

    async def _record_and_act(
        self, passage: Passage, verdict: Verdict, resolution: Resolution, approval_id: str | None
    ) -> Any:
        if passage.method.row.record is Record.NONE and approval_id is None:
            # A read in a run has no record.
            _, answer = await self._act(passage, None)
            if isinstance(answer, BaseException):
                raise answer
            return answer
        await passage.prepare()
        effect = passage.begin(resolution, verdict, approval_id)
        passage.begun = True
        first = passage.must_be_durable_first(effect, resolution)
        if not first:
            self.journal.write_now()
        elif not effect.started.done():
            await effect.started
        if (withdrawn := passage.withdrawn()) is not None:
            # While the record was on its way: nothing has happened, and nothing will.
            return await passage.finish(effect, getattr(withdrawn, "code", "cancelled"), withdrawn, durable=first)
        outcome, answer = await self._act(passage, effect)
        return await passage.finish(effect, outcome, answer, durable=first)

    async def _act(self, passage: Passage, effect: RecordedEffect | None) -> tuple[str, Any]:
        """Run the effect: its outcome, and the answer or the error."""
        call = passage.call
        passage.acting = True
        try:
            answer = passage.act(effect)
            if inspect.iscoroutine(answer):
                answer = await passage.own_task(answer)
            elif isinstance(answer, Deferred | asyncio.Future):
                passage.pending = answer
                answer = await answer
        except asyncio.CancelledError as cancelled:
            unknown = effect is not None and effect.unknown
            return UNKNOWN if unknown else "cancelled", cancelled
        except Exception as error:  # noqa: BLE001 - whatever happened is recorded, and what we did not foresee is an id
            refusal = self.call_log.translate(call, error)
            unknown = effect is not None and effect.unknown
            return UNKNOWN if unknown else refusal.code, refusal
        return "ok", answer

    # -- ending --

    def abandoned(self, call: Call, answer: Any) -> None:
        """The client was gone before its answer could be written: give back what the wait took."""
        method = self.methods[call.method]
        if method.abandon is not None and answer is not None:
            method.abandon(method.decoded(call).params, answer)

    def end_agent(self, agent_id: str) -> None:
        """A handle was revoked or taken over: cancel what its last holder asked for and has not begun."""
        principal = agent_principal(agent_id)
        refusal = Unauthenticated(
            f"{agent_id} was revoked or taken over before this call began",
            hint="register a free handle, then call again",
        )
        for answer in list(self._answers):
            if answer.passage.call.principal == principal and not answer.passage.begun:
                answer.refuse(refusal)

    def stop(self, halt: Halt) -> None:
        """Refuse from now on what the rows do not leave open, and what has not begun yet."""
        self.halt = halt
        for answer in list(self._answers):
            if not answer.passage.begun and isinstance(stopped := answer.passage.withdrawn(), Stopped):
                answer.refuse(stopped)

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Let effects that have begun end; those that do not in time are cancelled, or `unknown` to the next life."""
        await self._tasks.close(seconds, cancel_seconds=seconds)

    def _record_refusal(self, call: Call, row: Row, error: BasculeError, *subjects: str | None) -> None:
        """Refusals are decisions, and decisions are recorded; the caller's answer does not wait for it."""
        if row.record is Record.NONE and row.shape is not Shape.OPERATION:
            return
        self._refusals.record(
            call.principal,
            row.name,
            error.code,
            rule=error.details.get("rule") if error.details else None,
            subject=next(filter(None, subjects), None),
            reason=error.message,
        )


def _stricter(first: Verdict, second: Verdict) -> Verdict:
    """Of equally strict ones the second: it knows what the call is about, and so which rule to name."""
    return second if second.decision >= first.decision else first


def _denied(verdict: Verdict, method: str) -> PolicyDenied:
    hint = verdict.suggestion
    if verdict.decision is _ASK and hint is None:
        hint = "the policy wants a person to be asked, and nobody can be asked about this method"
    return PolicyDenied(verdict.reason, hint=hint, details={"rule": verdict.rule, "method": method})
