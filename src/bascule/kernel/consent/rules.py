"""Timed rules: what a person allowed for a while, laid over an `ask` and never over a `deny`."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from bascule.foundation.clock import Clock
from bascule.foundation.errors import InvalidRequest, Overloaded
from bascule.foundation.ids import new_id
from bascule.foundation.timers import Timers
from bascule.kernel.call import DAEMON, Principal
from bascule.kernel.consent.limits import ConsentLimits
from bascule.kernel.consent.offers import exact as exact_of
from bascule.kernel.consent.records import Approval, TimedRule
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.kernel.journal_ports import JournalStore
from bascule.kernel.limits import MAX_RULE_MINUTES
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.engine import matches
from bascule.kernel.policy.rules import Rule
from bascule.kernel.rows import Effect

_TRY_AGAIN_MS = 1_000.0


class TimedRules:
    def __init__(
        self, store: JournalStore, journal: Journal, clock: Clock, timers: Timers, limits: ConsentLimits
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._timers = timers
        self._limits = limits
        self.table: Table[TimedRule] = Table("rules", TimedRule, self._changed)
        self._until: dict[str, float] = {}
        self._deadlines: dict[str, Any] = {}
        for key, rule in store.load("rules", TimedRule):
            # Of the last life, and dead: `end_all` removes them, and says so.
            self._until[key] = 0.0
            self.table.rows[key] = rule

    def add(
        self,
        tx: Transaction,
        approval: Approval,
        rule: Rule,
        minutes: int,
        *,
        exact: str | None = None,
        run_id: str | None = None,
    ) -> TimedRule:
        if not 1 <= minutes <= MAX_RULE_MINUTES:
            raise InvalidRequest(f"a timed rule lasts 1 to {MAX_RULE_MINUTES} minutes, not {minutes}")
        if rule.decision is not Decision.ALLOW:
            raise InvalidRequest(f"a timed rule allows; {rule.name} says {rule.decision.value}")
        if len(self.table.rows) >= self._limits.max_timed_rules:
            raise Overloaded(
                f"{self._limits.max_timed_rules} timed rules are in force (max_timed_rules)",
                hint="approve once, or write a rule into the policy (`bascule policy accept`)",
                details={"limit": "max_timed_rules"},
                retry_after=60.0,
            )
        now = self._clock.wall_ms()
        timed = TimedRule(
            rule_id=new_id("rul"),
            principal=approval.question.principal,
            rule=msgspec.structs.replace(rule, match=(), not_match=()),
            approval_id=approval.approval_id,
            made_at=now,
            expires_at=now + minutes * 60_000,
            # A run is approved whatever it asks; a rule covers what was asked.
            over=None if run_id is not None else approval.question.rule,
            exact=exact,
            run_id=run_id,
        )
        tx.put(self.table, timed.rule_id, timed)
        return timed

    def add_for_run(self, tx: Transaction, approval: Approval) -> TimedRule:
        """Whatever this run asks: its principal, any method, for as long as it lives and no longer than any rule."""
        asked = approval.question
        if asked.run_id is None:
            raise InvalidRequest(f"{approval.approval_id} belongs to no run", hint="approve once, or one of its offers")
        rule = Rule(
            name="timed.run",
            decision=Decision.ALLOW,
            reason=f"a person approved what {asked.run_id} asks",
            principals=(_literally(asked.principal),),
        )
        return self.add(tx, approval, rule, MAX_RULE_MINUTES, run_id=asked.run_id)

    def matching(
        self,
        principal: Principal,
        method: str,
        effect: Effect,
        params: Any,
        *,
        run_id: str | None,
        over: str | None,
        facts: Mapping[str, Any] | None = None,
    ) -> TimedRule | None:
        """`facts`: what its bridge knows of the call, the params among it; a rule may use either."""
        known = params if facts is None else facts
        for timed in self.table.rows.values():
            if timed.run_id is not None and timed.run_id != run_id:
                continue
            if timed.over is not None and over is not None and timed.over != over:
                continue
            if timed.exact is not None and timed.exact != exact_of(params):
                continue
            if self._in_time(timed) and matches(timed.rule, principal, method, effect, known):
                return timed
        return None

    def in_force(self) -> list[TimedRule]:
        return [timed for timed in self.table.rows.values() if self._in_time(timed)]

    def end_run(self, tx: Transaction, run_id: str) -> None:
        for timed in [each for each in self.table.rows.values() if each.run_id == run_id]:
            tx.put(self.table, timed.rule_id, None)

    def end_principal(self, tx: Transaction, principal: Principal) -> None:
        for timed in [each for each in self.table.rows.values() if each.principal == principal]:
            tx.put(self.table, timed.rule_id, None)

    def end_methods(self, tx: Transaction, prefix: str) -> None:
        """Of one bridge: rules for its methods and no others."""
        for timed in list(self.table.rows.values()):
            if all(method.startswith(prefix) for method in timed.rule.methods):
                tx.put(self.table, timed.rule_id, None)

    def end_all(self, tx: Transaction) -> int:
        ended = list(self.table.rows)
        for rule_id in ended:
            tx.put(self.table, rule_id, None)
        return len(ended)

    def _in_time(self, timed: TimedRule) -> bool:
        until = self._until.get(timed.rule_id, 0.0)
        return self._clock.monotonic() < until and self._clock.wall_ms() < timed.expires_at

    def _changed(self, rule_id: str, _old: TimedRule | None, new: TimedRule | None) -> None:
        deadline = self._deadlines.pop(rule_id, None)
        if deadline is not None:
            self._timers.call_off(deadline)
        if new is None:
            # Its time is kept: a removal that could not be stored is undone, and must not begin anew.
            return
        now = self._clock.monotonic()
        until = self._until.setdefault(rule_id, now + (new.expires_at - new.made_at) / 1000)
        left_ms = (until - now) * 1000
        self._deadlines[rule_id] = self._timers.after_ms(
            left_ms if left_ms > 0 else _TRY_AGAIN_MS, partial(self._expire, rule_id)
        )

    def _expire(self, rule_id: str, _now: float) -> None:
        timed = self.table.rows.get(rule_id)
        if timed is None:
            return
        tx = Transaction()
        tx.subject = rule_id
        tx.details = {"approval": timed.approval_id}
        tx.put(self.table, rule_id, None)
        tx.after.append(partial(self._forget, rule_id))
        self._journal.commit(tx, DAEMON, "approvals.rule_over")

    def _forget(self, rule_id: str) -> None:
        self._until.pop(rule_id, None)


def _literally(text: str) -> str:
    """As a glob that matches this and nothing else; handles have no wildcards, but rules are made from any text."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in text)
