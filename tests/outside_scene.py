"""What a caller from outside of this machine tries: every method, with params that would mean something."""

from typing import Any

import msgspec

# Params that would mean something if the caller were let through.
SAMPLES: dict[str, Any] = {
    "agentId": "Jerry",
    "ticketId": "theirs",
    "ticketIds": ["theirs"],
    "conversationId": "plan",
    "payload": "x",
    "name": "Ann",
    "url": "http://127.0.0.1:1",
    "passphrase": "correct horse battery",
    "path": "/tmp",
    "gameId": "snake",
    "tool": "look",
    "runId": "run_1",
    "processId": "prc_1",
    "spaceId": "spc_1",
    "approvalId": "apr_1",
    "decision": "approve",
    "operations": [],
    "text": "x",
}


def sample(row: Any) -> dict[str, Any]:
    """Params of the method, as far as they are known here."""
    wire = {field.encode_name for field in msgspec.structs.fields(row.params)}
    if row.name in ("messages.send", "messages.broadcast"):
        wire.discard("ticketId")
    return {name: value for name, value in SAMPLES.items() if name in wire}
