"""A call about which a person can be asked: it acts at once, on a grant, or waits its slice for an answer.

Nothing runs without a waiting caller: when the answer comes after the slice it is a grant, and the next identical
call spends it. Whatever the policy and the bridge said before is asked again when somebody has said yes, for minutes
have passed.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from bascule.approval.asking import allowed_for_now, put_before_the_person
from bascule.approval.desk import Desk
from bascule.approval.limits import HTTP_SLICE_SECONDS, MCP_SLICE_SECONDS
from bascule.approval.offers import all_offers
from bascule.approval.questions import (
    SUMMARY_CHARS,
    default_preview,
    default_summary,
    params_and_digest,
    required,
)
from bascule.approval.records import Approval, Question
from bascule.approval.states import State
from bascule.audit.journal import Journal
from bascule.call import Call
from bascule.errors import BasculeError, Conflict, PolicyDenied
from bascule.later import Later, from_future
from bascule.policy.decision import Decision, Verdict
from bascule.policy.rules import Rule
from bascule.protocols.methods import Row
from bascule.text import one_line, visible

# By door; HTTP clients give up first.
SLICES = {"link": MCP_SLICE_SECONDS, "mcp": MCP_SLICE_SECONDS}


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """How a bridge shows one of its calls to the person."""

    summary: str
    # A diff, a parsed command; every character of it is made visible later.
    preview: str
    offers: tuple[Rule, ...] = ()
    # What the answer rests on besides the params: digests of scripts, of the tree that is taken over.
    bound: dict[str, Any] = {}
    # It cannot be taken back: of a method that is recorded behind, this call is recorded ahead.
    ahead: bool = False
    # What the bridge itself knows: a word at least as strict as the policy's counts.
    verdict: Verdict | None = None
    # What timed rules are matched with where that is more than the params: {**params, "about": ...}.
    facts: Mapping[str, Any] | None = None
    # For the handler of this very call (`Call.tied`).
    tied: Any = None
    # What the ledger says that it is about, where the params do not name it.
    subject: str | None = None
    # A PNG for the person, kept as a file for as long as the question is open.
    picture: bytes | None = None
    # Puts a refusal, or the answer that a person must be asked, into the form of the bridge.
    form: Callable[[BasculeError], None] | None = None


class Draw(Protocol):
    def __call__(self, call: Call, params: Any, /) -> "Drawn | Later[Drawn] | asyncio.Future[Drawn]":
        """Called for each call of its method that is not denied, and again when a person has said yes."""


class Steps(NamedTuple):
    """What dispatch lends to a held call: its own gates before, and what comes after."""

    # Raises when it is no longer this principal's call, or the policy says no.
    judge: Callable[[], Verdict]
    # With the rule, and the grant to spend.
    act: Callable[[str, str | None], Any]
    # Makes and records the refusal.
    deny: Callable[[Verdict], BasculeError]
    fault: Callable[[BaseException], BasculeError]


class HeldCall:
    def __init__(
        self, call: Call, row: Row, params: Any, draw: Draw | None, steps: Steps, *, journal: Journal, desk: Desk
    ) -> None:
        self._call = call
        self._row = row
        self._params = params
        self._draw = draw
        self._steps = steps
        self._journal = journal
        self._desk = desk
        # What the caller waited for, once it did.
        self._approval: Approval | None = None
        self._form: Callable[[BasculeError], None] | None = None

    def carry(self, verdict: Verdict) -> Any:
        """The answer, or a `Later`; `verdict` allows or asks."""
        if self._draw is None:
            if verdict.decision is Decision.ALLOW:
                return self._steps.act(verdict.rule, None)
            return self._go_on(verdict, self._plainly())
        drawn = self._draw(self._call, self._params)
        if isinstance(drawn, Drawn):
            return self._go_on(verdict, drawn)
        drawing = from_future(drawn) if isinstance(drawn, asyncio.Future) else drawn
        told: Later[Any] = Later()
        drawing.add_done_callback(lambda _: self._drawn(verdict, drawing, told))
        return told

    def _drawn(self, verdict: Verdict, drawing: Later[Drawn], told: Later[Any]) -> None:
        if drawing.cancelled():
            told.cancel()
        else:
            self._pass_on(lambda: self._go_on(verdict, drawing.result()), told)

    def _plainly(self) -> Drawn:
        """For methods whose bridge has no better picture of them."""
        name, params = self._row.name, self._params
        return Drawn(
            summary=default_summary(name, params_and_digest(params)[0]),
            preview=default_preview(name, params),
        )

    def _go_on(self, verdict: Verdict, drawn: Drawn) -> Any:
        principal, name = self._call.principal, self._row.name
        self._call.bound = drawn.bound
        self._call.ahead = drawn.ahead
        self._call.tied = drawn.tied
        self._call.subject = drawn.subject
        self._form = drawn.form
        if drawn.verdict is not None and drawn.verdict.decision >= verdict.decision:
            # Of equally strict ones the bridge's: it knows what the call is about, and so which rule to name.
            verdict = drawn.verdict
        verdict = allowed_for_now(self._desk, verdict, principal, self._row, self._params, facts=drawn.facts) or verdict
        if verdict.decision is Decision.ALLOW:
            return self._steps.act(verdict.rule, None)
        if verdict.decision is Decision.DENY:
            raise self._formed(self._steps.deny(verdict))
        params_json, digest = params_and_digest(self._params, drawn.bound)
        grant = self._desk.grant_for(principal, name, digest)
        if grant is not None:
            return self._steps.act(verdict.rule, grant.approval_id)
        if self._approval is not None:
            raise _lost(self._approval, digest)
        same, offers = self._offers(drawn)
        return self._ask(
            Question(
                principal=principal,
                method=name,
                digest=digest,
                params_json=params_json,
                rule=verdict.rule,
                reason=verdict.reason,
                suggestion=verdict.suggestion,
                summary=one_line(drawn.summary, SUMMARY_CHARS),
                preview=visible(drawn.preview, keep="\n"),
                offers=offers,
                exact=same,
            ),
            drawn.picture,
        )

    def _formed(self, refusal: BasculeError) -> BasculeError:
        if self._form is not None:
            self._form(refusal)
        return refusal

    def _offers(self, drawn: Drawn) -> tuple[str | None, tuple[Rule, ...]]:
        return all_offers(self._call.principal, self._row.name, self._params, drawn.bound, drawn.offers)

    def _ask(self, question: Question, picture: bytes | None) -> Later[Any]:
        asked = put_before_the_person(self._journal, self._desk, question, picture=picture)
        told: Later[Any] = Later()
        # An edge whose client leaves withdraws what only asks; what has begun goes on.
        self._call.asking = True
        if asked.durable is None:
            self._wait(asked.approval, told)
        else:
            asked.durable.add_done_callback(lambda durable: self._asked(asked.approval, durable, told))
        return told

    def _asked(self, approval: Approval, durable: Later[None], told: Later[Any]) -> None:
        if told.done():
            return
        error = durable.exception()
        if error is None:
            self._wait(approval, told)
        else:
            told.set_exception(error)

    def _wait(self, approval: Approval, told: Later[Any]) -> None:
        # Without a person nobody can answer, so nobody is held.
        most = self._desk.limits.hold_seconds if self._desk.has_person() else 0.0
        seconds = min(SLICES.get(self._call.door, HTTP_SLICE_SECONDS), most)
        try:
            waiting = self._desk.wait(approval.approval_id, seconds)
        except BasculeError as refusal:
            told.set_exception(refusal)
            return
        waiting.add_done_callback(lambda _: self._answered(waiting, told))
        told.add_done_callback(lambda _: waiting.cancel())

    def _answered(self, waiting: Later[Approval], told: Later[Any]) -> None:
        if told.done() or waiting.cancelled():
            return
        self._call.asking = False
        approval = self._approval = waiting.result()
        if approval.state is State.APPROVED:
            self._pass_on(lambda: self.carry(self._steps.judge()), told)
        else:
            told.set_exception(self._formed(_refusal(approval, has_person=self._desk.has_person())))

    def _pass_on(self, step: Callable[[], Any], told: Later[Any]) -> None:
        if told.done():
            return
        try:
            answer = step()
        except Exception as error:  # noqa: BLE001 - I4: whoever waits hears an id, not silence
            told.set_exception(error if isinstance(error, BasculeError) else self._steps.fault(error))
            return
        if not isinstance(answer, Later):
            told.set_result(answer)
            return
        answer.add_done_callback(told.take_over)
        told.add_done_callback(lambda _: answer.cancel())


def _refusal(approval: Approval, *, has_person: bool) -> BasculeError:
    details = {"approvalId": approval.approval_id, "rule": approval.question.rule, "method": approval.question.method}
    match approval.state:
        case State.PENDING:
            return required(approval, has_person=has_person)
        case State.DENIED:
            why = f": {approval.decided_reason}" if approval.decided_reason else ""
            return PolicyDenied(
                f"a person said no{why}",
                hint="do not try it another way; ask the user of this machine what they want instead",
                details=details,
            )
        case State.EXPIRED | State.WITHDRAWN:
            return Conflict(
                f"nobody answered {approval.approval_id} in time", hint="call again to ask again", details=details
            )
        case _:
            return _lost(approval, approval.question.digest)


def _lost(approval: Approval, digest: str) -> Conflict:
    """A yes came, and was not for this call any more."""
    details = {"approvalId": approval.approval_id}
    if digest != approval.question.digest:
        return Conflict(
            f"what this call would do has changed since {approval.approval_id} was approved",
            hint="call again to ask about what it would do now",
            details=details,
        )
    return Conflict(
        f"{approval.approval_id} allowed one call, and another identical one was it",
        hint="it has been done once; call again only if it must happen twice, and the person is asked again",
        details=details,
    )
