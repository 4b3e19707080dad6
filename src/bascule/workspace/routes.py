"""HTTP status of an operations message: the protocol answers a bad one with events."""

from typing import Any

from bascule.workspace.protocol import ErrorEvent, EventsMessage


def status_of(answer: Any) -> int:
    """An invalid message is the client's fault, so HTTP answers 400; the body is the protocol's."""
    return 400 if is_invalid(answer) else 200


def is_invalid(answer: Any) -> bool:
    """Answered without a run: one event, about no operation."""
    if not isinstance(answer, EventsMessage) or len(answer.events) != 1:
        return False
    event = answer.events[0]
    return isinstance(event, ErrorEvent) and event.category == "validation" and not isinstance(event.operation_id, str)
