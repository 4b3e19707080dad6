"""Names of things: the types and patterns of ids, and new ones. `agreement` says what a handle and a ticket id are."""

import os
import secrets
from functools import lru_cache
from typing import NewType

from bascule.foundation.agreement import MAX_AGENT_ID_CHARS, MAX_NODE_CHARS, MAX_TICKET_ID_CHARS

AgentId = NewType("AgentId", str)
TicketId = NewType("TicketId", str)
ConversationId = NewType("ConversationId", str)

# Leaves room for "." and a full handle behind it inside MAX_TICKET_ID_CHARS.
MAX_BROADCAST_ID_CHARS = MAX_TICKET_ID_CHARS - MAX_AGENT_ID_CHARS - 1

# Python's `$` also matches before a final newline; JSON Schema's does not. This means the same to both.
AGENT_ID_PATTERN = rf"^[A-Za-z0-9._-]{{1,{MAX_AGENT_ID_CHARS}}}$(?!\n)"
TICKET_ID_PATTERN = rf"^[A-Za-z0-9._-]{{1,{MAX_TICKET_ID_CHARS}}}$(?!\n)"
# A handle, and behind an `@` the machine that knows it.
NODE_PATTERN = rf"^[a-z0-9][a-z0-9-]{{0,{MAX_NODE_CHARS - 1}}}$(?!\n)"
TARGET_PATTERN = rf"^[A-Za-z0-9._-]{{1,{MAX_AGENT_ID_CHARS}}}(?:@[a-z0-9][a-z0-9-]{{0,{MAX_NODE_CHARS - 1}}})?$(?!\n)"
BROADCAST_ID_PATTERN = rf"^[A-Za-z0-9._-]{{1,{MAX_BROADCAST_ID_CHARS}}}$(?!\n)"

# Copies of tickets whose home is another daemon have ids of ours, which no caller may choose.
COPY_ID_PREFIX = "msh_"
# Handles that the house gives out itself: commands in a space's sandbox are the agent with the space's id.
HOUSE_HANDLE_PREFIX = "spc_"


def is_reserved_handle(text: str) -> bool:
    """A valid handle that nobody can register; spelled in any case, so that none looks like one."""
    return text.casefold().startswith(HOUSE_HANDLE_PREFIX)


class _RandomPool:
    """Random bytes fetched from the kernel a page at a time: a system call per id was a fifth of a send."""

    PAGE_BYTES = 4_096

    def __init__(self) -> None:
        self._hex = ""
        self._at = 0

    def empty(self) -> None:
        self._hex = ""

    def hex(self, digits: int) -> str:
        end = self._at + digits
        if end > len(self._hex):
            self._hex = os.urandom(self.PAGE_BYTES).hex()
            self._at, end = 0, digits
        taken = self._hex[self._at : end]
        self._at = end
        return taken


_pool = _RandomPool()
# The two random bits beside the variant, from one random digit.
_VARIANTS = {f"{digit:x}": "89ab"[digit & 3] for digit in range(16)}
# A child process must not hand out the same ids as its parent.
os.register_at_fork(after_in_child=_pool.empty)


def new_ticket_id(at_ms: int) -> TicketId:
    """A UUID that begins with the time (RFC 9562, version 7) in its text form.

    `at_ms` is wall time. What is sent together then lies together on disk: with random ids every row of a commit was
    a page of its own.
    """
    digits = _pool.hex(19)
    return TicketId(f"{_time_of_id(at_ms)}-7{digits[1:4]}-{_VARIANTS[digits[0]]}{digits[4:7]}-{digits[7:]}")


@lru_cache(maxsize=16)
def _time_of_id(at_ms: int) -> str:
    # Six bytes, whatever the clock says.
    at = f"{at_ms & 0xFFFF_FFFF_FFFF:012x}"
    return f"{at[:8]}-{at[8:]}"


def new_token() -> str:
    """256 bits, URL-safe: an agentToken, the local bearer."""
    return secrets.token_urlsafe(32)


def new_fault_id() -> str:
    """Sent to the caller instead of a traceback; finds the traceback in the log."""
    return secrets.token_hex(4)


def new_id(prefix: str) -> str:
    """`apr_5f0c…`: what the house itself makes and people copy from a terminal; 80 random bits."""
    return f"{prefix}_{_pool.hex(20)}"
