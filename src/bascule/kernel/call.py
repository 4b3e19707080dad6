"""A call: one request with its envelope gone."""

from enum import IntEnum
from functools import lru_cache
from typing import Any, Literal, NewType, TypeAlias

import msgspec

Principal = NewType("Principal", str)

LOCAL = Principal("local")
PERSON = Principal("person")
DAEMON = Principal("daemon")
# A page at the console's own address that has shown nothing yet. It may pair and sign in, whatever the policy says.
BROWSER = Principal("browser")

_AGENT_PREFIX = "agent:"
_A2A_PREFIX = "a2a:"
# Handles are asked for several times per call; those of as many agents as a busy daemon has are remembered.
_REMEMBERED = 4_096


@lru_cache(maxsize=_REMEMBERED)
def agent_principal(agent_id: str) -> Principal:
    return Principal(_AGENT_PREFIX + agent_id)


@lru_cache(maxsize=_REMEMBERED)
def agent_of(principal: Principal) -> str | None:
    """The handle behind an agent principal; None for everybody else."""
    if principal.startswith(_AGENT_PREFIX):
        return principal[len(_AGENT_PREFIX) :]
    return None


@lru_cache(maxsize=_REMEMBERED)
def sender_name(principal: Principal) -> str:
    """How a principal is shown as `from`: an agent by its handle, others by their kind."""
    return agent_of(principal) or str(principal)


_NODE_PREFIX = "node:"


@lru_cache(maxsize=_REMEMBERED)
def node_principal(node: str) -> Principal:
    """Another daemon of the mesh, speaking for itself."""
    return Principal(_NODE_PREFIX + node)


@lru_cache(maxsize=_REMEMBERED)
def node_of(principal: Principal) -> str | None:
    """The machine that a principal elsewhere comes from; None for everybody here. No door of ours gives such a one."""
    if principal.startswith(_NODE_PREFIX):
        return principal[len(_NODE_PREFIX) :]
    return principal.partition("@")[2] or None


def a2a_principal(client: str) -> Principal:
    """A client beyond A2A, by the name that its token was made for."""
    return Principal(_A2A_PREFIX + client)


def is_a2a(principal: Principal) -> bool:
    return principal.startswith(_A2A_PREFIX)


@lru_cache(maxsize=_REMEMBERED)
def is_outside(principal: Principal) -> bool:
    """Somebody who is not on this machine: a client beyond A2A, another node, or somebody there (with an `@`).

    Such a caller reaches what a row's `outside` leaves open, and nothing else.
    """
    return is_a2a(principal) or node_of(principal) is not None


class Grade(IntEnum):
    """What a session of the console has shown: each grade may what those below it may."""

    # Its six digits were compared on a terminal: worth what the local token is worth.
    PAIRED = 1
    # A passkey or the passphrase, once: the person looks, denies without words and stops things.
    SIGNED_IN = 2
    # A passkey or the passphrase for exactly this call. Nothing keeps it.
    FRESH = 3

    @property
    def wire(self) -> str:
        return self.name.lower()


# How a person shows that they are one.
ShownBy: TypeAlias = Literal["passkey", "passphrase"]


class ConsoleSession:
    """The session of the console that one request came with. Made by the door, for this request alone."""

    __slots__ = ("by", "grade", "proof_id", "session_id", "spent")

    def __init__(self, session_id: str, grade: Grade, proof_id: str | None = None) -> None:
        self.session_id = session_id
        self.grade = grade
        # What the header `Bascule-Proof` names.
        self.proof_id = proof_id
        # The id of the proof that the gate spent for this call; the record of the call names it.
        self.spent: str | None = None
        # What was shown for it.
        self.by: ShownBy | None = None


class Call(msgspec.Struct, frozen=True):
    """Who wants what. `principal` comes from the transport, never from a payload (invariant I3)."""

    principal: Principal
    method: str
    params: Any
    # "link", "unix", "tcp", "space", "mcp", "console", "a2a", "run" or "daemon": where it came in, for the log.
    door: str
    # With `--auth off`: this caller may act on any agent's behalf here; it is still shown as `local`.
    as_owner: bool = False
    # The live link connection, for what is bound to one: exclusive handles, the person's unlock.
    connection: object | None = None
    # The session of the console; None at every other door, and for a page that has shown nothing yet.
    session: ConsoleSession | None = None
    # The process at the other end of a link connection, as the kernel says it; 0 at every other door.
    pid: int = 0


def proof_of(call: Call) -> dict[str, str]:
    """What the record of a call says of the proof that was spent on it, as a part of its details."""
    spent = call.session.spent if call.session is not None else None
    return {"proof": spent} if spent is not None else {}


def shown_by(call: Call) -> ShownBy | None:
    """What the person has shown for this call: over a link connection the passphrase, which unlocked it."""
    return call.session.by if call.session is not None else "passphrase"


_SUBJECTS = ("ticket_id", "agent_id", "run_id", "process_id", "approval_id", "space_id", "game_id")


def subject_of(params: Any) -> str | None:
    """What a call is about, for the ledger."""
    for name in _SUBJECTS:
        found: str | None = getattr(params, name, None)
        if found:
            return found
    return None
