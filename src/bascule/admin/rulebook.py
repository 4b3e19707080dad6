"""The policy in force: a preset, or the text a person last accepted. An edited file is reported, not applied."""

from collections.abc import Callable, Iterable

from bascule.admin.approvals import (
    AcceptParams,
    ExplainParams,
    ExplainResult,
    PolicyView,
    RuleView,
    TimedRuleView,
)
from bascule.admin.ports import PolicySource
from bascule.admin.records import POLICY_KEY, DaemonFact
from bascule.admin.rule_words import in_words, timed_in_words
from bascule.foundation.agreement import is_agent_id
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.errors import BasculeError, Conflict, InvalidRequest, NotFound
from bascule.kernel.call import PERSON, Call, Principal, agent_of
from bascule.kernel.consent.desk import Desk
from bascule.kernel.consent.questions import timed_text
from bascule.kernel.consent.records import TimedRule
from bascule.kernel.journal import Table, Transaction
from bascule.kernel.journal_ports import Log
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.engine import Policy, preset_in
from bascule.kernel.policy.rules import BadPolicy, Rule
from bascule.kernel.policy.text import Presets, load_policy, render, text_digest
from bascule.kernel.rows import Nothing, Row

# What is in force when the accepted text cannot be read any more: the least that still lets agents talk.
FALLBACK = "restrictive"


