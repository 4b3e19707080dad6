"""What the native bridge needs of the machine."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class ProcessStart(NamedTuple):
    """A pid alone may be another process's by now."""

    pid: int
    # Clock ticks since boot; 0 where the system does not tell.
    ticks: int


class Machine(Protocol):
    # The user's home, its real path.
    home: str

    def project(self, directory: str) -> str:
        """The real path of the project that a directory belongs to. Blocks."""

    def resolved(self, paths: Sequence[str], *, follow: bool) -> list[str]:
        """Where absolute paths lead; without `follow` a link at the end of one stands for itself. Blocks."""

    def start_of(self, pid: int) -> ProcessStart | None:
        """None when the process is gone, or is another user's."""

    def has_terminal(self, pid: int) -> bool:
        """Whether a person sits at this client: it was not started to answer one prompt and end."""

    def calls_in(self, transcript: str) -> frozenset[str]:
        """Ids of the calls that a client's own record of a session names; nothing where it cannot be read. Blocks."""
