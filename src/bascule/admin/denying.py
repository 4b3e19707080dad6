"""No, said with the button of a notification.

Any program of this user could press it, so it is not the person's word and is not recorded as that. It is taken all the
same: a no does nothing but leave things as they are.
"""

from bascule.foundation.errors import BasculeError
from bascule.kernel.call import DAEMON
from bascule.kernel.consent.desk import Desk
from bascule.kernel.journal import Journal, Transaction


def deny_by_notification(desk: Desk, journal: Journal, approval_id: str) -> bool:
    """False when it does not wait any more."""
    tx = Transaction()
    try:
        with tx:
            approval, _ = desk.decide(tx, approval_id, approve=False, reason="denied by notification")
    except BasculeError:
        return False
    asked = approval.question
    tx.subject = approval_id
    tx.details = {
        "decision": "denied",
        "by": "notification",
        "principal": asked.principal,
        "method": asked.method,
        "digest": desk.keyed(asked.digest),
    }
    journal.commit(tx, DAEMON, "approvals.decide")
    return True
