"""From HTTP to methods: a table. Path names in braces are wire names of the method's parameters."""

from typing import Any

from bascule.protocols.route import Route
from bascule.protocols.workspace import ErrorEvent, EventsMessage

_SPACE = "/v1/spaces/{spaceId}"
_RUN = f"{_SPACE}/runs/{{runId}}"
# A file of 10 MiB as base64, or as text with some escapes, and the message around it.
_MAX_MESSAGE_BYTES = 16 * 1024 * 1024

ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/spaces", "spaces.open"),
    Route("GET", "/v1/spaces", "spaces.list"),
    Route("GET", _SPACE, "spaces.show"),
    Route("DELETE", _SPACE, "spaces.close"),
    Route("POST", f"{_SPACE}/runs", "runs.start", max_body=_MAX_MESSAGE_BYTES),
    Route("GET", f"{_SPACE}/runs", "runs.list"),
    Route("GET", _RUN, "runs.show"),
    Route("GET", f"{_RUN}/wait", "runs.wait"),
    Route("GET", f"{_RUN}/stream", "runs.stream"),
    Route("POST", f"{_RUN}/resume", "runs.resume"),
    Route("POST", f"{_RUN}/cancel", "runs.cancel"),
    Route("GET", f"{_RUN}/diff", "runs.diff"),
    Route("POST", f"{_RUN}/undo", "runs.undo"),
    Route("POST", f"{_RUN}/commit", "runs.commit"),
    Route("GET", f"{_SPACE}/files", "files.list"),
    Route("GET", f"{_SPACE}/files/{{path...}}/", "files.list"),
    Route("GET", f"{_SPACE}/files/{{path...}}", "files.read"),
    Route("PUT", f"{_SPACE}/files/{{path...}}", "files.write", max_body=_MAX_MESSAGE_BYTES),
    Route("DELETE", f"{_SPACE}/files/{{path...}}", "files.delete"),
    Route("GET", f"{_SPACE}/processes", "processes.list"),
    Route("POST", f"{_SPACE}/processes", "processes.start"),
    Route("GET", f"{_SPACE}/processes/{{processId}}/logs", "processes.logs"),
    Route("POST", f"{_SPACE}/processes/{{processId}}/stop", "processes.stop"),
    # For whoever has nothing but the id.
    Route("GET", "/v1/processes/{processId}/logs", "processes.logs"),
    Route("POST", "/v1/processes/{processId}/stop", "processes.stop"),
)


def status_of(answer: Any) -> int:
    """A message that is none is the client's fault, and HTTP's word for that is 400; the body is the protocol's."""
    return 400 if is_invalid(answer) else 200


def is_invalid(answer: Any) -> bool:
    """Answered without a run: one event, about no operation."""
    if not isinstance(answer, EventsMessage) or len(answer.events) != 1:
        return False
    event = answer.events[0]
    return isinstance(event, ErrorEvent) and event.category == "validation" and not isinstance(event.operation_id, str)