class Rulebook:
    def __init__(
        self,
        *,
        facts: Table[DaemonFact],
        file: PolicySource,
        setting: str,
        rows: Iterable[Row],
        presets: Presets,
        clock: Clock,
        log: Log,
        desk: Desk,
    ) -> None:
        self._facts = facts
        self._file = file
        self._setting = setting
        self.rows = {row.name: row for row in rows}
        self._presets = presets
        self._effects = {name: row.effect for name, row in self.rows.items()}
        self._clock = clock
        self._log = log
        self._desk = desk
        self._problem: str | None = None
        self._reported: str | None = None
        self.policy = self._in_force()
        # The gate holds the policy it decides by; a new one is a new object.
        self.on_change: Callable[[Policy], None] | None = None

    # -- methods --

    def show(self, call: Call, params: Nothing) -> PolicyView:
        self.look_at_file()
        return self._view()

    def explain(self, call: Call, params: ExplainParams) -> ExplainResult:
        row = self.rows.get(params.method)
        if row is None:
            raise NotFound(f"no method {params.method!r}", hint="docs/reference/methods.md lists the methods")
        principal = self._principal(call, params)
        verdict = self.policy.decide(principal, row.name, row.effect, lambda: params.params)
        text = self.policy.explain(principal, row.name, row.effect, params.params)
        if verdict.decision is Decision.ASK:
            timed = self._desk.timed(principal, row.name, row.effect, params.params, over=verdict.rule)
            if timed is not None:
                text += f"\nfor now allowed by {timed.rule_id}: {timed_text(timed)}"
            elif row.consent == "never":
                text += "\nnobody can be asked about this method: it is refused"
            elif not self._desk.has_person():
                text += "\nno person is set who could be asked: `bascule person set`"
        return ExplainResult(
            decision=verdict.decision.value,
            rule=verdict.rule,
            reason=verdict.reason,
            suggestion=verdict.suggestion,
            text=text,
        )

    def accept(self, call: Call, params: AcceptParams, tx: Transaction) -> PolicyView:
        text = self._file.read()
        if text is None:
            raise NotFound(
                f"there is no {self._file.path}",
                hint=f"begin with the policy in force: bascule policy show > {self._file.path}",
            )
        digest = text_digest(text)
        if digest != params.digest:
            raise Conflict(
                f"{self._file.path} is not the text you were shown: it has changed since",
                hint="look at it again: bascule policy accept",
                details={"digest": digest},
            )
        policy = load_policy(text, self.rows, self._effects, self._presets)
        tx.put(self._facts, POLICY_KEY, DaemonFact(text, self._clock.wall_ms()))
        tx.subject = "policy"
        tx.details = {
            "digest": digest,
            "rules": policy.digest,
            "was": self.policy.digest,
            "process": getattr(call.connection, "peer", None),
        }
        tx.after.append(lambda: self._put_in_force(policy))
        return self._view_of(text, policy, pending=False)

    # -- for a replay --

    def proposed(self, text: str | None) -> Policy:
        """What this text would put in force; without one the edited file, or what is in force if there is none."""
        proposed = text if text is not None else self._file.read()
        if proposed is None:
            return self.policy
        # Any program of this user may send a text. Nothing here reads params, so the examples can wait for who accepts.
        return load_policy(proposed, self.rows, self._effects, self._presets, examples=False)

    def rule_names(self) -> frozenset[str]:
        """Of all policies that may have decided: those that come with us, and the one in force."""
        known = (*self.policy.rules, *(rule for rules in self._presets.values() for rule in rules))
        return frozenset(rule.name for rule in known)

    # -- inside --

    def look_at_file(self) -> None:
        """Says so once in the log when the file differs from what is in force."""
        try:
            text = self._file.read()
        except BadPolicy as error:
            state = error.message
        else:
            state = "" if text is None or text == self._text() else text_digest(text)
        if state and state != self._reported:
            self._log("policy_edited", level="warning", file=self._file.path, hint="bascule policy accept")
        self._reported = state

    def _text(self) -> str:
        fact = self._facts.rows.get(POLICY_KEY)
        if fact is not None and self._problem is None:
            return fact.text
        return render(self.policy.rules, f"the preset {self.policy.name}")

    def _view(self) -> PolicyView:
        text = self._text()
        try:
            file = self._file.read()
        except BadPolicy as error:
            return self._view_of(text, self.policy, pending=True, problem=error.message)
        if file is None or file == text:
            return self._view_of(text, self.policy, pending=False)
        problem = None
        try:
            load_policy(file, self.rows, self._effects, self._presets)
        except BasculeError as error:
            problem = error.message
        return self._view_of(text, self.policy, pending=True, problem=problem, file=file)

    def _view_of(
        self, text: str, policy: Policy, *, pending: bool, problem: str | None = None, file: str | None = None
    ) -> PolicyView:
        return PolicyView(
            name=policy.name,
            digest=text_digest(text),
            text=text,
            file=self._file.path if pending else None,
            file_text=file,
            file_digest=text_digest(file) if file is not None else None,
            pending=pending,
            problem=problem or self._problem,
            timed=[timed_view(timed) for timed in self._desk.rules.in_force()],
            rules=[*map(_rule_view, policy.rules), *map(_timed_rule_view, self._desk.rules.in_force())],
        )

    def _principal(self, call: Call, params: ExplainParams) -> Principal:
        if params.principal is None:
            return call.principal
        named = Principal(params.principal)
        handle = agent_of(named)
        if handle is None and named not in ("local", PERSON):
            raise InvalidRequest(f"{named!r} is not a principal", hint="local, person, or agent:<handle>")
        if handle is not None and not is_agent_id(handle):
            raise InvalidRequest(f"{handle!r} cannot be a handle")
        return named

    def _in_force(self) -> Policy:
        fact = self._facts.rows.get(POLICY_KEY)
        if fact is None:
            return preset_in(self._presets, self._setting)
        try:
            return load_policy(fact.text, self.rows, self._effects, self._presets)
        except BasculeError as error:
            # Written for another version of ours. Nothing wider than the narrowest may come of that.
            self._problem = f"the accepted policy cannot be used: {error.message}; {FALLBACK} is in force instead"
            self._log("policy_unusable", level="error", error=error.message, in_force=FALLBACK)
            return preset_in(self._presets, FALLBACK)

    def _put_in_force(self, policy: Policy) -> None:
        self.policy = policy
        self._problem = None
        if self.on_change is not None:
            self.on_change(policy)
        self._log("policy_accepted", digest=policy.digest)


def timed_view(timed: TimedRule) -> TimedRuleView:
    return TimedRuleView(
        rule_id=timed.rule_id,
        text=timed_text(timed),
        expires_at=rfc3339(timed.expires_at),
        approval_id=timed.approval_id,
    )


def _rule_view(rule: Rule) -> RuleView:
    return RuleView(name=rule.name, decision=rule.decision.value, text=in_words(rule), reason=rule.reason)


def _timed_rule_view(timed: TimedRule) -> RuleView:
    # As it was offered to the person; `timed` has it word for word as the ledger keeps it.
    return RuleView(
        name=timed.rule_id,
        decision=timed.rule.decision.value,
        text=timed_in_words(timed.rule, run_id=timed.run_id, exact=timed.exact),
        reason=timed.rule.reason,
        timed=rfc3339(timed.expires_at),
    )
