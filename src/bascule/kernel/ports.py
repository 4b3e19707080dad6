"""Ports between bridges, which never import each other."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Conflict
from bascule.kernel.bridge import Port
from bascule.kernel.call import Principal
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


# -- agents elsewhere -------------------------------------------------------------------------------
#
# A handle with an `@` names an agent that this daemon's broker does not know: on another machine, or behind another
# protocol. Its ticket has its home here; whoever stands behind the `@` passes the message on and brings the reply.


class Outgoing(NamedTuple):
    """A message that was sent here to an agent elsewhere."""

    ticket_id: str
    sender: Principal
    # With its `@`.
    target: str
    payload: bytes
    metadata: dict[str, Any]
    expect_reply: bool
    timeout_ms: int
    conversation_id: str | None
    at: int


class Incoming(NamedTuple):
    """A message from elsewhere for an agent or group here: a copy of a ticket whose home is there."""

    # Ours for it; never one that a caller here could choose.
    ticket_id: str
    sender: Principal
    target: str
    payload: bytes
    metadata: dict[str, Any]
    expect_reply: bool
    left_ms: int
    conversation_id: str | None
    # On the disk of the other machine, which says it again until it is on ours: nobody here has to wait for our disk.
    kept_there: bool = False


class IncomingReply(NamedTuple):
    sender: Principal
    # 1 for the first.
    number: int
    payload: bytes
    metadata: dict[str, Any]
    # As of a message.
    kept_there: bool = False


class RemoteAgent(NamedTuple):
    agent_id: str
    type: str
    # "online", "offline" or "unreachable".
    status: str
    # 0: never.
    seen_at: int
    groups: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}


class RemoteDelivery(NamedTuple):
    # "outbox", "mailed" or "arrived".
    state: str
    at: int


class KnownTicket(msgspec.Struct, frozen=True, gc=False):
    status: str
    replies: int
    late: bool
    reason: str | None


class OnAgents(Protocol):
    def __call__(self) -> None: ...


class Elsewhere(Protocol):
    """Whoever stands behind an `@`. Changes ride in the transaction of what the broker does."""

    def find(self, target: str) -> RemoteAgent | None:
        """The agent that this target names, with its full name; one without an `@` in it is an agent or group here.
        `NotFound` says who is there instead. None for a bare handle that nobody elsewhere has."""

    def agents(self) -> Iterable[RemoteAgent]: ...

    def send(self, tx: Transaction, message: Outgoing) -> None:
        """Take it over; it is passed on once `tx` is durable. `Overloaded` when too much waits already."""

    def ended(self, tx: Transaction, ticket_id: str, status: str) -> None:
        """A ticket whose home is here was cancelled, or its time is over."""

    def dropped(self, tx: Transaction, ticket_id: str) -> None:
        """The ticket is forgotten here, be it home's or a copy."""

    def acked(self, tx: Transaction, ticket_id: str) -> None:
        """The agent here has the message of this copy."""

    def replied(self, tx: Transaction, ticket_id: str, reply: IncomingReply) -> None:
        """The agent here replied to this copy."""

    def delivery(self, ticket_id: str) -> RemoteDelivery | None:
        """How far a message from here got; None when its agent has acknowledged it, or nothing is known."""


class TicketCancelled(Conflict):
    """A reply to what its sender has withdrawn."""

    def __init__(self) -> None:
        super().__init__("ticket cancelled", hint="the sender withdrew it; stop working on it")


class RemoteMail(Protocol):
    """What the broker does for those who stand behind an `@`. Each call is a part of the caller's transaction."""

    def deliver(self, tx: Transaction, message: Incoming) -> None:
        """`NotFound` for an unknown handle, `Overloaded` when its inbox is full."""

    def mirror(self, tx: Transaction, ticket_id: str, status: str, *, late: bool, reason: str | None) -> None:
        """A copy takes the status that its home says."""

    def acknowledge(self, tx: Transaction, ticket_id: str) -> None:
        """The agent elsewhere has the message of a ticket whose home is here."""

    def answer(self, tx: Transaction, ticket_id: str, reply: IncomingReply) -> None:
        """It replied. `TicketCancelled` when it was withdrawn, `NotFound` when it is gone."""

    def refuse(self, tx: Transaction, ticket_id: str, reason: str) -> None:
        """It can never have the message: the ticket ends with this reason."""

    def known(self, ticket_id: str) -> KnownTicket | None: ...

    def outgoing(self, ticket_id: str) -> Outgoing | None:
        """The message of an open ticket whose home is here, to be sent once more."""

    def replies(self, ticket_id: str) -> Sequence[IncomingReply]:
        """What agents here replied to a copy."""

    def agents(self) -> Iterable[RemoteAgent]:
        """Those of this daemon that others may be told of."""

    def has_free_member(self, group: str) -> bool:
        """Somebody of this group would get a message at once."""

    def watch_agents(self, callback: OnAgents) -> None:
        """Called when who is here, or whether they are online, may have changed."""


class Remotes(Protocol):
    def add(self, elsewhere: Elsewhere | None, behind: str | None = None) -> None:
        """Targets that end with `@` and this word are its own; without a word, all that nobody else has. None takes
        it away again."""


# Handles that callers who are not on this machine may write to; who publishes them keeps the set.
PUBLISHED: Port[set[str]] = Port("published handles")
REMOTES: Port[Remotes] = Port("agents elsewhere")
REMOTE_MAIL: Port[RemoteMail] = Port("mail from elsewhere")

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
    # Its process and its handle, as far as they are known: 0 and None are not.
    pid: int = 0
    agent: str | None = None
    # A keyed digest of what the agent was asked.
    prompt: str | None
    # The beginning of it, where that is kept.
    asked: str | None = None
    tool: str
    title: str
    # Who said yes to it, as far as that is known before it.
    approved_by: tuple[str, ...] = ()
    # The project's real directory.
    root: str
    # What it is known to write, as absolute paths, and whether it changes nothing else.
    writes: tuple[str, ...] = ()
    only_these: bool = False
    # It puts files into directories that it names, and leaves what else is in them alone.
    into: bool = False


class Began(NamedTuple):
    # Also of a call that cannot be undone: it is listed, with the reason.
    run_id: str
    # What of it cannot be undone, and why.
    note: str | None
    # Whether anything of it can.
    undoable: bool


class NativeRuns(Protocol):
    """Runs that no run of ours executes: checkpoints before and after, as a client's hooks report them."""

    # Whether the client of a session can report the end of a run no more.
    silenced: Callable[[str, str, str], Awaitable[bool]]

    async def begin(self, work: NativeWork, gone: Deferred[Any]) -> Began:
        """`gone` is settled when the client no longer waits: its call may be at work from then on."""

    def approved(self, run_id: str, yes: str) -> None:
        """A person, or a rule of theirs, has answered after it began."""

    def reported(self, run_id: str) -> None:
        """The call is over: the next one waits for `end`, or until `left_running` is said."""

    def left_running(self, run_id: str, why: str) -> bool:
        """The call is over, and the run is not, because of a process; False when it ended otherwise meanwhile."""

    async def end(self, run_id: str, *, ok: bool, note: str | None = None) -> tuple[str, ...]:
        """Paths that it changed."""

    async def warm(self, root: str) -> None:
        """Take a first checkpoint, before a call needs one."""


NATIVE_RUNS: Port[NativeRuns] = Port("native runs")

# -- of the daemon --------------------------------------------------------------------------------

SESSIONS: Port[Sessions] = Port("sessions of the console")
PROOFS: Port[Proofs] = Port("what persons at the console have shown")
