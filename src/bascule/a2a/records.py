"""What is kept in the store."""

from enum import StrEnum
from typing import Any

import msgspec


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """By handle."""

    description: str
    skills: list[str]
    at: int


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """By name."""

    token_hash: str
    at: int


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """An agent elsewhere, by name, as it was when a person added it."""

    # Of its card.
    url: str
    # The card without its signatures, as canonical JSON, and the digest of that.
    card: str
    digest: str
    title: str
    description: str
    skills: list[str]
    # The interface that is used; it lies where the card does.
    endpoint: str
    protocol: str
    binding: str
    # It says that a message id which comes again is the same message.
    once: bool
    token_file: str | None
    at: int
    # Its card is another one now: nothing is sent until a person adds it again.
    changed: bool = False


class Stage(StrEnum):
    """How far a message to an agent elsewhere is."""

    # Not begun: it may be sent, or withdrawn without a trace.
    WAITING = "waiting"
    # The request is on its way, or was when we died: whether it arrived is not known.
    BEGUN = "begun"
    # The agent has it, and answers later: its task is asked for.
    ACCEPTED = "accepted"
    # Nothing is left to do. Kept for its context until the ticket is forgotten.
    OVER = "over"


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A message to an agent elsewhere, by ticket id; it is made in the transaction of the ticket."""

    peer: str
    # The same however often it is sent.
    message_id: str
    payload: msgspec.Raw
    conversation_id: str | None
    expect_reply: bool
    at: int
    # Whose message it is: what the agent was told in confidence is continued by nobody else.
    sender: str = ""
    stage: Stage = Stage.WAITING
    # What the agent said: its task, and the context that later messages of the conversation name.
    task_id: str = ""
    context_id: str = ""
    # It asked for more: the next message of this conversation continues the task.
    wants_input: bool = False
    # The sender withdrew it, and the agent has to be told.
    cancel: bool = False


TABLES: dict[str, Any] = {
    "published_handles": Published,
    "outside_clients": Client,
    "outside_agents": Peer,
    "outside_letters": Letter,
}
