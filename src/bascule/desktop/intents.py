"""A call without what it is called: what the host is asked to do."""

from typing import Any, Final

import msgspec

from bascule.desktop import protocol as d
from bascule.foundation.agreement import MAX_WAIT_MS

# Of a call, and not of what it does.
_OURS: Final = ("workspacePath", "requestId", "timeoutMs")


def intent_of(params: msgspec.Struct) -> dict[str, Any]:
    """The contract's params of the same call."""
    plain = {name: value for name, value in msgspec.to_builtins(params).items() if name not in _OURS}
    if isinstance(params, d.WaitUntilCall):
        plain["timeoutMs"] = min(params.timeout_ms, MAX_WAIT_MS)
    return {name: without_nothing(value) for name, value in plain.items() if value is not None}


def without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nothing(each) for name, each in value.items() if each is not None}
    return value
