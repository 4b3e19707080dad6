"""What a policy would have decided about what the ledger has recorded.

The ledger keeps who called which method and how that was decided, never the params. So a decision can be made again
only where it does not depend on them; the rest is counted as unreadable and never guessed.
"""

import asyncio
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import partial

from bascule.admin.approvals import ChangedDecision, ReplayParams, ReplayResult
from bascule.admin.rulebook import Rulebook
from bascule.foundation.clock import rfc3339
from bascule.foundation.errors import ApprovalRequired, Forbidden, PolicyDenied
from bascule.foundation.tasks import Tasks
from bascule.kernel.call import DAEMON, Call
from bascule.kernel.journal_ports import JournalStore, LedgerReader
from bascule.kernel.ledger import BEGUN, Record, read_record
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.engine import Policy
from bascule.kernel.policy.rules import NO_RULE, could_apply
from bascule.kernel.rows import Consent, Row
from bascule.kernel.rows import Record as Kept

# How the ids of rules for a while begin: they stand where a policy's rule asked.
_TIMED = "rul_"


class _Was(Enum):
    """What a record says besides a decision."""

    # Not decided by the policy: the end of an effect whose beginning is recorded, the daemon's own, whose call it was.
    NOTHING = "nothing"
    # Decided by more than what is recorded.
    UNREADABLE = "unreadable"


class Replayer:
    def __init__(self, store: JournalStore, rulebook: Rulebook, tasks: Tasks) -> None:
        self._store = store
        self._rulebook = rulebook
        self._tasks = tasks

    def replay(self, call: Call, params: ReplayParams) -> "asyncio.Future[ReplayResult]":
        return self._tasks.start(self._replay(params), call.method)

    async def _replay(self, params: ReplayParams) -> ReplayResult:
        def newest(ledger: LedgerReader) -> list[Record]:
            return [read_record(row) for row in ledger.newest(params.limit, None)]

        # On a thread: reading a long policy, and a thousand records against two hundred rules, take longer than a turn
        # of the loop may.
        do = partial(asyncio.get_running_loop().run_in_executor, None)
        policy: Policy = await do(self._rulebook.proposed, params.text)
        records = await asyncio.wrap_future(self._store.read_ledger(newest))
        return await do(replayed, records, policy, self._rulebook.rows, self._rulebook.rule_names())


def replayed(
    records: Iterable[Record], policy: Policy, rows: Mapping[str, Row], known_rules: frozenset[str]
) -> ReplayResult:
    """`known_rules` are those of policies: a record that names another was decided by a bridge, or long ago."""
    looked_at = compared = unreadable = 0
    changed: list[ChangedDecision] = []
    for record in records:
        looked_at += 1
        row = rows.get(record.method)
        was = decision_in(record, row, known_rules)
        if row is None or was is _Was.NOTHING:
            continue
        now = decided_without_params(policy, record.principal, row)
        if was is _Was.UNREADABLE or now is None:
            unreadable += 1
            continue
        compared += 1
        decision, rule = now
        if decision is not was:
            changed.append(
                ChangedDecision(
                    seq=record.seq,
                    at=rfc3339(record.at),
                    principal=record.principal,
                    method=record.method,
                    subject=record.subject,
                    was=was.value,
                    now=decision.value,
                    rule=rule,
                )
            )
    return ReplayResult(records=looked_at, compared=compared, changed=changed, unreadable=unreadable)


def decision_in(record: Record, row: Row | None, known_rules: frozenset[str]) -> Decision | _Was:
    """What the policy said then, as the record shows it."""
    if row is None or record.principal == DAEMON or record.outcome == Forbidden.code:
        return _Was.NOTHING
    details = record.details or {}
    rule = record.rule or ""
    if record.outcome in (PolicyDenied.code, ApprovalRequired.code):
        if rule != NO_RULE and rule not in known_rules:
            return _Was.UNREADABLE
        return Decision.ASK if record.outcome == ApprovalRequired.code else Decision.DENY
    if row.record in (Kept.AHEAD, Kept.BEHIND) and record.outcome != BEGUN:
        return _Was.NOTHING
    if "approval" in details or rule.startswith(_TIMED):
        return Decision.ASK
    return Decision.ALLOW if rule else _Was.NOTHING


def decided_without_params(policy: Policy, principal: str, row: Row) -> tuple[Decision, str] | None:
    """The decision and its rule; None when another one is possible with some params."""
    possible = [rule for rule in policy.rules if could_apply(rule, principal, row.name, row.effect)]
    plain = [rule for rule in possible if not rule.reads_params]
    # Of equally strict ones the first decides, and `max` gives the first.
    winner = max(plain, key=lambda rule: rule.decision, default=None)
    others = [rule.decision for rule in possible if rule.reads_params]
    if winner is None:
        return None if others else (Decision.DENY, NO_RULE)
    if any(decision > winner.decision for decision in others):
        return None
    # Where nobody can be asked, a rule that asks refuses.
    refuses = winner.decision is Decision.ASK and row.consent is Consent.NEVER
    return Decision.DENY if refuses else winner.decision, winner.name
