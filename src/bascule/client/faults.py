"""What can go wrong between a program and the daemon, beside the daemon's own errors (`bascule.foundation.errors`).

All are `BasculeError`s, so that one `except` catches everything, and each says what to do next.
"""

from bascule.broker.protocol import TicketStatus
from bascule.foundation.errors import BasculeError, Internal, InvalidRequest, Unavailable
from bascule.workspace.protocol import ApprovalRequiredEvent, ErrorEvent, Event, PolicyDeniedEvent


class NotRunning(Unavailable):
    """Nobody answers at the daemon's socket."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            "Bascule is not running: start it with `bascule up -d`",
            hint=f"{path}: {why}; another --state-dir or BASCULE_STATE_DIR names another daemon",
            details={"socket": path},
        )


class ConnectionLost(BasculeError):
    """The connection ended under a request. `sent` says whether the daemon may have seen it."""

    code = "connection_lost"
    status = 503

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message, hint="`bascule status` says whether the daemon runs")
        self.sent = sent


class ClientClosed(InvalidRequest):
    """This client was closed by its own program."""

    def __init__(self) -> None:
        super().__init__("this client is closed", hint="connect a new one")


class BadAnswer(Internal):
    """The daemon answered something this client cannot read."""


class OutcomeUnknown(BasculeError):
    """The daemon went away before it answered: the effect may have happened, and is never repeated by itself."""

    code = "outcome_unknown"
    status = 503


class ReplyTimeout(BasculeError):
    """No reply in time. The ticket lives on: `wait(ticket_id)` may be called again, a late reply is kept.

    `ticket_status` is `timeout` when the ticket's own time is over, else only the waiting here has ended.
    """

    code = "reply_timeout"
    status = 504

    def __init__(self, ticket_ids: tuple[str, ...], ticket_status: TicketStatus | None = None) -> None:
        names = ", ".join(ticket_ids)
        over = ticket_status is TicketStatus.TIMEOUT
        super().__init__(
            f"no reply to ticket {names} in time",
            hint="a late reply is kept: look again with ticket(), or ask anew"
            if over
            else "the ticket is still open: wait() again, or cancel() it",
            details={"ticketIds": list(ticket_ids)},
        )
        self.ticket_id = ticket_ids[0]
        self.ticket_ids = ticket_ids
        self.ticket_status = ticket_status


class TicketCancelled(BasculeError):
    """The ticket was withdrawn while somebody waited for its reply."""

    code = "ticket_cancelled"
    status = 409

    def __init__(self, ticket_id: str) -> None:
        super().__init__(
            f"ticket {ticket_id} was cancelled",
            hint="ticket() shows by whom and why; send a new message if it still matters",
            details={"ticketId": ticket_id},
        )
        self.ticket_id = ticket_id


class OperationFailed(BasculeError):
    """An operation in a space was denied, asks, or failed; `event` says all, `run_id` leads to the rest."""

    code = "operation_failed"
    status = 422

    def __init__(self, run_id: str | None, event: Event) -> None:
        hint = None
        match event:
            case PolicyDeniedEvent():
                message = f"denied: {event.reason}"
                hint = event.suggestion or None
            case ApprovalRequiredEvent():
                message = f"a person must approve it: {event.reason}"
                hint = f"`bascule approvals approve {event.details.get('approvalId', '')}`, then wait({run_id!r})"
            case ErrorEvent():
                message = event.message
            case _:
                message = getattr(event, "error", None) or "the operation failed"
        super().__init__(message, hint=hint, details={"runId": run_id} if run_id else None)
        self.run_id = run_id
        self.event = event
