"""What membership needs of the machine: a server as a child, the post of a member, and a way to ask to become one."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bascule.kernel.journal import Transaction
from bascule.mesh.cards import Card
from bascule.mesh.ports import Fault, Hub, Post, Reader
from bascule.mesh.records import Membership

# Gets the name that is wished for and a knock, and returns the answer.
OnJoin = Callable[[str, bytes], Awaitable[bytes]]
# Makes streams and boards again; may raise `NotReached`.
OnWiped = Callable[[], Awaitable[None]]


class NotReached(Exception):
    """A server of NATS did not do what it was asked to; the detail is one line for a person."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault
        self.detail = detail


class JoinLogin(NamedTuple):
    """Where NATS is, and what somebody logs in with who is not a member."""

    servers: tuple[str, ...]
    bus: Ed25519PrivateKey
    # PEM of the one that is believed; None: the system's authorities.
    certificate: str | None = None
    creds_file: str | None = None


class MemberPost(Post, Protocol):
    def on_join(self, handler: OnJoin) -> None:
        """Take knocks; before `open`, and only where the mesh key is."""

    def on_wiped(self, handler: OnWiped) -> None:
        """A stream is gone, because the server's storage was wiped: have it made again. Before `open`, and only where
        the mesh key is."""


class MemberHub(Hub, Protocol):
    # Of its certificate.
    certificate_pem: str

    @property
    def own_address(self) -> str:
        """ "host:port" where this daemon reaches it."""


class Machine(Protocol):
    def missing(self, *, hub: bool) -> str | None:
        """What is not installed here, with the command that installs it."""

    def names(self) -> tuple[str, str]:
        """What this machine is called, and its user."""

    def make_hub(self, own: Membership) -> MemberHub:
        """The server of the mesh whose key we hold; its files are those of this mesh alone."""

    def remove_hub(self, own: Membership) -> Awaitable[None]:
        """Its files, once it is closed."""

    def make_post(self, own: Membership) -> MemberPost: ...

    def set_up(self, own: Membership, hub: Hub | None) -> Awaitable[None]:
        """Make streams and boards; what is there stays. `NotReached`."""

    def fetch_certificate(self, host: str, port: int) -> Awaitable[tuple[str, str]]:
        """What a hub shows, as PEM, and its SHA-256 in hex. `NotReached`."""

    def ask_to_join(self, login: JoinLogin, node: str, data: bytes, seconds: float) -> Awaitable[bytes]:
        """What the holder of the mesh key answers. `NotReached`."""

    def creds_problem(self, path: str) -> str | None:
        """Why a creds file cannot be used."""


class PeerFacts(NamedTuple):
    """What is known of the way to a node, for `mesh.status`."""

    # None: nothing was heard of it since we are connected.
    reachable: bool | None = None
    # Wall time when it was last heard of; 0: not in this life.
    since: int = 0
    version: str = ""
    # What waits here for it, and since when the oldest does.
    outbox_items: int = 0
    outbox_bytes: int = 0
    oldest_at: int | None = None


class Traffic(Protocol):
    """What goes between nodes once this one is a member: letters, signs of life, listings."""

    def member(self, own: Membership) -> object:
        """From now on messages to other nodes are taken, though there may be no post yet."""

    def not_member(self) -> None: ...

    def left(self, tx: Transaction) -> None:
        """What is open with the nodes of this mesh ends: none of the next one may get it."""

    def card_changed(self, node: str) -> None: ...

    def revoked(self, card: Card) -> None:
        """What is open with this node ends; asked again it changes nothing."""

    def begin(self, post: Post, own: Membership) -> Reader:
        """The post is about to be opened."""

    def end(self) -> None:
        """The post is closed."""

    def facts(self, node: str) -> PeerFacts: ...
