"""allow < ask < deny: of all rules that match, the strictest wins."""

from collections.abc import Iterable
from enum import Enum
from functools import total_ordering

import msgspec


@total_ordering
class Decision(Enum):
    """What a rule says. The order of the members is the order of strictness."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Decision):
            return NotImplemented
        return _STRICTNESS[self] < _STRICTNESS[other]


_STRICTNESS = {decision: place for place, decision in enumerate(Decision)}


def strictest(decisions: Iterable[Decision]) -> Decision:
    """The default is deny: a call that no rule matches does not happen."""
    return max(decisions, default=Decision.DENY)


class Verdict(msgspec.Struct, frozen=True):
    """What was decided about one call, by which rule, and what to do instead."""

    decision: Decision
    rule: str
    reason: str
    suggestion: str | None = None
    # The part of the policy that decided, as the workspace's events name it: `shell.approvalRequired`.
    policy: str | None = None
    # True when the same principal and method get the same verdict whatever the params are.
    cacheable: bool = False
    # The name of the rule for a while by which a person allowed what would have asked.
    timed_rule: str | None = None
