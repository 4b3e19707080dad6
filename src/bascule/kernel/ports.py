"""Ports between bridges, which never import each other."""

from typing import Any, NamedTuple, Protocol

from bascule.kernel.bridge import Port
from bascule.kernel.gate import OnActivity
from bascule.kernel.identity.ownership import Parties
from bascule.kernel.journal import Transaction

# -- of the broker --------------------------------------------------------------------------------


class Presences(Protocol):
    """Called when a connection starts or stops acting as an agent."""

    def connected(self, agent_id: str) -> None: ...

    def disconnected(self, agent_id: str) -> None: ...

    def left(self, agent_id: str) -> None:
        """Its last session at /mcp has ended."""


class SpaceAgents(Protocol):
    """Agents whose handle the daemon gives out: a space's commands are one."""

    def add_agent(self, handle: str, type_: str, metadata: dict[str, Any]) -> None: ...

    def may_connect(self, handle: str) -> bool: ...

    def mark_offline(self, handle: str) -> None: ...

    def remove_agent(self, tx: Transaction, handle: str) -> None: ...


class OnQuestion(Protocol):
    def __call__(self, ticket_id: str, sender: str, /) -> None:
        """An agent asks the person something."""


class MailCount(NamedTuple):
    agents: int
    agents_online: int
    tickets: int
    tickets_open: int


class CountMail(Protocol):
    def __call__(self) -> MailCount: ...


PARTIES: Port[Parties] = Port("parties")
SEEN: Port[OnActivity] = Port("seen")
PRESENCES: Port[Presences] = Port("presences")
SPACE_AGENTS: Port[SpaceAgents] = Port("space agents")
COUNT_MAIL: Port[CountMail] = Port("count mail")
ON_QUESTION: Port[list[OnQuestion]] = Port("questions to the person")
