"""The events we make ourselves, and how a command's end becomes its event."""

from datetime import timedelta
from typing import Any

from msgspec import UNSET

from bascule.foundation.clock import Clock, rfc3339
from bascule.workspace.ports import Outcome
from bascule.workspace.protocol import Category, ErrorEvent, Operation, OperationType, PolicyDeniedEvent, ShellEvent
from bascule.workspace.records import Step


class EventFactory:
    """Makes events, each with its time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> str:
        return rfc3339(self._clock.wall_ms())

    def error(self, step: Step, category: Category, message: str) -> ErrorEvent:
        details = {} if step.operation is None else {"operationType": type_of(step.operation)}
        return ErrorEvent(
            timestamp=self.now(), operation_id=step.id, category=category, message=message, details=details
        )

    def denied(self, step: Step, reason: str, suggestion: str | None) -> PolicyDeniedEvent:
        assert step.operation is not None
        return PolicyDeniedEvent(
            timestamp=self.now(),
            operation_id=step.id,
            operation_type=type_of(step.operation),
            reason=reason,
            suggestion=UNSET if suggestion is None else suggestion,
        )

    def invalid(self, sentence: str) -> ErrorEvent:
        """About an invalid message, so about no operation."""
        return ErrorEvent(timestamp=self.now(), category="validation", message=sentence, details={})

    def shell(self, step: Step, command: str, process_id: str, outcome: Outcome, *, kind: str) -> ShellEvent:
        """The spec's fields, and of ours those that say something."""
        more: dict[str, Any] = {}
        if outcome.stdout.truncated or outcome.stderr.truncated:
            more["truncated"] = True
        if outcome.ended_by == "timeout":
            more["timed_out"] = True
        elif outcome.ended_by != "exit":
            more["ended_by"] = outcome.ended_by
        if kind == "none":
            more["sandbox"] = "none"
        if outcome.note is not None:
            more["error"] = outcome.note
        return ShellEvent(
            timestamp=self.now(),
            operation_id=step.id,
            command=command,
            success=outcome.exit_code == 0 and outcome.ended_by == "exit",
            exit_code=outcome.exit_code,
            stdout=outcome.stdout.text,
            stderr=outcome.stderr.text,
            duration_ms=round(outcome.duration / timedelta(milliseconds=1)),
            # A view that shows less of the output than is here needs it too.
            process_id=process_id,
            **more,
        )


def type_of(operation: Operation) -> OperationType:
    return operation.__struct_config__.tag  # type: ignore[return-value] # one of the six
