"""What the native bridge needs of the machine."""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol


class ProcessStart(NamedTuple):
    """A pid alone may be another process's by now."""

    pid: int
    # Clock ticks since boot; 0 where the system does not tell.
    ticks: int


class Left(NamedTuple):
    """A process that a call has left."""

    process: ProcessStart
    command: str


class Machine(Protocol):
    # The user's home, its real path.
    home: str

    def project(self, directory: str) -> str:
        """The real path of the project that a directory belongs to. Blocks."""

    def resolved(self, paths: Sequence[str], *, follow: bool) -> list[str]:
        """Where absolute paths lead; without `follow` a link at the end of one stands for itself. Blocks."""

    def start_of(self, pid: int) -> ProcessStart | None:
        """None when the process is gone, or is another user's."""

    def ticks_now(self) -> int:
        """As the start of a process that starts now; 0 where the system does not tell."""

    def left_by(
        self, client: ProcessStart, since: int, root: str, *, others: Collection[ProcessStart], orphans_only: bool
    ) -> list[Left]:
        """Processes of a call of this client that began at `since`, and still live. Blocks."""

    def is_silenced(self, client: ProcessStart, since: int, directory: str) -> bool:
        """Whether no end of a call that began at `since` in this directory can be reported any more. Blocks."""

    async def gone(self, process: ProcessStart) -> None:
        """Returns when it has ended."""

    def has_terminal(self, pid: int) -> bool:
        """Whether a person sits at this client: it was not started to answer one prompt and end."""

    def calls_in(self, transcript: str) -> frozenset[str]:
        """Ids of the calls that a client's own record of a session names; nothing where it cannot be read. Blocks."""
