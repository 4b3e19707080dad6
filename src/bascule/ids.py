"""Names of things: what a handle, a ticket id and a conversation id may look like.

Ids travel in URLs, file names, log lines and terminals, so their alphabet is the one that needs no
quoting in any of them.
"""

import re
import secrets
import uuid
from typing import NewType

AgentId = NewType("AgentId", str)
TicketId = NewType("TicketId", str)
ConversationId = NewType("ConversationId", str)

# Long enough for `claude-code-some-project-2`, short enough for a table column.
MAX_AGENT_ID_CHARS = 64
# A UUID with a readable prefix fits; so does the `<broadcastId>.<agentId>` of a broadcast.
MAX_TICKET_ID_CHARS = 128
# Leaves room for "." and a full handle behind it inside MAX_TICKET_ID_CHARS.
MAX_BROADCAST_ID_CHARS = MAX_TICKET_ID_CHARS - MAX_AGENT_ID_CHARS - 1

AGENT_ID_PATTERN = r"^[A-Za-z0-9._-]{1,64}$"
TICKET_ID_PATTERN = r"^[A-Za-z0-9._-]{1,128}$"
BROADCAST_ID_PATTERN = r"^[A-Za-z0-9._-]{1,63}$"

# "." and ".." are path steps in URLs and file systems; "local" and "person" are principals of ours.
RESERVED_AGENT_IDS = frozenset({".", "..", "local", "person"})

_AGENT_ID = re.compile(AGENT_ID_PATTERN.replace("$", r"\Z"))
_TICKET_ID = re.compile(TICKET_ID_PATTERN.replace("$", r"\Z"))


def is_agent_id(text: str) -> bool:
    return _AGENT_ID.match(text) is not None and text not in RESERVED_AGENT_IDS


def is_ticket_id(text: str) -> bool:
    return _TICKET_ID.match(text) is not None and text not in (".", "..")


def new_ticket_id() -> TicketId:
    return TicketId(str(uuid.uuid4()))


def new_token() -> str:
    """256 bits, URL-safe: an agentToken, the local bearer."""
    return secrets.token_urlsafe(32)


def new_fault_id() -> str:
    """What a caller is told instead of a traceback; finds the traceback in the log."""
    return secrets.token_hex(4)
