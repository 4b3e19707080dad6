"""What Schemathesis is told about this API; it loads this file by itself (SCHEMATHESIS_HOOKS)."""

import itertools
import os
from typing import Any

import schemathesis
from schemathesis import GenerationMode

# Things that exist, so that not every request is about something that does not.
KNOWN = {"agentId": "Jerry", "ticketId": "t-1", "conversationId": "c-1"}
if "BASCULE_FUZZ_SPACE" in os.environ:
    KNOWN["spaceId"] = os.environ["BASCULE_FUZZ_SPACE"]
# The only statuses that this caller may ever see; none given: whatever the description says.
ONLY = {int(status) for status in os.environ.get("BASCULE_FUZZ_ONLY", "").split()}

_turn = itertools.count()


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    kwargs["hooks"] = {"response": first_piece}
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE:
        return
    if isinstance(case.body, dict):
        # To JSON Schema 5.0 is an integer. Here a whole number is written whole, and everybody's encoder does.
        case.body = {name: whole(value) for name, value in case.body.items()}
    if next(_turn) % 2:
        for name, value in KNOWN.items():
            if name in (case.path_parameters or ()):
                case.path_parameters[name] = value
        if case.operation.label == "POST /replies" and isinstance(case.body, dict):
            case.body["ticketId"] = KNOWN["ticketId"]


def first_piece(response: Any, **_: Any) -> None:
    """An event stream does not end: what is there at once is all of it."""
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        pieces = iter([response.raw.read1(1 << 16, decode_content=True)])
        response.raw.read1 = lambda *_, **__: next(pieces, b"")


def whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(whole, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value


@schemathesis.check
def sees_only_what_it_may(context: Any, response: Any, case: Any) -> None:
    assert not ONLY or response.status_code in ONLY, f"{response.status_code} for a caller that may see {ONLY} only"
