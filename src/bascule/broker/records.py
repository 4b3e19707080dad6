"""What the broker keeps: plain frozen Structs, stored as they are."""

from typing import Any

import msgspec

from bascule.broker.protocol import TicketStatus

# Reading a member of an Enum class costs a tenth of a microsecond each time; these are read for every change.
_PENDING = TicketStatus.PENDING
_DELIVERED = TicketStatus.DELIVERED
_TIMEOUT = TicketStatus.TIMEOUT


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    agent_id: str
    type: str
    metadata: dict[str, Any] = {}
    heartbeat_interval_ms: int | None = None
    # SHA-256 of the agentToken in hex; None for an agent that only the config knows yet.
    token_hash: str | None = None
    groups: list[str] = []
    registered_at: int = 0
    # As of the last write; the living value is in `state.Presence`.
    seen_at: int = 0
    # Its last connection ended before that write: a restart does not make it unknown.
    gone: bool = False


class Ticket(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    ticket_id: str
    # Counts all tickets of this store: the order of sending, whatever the wall clock did.
    number: int
    sender: str
    target: str
    status: TicketStatus
    expect_reply: bool
    created_at: int
    updated_at: int
    reply_by: int
    payload_bytes: int
    # Keyed digest over everything the sender said: a retry must say the same.
    digest: str
    conversation_id: str | None = None
    # Sent to this group; `target` is the member that has it, or the group itself.
    group: str | None = None
    acked_at: int | None = None
    settled_at: int | None = None
    replied_at: int | None = None
    late: bool = False
    reason: str | None = None
    replies: int = 0

    @property
    def is_open(self) -> bool:
        """Somebody still has to do something about it."""
        return self.status is _PENDING or (self.status is _DELIVERED and self.expect_reply)

    @property
    def is_assigned(self) -> bool:
        """A group's message that a member has and that is open."""
        return self.group is not None and self.target != self.group and self.is_open

    @property
    def is_copy(self) -> bool:
        """Its home is another daemon, which alone decides how it ends."""
        return "@" in self.sender

    @property
    def is_for_elsewhere(self) -> bool:
        return "@" in self.target

    @property
    def undelivered(self) -> bool:
        """Still to be handed over: nobody acknowledged it and nobody withdrew it."""
        return self.acked_at is None and (self.status is _PENDING or self.status is _TIMEOUT)


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A payload on its way out (number 0) or back (1, 2, ...). Stored apart from the ticket: written once."""

    # Re-encoded from what we decoded, so that no second parser can read it differently.
    payload: msgspec.Raw
    metadata: dict[str, Any] = {}
    sender: str
    at: int
    late: bool = False


class Remembered(msgspec.Struct, frozen=True, gc=False):
    """The id of a ticket that is gone."""

    until: int
