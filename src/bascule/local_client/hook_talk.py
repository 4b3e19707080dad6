"""A hook's conversation with the daemon: the client's bytes are sent, and what comes back is for the client.

`bridge-native` and the hidden tool of `bascule mcp` both run this generator, so they cannot differ in what they do when
something fails. It yields `Ask`, is sent `Answer`, and returns an `End`; whoever runs it does the I/O.
"""

from __future__ import annotations

import re
import time

from bascule.local_client.values import decode

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

BEFORE = "native.before"
_AFTER = "native.after"
_NOTE = "sessions.note"
_QUESTION = "native.question"
_METHODS = {
    "PreToolUse": BEFORE,
    "BeforeTool": BEFORE,
    "PostToolUse": _AFTER,
    "PostToolUseFailure": _AFTER,
    "AfterTool": _AFTER,
}
# Events at which a client takes a no about a call of a tool. A no to anything else would lock its user out.
_CAN_REFUSE = frozenset(["PreToolUse", "BeforeTool", "PermissionRequest"])
# A call waits for the tree before it, in the largest project half a minute.
ANSWER_SECONDS = 60.0
# As long as the daemon holds a call for a person, and a little.
HOLD_SECONDS = 30.0
# A daemon that holds no call (`approval_hold_ms`) is not asked over and over.
SHORTEST_HOLD_SECONDS = 0.5
_NAMED = re.compile(rb'"hook_event_name"\s*:\s*"(\w{1,64})"')


class Ask:
    """One call of the daemon."""

    __slots__ = ("method", "params", "seconds")

    def __init__(self, method: str, params: dict[str, Any], seconds: float) -> None:
        self.method = method
        self.params = params
        self.seconds = seconds


class Answer:
    """What came of it: a value, or the code of what went wrong and a sentence."""

    __slots__ = ("code", "message", "value")

    def __init__(self, value: Any = None, code: str | None = None, message: str = "") -> None:
        self.value = value
        self.code = code
        self.message = message


class End:
    """What the client is given."""

    __slots__ = ("output", "refusal")

    def __init__(self, output: Any = None, refusal: str | None = None) -> None:
        self.output = output
        # Why the call is refused, where no output says it.
        self.refusal = refusal


def event_name(raw: bytes) -> str | None:
    """Which event it is, and nothing more: the daemon reads the rest.

    Of input that is cut off or is not JSON, the only name that stands in it; None when nobody can say.
    """
    try:
        event = decode(raw)
    except ValueError:
        names = set(_NAMED.findall(raw))
        return names.pop().decode() if len(names) == 1 else None
    name = event.get("hook_event_name") if isinstance(event, dict) else None
    return name if isinstance(name, str) else None


def converse(
    name: str | None, body: dict[str, Any], clock: Callable[[], float] = time.monotonic
) -> Generator[Ask, Answer, End]:
    """`body`: the params of the first call. `closed` in it: refuse calls while the daemon cannot be asked."""
    method = BEFORE if name is None else _METHODS.get(name, _NOTE)
    can_refuse = name is None or name in _CAN_REFUSE
    answer = yield Ask(method, body, ANSWER_SECONDS)
    if answer.code is not None or not isinstance(answer.value, dict):
        # A person has stopped everything: that holds for agents' own tools as well, whatever their mode is.
        refused = can_refuse and (body.get("closed") or answer.code == "stopped")
        return End(refusal=answer.message or "the daemon's answer cannot be read") if refused else End()
    found = answer.value
    output = found.get("output")
    if name is None and found.get("record") == "decided":
        # In no client's own form, for nobody knows what it asked.
        return End(refusal=str(found.get("reason")))
    if question := found.get("question"):
        if "waitMs" in found:
            output = (yield from _asked(question, found["waitMs"] / 1000, clock)) or output
        elif (yield Ask(_QUESTION, question, HOLD_SECONDS)).code is None:
            # A person said yes while the client waited. If they say it later, the same call is let through then.
            return End()
    return End(output)


def _asked(question: Any, seconds: float, clock: Callable[[], float]) -> Generator[Ask, Answer, Any]:
    """What a person says at the desk while the client's own dialog is open; nothing if they say it there."""
    until = clock() + seconds
    while (left := until - clock()) > 0:
        began = clock()
        answer = yield Ask(_QUESTION, question, left)
        if answer.code is None:
            return answer.value.get("output") if isinstance(answer.value, dict) else None
        if answer.code == "policy_denied":
            decision = {"behavior": "deny", "message": answer.message}
            return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}
        if answer.code != "approval_required" or clock() - began < SHORTEST_HOLD_SECONDS:
            return None
    return None
