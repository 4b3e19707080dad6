"""What the mesh needs from the outside: a post between machines, and on one of them the server behind it."""

from collections.abc import Awaitable
from enum import StrEnum
from typing import NamedTuple, Protocol

from bascule.foundation.deferred import Deferred


class Board(StrEnum):
    """What every node can read, each key written by one node: the newest value of each is kept."""

    # By node: a sign of life, put every `LIFE_SIGN_SECONDS`; gone some time after the last one.
    LIVE = "live"
    # By node: its agents, signed.
    DIRECTORY = "dir"
    # By node: its card, signed by the mesh key. The key `_revoked` holds the list of revoked cards.
    CARDS = "cards"


# The largest value: a sign of life with its groups; a listing of ten thousand agents; a card, or the list of those
# revoked at its longest. Every node reads and keeps those of all others, whatever they say.
MAX_VALUE_BYTES = {Board.LIVE: 16 * 1024, Board.DIRECTORY: 1024 * 1024, Board.CARDS: 1024 * 1024}


class Fault(StrEnum):
    """Why the post does not take or bring letters, for `mesh.status` and doctor."""

    # No server answers; tried again for ever.
    UNREACHABLE = "unreachable"
    # The server does not know us, or no longer.
    REFUSED = "refused"
    # It knows us and does not allow something that the mesh needs; the detail names the subject.
    FORBIDDEN = "forbidden"
    # Its disk or the stream's limit is full.
    FULL = "full"
    # JetStream is off, or the stream is missing.
    NOT_SET_UP = "not set up"
    # nats-server, which a hub needs, is not installed here.
    MISSING = "missing"


class PostState(NamedTuple):
    open: bool
    fault: Fault | None = None
    # One line for a person: which server, what it said, what to do.
    detail: str = ""
    # How far our wall clock is ahead of the server's, if that is known.
    skew_ms: int | None = None
    server: str = ""
    version: str = ""


class Reader(Protocol):
    """Gets what the post brings. Called on the event loop; never raises."""

    def opened(self, mailbox: str) -> int:
        """The post is open, for the first time or again. `mailbox` names this creation of the stream: another name
        means that its storage was wiped. Returns the number of the last letter that was read there; 0 for none."""

    def closed(self) -> None: ...

    def live(self, src: str, data: bytes) -> None:
        """A letter that came directly. `src` is what the subject says: a hint, never an identity."""

    def mailed(self, src: str, data: bytes, number: int) -> None:
        """A letter from the mailbox; numbers rise, with gaps."""

    def posted(self, board: Board, key: str, value: bytes | None, age_ms: int) -> None:
        """A value on a board is new or gone; the first ones come after `opened`. `age_ms`: how old by the server's
        clock."""


class Post(Protocol):
    """The bus between machines. It may lose, double, delay and reorder; no promise rests on it."""

    @property
    def state(self) -> PostState: ...

    @property
    def max_bytes(self) -> int:
        """The largest letter that the server takes."""

    async def open(self, reader: Reader) -> None:
        """Begin to connect, and go on for ever; returns at once."""

    def send(self, dest: str, data: bytes) -> bool:
        """Directly to a node that listens now; False when the post is not open. Nobody says whether it arrived."""

    def mail(self, dest: str, data: bytes) -> "Deferred[None]":
        """Into the mailbox of a node; fails with `NotMailed` when the server does not confirm it."""

    def put(self, board: Board, key: str, value: bytes) -> None:
        """Under our own key; kept and put again after a reconnect."""

    async def close(self) -> None: ...


class NotMailed(Exception):
    """The server has not confirmed a letter; it may be in the mailbox all the same."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault


class Hub(Protocol):
    """A nats-server of ours, as a child of the daemon."""

    # Where others reach it: "host:port", the likeliest first.
    addresses: list[str]
    # SHA-256 of its certificate, in hex.
    certificate: str

    def start(self) -> Awaitable[None]:
        """Return when it answers; started again for ever when it dies."""

    def admit(self, node: str, bus_key: str) -> Awaitable[None]:
        """This key may log in as this node, from now on and after a restart."""

    def expel(self, node: str) -> Awaitable[None]:
        """Its key is no longer good; connections with it are closed at once."""

    def invite(self, bus_key: str, seconds: float) -> Awaitable[None]:
        """This key may only ask to join, for so long."""

    def withdraw(self, bus_key: str) -> Awaitable[None]: ...

    def close(self) -> Awaitable[None]: ...
