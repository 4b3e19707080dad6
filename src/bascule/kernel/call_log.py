"""What log and metrics record about every call, and the answer to an unexpected fault."""

from time import perf_counter
from typing import Any, Protocol

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import BasculeError, Internal
from bascule.kernel.call import Call
from bascule.kernel.faults import internal, log_fault
from bascule.kernel.journal_ports import Log, LogLine

# A name a peer invented must not become a series of its own.
UNKNOWN_METHOD = "unknown"


class Observe(Protocol):
    def __call__(self, method: str, outcome: str, seconds: float, /) -> None:
        """Count a call for the metrics."""


class _CallLine(LogLine, frozen=True, gc=False, tag_field="event", tag="call"):
    method: str
    principal: str
    door: str
    outcome: str
    subject: str | None = None
    agent: str | None = None
    ms: float | None = None


class CallLog:
    def __init__(self, log: Log, observe: Observe) -> None:
        self._log = log
        self._observe = observe

    def ended(self, call: Call, outcome: str, start: float, *, known: bool = True) -> None:
        seconds = perf_counter() - start
        params = call.params
        agent = getattr(params, "agent_id", None)
        subject = getattr(params, "ticket_id", None)
        if subject is None:
            subject, agent = agent, None
        self._observe(call.method if known else UNKNOWN_METHOD, outcome, seconds)
        ms = int(seconds * 1_000_000) / 1000
        self._log(_CallLine(call.method, call.principal, call.door, outcome, subject, agent, ms))

    def answered(self, call: Call, start: float, answer: Deferred[Any]) -> None:
        """An answer that was waited for."""
        if answer.cancelled():
            self.ended(call, "cancelled", start)
            return
        error = answer.exception()
        self.ended(
            call, "ok" if error is None else error.code if isinstance(error, BasculeError) else Internal.code, start
        )

    def refused(self, call: Call, error: BasculeError, agent: str | None, ticket: str | None) -> None:
        """A door could not even make params of what came. Not the reason: it quotes what was sent."""
        self._observe(call.method, error.code, 0.0)
        about = (ticket or agent, agent if ticket else None)
        self._log(_CallLine(call.method, call.principal, call.door, error.code, *about))

    def task_failed(self, method: str, error: BaseException) -> None:
        log_fault(self._log, error, method=method)

    def translate(self, call: Call, error: BaseException) -> BasculeError:
        if isinstance(error, BasculeError):
            return error
        return internal(self._log, error, method=call.method, principal=call.principal)
