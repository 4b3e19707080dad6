"""What the house needs from the outside."""

from collections.abc import Awaitable, Mapping
from typing import Protocol

from bascule.kernel.journal import Transaction
from bascule.kernel.ledger import Anchor


class Unlockable(Protocol):
    """A link connection that can be the person's for a while."""

    def unlock(self, seconds: float) -> None: ...

    def unlocked_for(self) -> float | None: ...


class Anchors(Protocol):
    def read(self) -> tuple[list[Anchor], list[str]]: ...


class PolicySource(Protocol):
    """The file in which a person edits the policy."""

    path: str

    def read(self) -> str | None:
        """Its text, None when there is none; `BadPolicy` when it cannot be read."""


class Everything(Protocol):
    """All bridges at once."""

    def stop(self, tx: Transaction, /) -> Mapping[str, Awaitable[str]]:
        """End what each has under way, now; by its name, what comes of it, in words."""

    def resume(self, tx: Transaction, /) -> None: ...
