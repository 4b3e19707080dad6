"""What becomes of a question to the person, as a table.

    pending  --person--> approved --the call--> spent --its end--> done
       |                    |                     |
       |--person--> denied  |--10 min, restart,   |--restart--> unknown
       |--15 min--> expired |  cancelled run
       |--cancelled run--> withdrawn              -> expired

Approved is a grant: permission for one exact call, good once. Spent is on disk before the effect begins, so whatever
happens afterwards no second call finds it approved.
"""

from collections.abc import Mapping
from enum import StrEnum


class ApprovalState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    SPENT = "spent"
    DONE = "done"
    UNKNOWN = "unknown"


NEXT: Mapping[ApprovalState, frozenset[ApprovalState]] = {
    ApprovalState.PENDING: frozenset(
        {ApprovalState.APPROVED, ApprovalState.DENIED, ApprovalState.EXPIRED, ApprovalState.WITHDRAWN}
    ),
    ApprovalState.APPROVED: frozenset({ApprovalState.SPENT, ApprovalState.EXPIRED}),
    ApprovalState.SPENT: frozenset({ApprovalState.DONE, ApprovalState.UNKNOWN}),
    ApprovalState.DENIED: frozenset(),
    ApprovalState.EXPIRED: frozenset(),
    ApprovalState.WITHDRAWN: frozenset(),
    ApprovalState.DONE: frozenset(),
    ApprovalState.UNKNOWN: frozenset(),
}
# Nothing more can happen to these.
FINAL = frozenset(state for state, following in NEXT.items() if not following)


class IllegalMove(Exception):
    """A step that the table does not have: a fault of ours, or of two who act at once."""

    def __init__(self, old: ApprovalState, new: ApprovalState) -> None:
        super().__init__(f"{old.value} never becomes {new.value}")
        self.old = old
        self.new = new


def check_move(old: ApprovalState, new: ApprovalState) -> None:
    if new not in NEXT[old]:
        raise IllegalMove(old, new)
