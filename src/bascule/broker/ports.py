"""What the broker needs from the outside."""

from collections.abc import Callable
from typing import Protocol


class TokenFiles(Protocol):
    """Where helpers find an agent's token: one private file per handle."""

    def prepare(self, agent_id: str, token: str) -> None:
        """Before the registration is durable: nobody else knows the token, and a crash may take the answer."""

    def publish(self, agent_id: str, token: str) -> None:
        """Once it is."""

    def settle(self, find: Callable[[str], str | None]) -> None:
        """At start: publish what was prepared and became durable, remove the rest. `find` names a token's agent."""

    def remove(self, agent_id: str) -> None: ...


class Connections(Protocol):
    """Which live link connections act as an agent."""

    def others(self, agent_id: str, connection: object | None) -> int:
        """How many connections but this one are identified as the agent."""

    def reserve(self, agent_id: str, connection: object | None) -> None:
        """This connection registered the handle for itself alone: it counts as acting as it from now on."""

    def drop(self, agent_id: str) -> None:
        """Close what acts with a token that is no longer good."""
