"""A call: one request with its envelope gone."""

from collections.abc import Mapping
from typing import Any, NewType

Principal = NewType("Principal", str)

LOCAL = Principal("local")
PERSON = Principal("person")
DAEMON = Principal("daemon")

_AGENT_PREFIX = "agent:"
_NOTHING: Mapping[str, Any] = {}


def agent_principal(agent_id: str) -> Principal:
    return Principal(_AGENT_PREFIX + agent_id)


def agent_of(principal: Principal) -> str | None:
    """The handle behind an agent principal; None for everybody else."""
    if principal.startswith(_AGENT_PREFIX):
        return principal[len(_AGENT_PREFIX) :]
    return None


def sender_name(principal: Principal) -> str:
    """How a principal is shown as `from`: an agent by its handle, others by their kind."""
    return agent_of(principal) or str(principal)


class Call:
    """Who wants what. `principal` comes from the transport, never from a payload (invariant I3).

    A plain class with slots: one is made per request, on the path whose budget is 15 us.
    """

    __slots__ = (
        *("ahead", "as_owner", "asking", "bound", "connection"),
        *("door", "method", "params", "principal", "subject", "tied"),
    )

    def __init__(
        self,
        principal: Principal,
        method: str,
        params: Any,
        *,
        door: str,
        connection: object | None = None,
    ) -> None:
        self.principal = principal
        self.method = method
        self.params = params
        # "link", "unix", "tcp", "space", "run" or "daemon": where it came in, for the log.
        self.door = door
        # With `--auth off`: this caller may act on any agent's behalf here; it is still shown as `local`.
        self.as_owner = False
        # It waits for a person's answer, and nothing of it has begun: a client that leaves withdraws it.
        self.asking = False
        # It cannot be taken back, says its bridge: its record is on disk before it begins.
        self.ahead = False
        # What the word for it rests on besides its params, as the bridge drew it: its handler looks once more.
        self.bound: Mapping[str, Any] = _NOTHING
        # The same call said so that it can only mean what was judged; only its bridge knows what that looks like.
        self.tied: Any = None
        # What it is about, for the ledger, where its params do not say: its bridge found out.
        self.subject: str | None = None
        # The live link connection, for what is bound to one: exclusive handles, the person's unlock.
        self.connection = connection
