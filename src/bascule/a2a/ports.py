"""What A2A needs of the machine: somebody who speaks to agents elsewhere."""

from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from bascule.a2a.records import Letter, Peer

# The a2a-sdk makes an object of protobuf of every value, several times over: 2 MiB of `[0,0,...` from one client kept
# the daemon's loop for twenty seconds. With so many it takes less than a tenth of a second.
MAX_VALUES = 10_000


class PeerState(StrEnum):
    """How a task elsewhere is; what A2A calls submitted is working too."""

    WORKING = "working"
    # It says what it was asked for.
    COMPLETED = "completed"
    # It asks something back: an answer too, and the next message may continue the task.
    INPUT_REQUIRED = "input-required"
    # It wants credentials that we do not have.
    AUTH_REQUIRED = "auth-required"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELED = "canceled"


class PeerAnswer(NamedTuple):
    """What an agent elsewhere said, as plain values."""

    state: PeerState
    payload: Any = None
    # "" for an answer without a task.
    task_id: str = ""
    context_id: str = ""


class NotSent(Exception):
    """It has certainly not arrived: it may be sent again."""


class EndUnknown(Exception):
    """The request left us, and no answer that can be read came: what became of it is not known."""


class Refused(Exception):
    """The agent, or its server, said no."""


class AgentClient(Protocol):
    """Speaks to agents elsewhere. Raises `NotSent`, `EndUnknown` or `Refused`; what it answers is bounded in size."""

    async def fetch_card(self, url: str, token: str | None) -> bytes: ...

    async def send(self, peer: Peer, token: str | None, letter: Letter, *, task_id: str, context_id: str) -> PeerAnswer:
        """`task_id` and `context_id`: of the conversation before, or ""."""

    async def look(self, peer: Peer, token: str | None, task_id: str) -> PeerAnswer: ...

    async def cancel(self, peer: Peer, token: str | None, task_id: str) -> None: ...

    async def close(self) -> None: ...
