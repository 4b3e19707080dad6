"""Ports between bridges, which never import each other."""

from typing import Any, NamedTuple, Protocol

import msgspec

from bascule.kernel.bridge import Port
from bascule.kernel.gate import OnActivity
from bascule.kernel.identity.ownership import Parties
from bascule.kernel.identity.proofs import Proofs
from bascule.kernel.identity.sessions import Sessions
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

# -- of the workspace -----------------------------------------------------------------------------


class NativeWork(msgspec.Struct, frozen=True, kw_only=True):
    """A call of an agent's own tool that may change files."""

    client: str
    session: str
    # A keyed digest of what the agent was asked.
    prompt: str | None
    tool: str
    title: str
    # The project's real directory.
    root: str
    # It is known to delete or overwrite: then it waits for its checkpoint, however long that takes.
    destructive: bool


class Began(NamedTuple):
    # None: it cannot be undone, and `note` says why.
    run_id: str | None
    note: str | None


class NativeRuns(Protocol):
    """Runs that no run of ours executes: checkpoints before and after, as a client's hooks report them."""

    async def begin(self, work: NativeWork) -> Began: ...

    async def end(self, run_id: str, *, ok: bool) -> tuple[str, ...]:
        """Paths that it changed."""

    async def warm(self, root: str) -> None:
        """Take a first checkpoint, before a call needs one."""


NATIVE_RUNS: Port[NativeRuns] = Port("native runs")

# -- of the daemon --------------------------------------------------------------------------------

SESSIONS: Port[Sessions] = Port("sessions of the console")
PROOFS: Port[Proofs] = Port("what persons at the console have shown")
