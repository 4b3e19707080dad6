"""Unexpected errors (invariant I4): the peer gets an id, the log has the rest under it."""

from typing import Any, Protocol

from bascule.foundation.errors import Internal
from bascule.foundation.ids import new_fault_id


class EventLog(Protocol):
    """A log of events that are named by a word; programs beside the daemon have one of their own."""

    def __call__(self, event: str, /, *, level: str = "info", **fields: Any) -> None: ...


def log_fault(log: EventLog, error: BaseException, **about: Any) -> str:
    """The id under which the log has it."""
    fault = new_fault_id()
    log("fault", level="error", id=fault, **about, error=error)
    return fault


def internal(log: EventLog, error: BaseException, **about: Any) -> Internal:
    fault = log_fault(log, error, **about)
    return Internal(f"internal error {fault}", hint=f"`bascule logs` shows what happened: look for {fault}")
